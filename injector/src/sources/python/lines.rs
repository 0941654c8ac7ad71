// SPDX-License-Identifier: Apache-2.0
// WARM
//! Line numbers: from a position in the bytecode to a line, by the three tables CPython has had
//! since 3.8.

use super::layout::frames::Lines;

/// The line of the instruction at `offset` (bytes; below 0: not begun, the first line). `None`: it
/// has no line, or the table ends before it.
pub(crate) fn line_of(kind: Lines, table: &[u8], first: i64, offset: i64) -> Option<u32> {
    if offset < 0 {
        return u32::try_from(first).ok();
    }
    let line = match kind {
        Lines::Lnotab => Some(lnotab(table, first, offset)),
        Lines::Ranges => ranges(table, first, offset),
        Lines::Locations => locations(table, first, offset),
    };
    line.and_then(|l| u32::try_from(l).ok()).filter(|l| *l > 0)
}

/// Pairs: bytes of code to the next change (unsigned), change of the line (signed).
fn lnotab(table: &[u8], first: i64, offset: i64) -> i64 {
    let (mut line, mut address) = (first, 0);
    for pair in table.chunks_exact(2) {
        let [code, change] = pair else { break };
        address += i64::from(*code);
        if address > offset {
            break;
        }
        line += i64::from(*change as i8);
    }
    line
}

/// Pairs: length of a range in bytes, change of the line; -128: the range has no line and the count
/// goes on.
fn ranges(table: &[u8], first: i64, offset: i64) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        let [length, change] = pair else { break };
        end += i64::from(*length);
        let change = *change as i8;
        if change != -128 {
            line += i64::from(change);
        }
        if offset < end {
            return (change != -128).then_some(line);
        }
    }
    None
}

/// Entries that begin with a byte above 127: kind in bits 3..7, code units less one in bits 0..3,
/// then by kind.
fn locations(table: &[u8], first: i64, offset: i64) -> Option<i64> {
    let (mut line, mut end, mut at) = (first, 0, 0);
    while let Some(&head) = table.get(at) {
        if head & 0x80 == 0 {
            return None;
        }
        let kind = head >> 3 & 15;
        match kind {
            13 | 14 => line += signed(table.get(at + 1..)?)?,
            10..=12 => line += i64::from(kind) - 10,
            _ => {}
        }
        end += (i64::from(head & 7) + 1) * 2;
        if offset < end {
            return (kind != 15).then_some(line);
        }
        // the rest of an entry has its top bit clear
        at += 1;
        while table.get(at).is_some_and(|b| b & 0x80 == 0) {
            at += 1;
        }
    }
    None
}

/// A signed number in groups of six bits, lowest first; bit 6 says that another follows. Bit 0 of
/// it all is the sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let (mut value, mut shift) = (0u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 63).checked_shl(shift)?;
        shift += 6;
        if byte & 64 == 0 {
            let magnitude = (value >> 1) as i64;
            return Some(if value & 1 == 1 { -magnitude } else { magnitude });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lnotab_steps_forwards_and_back() {
        // 0..4 line 10, 4..8 line 12, 8.. line 9
        let table = [4, 2, 4, (-3i8) as u8];
        let line = |offset| line_of(Lines::Lnotab, &table, 10, offset);
        assert_eq!([0, 3, 4, 7, 8, 100].map(line), [10, 10, 12, 12, 9, 9].map(Some));
        assert_eq!(line(-1), Some(10));
    }

    #[test]
    fn ranges_without_a_line_have_none() {
        let table = [4, 0, 2, 0x80, 6, 5];
        let line = |offset| line_of(Lines::Ranges, &table, 10, offset);
        assert_eq!(line(2), Some(10));
        assert_eq!(line(4), None, "no line");
        assert_eq!(line(6), Some(15));
        assert_eq!(line(12), None, "beyond the table");
    }

    #[test]
    fn locations_of_all_kinds() {
        let entry = |kind: u8, units: u8| 0x80 | kind << 3 | (units - 1);
        let table = [
            entry(0, 2),
            0x21, // short: the same line, 0..4
            entry(12, 1),
            1,
            2, // two lines on, 4..6
            entry(13, 1),
            7 << 1 | 1, // seven lines back, 6..8
            entry(14, 8),
            64 | (100 << 1 & 63),
            (100 << 1) >> 6,
            0,
            1,
            2,            // 100 lines on, 8..24
            entry(15, 1), // none, 24..26
            entry(10, 1),
            0,
            0, // the same again, 26..28
        ];
        let line = |offset| line_of(Lines::Locations, &table, 10, offset);
        assert_eq!([0, 2, 4, 6, 8, 22].map(line), [10, 10, 12, 5, 105, 105].map(Some));
        assert_eq!(line(24), None);
        assert_eq!(line(26), Some(105));
        assert_eq!(line(28), None);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 7u64;
        for _ in 0..20_000 {
            let table: Vec<u8> = (0..40)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 33) as u8
                })
                .collect();
            for kind in [Lines::Lnotab, Lines::Ranges, Lines::Locations] {
                for offset in [-1, 0, 30, 5000] {
                    line_of(kind, &table, i64::from(state as i32), offset);
                }
            }
        }
    }
}

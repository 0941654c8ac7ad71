// SPDX-License-Identifier: Apache-2.0
// WARM
//! Python code objects: what a function is called, where it is written, which line an instruction belongs to. Read
//! once a code object. Addresses are used again when code is deleted, so a code object is known by its address and what
//! its head says: from 3.12 on a number that no two share, before that also the hash of its name.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Layout, Lines, TYPE, UNICODE_HASH, UNICODE_LENGTH, UNICODE_STATE};
use super::remote::{i32_at, read, u64_at};

/// Code objects known at most: some 20 MB where each has a long line table.
const MOST: usize = 32_768;
/// Characters of a name or path that are read.
const LONGEST: u64 = 1024;
/// Bytes of a line table that are read: a function of some 60,000 instructions.
const LONGEST_TABLE: u64 = 128 << 10;

/// What tells one code object from another at the same address later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    name: u64,
    name_hash: u64,
    file: u64,
    lines: u64,
    first_line: i32,
    version: i32,
}

/// A code object.
pub(super) struct Code {
    /// The function's name, qualified where the interpreter has that.
    pub(super) name: Arc<str>,
    /// The file as the interpreter names it.
    pub(super) file: Arc<str>,
    first_line: i32,
    table: Box<[u8]>,
    address: u64,
}

/// Those seen.
#[derive(Default)]
pub(super) struct Codes {
    all: Vec<Code>,
    at: HashMap<u64, (Identity, u32)>,
    texts: HashMap<Box<str>, Arc<str>>,
    found: HashMap<(u32, u64), u32>,
}

impl Codes {
    /// Where the name's hash lies of the code object known at this address, if it has to be looked at.
    pub(super) fn hash_of_name(&self, address: u64, layout: &Layout) -> Option<u64> {
        let (identity, _) = self.at.get(&address)?;
        layout.version.is_none().then_some(identity.name + UNICODE_HASH as u64)
    }

    /// The code object at `address`, whose head was read just now; `hash`: what lay at [`Codes::hash_of_name`]. `None`
    /// where it is none, cannot be read, or too many are known.
    pub(super) fn id(
        &mut self,
        address: u64,
        head: &[u8],
        hash: Option<u64>,
        kind: u64,
        layout: &Layout,
    ) -> Option<u32> {
        if u64_at(head, TYPE) != kind {
            return None;
        }
        let mut identity = Identity {
            name: u64_at(head, layout.name),
            name_hash: hash.unwrap_or(0),
            file: u64_at(head, layout.file),
            lines: u64_at(head, layout.lines),
            first_line: i32_at(head, layout.first_line),
            version: layout.version.map_or(0, |at| i32_at(head, at)),
        };
        if let Some((known, id)) = self.at.get(&address) {
            if *known == identity {
                return Some(*id);
            }
        }
        if layout.version.is_none() {
            identity.name_hash = u64_at(&read(identity.name + UNICODE_HASH as u64, 8)?, 0);
        }
        if self.all.len() >= MOST {
            return None;
        }
        let code = Code {
            name: self.shared(text(identity.name, layout)?),
            file: self.shared(text(identity.file, layout)?),
            first_line: identity.first_line,
            table: bytes(identity.lines)?.into(),
            address,
        };
        let id = self.all.len() as u32;
        self.all.push(code);
        self.at.insert(address, (identity, id));
        Some(id)
    }

    fn shared(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = text.as_str().into();
        self.texts.insert(text.into(), Arc::clone(&shared));
        shared
    }

    /// The code object with this id.
    pub(super) fn get(&self, id: u32) -> Option<&Code> {
        self.all.get(id as usize)
    }

    /// The line of an instruction as a frame of `layout` has it; 0 where none is known.
    pub(super) fn line(&mut self, id: u32, instruction: u64, layout: &Layout) -> u32 {
        if let Some(line) = self.found.get(&(id, instruction)) {
            return *line;
        }
        let Some(code) = self.all.get(id as usize) else { return 0 };
        let offset = match layout.lines_as {
            Lines::Lnotab => i64::from(instruction as i32),
            Lines::Linetable => i64::from(instruction as i32) * 2,
            Lines::Locations => {
                let begin = code.address.wrapping_add(layout.instructions.unwrap_or(0) as u64);
                instruction.wrapping_sub(begin) as i64
            }
        };
        // a frame that has not begun stands at the function's own line
        let line = if offset < 0 {
            Some(i64::from(code.first_line))
        } else {
            line(layout.lines_as, &code.table, i64::from(code.first_line), offset)
        };
        let line = line.and_then(|l| u32::try_from(l).ok()).unwrap_or(0);
        if self.found.len() >= 2 * MOST {
            self.found.clear();
        }
        self.found.insert((id, instruction), line);
        line
    }
}

/// The line of the instruction at `offset` (bytes).
fn line(lines_as: Lines, table: &[u8], first: i64, offset: i64) -> Option<i64> {
    match lines_as {
        Lines::Lnotab => {
            let (mut at, mut line) = (0, first);
            for pair in table.chunks_exact(2) {
                let [step, lines] = pair else { break };
                at += i64::from(*step);
                if at > offset {
                    break;
                }
                line += i64::from(*lines as i8);
            }
            Some(line)
        }
        Lines::Linetable => {
            let (mut end, mut line) = (0, first);
            for pair in table.chunks_exact(2) {
                let [step, lines] = pair else { break };
                end += i64::from(*step);
                let has_line = *lines as i8 != i8::MIN;
                if has_line {
                    line += i64::from(*lines as i8);
                }
                if offset < end {
                    return has_line.then_some(line);
                }
            }
            None
        }
        Lines::Locations => location(table, first, offset),
    }
}

/// As [`line`], in the table of 3.11 and newer.
fn location(table: &[u8], first: i64, offset: i64) -> Option<i64> {
    fn varint(rest: &mut std::slice::Iter<'_, u8>) -> Option<i64> {
        let (mut value, mut shift) = (0i64, 0);
        loop {
            let byte = *rest.next()?;
            value |= i64::from(byte & 63).checked_shl(shift)?;
            if byte & 64 == 0 {
                return Some(value);
            }
            shift += 6;
        }
    }
    let signed = |v: i64| if v & 1 == 1 { -(v >> 1) } else { v >> 1 };
    let (mut rest, mut end, mut line) = (table.iter(), 0, first);
    loop {
        let entry = *rest.next()?;
        end += (i64::from(entry & 7) + 1) * 2;
        let kind = entry >> 3 & 15;
        match kind {
            15 => {}
            14 => {
                line += signed(varint(&mut rest)?);
                for _ in 0..3 {
                    varint(&mut rest)?;
                }
            }
            13 => line += signed(varint(&mut rest)?),
            10..=12 => {
                line += i64::from(kind) - 10;
                rest.nth(1)?;
            }
            _ => {
                rest.next()?;
            }
        }
        if offset < end {
            return (kind != 15).then_some(line);
        }
    }
}

/// The string object at `address`.
fn text(address: u64, layout: &Layout) -> Option<String> {
    let head = read(address, layout.ascii)?;
    let state = i32_at(&head, UNICODE_STATE) as u32;
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    let length = u64_at(&head, UNICODE_LENGTH).min(LONGEST);
    if !is_compact || length == 0 || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    // behind the ASCII header: length and pointer of the UTF-8 form, before 3.12 one more length
    let data = if is_ascii { layout.ascii } else { layout.ascii + if layout.ascii == 48 { 24 } else { 16 } };
    let raw = read(address + data as u64, length as usize * width as usize)?;
    let one = |unit: &[u8]| {
        let code = unit.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    Some(raw.chunks_exact(width as usize).map(one).collect())
}

/// The bytes object at `address`.
fn bytes(address: u64) -> Option<Vec<u8>> {
    const DATA: u64 = 32;
    let length = u64_at(&read(address, 24)?, 16);
    match length {
        0 => Some(Vec::new()),
        1..=LONGEST_TABLE => read(address + DATA, length as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_39_and_310() {
        // 6 bytes of line 10, 4 of line 12, 2 of line 11
        assert_eq!(
            [0, 4, 6, 9, 10, 99].map(|at| line(Lines::Lnotab, &[6, 2, 4, 255], 10, at)),
            [10, 10, 12, 12, 11, 11].map(Some)
        );
        let table = [6, 0, 4, 2, 2, 128, 2, 255];
        assert_eq!(
            [0, 5, 6, 9, 10, 12, 13, 14].map(|at| line(Lines::Linetable, &table, 10, at)),
            [Some(10), Some(10), Some(12), Some(12), None, Some(11), Some(11), None]
        );
    }

    #[test]
    fn lines_of_311_and_newer() {
        // a RESUME without columns on the first line; one line on, short; none; three lines back, long
        let table =
            [0x80 | 13 << 3, 0, 0x80 | 11 << 3 | 1, 4, 9, 0x80 | 15 << 3, 0x80 | 14 << 3 | 2, 7, 0, 65, 1, 3];
        let found = [0, 2, 5, 6, 8, 13, 14].map(|at| line(Lines::Locations, &table, 20, at));
        assert_eq!(found, [Some(20), Some(21), Some(21), None, Some(18), Some(18), None]);
        for cut in 0..table.len() {
            let _ = line(Lines::Locations, &table[..cut], 20, 13); // ends, whatever lies there
        }
        let _ = line(Lines::Locations, &[0xff; 64], 20, 1 << 40);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Times and whole numbers from decimal text, exactly: `f64` cannot hold microseconds since 1970
//! with three decimals.

/// Nanoseconds of a text in microseconds: `4337620158978.646` is 4,337,620,158,978,646. Digits
/// beyond the third decimal are rounded half up; exponents are understood; `None` for anything else
/// and beyond about ±292 years.
#[inline]
pub(super) fn nanoseconds(text: &[u8]) -> Option<i64> {
    scaled(text, 3)
}

/// A whole number; decimals are rounded half up.
#[inline]
pub(super) fn whole(text: &[u8]) -> Option<i64> {
    scaled(text, 0)
}

/// `text` times 10^`decimals`.
#[inline]
fn scaled(text: &[u8], decimals: i32) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if let Some(value) = plain(digits, decimals) {
        return signed(negative, value);
    }
    let mut value: u64 = 0;
    let mut after: i32 = -1; // decimals seen, once past the point
    let mut read = 0;
    for (i, &b) in digits.iter().enumerate() {
        match b {
            b'0'..=b'9' if after < decimals => {
                value = value.checked_mul(10)?.checked_add(u64::from(b - b'0'))?;
                after += i32::from(after >= 0);
                read += 1;
            }
            b'0'..=b'9' => {
                return rounded(negative, value, digits.get(i..)?)
                    .or_else(|| exponential(negative, digits, decimals));
            }
            b'.' if after < 0 && read > 0 => after = 0,
            b'e' | b'E' => return exponential(negative, digits, decimals),
            _ => return None,
        }
    }
    if read == 0 {
        return None;
    }
    for _ in after.max(0)..decimals {
        value = value.checked_mul(10)?;
    }
    signed(negative, value)
}

/// What nearly every number is: up to 16 digits in all, a point among them or not, no decimals
/// beyond those that are kept: nothing to round, and nothing that could overflow (16 digits, times
/// 1,000).
#[inline]
fn plain(digits: &[u8], decimals: i32) -> Option<u64> {
    const MAX_DIGITS: usize = 16;
    if digits.is_empty() || digits.len() > MAX_DIGITS + 1 {
        return None;
    }
    let (mut value, mut point) = (0u64, None);
    for (i, &b) in digits.iter().enumerate() {
        match b {
            b'0'..=b'9' => value = value * 10 + u64::from(b - b'0'),
            b'.' if point.is_none() && i > 0 => point = Some(i),
            _ => return None,
        }
    }
    let after = point.map_or(0, |i| digits.len() - i - 1);
    let missing = usize::try_from(decimals).ok()?.checked_sub(after)?;
    let scale = [1, 10, 100, 1000].get(missing)?;
    (digits.len() - usize::from(point.is_some()) <= MAX_DIGITS).then(|| value * scale)
}

/// Behind the decimals that are kept: one that rounds, others that only have to be digits.
fn rounded(negative: bool, value: u64, rest: &[u8]) -> Option<i64> {
    if !rest.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let up = rest.first().is_some_and(|&b| b >= b'5');
    signed(negative, value.checked_add(u64::from(up))?)
}

/// `1.5e+15`.
fn exponential(negative: bool, digits: &[u8], decimals: i32) -> Option<i64> {
    let at = digits.iter().position(|b| matches!(b, b'e' | b'E'))?;
    let exponent: i32 = std::str::from_utf8(digits.get(at + 1..)?).ok()?.parse().ok()?;
    let (mut value, mut after, mut point) = (0u128, 0i32, false);
    for &b in digits.get(..at)? {
        match b {
            b'.' if !point => point = true,
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u128::from(b - b'0'))?;
                after += i32::from(point);
            }
            _ => return None,
        }
    }
    let shift = exponent.checked_add(decimals)?.checked_sub(after)?;
    if value != 0 && shift > 20 {
        return None;
    }
    for _ in 0..shift.clamp(0, 20) {
        value = value.checked_mul(10)?;
    }
    for step in 0..(-shift).clamp(0, 40) {
        let last = step + 1 == -shift;
        value = (value + if last { 5 } else { 0 }) / 10;
    }
    signed(negative, u64::try_from(value).ok()?)
}

fn signed(negative: bool, value: u64) -> Option<i64> {
    let value = i64::try_from(value).ok()?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_become_nanoseconds_exactly() {
        for (text, ns) in [
            ("4337620158978.646", 4_337_620_158_978_646),
            ("1623142623460111", 1_623_142_623_460_111_000),
            ("0.8", 800),
            ("-1", -1_000),
            ("-0.001", -1),
            ("1.9996", 2_000),
            ("1.0004999", 1_000),
            ("7.000", 7_000),
            ("1.623142623460111e15", 1_623_142_623_460_111_000),
            ("15E-1", 1_500),
            ("1e-9", 0),
            ("9999999999999.999", 9_999_999_999_999_999),
            ("99999999999999.999", 99_999_999_999_999_999),
            ("12.", 12_000),
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), Some(ns), "{text}");
        }
        for text in [
            "",
            "-",
            ".",
            ".5",
            "1.2.3",
            "1e",
            "0x10",
            "NaN",
            "null",
            "99999999999999999999",
            "9999999999999999",
            "99999999999999999",
            "1e400",
            "1 ",
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_round() {
        assert_eq!(
            (whole(b"8644246"), whole(b"-1"), whole(b"2.0"), whole(b"2.5")),
            (Some(8_644_246), Some(-1), Some(2), Some(3))
        );
    }
}

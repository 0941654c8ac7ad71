// SPDX-License-Identifier: Apache-2.0
//! Bytes of JSON: numbers, times and escaped text appended to one buffer. No values, no tree, no
//! allocation a number. Runs on the thread that writes the trace; at the program's exit that is the
//! program's own.

/// Two digits of every number below 100, one after the other.
const DIGITS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// The two digits of `n` (below 100; larger values are taken modulo 100).
fn pair(n: u64) -> [u8; 2] {
    let at = (n % 100) as usize * 2;
    [DIGITS[at], DIGITS[at + 1]]
}

/// Appends `n` in decimal.
pub(super) fn put_u64(out: &mut Vec<u8>, mut n: u64) {
    let mut text = [0u8; 20];
    let mut at = text.len();
    while n >= 100 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&pair(n));
        n /= 100;
    }
    if n >= 10 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&pair(n));
    } else {
        at -= 1;
        text[at] = b'0' + n as u8;
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends `ns` as microseconds with exactly three decimals: the unit of Chrome's `ts` and `dur`,
/// exact to the ns for readers that parse it as a double while it is below 2^53 ns (104 days).
pub(super) fn put_micros(out: &mut Vec<u8>, ns: u64) {
    put_u64(out, ns / 1000);
    let rest = ns % 1000;
    let [tens, ones] = pair(rest);
    out.extend_from_slice(&[b'.', b'0' + (rest / 100) as u8, tens, ones]);
}

/// Appends `text` with quotes, escaped: control characters, quote and backslash, and the two line
/// separators that JavaScript does not take in a string. Any Rust string is valid UTF-8, so nothing
/// else needs care.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut done = 0;
    for (i, &b) in bytes.iter().enumerate() {
        let short: &[u8] = match b {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f | 0x7f => b"",
            0xe2 if matches!(bytes.get(i + 1..i + 3), Some([0x80, 0xa8 | 0xa9])) => b"",
            _ => continue,
        };
        if i < done {
            continue; // inside a separator already written
        }
        out.extend_from_slice(&bytes[done..i]);
        if short.is_empty() {
            let (code, width) = match bytes.get(i + 2) {
                Some(&last) if b == 0xe2 => (0x2000 + u32::from(last & 0x3f), 3),
                _ => (u32::from(b), 1),
            };
            out.extend_from_slice(b"\\u");
            for shift in [12, 8, 4, 0] {
                out.push(b"0123456789abcdef"[(code >> shift & 15) as usize]);
            }
            done = i + width;
        } else {
            out.extend_from_slice(short);
            done = i + 1;
        }
    }
    out.extend_from_slice(&bytes[done.min(bytes.len())..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(f: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        let mut n: u64 = 1;
        for _ in 0..200 {
            for v in [n, n - 1, n.wrapping_neg()] {
                assert_eq!(text(|o| put_u64(o, v)), v.to_string());
            }
            n = n.wrapping_mul(3).max(1);
        }
        assert_eq!(text(|o| put_u64(o, u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn times_have_three_decimals_and_every_nanosecond() {
        for (ns, expected) in
            [(0, "0.000"), (7, "0.007"), (70, "0.070"), (1_234, "1.234"), (60_000_000, "60000.000")]
        {
            assert_eq!(text(|o| put_micros(o, ns)), expected);
        }
        for ns in (0..1_000_000u64).step_by(37) {
            let s = text(|o| put_micros(o, ns));
            assert_eq!((s.parse::<f64>().unwrap() * 1000.0).round(), ns as f64, "{s}");
        }
    }

    #[test]
    fn escaped_text_reads_back_as_it_was() {
        let all: String = (0u32..0x250).chain(0x2020..0x2030).filter_map(char::from_u32).collect();
        for s in ["", "plain", "a\"b\\c", "\u{2028}", "x\u{2028}\u{2029}y\u{2027}", "ä\0\u{7f}", all.as_str()]
        {
            let quoted = text(|o| put_text(o, s));
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), s);
            assert!(quoted.bytes().all(|b| b >= 0x20 && b != 0x7f), "{quoted:?}");
            assert!(!quoted.contains('\u{2028}'));
        }
    }
}

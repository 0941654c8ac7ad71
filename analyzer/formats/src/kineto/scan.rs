// SPDX-License-Identifier: Apache-2.0
//! A forward scanner over JSON text: tokens as slices of the input, nothing copied, nothing built.
//!
//! It reads what it is asked for and steps over the rest; it checks the syntax of what it reads,
//! not of what it steps over (there it follows strings and brackets only). Every step moves
//! forward, so it ends on any input.

use memchr::{memchr, memchr2};

/// Where and why the text could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// The text ends here, in the middle of something.
    End(usize),
    /// This byte cannot stand here.
    Syntax(usize),
}

pub(super) type Scanned<T> = Result<T, Bad>;

/// A position in a text.
#[derive(Clone)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A value of the kinds that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    /// The raw text between the quotes, escapes as they stand.
    Text(&'a [u8]),
    /// The raw text of a number (or of true, false, null).
    Bare(&'a [u8]),
    /// An object or array, brackets included.
    Nested(&'a [u8]),
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Scan<'a> {
        Scan { bytes, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, not taken.
    #[inline]
    pub(super) fn peek(&mut self) -> Scanned<u8> {
        while let Some(&b) = self.bytes.get(self.at) {
            if b > b' ' {
                return Ok(b);
            }
            self.at += 1;
        }
        Err(Bad::End(self.at))
    }

    /// Takes `wanted`, which must be next.
    #[inline]
    pub(super) fn expect(&mut self, wanted: u8) -> Scanned<()> {
        if self.peek()? != wanted {
            return Err(Bad::Syntax(self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `wanted` if it is next.
    #[inline]
    pub(super) fn take(&mut self, wanted: u8) -> Scanned<bool> {
        let is = self.peek()? == wanted;
        self.at += usize::from(is);
        Ok(is)
    }

    /// A string's raw text. (Always inlined, as what follows: called for each word of a gigabyte,
    /// and from a few rare places, for which the compiler would make calls of all.)
    #[inline(always)]
    pub(super) fn string(&mut self) -> Scanned<&'a [u8]> {
        self.expect(b'"')?;
        let begin = self.at;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or(&[]);
            match quote_or_escape(rest) {
                Some(n) if rest.get(n) == Some(&b'"') => {
                    let text = self.bytes.get(begin..self.at + n).unwrap_or(&[]);
                    self.at += n + 1;
                    return Ok(text);
                }
                Some(n) => self.at = (self.at + n + 2).min(self.bytes.len()),
                None => return Err(Bad::End(self.bytes.len())),
            }
        }
    }

    /// Any value; nested ones are stepped over whole.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Scanned<Value<'a>> {
        match self.peek()? {
            b'"' => Ok(Value::Text(self.string()?)),
            b'{' | b'[' => Ok(Value::Nested(self.nested()?)),
            b',' | b':' | b'}' | b']' => Err(Bad::Syntax(self.at)),
            _ => {
                let begin = self.at;
                let rest = self.bytes.get(begin..).unwrap_or(&[]);
                let n = rest
                    .iter()
                    .position(|&b| ENDS_A_WORD[usize::from(b)])
                    .ok_or(Bad::End(self.bytes.len()))?;
                self.at += n;
                Ok(Value::Bare(rest.get(..n).unwrap_or(&[])))
            }
        }
    }

    /// An object or array, brackets included; strings inside are respected, brackets only counted.
    fn nested(&mut self) -> Scanned<&'a [u8]> {
        let begin = self.at;
        let mut depth = 0usize;
        while let Some(&b) = self.bytes.get(self.at) {
            self.at += 1;
            match b {
                b'"' => {
                    self.at -= 1;
                    self.string()?;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(self.bytes.get(begin..self.at).unwrap_or(&[]));
                    }
                }
                _ => {}
            }
        }
        Err(Bad::End(self.at))
    }

    /// Walks an object: calls `each` with every key, standing in front of its value, which `each`
    /// must take.
    #[inline(always)]
    pub(super) fn object(
        &mut self,
        mut each: impl FnMut(&'a [u8], &mut Scan<'a>) -> Scanned<()>,
    ) -> Scanned<()> {
        self.expect(b'{')?;
        if self.take(b'}')? {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            each(key, self)?;
            if !self.take(b',')? {
                return self.expect(b'}');
            }
        }
    }
}

/// Bytes that a number, `true`, `false` or `null` ends before.
static ENDS_A_WORD: [bool; 256] = {
    let mut ends = [false; 256];
    let mut b = 0;
    while b < 256 {
        ends[b] = b <= b' ' as usize || matches!(b as u8, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':');
        b += 1;
    }
    ends
};

/// Where a string's text ends or has an escape. Most strings are keys and short names: their words
/// are looked at here, eight bytes at once, before what is longer goes to memchr.
#[inline]
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    const SHORT: usize = 32;
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    // the lowest byte of `word` that equals `b` has its high bit set; none below it has
    let equal = |word: u64, b: u8| {
        let zero = word ^ (EACH * u64::from(b));
        zero.wrapping_sub(EACH) & !zero & (EACH << 7)
    };
    let words = text.get(..SHORT.min(text.len()))?.chunks_exact(8);
    let at = 8 * words.len();
    for (n, word) in words.enumerate() {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let found = equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            return Some(8 * n + found.trailing_zeros() as usize / 8);
        }
    }
    memchr2(b'"', b'\\', text.get(at..)?).map(|n| at + n)
}

/// Where an object whose first key is one of `first` begins at or after `from`: `{`, white space,
/// the key. A quote inside a string is escaped, and behind a string's closing quote stands no
/// letter, so this cannot be found inside a string.
pub(super) fn next_object(bytes: &[u8], from: usize, first: &[&[u8]]) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        let quote = at + memchr(b'"', rest)?;
        at = quote + 1;
        let after = bytes.get(at..)?;
        if !first.iter().any(|key| after.starts_with(key) && after.get(key.len()) == Some(&b'"')) {
            continue;
        }
        let before = bytes.get(..quote)?;
        let brace = before.iter().rposition(|&b| b > b' ')?;
        if bytes.get(brace) == Some(&b'{') && brace >= from {
            return Some(brace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_strings_end_is_found_where_it_is(text in proptest::collection::vec(proptest::sample::select(&b"\"\\!#[]a\x00\xa2\xdc\xff"[..]), 0..80), ones in 0usize..80) {
            let mut all = vec![b'a'; ones];
            all.extend(text);
            let naive = all.iter().position(|&b| b == b'"' || b == b'\\');
            proptest::prop_assert_eq!(quote_or_escape(&all), naive);
        }
    }

    #[test]
    fn values_are_taken_whole_and_nothing_else() {
        let text = br#" { "a" : "x\"}y" , "b":[1,{"c":"]"}], "d":-1.5e3,"e":null } tail"#;
        let mut seen = Vec::new();
        let mut scan = Scan::new(text, 0);
        scan.object(|key, s| {
            seen.push((key.to_vec(), s.value()?));
            Ok(())
        })
        .unwrap();
        let wanted = [
            (b"a".to_vec(), Value::Text(br#"x\"}y"#)),
            (b"b".to_vec(), Value::Nested(br#"[1,{"c":"]"}]"#)),
            (b"d".to_vec(), Value::Bare(b"-1.5e3")),
            (b"e".to_vec(), Value::Bare(b"null")),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(&text[scan.at()..], b" tail");
    }

    #[test]
    fn cut_text_says_so_at_every_length() {
        let text = br#"{"a":"x\\","b":[1,2],"c":{"d":3}}"#;
        let read = |t: &[u8]| Scan::new(t, 0).object(|_, s| s.value().map(drop));
        assert_eq!(read(text), Ok(()));
        for n in 0..text.len() {
            assert!(matches!(read(&text[..n]), Err(Bad::End(_))), "{n}");
        }
    }

    #[test]
    fn an_object_is_not_found_inside_a_string() {
        let text = br#"[{"ph":"X","name":"{\"ph\""},{ "ph":"X"}, {"phx":1}]"#;
        assert_eq!(next_object(text, 0, &[b"ph"]), Some(1));
        let second = text.windows(3).position(|w| w == b"{ \"").unwrap();
        assert_eq!(next_object(text, 2, &[b"ph"]), Some(second));
        assert_eq!(next_object(text, second + 1, &[b"ph"]), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a gzip file holds, as `gzip -d` gives it: members one behind the other are one text; zeros
//! behind the last are padding (tapes and block devices have it); other bytes there are no part of
//! it, and are counted.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::GzDecoder;

use super::Progress;

/// First bytes of a member: magic, and the only method there is.
const MEMBER: &[u8] = &[0x1f, 0x8b, 8];

/// The text of all members.
pub(super) struct Members<'a> {
    member: GzDecoder<&'a [u8]>,
    ended: bool,
    behind: &'a AtomicU64,
    /// Compressed bytes, and who is told how many of them were read.
    bytes: u64,
    told: Option<&'a Progress>,
}

impl<'a> Members<'a> {
    /// `behind` is told how many bytes stand behind the last member, once that is reached.
    pub(super) fn new(bytes: &'a [u8], behind: &'a AtomicU64) -> Members<'a> {
        Members { member: GzDecoder::new(bytes), ended: false, behind, bytes: bytes.len() as u64, told: None }
    }

    /// The same, and tells `progress` how many compressed bytes were read.
    pub(super) fn telling(self, progress: &'a Progress) -> Members<'a> {
        Members { told: Some(progress), ..self }
    }

    /// Bytes that were not read yet.
    pub(super) fn left(&self) -> usize {
        self.member.get_ref().len()
    }

    /// Steps to the next member; whether there is one.
    fn next(&mut self) -> bool {
        let rest = *self.member.get_ref();
        // a member that is cut in its first bytes is one
        let begins = rest.len().min(MEMBER.len());
        if begins > 0 && rest.get(..begins) == MEMBER.get(..begins) {
            self.member = GzDecoder::new(rest);
            return true;
        }
        self.ended = true;
        if rest.iter().any(|&b| b != 0) {
            self.behind.store(rest.len() as u64, Ordering::Relaxed);
        }
        false
    }
}

impl Read for Members<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        while !self.ended {
            match self.member.read(to)? {
                0 if self.next() => {}
                n => {
                    if let Some(progress) = self.told {
                        progress.at(self.bytes - self.left() as u64);
                    }
                    return Ok(n);
                }
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        gz.finish().unwrap()
    }

    /// The text or the kind of error, and the bytes behind it.
    fn read(bytes: &[u8]) -> (Result<String, io::ErrorKind>, u64) {
        let behind = AtomicU64::new(0);
        let mut text = String::new();
        let end = Members::new(bytes, &behind).read_to_string(&mut text);
        (end.map(|_| text).map_err(|e| e.kind()), behind.into_inner())
    }

    #[test]
    fn members_are_one_text_and_what_stands_behind_them_is_counted() {
        let (one, two) = (packed("one "), packed("two"));
        let both = [one.as_slice(), &two].concat();
        let with = |tail: &[u8]| read(&[both.as_slice(), tail].concat());
        let text = || Ok("one two".to_owned());
        assert_eq!(read(&both), (text(), 0));
        assert_eq!(read(&[packed("").as_slice(), &both, &packed("")].concat()), (text(), 0));
        for zeros in [1, 9, 512, 5_000] {
            assert_eq!(with(&vec![0; zeros]), (text(), 0), "{zeros} zeros");
        }
        for tail in [&b"x"[..], b"<html>", b"\r\n", b"\x1f\x8b\x07 another method", b"\0\0x"] {
            assert_eq!(with(tail), (text(), tail.len() as u64), "{tail:?}");
        }
    }

    #[test]
    fn a_member_that_is_cut_is_cut_wherever_it_is() {
        let (one, two) = (packed("one "), packed("two"));
        for cut in 1..two.len() {
            let (end, behind) = read(&[one.as_slice(), &two[..cut]].concat());
            assert_eq!((end, behind), (Err(io::ErrorKind::UnexpectedEof), 0), "{cut} bytes");
        }
        let mut damaged = one.clone();
        let at = damaged.len() - 6;
        damaged[at] ^= 1;
        let (end, _) = read(&damaged);
        assert!(end.is_err_and(|kind| kind != io::ErrorKind::UnexpectedEof));
    }
}

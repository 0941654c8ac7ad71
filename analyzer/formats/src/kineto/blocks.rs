// SPDX-License-Identifier: Apache-2.0
//! The text of a trace in blocks of whole events, so that several threads can read it: slices of a
//! mapped file, or pieces of a compressed one, inflated as they are asked for (the whole text is
//! never in memory).
//!
//! A block ends where an event seems to begin (`scan::next_object`); whoever reads a block sees
//! whether that was right.

use std::io::Read;

use super::scan::next_object;

/// Bytes of a block, about.
pub(super) const BLOCK: usize = 8 << 20;
/// An event longer than this is none: reading a compressed text ends there.
const MOST_EVENT: usize = 256 << 20;
/// What is looked at first of an inflated text.
const HEAD: usize = 1 << 20;

/// Text of whole events.
pub(super) enum Text<'a> {
    Mapped(&'a [u8]),
    Inflated(Vec<u8>),
}

impl Text<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Text::Mapped(b) => b,
            Text::Inflated(b) => b,
        }
    }
}

/// A block and its place in the order of the file.
pub(super) struct Block<'a> {
    pub(super) index: usize,
    pub(super) text: Text<'a>,
    /// No more text comes behind it.
    pub(super) last: bool,
}

/// Where the text comes from.
pub(super) enum Source<'a> {
    Mapped { bytes: &'a [u8], at: usize },
    Inflating { from: Box<dyn Read + Send + 'a>, carry: Vec<u8>, ended: bool },
}

/// Hands out blocks.
pub(super) struct Blocks<'a> {
    source: Source<'a>,
    /// First key of the events, by which their begin is found.
    pub(super) first_key: Vec<u8>,
    /// Bytes of a block, about.
    size: usize,
    next: usize,
    done: bool,
    /// Text handed out, bytes.
    pub(super) bytes: u64,
    /// Why inflating ended early.
    pub(super) damage: Option<std::io::Error>,
}

impl<'a> Blocks<'a> {
    pub(super) fn mapped(bytes: &'a [u8], size: usize) -> Blocks<'a> {
        Blocks::new(Source::Mapped { bytes, at: 0 }, size)
    }

    pub(super) fn inflating(from: Box<dyn Read + Send + 'a>, size: usize) -> Blocks<'a> {
        Blocks::new(Source::Inflating { from, carry: Vec::new(), ended: false }, size)
    }

    fn new(source: Source<'a>, size: usize) -> Blocks<'a> {
        Blocks { source, first_key: Vec::new(), size, next: 0, done: false, bytes: 0, damage: None }
    }

    /// The text at the cursor without taking it, at least `least` bytes of it where there are so
    /// many.
    pub(super) fn look(&mut self, least: usize) -> &[u8] {
        match &mut self.source {
            Source::Mapped { bytes, at } => bytes.get(*at..).unwrap_or(&[]),
            Source::Inflating { from, carry, ended } => {
                fill(from, carry, ended, least.max(HEAD.min(self.size)), &mut self.damage);
                carry
            }
        }
    }

    /// No more text than [`Blocks::look`] showed.
    pub(super) fn is_all(&self) -> bool {
        match &self.source {
            Source::Mapped { .. } => true,
            Source::Inflating { ended, .. } => *ended,
        }
    }

    /// Steps over the first `n` bytes of the text.
    pub(super) fn skip(&mut self, n: usize) {
        self.bytes += n as u64;
        match &mut self.source {
            Source::Mapped { at, .. } => *at += n,
            Source::Inflating { carry, .. } => drop(carry.drain(..n.min(carry.len()))),
        }
    }

    /// The next block.
    pub(super) fn next(&mut self) -> Option<Block<'a>> {
        if self.done {
            return None;
        }
        let (text, last) = match &mut self.source {
            Source::Mapped { bytes, at } => {
                let nominal = at.saturating_add(self.size);
                let end = if nominal < bytes.len() {
                    next_object(bytes, nominal, &[&self.first_key])
                } else {
                    None
                };
                let end = end.unwrap_or(bytes.len());
                let text = bytes.get(*at..end).unwrap_or(&[]);
                *at = end;
                (Text::Mapped(text), end == bytes.len())
            }
            Source::Inflating { from, carry, ended } => {
                let mut wanted = self.size;
                loop {
                    fill(from, carry, ended, wanted, &mut self.damage);
                    if *ended {
                        break (Text::Inflated(std::mem::take(carry)), true);
                    }
                    if let Some(end) = last_object(carry, &self.first_key) {
                        let rest = carry.split_off(end);
                        break (Text::Inflated(std::mem::replace(carry, rest)), false);
                    }
                    wanted += self.size; // one event longer than a block
                    if carry.len() > MOST_EVENT {
                        *ended = true;
                        self.damage = Some(std::io::Error::other("one event without an end"));
                    }
                }
            }
        };
        self.done = last;
        self.bytes += text.bytes().len() as u64;
        self.next += 1;
        Some(Block { index: self.next - 1, text, last })
    }
}

/// Reads until `carry` holds `wanted` bytes or the text ends.
fn fill(
    from: &mut dyn Read,
    carry: &mut Vec<u8>,
    ended: &mut bool,
    wanted: usize,
    damage: &mut Option<std::io::Error>,
) {
    while !*ended && carry.len() < wanted {
        let missing = (wanted - carry.len()) as u64;
        match from.take(missing).read_to_end(carry) {
            Ok(0) => *ended = true,
            Ok(_) => {}
            Err(error) => {
                *ended = true;
                *damage = Some(error);
            }
        }
    }
}

/// Where the last event begins, not the first.
fn last_object(bytes: &[u8], first_key: &[u8]) -> Option<usize> {
    let mut reach = 64 << 10;
    loop {
        let from = bytes.len().saturating_sub(reach);
        let mut found = None;
        let mut at = from;
        while let Some(begin) = next_object(bytes, at, &[first_key]) {
            found = Some(begin);
            at = begin + 1;
        }
        if let Some(begin) = found.filter(|b| *b > 0) {
            return Some(begin);
        }
        if from == 0 {
            return None;
        }
        reach *= 8;
    }
}

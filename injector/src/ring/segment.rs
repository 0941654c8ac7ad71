// SPDX-License-Identifier: Apache-2.0
// WARM (one writer: the drain thread); readers: any thread, lock-free
//! A segment of the recording in memory: 8 header words (see `trace::segment`), then slots. The
//! newest data win: when a segment is written anew its generation is odd, and a reader that copied
//! meanwhile sees that and drops its copy.
//!
//! The payload is relaxed atomic words: a racing read yields words that are thrown away, never
//! undefined behaviour.

use super::sync::{fence, AtomicU64, Ordering};
use trace::segment::SegmentHeader;

/// Header words of a segment.
pub const HEADER_WORDS: usize = 8;

/// One segment's words: header, then payload.
#[derive(Clone, Copy)]
pub struct Cells<'a>(pub &'a [AtomicU64]);

impl Cells<'_> {
    fn cell(&self, i: usize) -> Option<&AtomicU64> {
        self.0.get(i)
    }

    fn put(&self, i: usize, word: u64, order: Ordering) {
        if let Some(c) = self.cell(i) {
            c.store(word, order);
        }
    }

    /// Makes the segment empty and gives it to a track. `header.generation` is the new, even
    /// generation; the old content is gone for readers from here on.
    pub fn begin(&self, header: &SegmentHeader) {
        let words = header.encode();
        let odd = SegmentHeader { generation: header.generation.wrapping_sub(1), ..*header }.encode();
        self.put(0, odd[0], Ordering::Relaxed);
        // Release fence: a reader that sees any word written after this point, and then fences
        // Acquire, sees the odd (or a later) generation.
        fence(Ordering::Release);
        for (i, w) in words.iter().enumerate().skip(1) {
            self.put(i, *w, Ordering::Relaxed);
        }
        // Release pairs with the Acquire load in `snapshot`: who sees the new generation sees
        // `used` = 0 or later.
        self.put(0, words[0], Ordering::Release);
    }

    /// Writes `payload` at word `at` of the payload, then publishes `header` (same generation,
    /// larger `used`).
    pub fn append(&self, at: usize, payload: impl Iterator<Item = u64>, header: &SegmentHeader) {
        for (i, w) in payload.enumerate() {
            self.put(HEADER_WORDS + at + i, w, Ordering::Relaxed);
        }
        let words = header.encode();
        for (i, w) in words.iter().enumerate().skip(2) {
            self.put(i, *w, Ordering::Relaxed);
        }
        // Release pairs with the Acquire load of word 1 in `snapshot`: the payload below `used` is
        // visible.
        self.put(1, words[1], Ordering::Release);
    }

    /// Copies payload from word `from` on into `out`, as the segment was when its header was `then`
    /// (by who has that from the writer, behind a lock); `false` where it was written anew
    /// meanwhile (or is being written).
    pub fn copy(&self, then: &SegmentHeader, from: usize, out: &mut [u64]) -> bool {
        let generation = then.encode()[0];
        for (word, cell) in out.iter_mut().zip(self.0.get(HEADER_WORDS + from..).unwrap_or(&[])) {
            *word = cell.load(Ordering::Relaxed);
        }
        // Acquire fence, then the generation: pairs with the Release fence in `begin`. A word that
        // was copied from a later generation brings the odd one, or a later, with it.
        fence(Ordering::Acquire);
        self.cell(0).map(|c| c.load(Ordering::Relaxed)) == Some(generation)
    }

    /// Copies the whole segment into `out`; `false` where it was written anew meanwhile (or is
    /// being written).
    pub fn snapshot(&self, out: &mut [u64]) -> bool {
        let Some(first) = self.cell(0).map(|c| c.load(Ordering::Acquire)) else { return false };
        if (first >> 32) % 2 == 1 {
            return false;
        }
        let Some(used) = self.cell(1).map(|c| c.load(Ordering::Acquire)) else { return false };
        for (i, (word, cell)) in out.iter_mut().zip(self.0).enumerate() {
            *word = match i {
                0 => first,
                1 => used,
                _ => cell.load(Ordering::Relaxed),
            };
        }
        // Acquire fence, then the generation again: pairs with the Release fence in `begin`.
        fence(Ordering::Acquire);
        self.cell(0).map(|c| c.load(Ordering::Relaxed)) == Some(first)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A segment of two slots (of two words), filled with 2s in generation 2, and read while it is
    /// written anew with 4s in generation 4.
    fn read_beside_a_writer(read: impl Fn(&Cells<'_>, &SegmentHeader) + Sync + Send + 'static) {
        loom::model(move || {
            let words: Arc<Vec<AtomicU64>> =
                Arc::new((0..HEADER_WORDS + 4).map(|_| AtomicU64::new(0)).collect());
            let header =
                |generation, used| SegmentHeader { generation, used, track: 1, ..SegmentHeader::default() };
            Cells(&words).begin(&header(2, 0));
            Cells(&words).append(0, [2, 2, 2, 2].into_iter(), &header(2, 2));
            let writer = {
                let words = Arc::clone(&words);
                loom::thread::spawn(move || {
                    Cells(&words).begin(&header(4, 0));
                    Cells(&words).append(0, [4, 4].into_iter(), &header(4, 1));
                })
            };
            read(&Cells(&words), &header(2, 2));
            writer.join().unwrap();
        });
    }

    /// A reader gets whole events of one generation only. Removing either fence, or the odd
    /// generation, makes this model fail.
    #[test]
    fn a_reader_never_mixes_two_generations() {
        read_beside_a_writer(|cells, _| {
            let mut out = [0u64; HEADER_WORDS + 4];
            if cells.snapshot(&mut out) {
                let (generation, used) = (out[0] >> 32, (out[1] >> 32) as usize);
                for w in &out[HEADER_WORDS..HEADER_WORDS + used * 2] {
                    assert_eq!(*w, generation, "mixed generations: {out:?}");
                }
            }
        });
    }

    /// Who copies it as it stood gets that generation, or nothing.
    #[test]
    fn a_copy_is_of_the_generation_that_is_asked_for() {
        read_beside_a_writer(|cells, then| {
            let mut out = [0u64; 4];
            if cells.copy(then, 0, &mut out) {
                assert_eq!(out, [2; 4], "mixed generations");
            }
        });
    }
}

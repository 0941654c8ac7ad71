// SPDX-License-Identifier: Apache-2.0
// WARM
//! The recording in memory: header and segments as `trace` lays them out, in anonymous pages that
//! are touched only when they are used. One writer (whoever holds the recorder's lock), lock-free
//! readers.

use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};

use trace::header::{HEADER_BYTES, VALID_FROM_AT};
use trace::segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES};
use trace::Source;

use crate::platform::memory;
use crate::ring::segment::Cells;

/// The memory was given back.
static GIVEN_BACK: AtomicBool = AtomicBool::new(false);

/// Was the image's memory given back? Who read it before knows afterwards what that was worth.
pub(crate) fn is_given_back() -> bool {
    GIVEN_BACK.load(Ordering::SeqCst)
}

const HEADER_WORDS: usize = HEADER_BYTES / 8;
const SEGMENT_WORDS: usize = SEGMENT_BYTES / 8;

/// The mapping. Never unmapped; copies of this handle are views of the same memory.
#[derive(Clone, Copy)]
pub(crate) struct Image {
    words: &'static [AtomicU64],
}

impl Image {
    /// Maps room for a header and as many segments as fit into `bytes` (at least 64).
    pub(crate) fn map(bytes: usize) -> Option<Image> {
        let segments = (bytes / SEGMENT_BYTES).max(64);
        let words = HEADER_WORDS + segments * SEGMENT_WORDS;
        let base = memory::map(words * 8, false)?;
        // SAFETY: a zeroed mapping of exactly that many words, never unmapped; zero is a valid
        // atomic.
        let words = unsafe { std::slice::from_raw_parts(base.as_ptr().cast::<AtomicU64>(), words) };
        Some(Image { words })
    }

    /// Segments there are.
    pub(crate) fn segments(&self) -> u32 {
        ((self.words.len() - HEADER_WORDS) / SEGMENT_WORDS) as u32
    }

    /// Bytes of the image.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// One segment.
    pub(crate) fn cells(&self, index: u32) -> Cells<'static> {
        let from = HEADER_WORDS + index as usize * SEGMENT_WORDS;
        Cells(self.words.get(from..from + SEGMENT_WORDS).unwrap_or(&[]))
    }

    /// Stores the header.
    pub(crate) fn put_header(&self, bytes: &[u8; HEADER_BYTES]) {
        for (cell, chunk) in self.words.iter().zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    /// The header's word of how far back the recording is valid: told before the segment that held
    /// what is older is written anew, so that who finds it written anew finds this as well.
    pub(crate) fn put_valid_from(&self, time: u64) {
        if let Some(cell) = self.words.get(VALID_FROM_AT / 8) {
            cell.store(time, Ordering::Relaxed);
            fence(Ordering::Release); // pairs with the fence in `valid_from`
        }
    }

    /// See [`Image::put_valid_from`].
    pub(crate) fn valid_from(&self) -> u64 {
        fence(Ordering::Acquire);
        self.words.get(VALID_FROM_AT / 8).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Gives the memory back to the system: the report has read it, what survives is in the file,
    /// nothing is added any more. The analysis takes its place, so that both together stay within
    /// GAPPROBE_MAX_MB. Only who holds the recorder's lock.
    pub(crate) fn give_back(&self) {
        GIVEN_BACK.store(true, Ordering::SeqCst);
        let address = self.words.as_ptr().cast_mut().cast();
        // SAFETY: a whole private anonymous mapping of ours that stays mapped; its words are
        // atomics, for which the zeros that come after this are values like any other. The caller
        // holds the recorder's lock: nobody writes.
        unsafe { libc::madvise(address, self.bytes(), libc::MADV_DONTNEED) };
    }

    /// Byte offset of a segment.
    pub(crate) fn offset(index: u32) -> usize {
        HEADER_BYTES + index as usize * SEGMENT_BYTES
    }
}

impl Source for Image {
    fn len(&self) -> u64 {
        self.bytes() as u64
    }

    /// Relaxed copies, word by word (offsets and lengths are multiples of 8 in this layout): the
    /// reader checks each segment's generation before and after.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        let (from, count) = ((offset / 8) as usize, out.len().div_ceil(8));
        let Some(words) = self.words.get(from..from.saturating_add(count)) else { return false };
        if offset % 8 != 0 {
            return false;
        }
        // Acquire: pairs with the writer's Release stores of generation and `used`.
        fence(Ordering::Acquire);
        for (chunk, word) in out.chunks_mut(8).zip(words) {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            if let Some(part) = bytes.get(..chunk.len()) {
                chunk.copy_from_slice(part);
            }
        }
        fence(Ordering::Acquire);
        true
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES == crate::ring::segment::HEADER_WORDS * 8);

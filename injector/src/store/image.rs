// SPDX-License-Identifier: Apache-2.0
// WARM
//! The recording in memory: header and segments as `trace` lays them out, in anonymous pages that are touched only
//! when they are used. One writer (whoever holds the recorder's lock), lock-free readers.

use std::sync::atomic::{AtomicU64, Ordering};

use trace::header::HEADER_BYTES;
use trace::segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES};
use trace::Source;

use crate::memory;
use crate::ring::segment::Cells;

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
        // SAFETY: a zeroed mapping of exactly that many words, never unmapped; zero is a valid atomic.
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

    /// Address of byte `offset`, for handing to the kernel (pwrite).
    pub(crate) fn address(&self, offset: usize) -> *const u8 {
        self.words.as_ptr().cast::<u8>().wrapping_add(offset)
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

    /// Relaxed copies, word by word (offsets and lengths are multiples of 8 in this layout): the reader checks each
    /// segment's generation before and after.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        let (from, count) = ((offset / 8) as usize, out.len().div_ceil(8));
        let Some(words) = self.words.get(from..from.saturating_add(count)) else { return false };
        if offset % 8 != 0 {
            return false;
        }
        // Acquire: pairs with the writer's Release stores of generation and `used`.
        std::sync::atomic::fence(Ordering::Acquire);
        for (chunk, word) in out.chunks_mut(8).zip(words) {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            if let Some(part) = bytes.get(..chunk.len()) {
                chunk.copy_from_slice(part);
            }
        }
        std::sync::atomic::fence(Ordering::Acquire);
        true
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES == crate::ring::segment::HEADER_WORDS * 8);

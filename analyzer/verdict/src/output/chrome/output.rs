// SPDX-License-Identifier: Apache-2.0
//! The stream of events on its way out: a block of text being filled, the size limit, the deadline.

use std::io::Write;
use std::time::Instant;

use super::json::put_u64;
use super::sink::{Sink, BLOCK_BYTES};
use super::WriteError;

/// Kept free below the size limit for what is still under way to the compressor (eight blocks,
/// compressed to a fifth or less) and for the end of the file, bytes.
pub(super) const RESERVE: u64 = 900_000;

/// Takes events as bytes.
pub(super) struct Output<W: Write> {
    /// The text being filled.
    pub(super) block: Vec<u8>,
    /// Events ended.
    pub(super) events: u64,
    sink: Sink<W>,
    limit: u64,
    deadline: Option<Instant>,
    full: bool,
}

impl<W: Write> Output<W> {
    /// An output of at most `limit` compressed bytes.
    pub(super) fn new(writer: W, threaded: bool, limit: u64, deadline: Option<Instant>) -> Output<W> {
        Output {
            block: Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 4),
            events: 0,
            sink: Sink::new(writer, threaded),
            limit: limit.saturating_sub(RESERVE),
            deadline,
            full: false,
        }
    }

    /// Nothing that can be left out should be written any more.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Appends bytes of JSON.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    /// Appends `key` and a number.
    pub(super) fn number(&mut self, key: &[u8], n: u64) {
        self.block.extend_from_slice(key);
        put_u64(&mut self.block, n);
    }

    /// Ends the event begun.
    pub(super) fn end(&mut self) -> Result<(), WriteError> {
        self.block.extend_from_slice(b"},\n");
        self.events += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands the block over; looks at limit and clock.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        self.sink.take(&mut self.block)?;
        self.full = self.sink.written() >= self.limit;
        match self.deadline {
            Some(t) if Instant::now() >= t => Err(WriteError::Late),
            _ => Ok(()),
        }
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> Result<(W, u64), WriteError> {
        self.flush()?;
        Ok(self.sink.finish()?)
    }
}

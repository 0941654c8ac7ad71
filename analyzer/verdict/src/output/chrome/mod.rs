// SPDX-License-Identifier: Apache-2.0
//! The trace file: Chrome JSON, gzip, as Perfetto and chrome://tracing open it.
//!
//! ```text
//! chrome.rs           what is asked for, what was written
//! chrome/document.rs  the order of things in the file
//! chrome/cursors.rs   how far it has been written
//! chrome/essential.rs what is in it in any case when it grows too large
//! chrome/facts.rs     what is known beside the events, for who reads the trace again
//! chrome/tracks.rs    which track has which number and name
//! chrome/slices.rs    one event each: GPU op, call, range, step, idle slice
//! chrome/counters.rs  GPU busy, queue depth
//! chrome/texts.rs     the parts of events that repeat, made once (names by chrome/name.rs)
//! chrome/lane.rs      extra lanes, so that no two slices of a track cross
//! chrome/output.rs    blocks, the size limit, the deadline; chrome/json.rs bytes; chrome/sink.rs gzip
//! ```
//! Nothing here decides anything: it draws what `run/` holds and `analysis/` has. Streaming:
//! memory does not grow with the run but for one bit an event where the size limit is near. Runs at
//! the program's exit, on its thread and one more, and in `gapprobe`.

use std::io::{self, Write};
use std::time::Instant;

use crate::analysis::Analysis;
use crate::run::Run;

mod counters;
mod cursors;
pub mod document;
mod essential;
pub mod facts;
mod json;
mod lane;
mod output;
mod sink;
mod slices;
mod texts;
mod tracks;

/// Compressed size the file is kept under, bytes.
pub const MAX_BYTES: u64 = 50_000_000;

/// How a trace is to be written.
#[derive(Clone, Copy)]
pub struct ChromeOptions<'a> {
    /// Compressed bytes at most; what is left out then is named in the file. At least 1.8 MB.
    pub max_bytes: u64,
    /// Give up at this moment.
    pub deadline: Option<Instant>,
    /// Compress on a second thread, where one can be had.
    pub threaded: bool,
    /// Text for `otherData`: the line.
    pub line: &'a str,
    /// Told from time to time: events seen, events there are.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl Default for ChromeOptions<'_> {
    fn default() -> Self {
        ChromeOptions { max_bytes: MAX_BYTES, deadline: None, threaded: true, line: "", progress: None }
    }
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// JSON events of all kinds.
    pub events: u64,
    /// Compressed bytes.
    pub bytes: u64,
    /// Slices of GPU operations.
    pub ops: u64,
    /// Slices of API calls.
    pub calls: u64,
    /// Named ranges.
    pub ranges: u64,
    /// GPU operations left out at the size limit.
    pub ops_left_out: u64,
    /// API calls left out at the size limit.
    pub calls_left_out: u64,
    /// Named ranges left out at the size limit.
    pub ranges_left_out: u64,
    /// Idle slices left out at the size limit (the shortest first).
    pub gaps_left_out: u64,
}

impl Written {
    /// Operations, calls and ranges that the recording has and the trace has not.
    pub fn left_out(&self) -> u64 {
        self.ops_left_out + self.calls_left_out + self.ranges_left_out
    }
}

/// Why there is no trace.
#[derive(Debug)]
pub enum WriteError {
    /// The file could not be written.
    Io(io::Error),
    /// The deadline came first.
    Late,
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> WriteError {
        WriteError::Io(e)
    }
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteError::Io(e) => e.fmt(f),
            WriteError::Late => f.write_str("no time left"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Writes the trace of `run` into `writer` and gives the writer back.
///
/// # Errors
/// What the writer returned, or [`WriteError::Late`]; the bytes written until then are no whole
/// trace.
pub fn write<W: Write>(
    run: &Run,
    analysis: &Analysis,
    writer: W,
    options: &ChromeOptions<'_>,
) -> Result<(W, Written), WriteError> {
    document::write(run, analysis, writer, options)
}

// SPDX-License-Identifier: Apache-2.0
//! From a recording to the reason the GPU was idle.
//!
//! ```text
//! load/       bytes -> run/: the facts, compact and joined
//! sites/      whose line a call stack stands in; symbols/ functions and lines of machine code
//! steps/      marks, ranges, or periods of the launch sequence
//! timeline/   what a device did when: compute | copy only | collective only | gap
//! gaps/       where each gap's time goes
//! replay/     what a fix would win
//! analysis/   the result's types
//! causes/     one cause a file: what was seen, as facts; what to change
//! analyze/    all of it in order
//! output/     the line and its evidence, the summary, the trace; a recording's files
//! text/       names, counts and times for people; stats.rs shares and middle values
//! ```
//! Which of them may use which: `tests/scenarios/tests/rooms.rs`. Linked into the training process
//! for its exit (without features), and into `gapprobe`. Nothing here panics on hostile input or
//! grows beyond a small multiple of the recording.
#![deny(unsafe_code)]

pub mod analysis;
pub mod analyze;
pub mod causes;
pub mod gaps;
pub mod load;
pub mod output;
pub mod replay;
pub mod run;
pub mod sites;
pub mod stats;
pub mod steps;
pub mod symbols;
pub mod text;
pub mod timeline;

pub use analysis::Analysis;
pub use analyze::{analyze, analyze_by};
pub use load::{load, load_newest, load_window, Window};
pub use run::{LoadError, Run};

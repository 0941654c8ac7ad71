// SPDX-License-Identifier: Apache-2.0
//! From a recording to the reason the GPU was idle.
//!
//! ```text
//! load.rs       bytes -> run.rs: the facts, compact and joined
//! steps/        marks, ranges, or periods of the launch sequence
//! timeline.rs   what a device did when: compute | copy only | collective only | gap
//! gaps/         where each gap's time goes
//! replay/       what a fix would win
//! sites/        whose line a call stack stands in
//! causes/       one cause a file: what was seen, as facts; what to change
//! analyze.rs    all of it in order -> analysis.rs (the result's types)
//! sentence.rs   the one line; line.rs its evidence; evidence.rs facts in words
//! array_waits.rs  waits that no CUDA call shows (JAX)
//! missing_kernels.rs  launches whose kernels a foreign trace lost (calls: formats/uncalled.rs)
//! live/         the newest seconds of a process that runs
//! liveness.rs   is the process that made a file still there? socket_probe.rs: does it listen?
//! chrome.rs     the trace file; summary.rs the figures as JSON; report.rs recording -> files and line
//! symbols.rs    functions and lines of machine code that called CUDA
//! tables/       tables of a run, as nsys stats has them, and our own
//! phases/       dataload, forward, backward, optimizer of a step
//! plural.rs     counts in sentences
//! escape.rs    names that others chose, safe to show; terminal_width.rs text in the room there is
//! ```
//! Linked into the training process for its exit (without features), and into `gapprobe`.
//! Nothing here panics on hostile input or grows beyond a small multiple of the recording.
#![deny(unsafe_code)]

pub mod analysis;
pub mod analyze;
pub mod causes;
#[cfg(feature = "cli")]
pub mod compare;
#[cfg(feature = "cli")]
pub mod export;
#[cfg(feature = "readers")]
pub mod fleet;
#[cfg(feature = "readers")]
pub mod formats;
pub mod gaps;
#[cfg(feature = "cli")]
pub mod html;
#[cfg(feature = "cli")]
mod kernel_class;
#[cfg(feature = "cli")]
pub mod live;
pub mod load;
#[cfg(feature = "cli")]
pub mod lost;
pub mod output;
#[cfg(feature = "cli")]
pub mod overview;
#[cfg(feature = "cli")]
pub mod phases;
pub mod replay;
pub mod run;
pub mod sites;
pub mod spool;
pub mod stats;
pub mod steps;
pub mod symbols;
#[cfg(feature = "cli")]
pub mod tables;
pub mod text;
pub mod timeline;

pub use analysis::Analysis;
pub use analyze::{analyze, analyze_by};
pub use load::{load, load_newest, load_window, Window};
pub use run::{LoadError, Run};

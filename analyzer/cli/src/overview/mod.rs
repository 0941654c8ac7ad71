// SPDX-License-Identifier: Apache-2.0
//! A trace on one screen: the verdict and what it rests on, and what was looked at and costs
//! nothing. `gapprobe analyze` prints it.
//!
//! `screen.rs` puts it together, `page.rs` lays it out, `rows.rs` reads the tables it quotes,
//! `ncu.rs` makes the command for the next question of a GPU-bound program; `gauges.rs` what NVML
//! says beside it; `whence.rs` the call stack of the verdict's line; `json.rs` is the same for
//! programs. Figures come from the analysis and from `tables/`; nothing is computed here that they
//! do not have.

mod gauges;
mod json;
mod ncu;
mod page;
mod rows;
mod screen;
mod whence;

pub use json::json;
pub use ncu::command as next;
pub use screen::{buckets, screen};
pub use whence::stack;

use formats::Input;
use verdict::analysis::Analysis;
use verdict::run::Run;

use crate::tables::Source;

/// What an overview is made of.
pub struct Overview<'a> {
    /// The file's name, as given.
    pub file: &'a str,
    /// What was read.
    pub input: &'a Input,
    /// The run's tables and analysis.
    pub source: &'a Source<'a>,
}

/// What the GPU says of itself (NVML) beside what it did, in sentences; none of a trace without
/// readings.
pub fn gauges(run: &Run, analysis: &Analysis) -> Vec<String> {
    let device = analysis.worst.and_then(|w| analysis.devices.get(w));
    device.map_or_else(Vec::new, |d| gauges::Gauges::of(run, analysis, d).sentences(d.busy_share()))
}

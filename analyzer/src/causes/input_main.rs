// SPDX-License-Identifier: Apache-2.0
//! GP111 INPUT-MAIN: the launching thread reads the data itself.
//!
//! # What it means
//! The DataLoader has no workers (`num_workers=0`): samples are read, decoded and collated by the thread that feeds the
//! GPU, while the GPU waits.
//!
//! # How it is recognised
//! As GP110 INPUT, known from a range or from samples; and at least half of the samples of the launching thread's stack in
//! these stretches stand below a loader that works in the same thread. The line is the data set's own.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! `DataLoader(num_workers=N, pin_memory=True, persistent_workers=True)`; the line named is what
//! costs: cheaper decoding, cached results. N is told: what fetching a batch takes by the step time
//! without the wait, rounded up; where that is more than the CPUs the process may use, workers
//! alone do not do, and no step is promised that is shorter than the CPU time of a batch by these
//! CPUs.

use super::{input, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP111";
/// Name in the line.
pub const NAME: &str = "INPUT-MAIN";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(case, (CODE, NAME), input::WITH_WORKERS)?;
    input::advise_workers(case, &mut f);
    Some(f)
}

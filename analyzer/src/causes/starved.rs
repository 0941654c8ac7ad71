// SPDX-License-Identifier: Apache-2.0
//! GP125 CPU-STARVED: the launching thread is given no CPU.
//!
//! # What it means
//! The thread that feeds the GPU wants to run and waits: more threads than cores, a CPU quota of the container, a neighbour.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches waited for a CPU for more than half
//! of the time they stand for (the kernel's run-queue time). Time in which a cgroup's quota stopped the process is told with it.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! More CPUs for the job (`--cpus-per-task`, the container's limit); fewer DataLoader workers and threads
//! (`OMP_NUM_THREADS`, `torch.set_num_threads`): no more in all than there are cores; pin the launching thread.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP125";
/// Name in the line.
pub const NAME: &str = "CPU-STARVED";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(case, (CODE, NAME), "more CPUs for the job, or fewer threads and workers (OMP_NUM_THREADS)")
}

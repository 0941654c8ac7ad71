// SPDX-License-Identifier: Apache-2.0
//! GP125 CPU-STARVED: the launching thread is runnable but not scheduled (too few CPUs).
//!
//! # What it means
//! The thread that feeds the GPU wants to run and waits: more threads than cores, a CPU quota of the container, a neighbour.
//!
//! # How it is recognised
//! As GP105 HOST; and samples of the launching thread's stack in these stretches waited for a CPU
//! for more than half of the time they stand for (the kernel's run-queue time). Such a thread does
//! something else in the samples between: they need not be half of all, but 5 or more, and their
//! part has to be worth 10 % of the step.
//!
//! Told with it: the CPUs that the process may use (its affinity, or its cgroup's quota where that
//! is less); how many its children use, and its threads that call CUDA, and how many more these
//! wait for; the time in which the quota stopped the process. Threads that call no CUDA, and how
//! long children wait for a CPU, are not recorded.
//!
//! # How sure
//! Samples are taken about every 10 ms: what they show is so, how long each piece took is not
//! measured. Where the CPUs are all in use (90 %), nothing is promised: fewer who share them get no
//! more done, and how many more would do is not known.
//!
//! # What to change
//! The quota stopped it: a larger one (`docker --cpus`, `limits.cpu`). More workers and threads
//! than CPUs: fewer DataLoader workers, fewer threads (`OMP_NUM_THREADS`, `torch.set_num_threads`),
//! no more in all than there are CPUs. All CPUs in use: more CPUs for the job (`--cpus-per-task`),
//! or less for them to do. Else another program has them: pin the launching thread, or look who it
//! is.

use super::cpus::Cpus;
use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP125";
/// Name in the line.
pub const NAME: &str = "CPU-STARVED";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = host::of_kind(case, (CODE, NAME), "")?;
    Cpus::of(case).explain(&mut f);
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP125 CPU-STARVED: the launching thread is runnable but not scheduled (too few CPUs).
//!
//! # What it means
//! The thread that feeds the GPU is ready to run and waits for a CPU. There are more threads than
//! CPUs, the container has a CPU quota, or another program uses the CPUs.
//!
//! # How it is recognised
//! The host is late, as in GP105 HOST. In 5 samples or more of the launching thread's stack, the
//! thread waited for a CPU for at least half of the time (the kernel's run-queue time). Such
//! samples can be fewer than half of all, as the thread runs in between. Their part is worth 10% of
//! the step.
//!
//! The text says how many CPUs the process may use (its affinity, or its cgroup's quota where that
//! is less). It says how many of them its children and its threads that call CUDA use, and how many
//! more those threads wait for. It says how long the quota stopped the process. Threads that call
//! no CUDA are not recorded, nor how long children wait for a CPU.
//!
//! # How sure
//! Samples are taken about every 10 ms. What they show is what happened; how long each piece took
//! is not measured.
//!
//! Where 90% of the CPUs are in use, no step time is promised: fewer threads get no more done, and
//! what more CPUs would win is not known. Where a quota stopped the process, one is promised all
//! the same.
//!
//! # Example
//! ```python
//! # slow: 32 workers compete with the launching thread for 8 CPUs
//! loader = DataLoader(dataset, num_workers=32)
//!
//! # fixed: no more workers and threads than CPUs (a cgroup quota may allow fewer)
//! torch.set_num_threads(1)
//! loader = DataLoader(dataset, num_workers=max(1, len(os.sched_getaffinity(0)) - 2))
//! ```
//!
//! # What to change
//! - The quota stopped it: ask for a larger one (`docker --cpus`, Kubernetes `limits.cpu`).
//! - More workers and threads than CPUs: use fewer (`num_workers`, `OMP_NUM_THREADS`).
//! - All CPUs in use: more CPUs for the job (`--cpus-per-task`), or less work for them.
//! - Otherwise another program uses them: find it, or pin the launching thread to a CPU.

use super::cpus::Cpus;
use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP125";
/// Name in the line.
pub const NAME: &str = "CPU-STARVED";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = host::of_kind(case, (CODE, NAME), Advice::default())?;
    Cpus::of(case).explain(&mut f);
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP112 INPUT-WORKERS: the loader's workers cannot keep up.
//!
//! # What it means
//! The launching thread waits for the DataLoader's workers, and these compute all the time. There
//! are too few of them, or each sample costs too much CPU time.
//!
//! # How it is recognised
//! As GP110 INPUT, and at least half of the launching thread's stack samples (of 5 or more) wait
//! for workers. The workers, known by their stacks, are on a CPU for 70% of the time or more. Or
//! all CPUs of the process are in use, and the workers have at least half of what is used. In use
//! means: 90% of the CPUs allowed, or threads that call CUDA wait for a CPU as long as they have
//! one. If most of their time goes to the collate function, it is GP116 INPUT-COLLATE.
//!
//! # How sure
//! Samples are about 10 ms apart. They show what most of the time goes to, not how long each piece
//! takes. Without 5 samples, half of which agree, it is GP110 INPUT if a range shows the fetching,
//! else GP105 HOST. No step is promised that is shorter than the workers' CPU time in it divided by
//! the CPUs. If all CPUs are in use, nothing is promised.
//!
//! # Example
//! ```python
//! # slow: two workers, where the text says that 5 would keep up
//! loader = DataLoader(dataset, batch_size=64, num_workers=2)
//! # fixed
//! loader = DataLoader(dataset, batch_size=64, num_workers=5, persistent_workers=True)
//! ```
//!
//! # What to change
//! Use more workers, up to the CPUs of the process. The text says how many would keep up: their CPU
//! time per step divided by the step time without the wait, rounded up. Beyond that make samples
//! cheaper: cheaper decoding, smaller images on disk, decoding on the GPU (DALI, nvJPEG), cached
//! results. The text names the line where the workers spend most of their time, if their stacks
//! show one.

use super::cpus::Cpus;
use super::input::Worked;
use super::workers::Workers;
use super::{input, Case};
use crate::analysis::{Fact, Finding};

/// Stable code.
pub const CODE: &str = "GP112";
/// Name in the line.
pub const NAME: &str = "INPUT-WORKERS";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(case, (CODE, NAME), input::MORE_WORKERS)?;
    let workers = Workers::of(case);
    f.facts.say(workers.on_cpus());
    let cpus = Cpus::of(case);
    if cpus.are_contended() {
        f.advice = input::ALL_IN_USE;
    } else if let Some(n) = workers.wanted(case, f.win.share()) {
        // a worker with threads of its own uses more than one
        let n_workers = (n as f64 / workers.on_cpu.max(1.0)).ceil() as u64;
        let keep_up = Fact::new(", {wanted} would keep up").with("wanted", n_workers);
        if cpus.are_fewer_than(n as f64) {
            f.advice = input::BEYOND_CPUS;
            f.facts.add([keep_up, cpus.there_are()]);
        } else if n_workers > workers.count {
            f.facts.say(keep_up);
        }
    }
    f.facts.add(Worked::of(case).at());
    Some(f)
}

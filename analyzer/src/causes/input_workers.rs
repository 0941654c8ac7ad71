// SPDX-License-Identifier: Apache-2.0
//! GP112 INPUT-WORKERS: the loader's workers cannot keep up.
//!
//! # What it means
//! The launching thread waits for the DataLoader's workers, and these compute all the time: there are too few, or each
//! sample costs too much CPU.
//!
//! # How it is recognised
//! As GP110 INPUT; at least half of the samples of the launching thread's stack in these stretches
//! wait for workers; and the workers (child processes seen in the loop of PyTorch's worker by their
//! stacks) are on a CPU for 70 % of the time or more. Or the CPUs are all in use, and half or more
//! of what the program uses of them is theirs: each has less of one than it could use. (In use: 90
//! % of those allowed, by its children and by its threads that call CUDA; or these wait for one as
//! long as they have one.) How many would keep up: their CPU time a step by the step time without
//! the wait, rounded up; no more than the CPUs the process may use. No step is promised that is
//! shorter than their CPU time in it by the CPUs there are, and where these are all in use nothing
//! is promised. Where workers run the same Python, their own stacks tell the line most of their
//! time goes to; most of it in the collate function is GP116 INPUT-COLLATE.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! More workers up to the CPUs that the process may use; beyond that no more of them: cheaper
//! decoding, smaller images on disk, decoding on the GPU (DALI, nvJPEG), cached results.

use std::fmt::Write;

use super::cpus::Cpus;
use super::input::Worked;
use super::workers::Workers;
use super::{input, Case};
use crate::analysis::Finding;
use crate::plural::counted;

/// Stable code.
pub const CODE: &str = "GP112";
/// Name in the line.
pub const NAME: &str = "INPUT-WORKERS";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(case, (CODE, NAME), input::MORE_WORKERS)?;
    let workers = Workers::of(case);
    let _ =
        write!(f.text, "; {}, {:.0} % on a CPU", counted(workers.count, "worker"), workers.on_cpu * 100.0);
    let cpus = Cpus::of(case);
    if cpus.are_contended() {
        f.fix = input::ALL_IN_USE;
    } else if let Some(n) = workers.wanted(case, f.win.share()) {
        // a worker with threads of its own uses more than one
        let n_workers = (n as f64 / workers.on_cpu.max(1.0)).ceil() as u64;
        if cpus.are_fewer_than(n as f64) {
            f.fix = input::BEYOND_CPUS;
            let _ = write!(f.text, ", {n_workers} would keep up and {}", cpus.say_there_are());
        } else if n_workers > workers.count {
            let _ = write!(f.text, ", {n_workers} would keep up");
        }
    }
    f.text.push_str(&Worked::of(case).say());
    Some(f)
}

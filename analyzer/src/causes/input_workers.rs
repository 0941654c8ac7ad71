// SPDX-License-Identifier: Apache-2.0
//! GP112 INPUT-WORKERS: the loader's workers cannot keep up.
//!
//! # What it means
//! The launching thread waits for the DataLoader's workers, and these compute all the time: there are too few, or each
//! sample costs too much CPU.
//!
//! # How it is recognised
//! As GP110 INPUT; at least half of the samples of the launching thread's stack in these stretches wait for workers; and the
//! workers (child processes seen in the loop of PyTorch's worker by their stacks) are on a CPU for 70 % of the time or more. How many would keep up: their CPU time a step by the step time
//! without the wait, rounded up; no more than the CPUs the process may use. Where workers run the same Python, their own stacks tell the line most
//! of their time goes to; most of it in the collate function is GP116 INPUT-COLLATE.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! More workers up to the cores there are; beyond that cheaper decoding, smaller images on disk, decoding on the GPU (DALI,
//! nvJPEG), cached results.

use std::fmt::Write;

use super::input::{Worked, Workers};
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
    if let Some(n) = workers.wanted(case, f.win) {
        let cpus = u64::from(case.run.header.cpus);
        // a worker with threads of its own uses more than one
        let each = workers.on_cpu.max(1.0);
        let (needs, n) = (n, (n as f64 / each).ceil() as u64);
        if cpus > 0 && cpus as f64 <= workers.count as f64 * each {
            f.fix =
                "the CPUs are all in use: decode on the GPU, cache decoded data, or make a sample cheaper";
        } else if cpus > 0 && needs > cpus {
            f.fix = input::BEYOND_CPUS;
            let _ = write!(f.text, ", {n} would keep up and there are {cpus} CPUs");
        } else if n > workers.count {
            let _ = write!(f.text, ", {n} would keep up");
        }
    }
    f.text.push_str(&Worked::of(case).say());
    Some(f)
}

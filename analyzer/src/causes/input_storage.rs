// SPDX-License-Identifier: Apache-2.0
//! GP113 INPUT-STORAGE: the data comes from a disk or network that is too slow.
//!
//! # What it means
//! Whoever reads the data, the workers or the launching thread itself, waits for storage most of the time; more CPUs would
//! not help.
//!
//! # How it is recognised
//! As GP110 INPUT; and either the launching thread waits for workers (child processes seen in the loop of PyTorch's worker by their stacks) that are blocked on a disk for 30 % of the time or
//! more; or use less than half a CPU each and read 1 MiB/s or more in all, or are blocked until a file, a socket or a page of memory has data in half of the time (5 samples or more) in
//! which they fetch or are blocked in something else, while no other child computes. Or it reads itself and is blocked reading in half of these samples.
//! How many workers would keep up: as many more as the step is longer than it would be without the wait, times the part of the time that they fetch.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! Copy the data to a local disk or memory, pack many small files into a few large ones (WebDataset, tar, Parquet), read ahead
//! with more workers (they wait in parallel), cache.

use std::fmt::Write;

use super::worker_waits::Waited;
use super::workers::Workers;
use super::{input, Case};
use crate::analysis::Finding;
use crate::plural::counted;

/// Stable code.
pub const CODE: &str = "GP113";
/// Name in the line.
pub const NAME: &str = "INPUT-STORAGE";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        "copy the data to a local disk, pack small files together; more workers wait in parallel",
    )?;
    let workers = Workers::of(case);
    if workers.count > 0 {
        let (n, rate) = (workers.count, workers.read_rate / 1e6);
        let _ = write!(f.text, "; {}, {:.0} % on a CPU", counted(n, "worker"), workers.on_cpu * 100.0);
        let waited = Waited::of(case, &workers);
        if waited.is_storage() {
            f.text.push_str(&waited.say());
            let share = waited.fetch_share().unwrap_or(0.0);
            let wanted = (n as f64 * share / (1.0 - f.win.share()).max(0.01)).ceil() as u64;
            if wanted > n {
                let _ =
                    write!(f.text, "; {wanted} would keep up if what they wait for serves as many at a time");
            }
        } else {
            let _ = write!(f.text, ", {rate:.0} MB/s");
        }
    }
    Some(f)
}

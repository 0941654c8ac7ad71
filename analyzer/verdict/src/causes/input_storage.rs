// SPDX-License-Identifier: Apache-2.0
//! GP113 INPUT-STORAGE: the data comes from a disk or network that is too slow.
//!
//! # What it means
//! Whoever reads the data, the DataLoader's workers or the launching thread itself, waits for
//! storage most of the time. More CPUs do not help.
//!
//! # How it is recognised
//! The GPU waits for input (GP110 INPUT). Either the launching thread reads the data itself, and is
//! blocked reading in at least half of those samples. Or it waits for workers (child processes
//! whose stacks are in the loop of PyTorch's worker), and these
//! - are blocked on a disk for 30% of the time or more; or
//! - use less than half a CPU each and read 1 MiB/s or more in all, while CPUs are free; or
//! - use less than half a CPU each and, for half of the time in which they fetch or are blocked in
//!   something else, wait for a file, a socket or a page of memory (5 samples or more), while no
//!   other child process computes.
//!
//! # How sure
//! Samples are taken about every 10 ms, of the workers one every 40 ms in turn. What most of them
//! show is certain; how long each read took is not measured. With fewer than 5 samples, or less
//! than half agreeing, it is GP110 INPUT, or GP105 HOST where nothing else shows that data was
//! fetched.
//!
//! "N would keep up" holds only if the storage serves N reads at a time. Waits for pages of memory
//! may also mean that there is too little memory; no number of workers is given then.
//!
//! # Example
//! ```python
//! # slow: 4 workers read small files from a network disk, each waits for one file at a time
//! data = torchvision.datasets.ImageFolder("/mnt/nfs/train", transform)
//! loader = DataLoader(data, batch_size=64, num_workers=4)
//! # fixed: copied to the local disk once
//! shutil.copytree("/mnt/nfs/train", "/local/train", dirs_exist_ok=True)
//! data = torchvision.datasets.ImageFolder("/local/train", transform)
//! loader = DataLoader(data, batch_size=64, num_workers=4)
//! ```
//!
//! # What to change
//! Copy the data to a local disk or to memory. Pack many small files into a few large ones
//! (WebDataset, tar, Parquet). Read ahead with more workers, which wait in parallel. Cache what was
//! read.

use super::worker_waits::Waited;
use super::workers::Workers;
use super::{input, Case};
use crate::analysis::{Advice, Fact, Figure, Finding};

/// Stable code.
pub const CODE: &str = "GP113";
/// Name in the line.
pub const NAME: &str = "INPUT-STORAGE";

/// Whether it is this kind: `input.rs`, `kind`. Workers that keep up: as many more as the step is
/// longer than it would be without the wait, times the part of their time in which they fetch.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "more workers, or a local copy",
            "copy the data to a local disk, pack small files together; more workers wait in parallel",
        ),
    )?;
    let workers = Workers::of(case);
    if workers.count > 0 {
        f.facts.say(workers.on_cpus());
        let waited = Waited::of(case, &workers);
        if waited.is_storage() {
            f.facts.add(waited.facts());
            let share = waited.fetch_share().unwrap_or(0.0);
            let wanted = (workers.count as f64 * share / (1.0 - f.win.share()).max(0.01)).ceil() as u64;
            if wanted > workers.count {
                f.facts.say(
                    Fact::new("{wanted} would keep up if what they wait for serves as many at a time")
                        .with("wanted", wanted),
                );
            }
        } else {
            f.facts.say(Fact::new(", {rate}").with("rate", Figure::Rate(workers.read_rate)));
        }
    }
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP116 INPUT-COLLATE: collating a batch takes longer than the GPU works on it.
//!
//! # What it means
//! The samples are there, and making a batch of them costs most: padding, tokenizing, stacking many
//! small tensors in Python. The thread that feeds the GPU does it (`num_workers=0`), or workers do
//! it and cannot keep up, while the GPU waits.
//!
//! # How it is recognised
//! As GP111 INPUT-MAIN, and at least half of the samples of the launching thread that fetch data
//! are in the loader's `collate_fn`. Or as GP112 INPUT-WORKERS, and at least half of the workers'
//! samples (5 or more) are there. The `collate_fn` is PyTorch's own, a function with `collat` in
//! its name, or what a map-style data set's fetcher calls that is no method of the data set.
//!
//! # How sure
//! Samples of the launching thread are taken about every 10 ms, of the workers one every 40 ms in
//! turn. What most of them show is certain; how long each batch took is not measured. Where the
//! workers' memory may not be read it is GP110 INPUT, and why they are late is not known. Where the
//! CPUs are all in use nothing is promised.
//!
//! # Example
//! ```python
//! # slow: padded row by row in Python, by the thread that feeds the GPU
//! def collate(rows):
//!     n = max(len(row) for row in rows)
//!     return torch.tensor([row + [0] * (n - len(row)) for row in rows])
//! loader = DataLoader(data, batch_size=64, collate_fn=collate)
//! # fixed: samples are tensors, padded at once, by workers
//! def collate(rows):
//!     return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
//! loader = DataLoader(data, 64, collate_fn=collate, num_workers=4, persistent_workers=True)
//! ```
//!
//! # What to change
//! Without workers: `DataLoader(num_workers=N, pin_memory=True, persistent_workers=True)`, workers
//! collate too; the text says how many would keep up. With workers, make batches cheaper: samples
//! that are tensors of one shape, `pad_sequence` instead of Python lists, tokenizing ahead of time,
//! stored batches. Else use more workers, up to the CPUs there are.

use super::cpus::Cpus;
use super::input::Worked;
use super::workers::Workers;
use super::{input, Case};
use crate::analysis::{Advice, Fact, Finding};
use crate::sites::activity::Activity;

/// Stable code.
pub const CODE: &str = "GP116";
/// Name in the line.
pub const NAME: &str = "INPUT-COLLATE";

/// What to change where it is the workers that collate.
const CHEAPER_OR_MORE: Advice = Advice::new("a cheaper collate_fn, more workers", "cheaper batches: tensors of one shape, pad_sequence and not lists in Python, tokenized ahead of time, batches stored; else more DataLoader workers, up to the cores there are");
/// ... and they have all the CPUs.
const CHEAPER: Advice = Advice::new("a cheaper collate_fn", "the CPUs are all in use: cheaper batches: tensors of one shape, pad_sequence and not lists in Python, tokenized ahead of time, batches stored");

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        Advice::new("collate in workers[, num_workers={wanted}]", "DataLoader(num_workers=N, pin_memory=True, persistent_workers=True): workers collate too; pad tensors at once, not lists in Python"),
    )?;
    let stood = &case.device.input;
    let n = stood.count(|d| d == Activity::Collates);
    if n > 0 {
        f.facts.say(
            Fact::new("{collating} of {samples} samples in the collate function")
                .with("collating", n)
                .with("samples", stood.samples),
        );
        input::advise_workers(case, &mut f);
        return Some(f);
    }
    let (workers, worked) = (Workers::of(case), Worked::of(case));
    f.facts.say(workers.on_cpus());
    f.facts.say(
        Fact::new(", {collating} of their {samples} samples in the collate function")
            .with("collating", worked.collating)
            .with("samples", worked.samples),
    );
    if let Some((site, n)) = &worked.site {
        f.facts.say(Fact::new(", {there} at {works_at}").with("there", *n).with("works_at", site));
    }
    f.advice = if Cpus::of(case).are_contended() { CHEAPER } else { CHEAPER_OR_MORE };
    Some(f)
}

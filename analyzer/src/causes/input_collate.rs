// SPDX-License-Identifier: Apache-2.0
//! GP116 INPUT-COLLATE: putting batches together takes longer than the GPU works on them.
//!
//! # What it means
//! The samples are there, and making one batch of them costs most: padding, tokenizing, stacking many small tensors, in Python, by
//! the thread that feeds the GPU (`num_workers=0`), or by workers that cannot keep up with it, while the GPU waits.
//!
//! # How it is recognised
//! As GP111 INPUT-MAIN; and at least half of these samples stand in the loader's `collate_fn`: in PyTorch's own, in a function
//! whose name says so, or in what a map-style data set's fetcher calls that is no method of the data set. How many workers would
//! take it over is told as there. Or as GP112 INPUT-WORKERS; and at least half of the samples of the workers (5 or more) stand there.
//!
//! # How sure
//! Samples of the launching thread are taken about every 10 ms, of all workers together every 40 ms (where their
//! memory may be read: else they are GP112 INPUT-WORKERS without a line): what most of them show is so, how long each
//! piece took is not measured.
//!
//! # What to change
//! Where there are none, workers, which collate too: `DataLoader(num_workers=N, pin_memory=True, persistent_workers=True)`. Cheaper: samples that are tensors
//! of one shape, `torch.nn.utils.rnn.pad_sequence` rather than Python lists, tokenized ahead of time, batches made once and
//! stored.

use super::cpus::Cpus;
use super::input::Worked;
use super::workers::Workers;
use super::{input, Case};
use crate::analysis::Finding;
use crate::plural::counted;
use crate::sites::doing::Doing;

/// Stable code.
pub const CODE: &str = "GP116";
/// Name in the line.
pub const NAME: &str = "INPUT-COLLATE";

/// What to change where it is the workers that collate.
const CHEAPER_OR_MORE: &str = "cheaper batches: tensors of one shape, pad_sequence and not lists in Python, tokenized ahead of time, batches stored; else more DataLoader workers, up to the cores there are";
/// ... and they have all the CPUs.
const CHEAPER: &str = "the CPUs are all in use: cheaper batches: tensors of one shape, pad_sequence and not lists in Python, tokenized ahead of time, batches stored";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        "DataLoader(num_workers=N, pin_memory=True, persistent_workers=True): workers collate too; pad tensors at once, not lists in Python",
    )?;
    let stood = &case.device.input;
    let n = stood.count(|d| d == Doing::Collates);
    if n > 0 {
        f.text.push_str(&format!("; {n} of {} samples in the collate function", stood.samples));
        input::advise_workers(case, &mut f);
        return Some(f);
    }
    let (workers, worked) = (Workers::of(case), Worked::of(case));
    f.text.push_str(&format!(
        "; {}, {:.0} % on a CPU, {} of their {} samples in the collate function",
        counted(workers.count, "worker"),
        workers.on_cpu * 100.0,
        worked.collating,
        worked.samples
    ));
    if let Some((site, n)) = &worked.site {
        f.text.push_str(&format!(", {n} at {site}"));
    }
    f.fix = if Cpus::of(case).are_contended() { CHEAPER } else { CHEAPER_OR_MORE };
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP116 INPUT-COLLATE: the launching thread puts batches together itself.
//!
//! # What it means
//! The samples are there, and making one batch of them costs most: padding, tokenizing, stacking many small tensors, in Python, by
//! the thread that feeds the GPU (`num_workers=0`), while the GPU waits.
//!
//! # How it is recognised
//! As GP111 INPUT-MAIN; and at least half of these samples stand in the loader's `collate_fn`: in PyTorch's own, in a function
//! whose name says so, or in what a map-style data set's fetcher calls that is no method of the data set. How many workers would
//! take it over is told as there.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Collating in
//! workers is not told from decoding there: of a worker only the CPU time and what it read is known (GP112 INPUT-WORKERS), and
//! both are CPU time; its stack lies in its own memory, which is not read.
//!
//! # What to change
//! Workers collate, too: `DataLoader(num_workers=N, pin_memory=True, persistent_workers=True)`. Cheaper: samples that are tensors
//! of one shape, `torch.nn.utils.rnn.pad_sequence` rather than Python lists, tokenized ahead of time, batches made once and
//! stored.

use super::{input, Case};
use crate::analysis::Finding;
use crate::sites::doing::Doing;

/// Stable code.
pub const CODE: &str = "GP116";
/// Name in the line.
pub const NAME: &str = "INPUT-COLLATE";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        "DataLoader(num_workers=N, pin_memory=True, persistent_workers=True): workers collate too; pad tensors at once, not lists in Python",
    )?;
    let stood = &case.device.input;
    let n = stood.count(|d| d == Doing::Collates);
    f.text.push_str(&format!("; {n} of {} samples in the collate function", stood.samples));
    input::advise_workers(case, &mut f);
    Some(f)
}

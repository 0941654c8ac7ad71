// SPDX-License-Identifier: Apache-2.0
//! GP117 INPUT-PIN: the thread that pins batches cannot keep up.
//!
//! # What it means
//! With `pin_memory=True` a DataLoader hands every batch through one thread, which receives it from the workers, tensor by
//! tensor, and copies it into pinned memory. The workers are done in time, and this thread is not: more workers would not help.
//!
//! # How it is recognised
//! As GP110 INPUT; at least half of the samples of the launching thread's stack in these stretches wait for workers; the workers
//! are on a CPU for less than 70 % of the time; and of the samples of the pinning thread taken while the GPU waited (5 or more),
//! 70 % or more pin, take a batch over tensor by tensor (`torch/multiprocessing/reductions.py`), or are on a CPU, rather than
//! wait for a batch.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so. What the thread would need without the wait is not
//! predicted beyond what all INPUT costs.
//!
//! # What to change
//! Fewer and larger tensors in a batch (each is handed over and pinned by itself); batches of one shape, so that pinned memory is
//! used again and not allocated anew; smaller types (uint8 images, normalised on the GPU). Or `pin_memory=False` and one copy
//! into a pinned buffer of your own. The copy to the GPU only runs beside the host with `.to(device, non_blocking=True)`.

use super::workers::Workers;
use super::{input, Case};
use crate::analysis::Finding;
use crate::plural::counted;

/// Stable code.
pub const CODE: &str = "GP117";
/// Name in the line.
pub const NAME: &str = "INPUT-PIN";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        "fewer, larger tensors of one shape in a batch, smaller types; or pin_memory=False and a pinned buffer of your own",
    )?;
    let pinned = input::pinned(case);
    f.text = f.text.replace("; the workers are too few or too slow", "");
    f.text.push_str(&format!(
        "; the thread that pins batches is busy in {} of {} samples",
        pinned.busy, pinned.samples
    ));
    let workers = Workers::of(case);
    if workers.count > 0 {
        f.text.push_str(&format!(
            ", {} {:.0} % on a CPU",
            counted(workers.count, "worker"),
            workers.on_cpu * 100.0
        ));
    }
    Some(f)
}

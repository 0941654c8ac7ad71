// SPDX-License-Identifier: Apache-2.0
//! GP117 INPUT-PIN: the thread that pins batches cannot keep up.
//!
//! # What it means
//! With workers and `pin_memory=True` a DataLoader passes every batch through one thread. It
//! receives the batch from the workers, tensor by tensor, and copies it into pinned memory. The
//! workers are done in time and this thread is not: more workers do not help.
//!
//! # How it is recognised
//! The GPU waits for input (GP110 INPUT), and at least half of the launching thread's samples there
//! wait for workers. The workers are on a CPU for less than 70% of the time. Of the pinning
//! thread's samples, taken while the GPU waited (5 or more), at least 70% pin a batch, receive one
//! or are on a CPU, rather than wait for a batch.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is certain. How long the thread
//! needs for a batch is not measured: the prediction is that of GP110 INPUT, as if every batch were
//! ready in time.
//!
//! # Example
//! ```python
//! # slow: a batch is a list of 256 tensors, each received and pinned by itself
//! loader = DataLoader(images, batch_size=256, num_workers=8, pin_memory=True, collate_fn=list)
//! # fixed: the default collate_fn makes one tensor of them, as uint8
//! loader = DataLoader(images, batch_size=256, num_workers=8, pin_memory=True)
//! for x in loader:
//!     x = x.to("cuda", non_blocking=True).float().div_(255)
//! ```
//!
//! # What to change
//! Put fewer and larger tensors in a batch: each is received and pinned by itself. Keep batches of
//! one shape, so that pinned memory is reused instead of allocated anew. Use smaller types (uint8
//! images, normalised on the GPU). Or set `pin_memory=False` and copy once into a pinned buffer of
//! your own. The copy to the GPU overlaps with the host only with `.to(device, non_blocking=True)`.

use super::workers::Workers;
use super::{input, Case};
use crate::analysis::{Advice, Fact, Figure, Finding};

/// Stable code.
pub const CODE: &str = "GP117";
/// Name in the line.
pub const NAME: &str = "INPUT-PIN";

/// Whether it is this kind: `input.rs`, `kind`. Taking a batch over from a worker is known by a
/// frame of `torch/multiprocessing/reductions.py`.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(
        case,
        (CODE, NAME),
        Advice::new("fewer and larger tensors in a batch", "fewer, larger tensors of one shape in a batch, smaller types; or pin_memory=False and a pinned buffer of your own"),
    )?;
    let pinned = input::pinned(case);
    f.facts.say(
        Fact::new("the thread that pins batches is busy in {busy} of {samples} samples")
            .with("busy", pinned.busy)
            .with("samples", pinned.samples),
    );
    let workers = Workers::of(case);
    if workers.count > 0 {
        f.facts.say(
            Fact::new(", {workers} {on_cpu} on a CPU")
                .with("workers", Figure::Of(workers.count, "worker", "workers"))
                .with("on_cpu", Figure::Share(workers.on_cpu)),
        );
    }
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! Threads and processes that work for a DataLoader of PyTorch: what they do, by their stacks.

use super::doing::{Doing, MOST};
use super::frames::{collates, last};
use super::origin::Origin;
use crate::run::{Run, Sample};

/// Where the thread of a DataLoader that pins batches stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pinning {
    /// It pins a batch, or takes one over from a worker, tensor by tensor.
    Works,
    /// Between two batches.
    Waits,
}

impl Pinning {
    /// It works, and does not wait for the workers to have made a batch.
    pub(crate) fn is_busy(self, sample: &Sample) -> bool {
        self == Pinning::Works || sample.on_cpu >= MOST
    }
}

/// `None`: no such thread's stack.
pub(crate) fn pins(run: &Run, stack: u32) -> Option<Pinning> {
    let text = |id| run.definitions.string(id).unwrap_or("");
    let frames = || run.definitions.stack(stack).map(|f| (text(f.file), last(text(f.function))));
    let own = |f: &(&str, &str)| f.0.ends_with("torch/utils/data/_utils/pin_memory.py");
    if !frames().any(|f| own(&f) && f.1 == "_pin_memory_loop") {
        return None;
    }
    // a tensor's storage comes by a message of its own, for which it may have to wait: the batch is there
    let takes_over = frames().any(|f| f.0.ends_with("torch/multiprocessing/reductions.py"));
    let pins = frames().find(own).is_some_and(|f| f.1 == "pin_memory");
    Some(if pins || takes_over { Pinning::Works } else { Pinning::Waits })
}

/// Where a process stands that works for a DataLoader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Worker {
    /// [`Doing::Collates`] or [`Doing::FetchesHere`].
    pub(crate) doing: Doing,
    /// So many frames, the innermost ones, are its own: what is outside of them the launching process stood in when it was forked.
    pub(crate) own: usize,
}

/// `None`: no such process's stack, or one that waits for what it is to do.
pub(crate) fn works(run: &Run, stack: u32) -> Option<Worker> {
    let text = |id| run.definitions.string(id).unwrap_or("");
    let frames = run.definitions.stack(stack);
    let frames: Vec<(&str, &str, Origin)> = frames
        .map(|f| (text(f.file), text(f.function), Origin::of(text(f.file), text(f.function))))
        .collect();
    let own = frames.iter().position(|f| f.0.ends_with("torch/utils/data/_utils/worker.py"))?;
    let frames = frames.get(..own)?;
    let fetches = frames.iter().any(|f| f.0.ends_with("torch/utils/data/_utils/fetch.py"));
    let doing = if collates(frames) { Doing::Collates } else { Doing::FetchesHere };
    fetches.then_some(Worker { doing, own })
}

// SPDX-License-Identifier: Apache-2.0
//! Threads and processes that work for a DataLoader of PyTorch: what they do, by their stacks.

use trace::FrameInfo;

use super::activity::{Activity, MOSTLY_PERMILLE};
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
        self == Pinning::Works || sample.on_cpu >= MOSTLY_PERMILLE
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
    // a tensor's storage comes by a message of its own, for which it may have to wait: the batch is
    // there
    let takes_over = frames().any(|f| f.0.ends_with("torch/multiprocessing/reductions.py"));
    let pins = frames().find(own).is_some_and(|f| f.1 == "pin_memory");
    Some(if pins || takes_over { Pinning::Works } else { Pinning::Waits })
}

/// Where a process stands that works for a DataLoader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Worker {
    /// [`Activity::Collates`] or [`Activity::FetchesHere`].
    pub(crate) doing: Activity,
    /// So many frames, the innermost ones, are its own: what is outside of them the launching
    /// process stood in when it was forked.
    pub(crate) own: usize,
    /// It waits for other threads or processes of its own: what costs is not where it stands.
    pub(crate) waits: bool,
}

/// The file in which a worker of a DataLoader loops.
const LOOP: &str = "torch/utils/data/_utils/worker.py";

/// Is this the stack of a worker of a DataLoader, whatever it does?
pub(crate) fn is_worker(run: &Run, stack: u32) -> bool {
    let file = |f: &FrameInfo| run.definitions.string(f.file).unwrap_or("").ends_with(LOOP);
    run.definitions.stack(stack).any(file)
}

/// Functions of Python's library in which a thread waits for another thread or process.
const WAITS: [(&str, &[&str]); 6] = [
    ("threading.py", &["wait", "acquire", "join", "_wait_for_tstate_lock"]),
    ("concurrent/futures/_base.py", &["result", "exception", "wait", "as_completed", "result_iterator"]),
    ("queue.py", &["get", "put"]),
    ("selectors.py", &["select"]),
    ("multiprocessing/connection.py", &["wait", "poll", "_poll", "_recv", "recv", "recv_bytes"]),
    ("subprocess.py", &["wait", "_wait", "_try_wait", "communicate", "_communicate"]),
];

/// Does the program's innermost line stand in one of them? (The CPU that a process uses is then
/// that of other threads of its.)
fn waits(frames: &[(&str, &str, Origin)]) -> bool {
    let inner = frames.iter().take_while(|f| f.2 == Origin::Standard);
    inner.into_iter().any(|f| WAITS.iter().any(|w| f.0.ends_with(w.0) && w.1.contains(&last(f.1))))
}

/// `None`: no such process's stack, or one that waits for what it is to do.
pub(crate) fn works(run: &Run, stack: u32) -> Option<Worker> {
    let text = |id| run.definitions.string(id).unwrap_or("");
    let frames = run.definitions.stack(stack);
    let frames: Vec<(&str, &str, Origin)> = frames
        .map(|f| (text(f.file), text(f.function), Origin::of(text(f.file), text(f.function))))
        .collect();
    let own = frames.iter().position(|f| f.0.ends_with(LOOP))?;
    let frames = frames.get(..own)?;
    let fetches = frames.iter().any(|f| f.0.ends_with("torch/utils/data/_utils/fetch.py"));
    let doing = if collates(frames) { Activity::Collates } else { Activity::FetchesHere };
    fetches.then_some(Worker { doing, own, waits: waits(frames) })
}

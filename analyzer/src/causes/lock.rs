// SPDX-License-Identifier: Apache-2.0
//! GP127 LOCK: the launching thread waits for another thread or process.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU waits for a lock, a queue or a child process.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches are blocked on a futex, another
//! process' pipe or a child. Waiting in `backward()` is not counted: autograd's own thread works then.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is
//! not measured. Fewer than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//! Where a tenth of the steps have half of the waiting, or the steps differ wildly, the thread may
//! wait for requests and have nothing to do: low. What the other side needs bounds what is won:
//! where that is not known, low; where it computes for longer than a step without the wait would
//! take, no promise, and it is what has to get cheaper. Where another thread that calls CUDA worked
//! in less than a tenth of these samples, and no child process used 2 % of a CPU or disk, nobody of
//! the program is seen to make what is waited for: it comes from outside, as a request does, and
//! nothing is promised. (Threads that call no CUDA are not looked at.) With another thread that
//! waits for requests it is GP192 NO-WORK.
//!
//! Where another thread of the program that calls CUDA or holds Python's lock computed in at least half of these samples, its line is told as well
//! (`meanwhile prepare at train.py:20 computes`): that it is what is waited for is likely, not known.
//!
//! # What to change
//! Look at what the other side does: have it ready one step earlier (a deeper queue), or do it without waiting.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP127";
/// Name in the line.
pub const NAME: &str = "LOCK";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        "have the other thread's result ready one step earlier, or do not wait for it",
    )
}

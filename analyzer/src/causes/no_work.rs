// SPDX-License-Identifier: Apache-2.0
//! GP192 NO-WORK: the program waits for requests.
//!
//! # What it means
//! The GPU is idle because nobody asked for anything: a server without load. Nothing is to be won by faster code.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these
//! stretches are blocked waiting for events or connections (`epoll_wait`, `accept`); or wait for
//! another thread, while one that calls CUDA, too, waits for events or connections in half of them,
//! none works, and no child process does. Not in asyncio's loop without a server's frames around it
//! (uvicorn, aiohttp and the like): such a program may await tasks of its own, and is GP105 HOST
//! with low confidence. It is named where no other cause is; the time is left out of GPU-BOUND.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is
//! not measured. Fewer than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//! That another thread's requests are what is waited for is likely, not known: medium at most.
//!
//! # What to change
//! Send more requests, or let several programs share the GPU.

use super::{host, Case};
use crate::analysis::{Finding, Win};

/// Stable code.
pub const CODE: &str = "GP192";
/// Name in the line.
pub const NAME: &str = "NO-WORK";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = host::of_kind(case, (CODE, NAME), "send more requests, or share the GPU")?;
    // nobody's code is slow: there is nothing to win
    (f.win, f.promise) = (Win::default(), None);
    Some(f)
}

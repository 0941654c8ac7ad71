// SPDX-License-Identifier: Apache-2.0
//! GP192 NO-WORK: the program waits for requests.
//!
//! # What it means
//! The GPU is idle because nobody asked for anything: a server without load. Faster code wins
//! nothing.
//!
//! # How it is recognised
//! The host is late, as in GP105 HOST. At least half of the samples of the launching thread's stack
//! in that time show one of these:
//! - It waits for events or connections (`epoll_wait`, `accept`).
//! - It waits for another thread. In half of these samples another thread that calls CUDA waits for
//!   events or connections, none works, and no child process works.
//!
//! In asyncio's loop a server's frames (uvicorn, aiohttp and the like) must be on the stack. Other
//! programs may await tasks of their own, and are GP105 HOST with low confidence.
//!
//! NO-WORK is named where it takes 10% of the time and no other cause is worth 10%. The time
//! without work does not count when the rest is judged as GP190 GPU-BOUND.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is what happened; how long each wait
//! took is not measured. With fewer than 5 samples, or without a majority, it is GP105 HOST.
//!
//! That another thread's requests are waited for is likely, not known: medium confidence at most.
//! The confidence is low where wait times differ widely from step to step, or a tenth of the steps
//! has half of the waiting. No step time is promised.
//!
//! # Example
//! ```sh
//! # find the server's pid
//! gapprobe ps
//! # under load: a trace of the next 20 steps
//! gapprobe capture 4242 --steps 20
//! ```
//!
//! # What to change
//! Send more requests, or let several programs share the GPU.

use super::{host, Case};
use crate::analysis::{Advice, Finding, Win};

/// Stable code.
pub const CODE: &str = "GP192";
/// Name in the line.
pub const NAME: &str = "NO-WORK";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = host::of_kind(
        case,
        (CODE, NAME),
        Advice::new("more requests, or share the GPU", "send more requests, or share the GPU"),
    )?;
    // nobody's code is slow: there is nothing to win
    (f.win, f.promise) = (Win::default(), None);
    Some(f)
}

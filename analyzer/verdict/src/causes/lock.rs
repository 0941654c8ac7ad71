// SPDX-License-Identifier: Apache-2.0
//! GP127 LOCK: the launching thread waits for another thread or process.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU waits for a lock, a queue or a child process.
//!
//! # How it is recognised
//! The host is late, as in GP105 HOST. At least half of the samples of the launching thread's stack
//! in that time are blocked on a futex, on another process' pipe or on a child process. Waiting in
//! `backward()` does not count: autograd's own thread works then.
//!
//! # How sure
//! Samples are taken about every 10 ms; how long each wait took is not measured. With fewer than 5
//! samples, or without a majority, it is GP105 HOST. What the other side needs limits what is won:
//! - Another thread computes in half of these samples: the text has its line. That this is what is
//!   waited for is likely, not known. If it computes for longer than a step without the wait would
//!   take, it is the limit, and no step time is promised.
//! - A child process computes: low confidence, no promise.
//! - Nobody is seen to work (threads in under 10% of these samples, children 2% of a CPU or disk):
//!   low confidence, no promise. The thread may wait for requests; if another waits for them, it is
//!   GP192.
//! - Else the other side's need is not known: low confidence, and the step time is the best case.
//!
//! Only threads that call CUDA or hold the GIL are seen. The confidence is also low where wait
//! times differ widely from step to step, or a tenth of the steps has half of the waiting.
//!
//! # Example
//! ```python
//! # slow: asks for a batch when it is needed (pool is a ThreadPoolExecutor)
//! for i in range(steps):
//!     train_step(pool.submit(prepare, i).result())
//! # fixed: prepares batch i + 1 while step i runs
//! ahead = pool.submit(prepare, 0)
//! for i in range(steps):
//!     batch, ahead = ahead.result(), pool.submit(prepare, i + 1)
//!     train_step(batch)
//! ```
//!
//! # What to change
//! Have the other side's result ready one step earlier (a deeper queue), or do not wait for it. If
//! the other side is the limit, make it cheaper or share its work among several threads.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP127";
/// Name in the line.
pub const NAME: &str = "LOCK";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "have its result one step earlier",
            "have the other thread's result ready one step earlier, or do not wait for it",
        ),
    )
}

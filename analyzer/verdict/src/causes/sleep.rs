// SPDX-License-Identifier: Apache-2.0
//! GP126 SLEEP: the launching thread sleeps.
//!
//! # What it means
//! Between two launches the program sleeps on purpose: `time.sleep`, a rate limit, a polling loop.
//!
//! # How it is recognised
//! The host is late, as in GP105 HOST. At least half of the samples of the launching thread's stack
//! in that time are blocked in a system call that only sleeps.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is what happened; how long each
//! sleep took is not measured. With fewer than 5 samples, or without a majority, it is GP105 HOST.
//! Beside another kind that has half of them, 5 samples worth 10% of the step are enough. Fewer
//! than 10 samples give medium confidence at most.
//!
//! Two cases have low confidence and no promised step time:
//! - Another thread or a child process computes meanwhile. A loop that polls for its result has to
//!   wait for it without the sleep, too.
//! - The sleep ends at a time given from outside. If the loop polls for something or holds a rate,
//!   removing the sleep wins nothing.
//!
//! The confidence is also low where a tenth of the steps has half of the waiting, or wait times
//! differ widely from step to step. The process may then wait for requests, with nothing to do.
//!
//! # Example
//! ```python
//! # slow: polls, and wakes up to 50 ms late
//! while not ready.is_set():
//!     time.sleep(0.05)
//!
//! # fixed: wakes up as soon as another thread calls ready.set()
//! ready.wait()    # ready = threading.Event()
//! ```
//!
//! # What to change
//! Remove the sleep, or wait for an event instead of polling.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP126";
/// Name in the line.
pub const NAME: &str = "SLEEP";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new("remove the sleep", "remove the sleep, or wait for an event instead of polling"),
    )
}

// SPDX-License-Identifier: Apache-2.0
//! GP128 NETWORK: the launching thread talks to the network.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU sends or receives data: to or from an object
//! store, a database, a tracking service, another rank.
//!
//! # How it is recognised
//! The host is late, as in GP105 HOST. At least half of the samples of the launching thread's stack
//! in that time are blocked in a system call on a socket.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is what happened; how long each call
//! took is not measured. With fewer than 5 samples, or without a majority, it is GP105 HOST. Beside
//! another kind that has half of them, 5 samples worth 10% of the step are enough. Fewer than 10
//! samples give medium confidence at most.
//!
//! The confidence is low where a tenth of the steps has half of the waiting, or wait times differ
//! widely from step to step. The process may then wait for requests, with nothing to do.
//!
//! # Example
//! ```python
//! # slow: each step waits for the server's reply (urlopen is urllib.request's)
//! for step, batch in enumerate(loader):
//!     train_step(batch)
//!     urlopen("http://tracker:8080/step", data=b"%d" % step)
//! # fixed: a thread waits for it
//! pool = ThreadPoolExecutor(max_workers=1)
//! for step, batch in enumerate(loader):
//!     train_step(batch)
//!     pool.submit(urlopen, "http://tracker:8080/step", data=b"%d" % step)
//! ```
//!
//! # What to change
//! Move it to a thread, put several requests into one, or fetch one step ahead.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP128";
/// Name in the line.
pub const NAME: &str = "NETWORK";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "prefetch, or ask in another thread",
            "move network calls to a thread, or one step ahead",
        ),
    )
}

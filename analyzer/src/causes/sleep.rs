// SPDX-License-Identifier: Apache-2.0
//! GP126 SLEEP: the launching thread sleeps.
//!
//! # What it means
//! Between two launches the program sleeps by its own wish: `time.sleep`, a rate limit, a poll loop.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches are blocked in a system call that
//! only sleeps.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind. Where a tenth of the steps have half of the waiting,
//! or the steps differ wildly, the thread may wait for requests and have nothing to do: low. A sleep may be a loop's that polls for what a child process
//! or thread makes: where one computes meanwhile, or the sleep ends at a time that is given from outside, low and without a promise.
//!
//! # What to change
//! Remove the sleep, or wait for an event instead of polling.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP126";
/// Name in the line.
pub const NAME: &str = "SLEEP";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(case, (CODE, NAME), "remove the sleep, or wait for an event instead of polling")
}

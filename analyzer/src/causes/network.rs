// SPDX-License-Identifier: Apache-2.0
//! GP128 NETWORK: the launching thread talks to the network.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU sends or receives: a store, a database, a tracking service, another rank.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches are blocked in a system call of a
//! socket.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind. Where a tenth of the steps have half of the waiting,
//! or the steps differ wildly, the thread may wait for requests and have nothing to do: low.
//!
//! # What to change
//! Move it to a thread, batch the requests, or fetch one step ahead.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP128";
/// Name in the line.
pub const NAME: &str = "NETWORK";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(case, (CODE, NAME), "move network calls to a thread, or one step ahead")
}

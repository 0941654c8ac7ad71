// SPDX-License-Identifier: Apache-2.0
//! GP121 GIL: another thread holds Python's global lock.
//!
//! # What it means
//! The launching thread could go on and waits for the interpreter's lock: threads that load data, log or serve requests in
//! the same process run Python meanwhile.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches were taken while it waited for the
//! lock. While it waits the recorder also reads the thread that holds the lock; where at least half of these stand in one line or
//! function, that is the line named. Else none is: the line that waits is not to blame.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! Move the other thread's work into a process (`multiprocessing`, DataLoader workers), into code that releases the lock, or
//! out of the time the GPU is fed in; fewer, larger pieces of Python.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP121";
/// Name in the line.
pub const NAME: &str = "GIL";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(case, (CODE, NAME), "move the other thread's Python work into a process")
}

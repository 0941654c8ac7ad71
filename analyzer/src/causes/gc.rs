// SPDX-License-Identifier: Apache-2.0
//! GP120 GC: Python's garbage collector holds up the launching thread.
//!
//! # What it means
//! Between two launches the interpreter looks through all of its objects for cycles. With many objects alive a full
//! collection takes tens of milliseconds, and it comes whenever enough objects were made.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches were taken while the interpreter
//! was collecting (its own flag).
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! `gc.collect(); gc.freeze()` after the model is built, then `gc.disable()` and a `gc.collect()` every few hundred steps at
//! a place of your choice (where the line itself is a `gc.collect()`: take it out of the step); keep fewer Python objects alive (lists of tensors, metrics of each step).

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP120";
/// Name in the line.
pub const NAME: &str = "GC";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        "gc.freeze() after set-up, gc.disable() and a gc.collect() every few hundred steps; none in the step",
    )
}

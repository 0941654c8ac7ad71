// SPDX-License-Identifier: Apache-2.0
//! GP120 GC: Python's garbage collector holds up the launching thread.
//!
//! # What it means
//! Between two launches the interpreter searches all of its objects for reference cycles. With many
//! objects alive a full collection takes tens of milliseconds, and it comes whenever enough new
//! objects were made.
//!
//! # How it is recognised
//! The GPU waits while the host does something else than launching (GP105 HOST). At least half of
//! the samples of the launching thread in that time (5 or more) were taken while the interpreter
//! was collecting, by its own flag. Where another cause has that half, this one is reported beside
//! it from 5 samples and 10% of the step on; each has its part of the time.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is certain; how long each piece took
//! is not measured. With fewer than 10 samples the confidence is medium at most. With fewer than 5,
//! or where no cause has half of them, it is GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: a full collection whenever enough objects were made
//! for batch in loader:
//!     train_step(batch)
//! # fixed: what set-up left is never scanned, and collections come when you choose
//! gc.collect()
//! gc.freeze()
//! gc.disable()
//! for i, batch in enumerate(loader):
//!     train_step(batch)
//!     if i % 500 == 499: gc.collect()
//! ```
//!
//! # What to change
//! Call `gc.collect()` and `gc.freeze()` after the model is built, then `gc.disable()` and a
//! `gc.collect()` every few hundred steps at a place of your choice. If the line named is itself a
//! `gc.collect()`, take it out of the step. Keep fewer Python objects alive (lists of tensors,
//! metrics of each step).

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP120";
/// Name in the line.
pub const NAME: &str = "GC";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new("gc.freeze, or collect between epochs", "gc.freeze() after set-up, gc.disable() and a gc.collect() every few hundred steps; none in the step"),
    )
}

// SPDX-License-Identifier: Apache-2.0
//! GP122 FILE-IO: the launching thread writes files.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU writes: a checkpoint (`torch.save`), results, output to a terminal or pipe.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches stand in functions that save a
//! checkpoint, or blocked in a system call that writes.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! Save less often; copy the state to pinned memory and write it in a thread or process (`torch.distributed.checkpoint.async_save`,
//! `AsyncCheckpointIO` of Lightning); print less.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP122";
/// Name in the line.
pub const NAME: &str = "FILE-IO";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(case, (CODE, NAME), "save less often or in the background (async_save); print less")
}

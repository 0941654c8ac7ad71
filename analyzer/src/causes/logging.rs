// SPDX-License-Identifier: Apache-2.0
//! GP123 LOGGING: the launching thread logs.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU formats and writes log lines, or reports to a tracking service.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches stand below `logging`, or in a
//! tracking package (TensorBoard, wandb, mlflow, tqdm ...) that the program's line called. Short stretches count too, where half of
//! their samples do.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! Log every N steps; a queue and a thread for handlers (`logging.handlers.QueueHandler`); no tensor in a log call, it is read
//! from the GPU for that.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP123";
/// Name in the line.
pub const NAME: &str = "LOGGING";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(case, (CODE, NAME), "log every N steps, or through a queue (logging.handlers.QueueHandler)")
}

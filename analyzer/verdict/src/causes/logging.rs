// SPDX-License-Identifier: Apache-2.0
//! GP123 LOGGING: the launching thread logs.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU formats and writes log lines, or reports to a
//! tracking service.
//!
//! # How it is recognised
//! The GPU waits while the host does something else than launching (GP105 HOST). At least half of
//! the samples of the launching thread in that time (5 or more) are inside of `logging`, or in a
//! tracking package (TensorBoard, wandb, mlflow, tqdm and the like) that the program's line called.
//! Short pauses count too, where half of their samples show it. Where another cause has that half,
//! this one is reported beside it from 5 samples and 10% of the step on; each has its part of the
//! time.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is certain; how long each piece took
//! is not measured. With fewer than 10 samples the confidence is medium at most. With fewer than 5,
//! or where no cause has half of them, it is GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: formats and writes a line in every step
//! log.info("step %d: %s", step, file_names)
//! # fixed: every 100 steps, and a thread writes it
//! q = queue.SimpleQueue()  # once
//! log.addHandler(logging.handlers.QueueHandler(q))  # in place of the FileHandler
//! logging.handlers.QueueListener(q, logging.FileHandler("train.log")).start()
//! if step % 100 == 0:
//!     log.info("step %d: %s", step, file_names)
//! ```
//!
//! # What to change
//! Log every N steps. Put a queue and a thread in front of slow handlers
//! (`logging.handlers.QueueHandler`). Pass no tensor to a log call: it is read from the GPU for
//! that.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP123";
/// Name in the line.
pub const NAME: &str = "LOGGING";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "log less often, or through a queue",
            "log every N steps, or through a queue (logging.handlers.QueueHandler)",
        ),
    )
}

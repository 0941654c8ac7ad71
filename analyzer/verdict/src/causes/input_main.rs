// SPDX-License-Identifier: Apache-2.0
//! GP111 INPUT-MAIN: the launching thread reads the data itself.
//!
//! # What it means
//! The DataLoader has no workers (`num_workers=0`). The thread that feeds the GPU reads, decodes
//! and collates the samples while the GPU waits.
//!
//! # How it is recognised
//! As GP110 INPUT, and at least half of the launching thread's stack samples (of 5 or more) are in
//! a loader that works in the same thread. The line named is the data set's own.
//!
//! # How sure
//! Samples are about 10 ms apart. They show what most of the time goes to, not how long each piece
//! takes. Without 5 samples, half of which agree, it is GP110 INPUT if a range shows the fetching,
//! else GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: the training loop decodes each batch
//! loader = DataLoader(dataset, batch_size=64)
//! # fixed: workers decode the next batches meanwhile
//! loader = DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True,
//!                     pin_memory=True)
//! ```
//!
//! # What to change
//! Use `DataLoader(num_workers=N, pin_memory=True, persistent_workers=True)`. The text gives N: the
//! time to fetch a batch divided by the step time without the wait, rounded up. If N is more than
//! the CPUs of the process, workers alone are not enough. Then make the line named cheaper: decode
//! less, or cache results. No step is promised that is shorter than the CPU time of a batch divided
//! by these CPUs.

use super::{input, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP111";
/// Name in the line.
pub const NAME: &str = "INPUT-MAIN";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = input::of_kind(case, (CODE, NAME), input::WITH_WORKERS)?;
    input::advise_workers(case, &mut f);
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP129 NATIVE-CPU: the launching thread computes in native code.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU computes in a library, called from the line named: an operation on tensors
//! that lie on the CPU, NumPy, a tokenizer, an image codec. No Python runs meanwhile.
//!
//! # How it is recognised
//! As GP105 HOST; and in at least half of the samples of the launching thread's stack in these stretches it is on a CPU, in no
//! system call, below a line of Python, and does not hold Python's lock, which bytecode needs. Only in recordings in which it
//! could be read who holds the lock.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Which native
//! function it is is not recorded. Native code that keeps the lock (`json`, sorting, small NumPy operations) looks like Python,
//! and is GP105 HOST.
//!
//! # What to change
//! Put the tensors on the GPU (`device="cuda"` where they are made); else do it one step ahead in a thread: this code gives
//! Python's lock back, so a thread does run beside the launching. Or in DataLoader workers.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP129";
/// Name in the line.
pub const NAME: &str = "NATIVE-CPU";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        "compute it on the GPU, or one step ahead in a thread or DataLoader worker",
    )
}

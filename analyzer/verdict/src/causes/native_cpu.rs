// SPDX-License-Identifier: Apache-2.0
//! GP129 NATIVE-CPU: the launching thread computes in native code.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU computes in a library that the named line
//! calls: an operation on CPU tensors, NumPy, a tokenizer, an image codec. No Python runs in the
//! meantime.
//!
//! # How it is recognised
//! The host is late, as in GP105 HOST. In at least half of the samples of the launching thread's
//! stack in that time, the thread:
//! - is on a CPU, in no system call, called from a line of Python, and
//! - does not hold the GIL, which bytecode needs.
//!
//! Only recordings in which the holder of the GIL could be read have this verdict.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is what happened; how long each call
//! took is not measured. Fewer than 10 samples give medium confidence at most. With fewer than 5,
//! or without a majority, it is GP105 HOST. Beside another kind that has half of them, 5 samples
//! worth 10% of the step are enough.
//!
//! The native function is not recorded. Native code that keeps the GIL (`json`, sorting, small
//! NumPy operations) looks like Python, and is GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: random numbers are drawn on the CPU, then copied
//! for x in loader:
//!     mask = torch.rand(4096, 4096) < 0.1
//!     train_step(x, mask.to("cuda"))
//!
//! # fixed: drawn on the GPU
//! for x in loader:
//!     train_step(x, torch.rand(4096, 4096, device="cuda") < 0.1)
//! ```
//!
//! # What to change
//! Put the tensors on the GPU (`device="cuda"` where they are made). Or compute one step ahead in a
//! thread: this code releases the GIL, so the thread runs beside the launches. Or use DataLoader
//! workers.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP129";
/// Name in the line.
pub const NAME: &str = "NATIVE-CPU";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "do it on the GPU, or one step ahead",
            "compute it on the GPU, or one step ahead in a thread or DataLoader worker",
        ),
    )
}

// SPDX-License-Identifier: Apache-2.0
//! GP124 COMPILE: the launching thread compiles.
//!
//! # What it means
//! A compiler runs in the steady state: TorchDynamo traces a function again, Inductor or Triton
//! build kernels, or XLA compiles. A shape, a type or a Python value changed for which the compiled
//! code was specialised.
//!
//! # How it is recognised
//! The GPU waits while the host does something else than launching (GP105 HOST). At least half of
//! the samples of the launching thread in that time (5 or more) are in a compiler. Running compiled
//! code does not count. Where another cause has that half, this one is reported beside it from 5
//! samples and 10% of the step on; each has its part of the time.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is certain; how long each piece took
//! is not measured. With fewer than 10 samples the confidence is medium at most. With fewer than 5,
//! or where no cause has half of them, it is GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: compiles again for each new length of x
//! step = torch.compile(model, dynamic=False)
//! # fixed: compiled once for all lengths
//! step = torch.compile(model, dynamic=True)
//! for x in loader:
//!     loss = step(x)
//! ```
//!
//! # What to change
//! `TORCH_LOGS=recompiles` says why. Pad to a few shapes, compile with `dynamic=True`, or use
//! `torch._dynamo.mark_dynamic`. Keep Python numbers that change out of the compiled function. Warm
//! up all shapes before the run.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP124";
/// Name in the line.
pub const NAME: &str = "COMPILE";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "fixed shapes, or dynamic=True",
            "TORCH_LOGS=recompiles says why; pad to few shapes or compile with dynamic=True",
        ),
    )
}

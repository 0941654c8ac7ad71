// SPDX-License-Identifier: Apache-2.0
//! GP124 COMPILE: the launching thread compiles.
//!
//! # What it means
//! In the steady state a compiler runs: TorchDynamo traces a function again, Inductor or Triton build kernels, XLA compiles.
//! A shape, a type or a Python value changed that the compiled code was specialised on.
//!
//! # How it is recognised
//! As GP105 HOST; and at least half of the samples of the launching thread's stack in these stretches stand in a compiler: what runs
//! compiled code is not counted.
//!
//! # How sure
//! Samples are taken about every 10 ms: what most of them show is so, how long each piece took is not measured. Fewer
//! than 5 samples, or less than half agreeing, are GP105 HOST without a kind.
//!
//! # What to change
//! `TORCH_LOGS=recompiles` says why. Pad to a few shapes, `torch.compile(dynamic=True)`, `mark_dynamic`; keep Python numbers that
//! change out of the compiled function; warm up all shapes before the run.

use super::{host, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP124";
/// Name in the line.
pub const NAME: &str = "COMPILE";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        "TORCH_LOGS=recompiles says why; pad to few shapes or compile with dynamic=True",
    )
}

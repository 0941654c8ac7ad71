// SPDX-License-Identifier: Apache-2.0
//! GP114 LAUNCH-OPTIMIZER: the optimizer launches a handful of kernels for each parameter.
//!
//! # What it means
//! The optimizer updates one parameter after the other, with about a dozen tiny kernels for each.
//! That is hundreds or thousands of launches a step, and the GPU waits for nearly all of them.
//!
//! # How it is recognised
//! The GPU waits for launches (GP102 LAUNCH). At least half of the samples of the launching
//! thread's stack, taken while the GPU waited for a launch (5 or more), are in the step of an
//! optimizer of `torch.optim`. At least half of those are in the function that takes one tensor at
//! a time (such as `_single_tensor_adam`), not in `_multi_tensor_adam` or `_fused_adam`.
//!
//! The prediction is this cause's part of GP102's, by its share of the samples; from 90% on it is
//! all of it.
//!
//! # How sure
//! Where the samples are is certain. They are taken about every 10 ms, so the optimizer's part is
//! an estimate. The text says how many samples it rests on; with fewer than 10 the confidence is
//! medium at most. Launches outside of the optimizer stay.
//!
//! # Example
//! ```python
//! # slow: a dozen launches for each parameter
//! optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
//! # fixed: a few launches for all of them
//! optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
//! ```
//!
//! # What to change
//! Pass `fused=True` where the optimizer has it, else `foreach=True`: one launch updates many
//! tensors. `foreach` is PyTorch's default on CUDA, unless `foreach=False`, `differentiable=True`
//! or parameters on mixed devices prevent it. Otherwise use fewer, larger parameters (flattened).

use super::{launch, Case};
use crate::analysis::{Advice, Fact, Finding};

/// Stable code.
pub const CODE: &str = "GP114";
/// Name in the line.
pub const NAME: &str = "LAUNCH-OPTIMIZER";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = launch::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "fused=True or foreach=True",
            "fused=True or foreach=True for the optimizer: many parameters in one launch",
        ),
    )?;
    launch::place(case, &mut f);
    let stood = &case.device.launch;
    let [single, ..] = stood.optimizer;
    f.facts.say(
        Fact::new("{single} of {samples} in an optimizer without foreach or fused")
            .with("single", single)
            .with("samples", stood.samples),
    );
    Some(f)
}

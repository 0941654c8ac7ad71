// SPDX-License-Identifier: Apache-2.0
//! GP114 LAUNCH-OPTIMIZER: the optimizer launches a handful of kernels for each parameter.
//!
//! # What it means
//! The optimizer goes over the parameters one after the other, with a dozen tiny kernels for each: hundreds or thousands of launches a
//! step, and the GPU waits for nearly all of them.
//!
//! # How it is recognised
//! As GP102 LAUNCH; at least half of the samples of the launching thread's stack, taken while the GPU waited for a launch (5 or more),
//! stand in the step of an optimizer of `torch.optim`; and at least half of those in the function that takes one tensor
//! after the other (`_single_tensor_adam`), not in `_multi_tensor_adam` or `_fused_adam`. The prediction is GP102's, as large a part of
//! it as of the samples; from 90 % on all of it.
//!
//! # How sure
//! What the frames say is so. Samples are taken about every 10 ms: the optimizer's part is an estimate, and how many
//! samples it rests on is told (fewer than 10: medium confidence at most). Launches outside of the optimizer stay.
//!
//! # What to change
//! `foreach=True`, or `fused=True` where the optimizer has it: many tensors in one launch. It is PyTorch's default on CUDA,
//! unless `foreach=False`, `differentiable=True` or tensors of mixed devices prevent it. Else fewer, larger parameters (flattened).

use super::{launch, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP114";
/// Name in the line.
pub const NAME: &str = "LAUNCH-OPTIMIZER";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = launch::of_kind(
        case,
        (CODE, NAME),
        "fused=True or foreach=True for the optimizer: many parameters in one launch",
    )?;
    launch::place(case, &mut f);
    let stood = &case.device.launch;
    let [single, ..] = stood.optimizer;
    f.text.push_str(&format!("; {single} of {} in an optimizer without foreach or fused", stood.samples));
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP131 CASTS: the GPU converts numbers from one type to another for much of the step.
//!
//! # What it means
//! Kernels that only turn float32 into bfloat16 and back take a large part of the step. The GPU is
//! busy, and nothing is computed. Weights are cast anew for each use, activations are cast to and
//! fro between layers of different types, or `.float()` and `.half()` stand in the loop.
//!
//! # How it is recognised
//! By the names of kernels: PyTorch's `bfloat16_copy_kernel_cuda` and `float16_copy_kernel_cuda`
//! (from float32), its `direct_copy_kernel_cuda` with `LoadWithCast`, CuPy's `cupy_copy` between
//! two types. There are at least two a step. Where the GPU waits for their launches, it is GP102
//! LAUNCH.
//!
//! # How sure
//! Number and time of these kernels are exact. Some casts of non-contiguous tensors, and casts
//! fused into other kernels, cannot be told apart and are not counted. Some casts are needed, so
//! the prediction removes half of them: the cause is named where casts take 20% of the time or
//! more.
//!
//! Operands are not recorded. The same numbers may be cast again and again, or each once a step, as
//! a float32 optimizer needs: that is for you to judge. The confidence is medium at most, and the
//! error (±) is as large as the win.
//!
//! # Example
//! ```python
//! # slow: casts each float32 weight in every step (x is bfloat16)
//! for x in loader:
//!     for w in weights:
//!         x = x @ w.to(torch.bfloat16)
//! # fixed: casts once, before the loop
//! weights = [w.to(torch.bfloat16) for w in weights]
//! for x in loader:
//!     for w in weights:
//!         x = x @ w
//! ```
//!
//! # What to change
//! Cast once and keep it: `model.to(torch.bfloat16)`, inputs in the model's type, constants cast
//! before the loop. Use one `torch.autocast` region around the whole forward pass: its cache of
//! cast weights ends with the region. `torch.compile` fuses casts into the kernels that use them.

use super::case::FUSED;
use super::kernel_names::is_cast;
use super::kernels::Kernels;
use super::Case;
use crate::analysis::{Advice, Bound, Fact, Figure, Finding, Win};
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP131";
/// Name in the line.
pub const NAME: &str = "CASTS";

/// Part of the casts that is taken to be needless. How many are is not known, none or all: the ±
/// is as large as what is promised.
const NEEDLESS: f64 = 0.5;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let casts = Kernels::named(case, 0, |name| is_cast(name).then_some(NEEDLESS))?;
    let steps = case.analysis.steps.steady().len() as u64;
    if casts.count < 2 * steps.max(1) {
        return None;
    }
    let lost = casts.share();
    if lost < NOTICED_SHARE {
        return None;
    }
    let needless = Bound::kernels(&case.device.buckets, lost * NEEDLESS);
    let win = Win::within(case.elsewhere.room(), needless);
    let mut f = case.fusing((CODE, NAME), lost, win);
    f.promise = f.promise.map(|p| p.give_or_take(p.error_ns() / FUSED));
    f.advice = Advice::new("keep tensors in one type", "cast once and keep it (model.to(torch.bfloat16), inputs in the model's type), one autocast region, torch.compile");
    f.count = casts.count;
    f.facts.say(
        Fact::new("kernels that only convert types run {often} and take {share} of the time")
            .with("often", case.rhythm(casts.count))
            .with("share", Figure::Share(lost)),
    );
    f.facts.say(Fact::new("half of them taken out"));
    Some(f)
}

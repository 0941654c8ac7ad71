// SPDX-License-Identifier: Apache-2.0
//! GP103 SMALL-KERNELS: the "busy" GPU runs kernels too small to fill it.
//!
//! # What it means
//! Much of the busy time goes to kernels that end after a few microseconds, or whose blocks fill
//! less than half of the multiprocessors. GPU-Util counts this time as busy, but most of the chip
//! does nothing. It occurs with idle gaps and without.
//!
//! # How it is recognised
//! At least 30% of the kernel time is in kernels that are shorter than 10 µs or have blocks for
//! less than half of the GPU's multiprocessors.
//!
//! # How sure
//! The share is exact. How many kernels can be fused is a guess, so the confidence is never high.
//! The prediction merges every second kernel shorter than 10 µs into its neighbour. Kernels that
//! are long but have a small grid are counted, and nothing is promised for them.
//!
//! # Example
//! ```python
//! # slow: eight kernels
//! def gelu(x):
//!     return 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x**3)))
//! # fixed: one kernel
//! gelu = torch.compile(gelu)
//! ```
//!
//! # What to change
//! Fuse: `torch.compile`, a fused optimizer (`fused=True`), fused norms and attention. Use larger
//! batches, and fewer, larger matrix products.

use super::Case;
use crate::analysis::{Advice, Bound, Bucket, Fact, Figure, Finding, Win};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP103";
/// Name in the line.
pub const NAME: &str = "SMALL-KERNELS";

/// The replay takes half of the spacing and half of the fixed time (that of the run's shortest
/// kernels) off each kernel under [`crate::gaps::SMALL_KERNEL_NS`].
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let small = case.device.small;
    if small.share < super::SMALL_SHARE {
        return None;
    }
    let share = small.share * case.share(&[Bucket::Compute]);
    let kernels = Bound::kernels(&case.device.buckets, share);
    let most = kernels.and(case.touches(&[Bucket::KernelGap])).half();
    let win = if case.trusts_replay() { case.win(&[Fix::Fuse], most) } else { Win::default() };
    let mut f = case.fusing((CODE, NAME), share, win);
    f.advice = Advice::new(
        "torch.compile, or a larger batch",
        "fuse them: torch.compile, fused optimizer and norms, larger batch",
    );
    f.facts.say(
        Fact::new(
            "{share} of kernel time is in kernels under {limit} us or smaller than the GPU, median {median}",
        )
        .with("share", Figure::Share(small.share))
        .with("limit", crate::gaps::SMALL_KERNEL_NS / 1000)
        .with("median", Figure::Time(small.median_ns as f64)),
    );
    f.count = small.small;
    Some(f)
}

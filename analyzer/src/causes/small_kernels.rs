// SPDX-License-Identifier: Apache-2.0
//! GP103 SMALL-KERNELS: the "busy" GPU runs kernels too small to fill it.
//!
//! # What it means
//! Much of the busy time goes to kernels that end after a few microseconds or have fewer blocks than the GPU has
//! multiprocessors. GPU-Util counts them as busy; most of the chip does nothing. It stands beside the buckets: with
//! gaps or without.
//!
//! # How it is recognised
//! At least 30 % of the kernels' time is in kernels shorter than 10 µs (`SMALL_KERNEL_NS`) or with a smaller grid than
//! the GPU has multiprocessors. The prediction merges every second kernel shorter than 10 µs into its neighbour: half
//! of their spacing and half of their fixed time (the run's shortest kernels) go. Kernels that are long but narrow
//! are counted and not promised anything.
//!
//! # How sure
//! The share is exact; how much can be fused is a guess, so this is never named with high confidence.
//!
//! # What to change
//! Fuse: `torch.compile`, fused optimizer (`fused=True`), fused norms and attention; larger batches; fewer, larger
//! matrix products.

use super::Case;
use crate::analysis::{Bound, Bucket, Finding, Win};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP103";
/// Name in the line.
pub const NAME: &str = "SMALL-KERNELS";

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
    f.fix = "fuse them: torch.compile, fused optimizer and norms, larger batch";
    f.text = format!(
        "{:.0} % of kernel time is in kernels under {} us or smaller than the GPU, median {:.1} us",
        small.share * 100.0,
        crate::gaps::SMALL_KERNEL_NS / 1000,
        small.median_ns as f64 / 1000.0
    );
    f.count = small.small;
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP104 KERNEL-GAP: the device's own spacing between kernels that were queued in time.
//!
//! # What it means
//! The host is ahead, and nothing is waited for: the GPU needs 0.3 µs to a few microseconds
//! between the end of one kernel and the start of the next. With many short kernels this adds up.
//!
//! # How it is recognised
//! The gap is at most 5 µs and the launch call of the next kernel had returned when the one before
//! ended. Gaps between two nodes of one CUDA graph launch count at any length. Measured on an H200:
//! 0.26 to 0.5 µs between graph nodes, about 1 µs between eager kernels. In a healthy graph they
//! took 15% of the time.
//!
//! # How sure
//! The share is exact. How many kernels can be fused is a guess, so the confidence is never high.
//! The prediction merges every second small kernel into its neighbour.
//!
//! # Example
//! ```python
//! # slow: three short kernels, with a gap after each
//! def act(x, scale, bias):
//!     return torch.relu(x * scale + bias)
//! # fixed: one kernel
//! act = torch.compile(act)
//! ```
//!
//! # What to change
//! Run fewer, larger kernels: fusion (`torch.compile`), larger batches. CUDA graphs about halve the
//! gaps between eager kernels.

use super::Case;
use crate::analysis::{Advice, Bucket, Fact, Finding, Win};
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP104";
/// Name in the line.
pub const NAME: &str = "KERNEL-GAP";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::KernelGap]);
    if share < NOTICED_SHARE {
        return None;
    }
    let most = case.touches(&[Bucket::KernelGap]).half();
    let win = if case.trusts_replay() { case.win(&[Fix::Fuse], most) } else { Win::default() };
    let mut f = case.fusing((CODE, NAME), share, win);
    f.advice = Advice::new("fewer and larger kernels", "fewer, larger kernels: fusion, larger batch");
    f.facts.say(Fact::new("the device's own spacing between queued kernels"));
    Some(f)
}

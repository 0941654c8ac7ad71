// SPDX-License-Identifier: Apache-2.0
//! GP104 KERNEL-GAP: the device's own spacing between kernels that were queued in time.
//!
//! # What it means
//! The host was ahead, nothing was waited for: finishing one kernel and starting the next takes the device 0.3 to a
//! few microseconds, and with many short kernels this adds up. It is never a wait.
//!
//! # How it is recognised
//! The launch call had returned when the op before ended (or both are nodes of one graph launch), and the gap is at
//! most 5 µs (`KERNEL_GAP_NS`). Measured on an H200: 0.26 to 0.5 µs between nodes of a graph, about 1 µs eager; 15 % of a
//! healthy graph's time.
//!
//! # How sure
//! The share is exact. The prediction merges every second small kernel into its neighbour; how much can be fused is
//! a guess.
//!
//! # What to change
//! Fewer, larger kernels: fusion (`torch.compile`), larger batches. CUDA graphs shorten eager spacing by about half.

use super::Case;
use crate::analysis::{Bucket, Finding, Win};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP104";
/// Name in the line.
pub const NAME: &str = "KERNEL-GAP";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::KernelGap]);
    if share < super::NOTICED_SHARE {
        return None;
    }
    let most = case.touches(&[Bucket::KernelGap]).half();
    let win = if case.trusts_replay() { case.win(&[Fix::Fuse], most) } else { Win::default() };
    let mut f = case.fusing((CODE, NAME), share, win);
    f.fix = "fewer, larger kernels: fusion, larger batch";
    f.text = "the device's own spacing between queued kernels".to_owned();
    Some(f)
}

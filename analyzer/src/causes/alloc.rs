// SPDX-License-Identifier: Apache-2.0
//! GP108 ALLOC: allocating or freeing memory stops the GPU.
//!
//! # What it means
//! `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and their relatives take long and wait for the device. A framework's
//! caching allocator normally avoids them after the first steps; `torch.cuda.empty_cache()`, fragmentation, or memory
//! that is almost full bring them back into every step.
//!
//! # How it is recognised
//! An allocating or freeing call stood until the queue was empty, and nobody launched meanwhile: the gaps after it
//! are charged to it up to the time it stood; so is the time it stood while the device was idle already. The prediction
//! leaves these calls out.
//!
//! # How sure
//! The calls and their times are exact.
//!
//! # What to change
//! Remove `torch.cuda.empty_cache()` from the loop; leave head room in memory; avoid shapes that grow step by step
//! (`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`); allocate pinned buffers once.

use super::Case;
use crate::analysis::{Bucket, Finding};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP108";
/// Name in the line.
pub const NAME: &str = "ALLOC";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Alloc]);
    if share < super::NOTICED_SHARE {
        return None;
    }
    // a drained queue is caught up with in all of these
    let most = case.share(&[Bucket::Alloc, Bucket::Launch, Bucket::Host, Bucket::Sync, Bucket::KernelGap]);
    let win =
        if case.trusts_replay() { case.win(&[Fix::Alloc], most) } else { share.min(case.elsewhere.room()) };
    let mut f = case.finding((CODE, NAME), share, win);
    f.fix = "remove empty_cache() from the loop, leave head room in memory, allocate pinned buffers once";
    if let Some(top) = case.top(Bucket::Alloc) {
        f.text = format!("{} stops the device {}", top.name, case.rhythm(top.calls));
        f.call = top.flat;
        f.count = top.calls;
    }
    if let Some(spot) = case.spot(Bucket::Alloc) {
        let rhythm = case.rhythm(spot.calls);
        f.text = format!("{}: {} stops the device {rhythm}{}", spot.site, spot.name, spot.rest());
        f.count = spot.calls;
        spot.into(&mut f);
    }
    Some(f)
}

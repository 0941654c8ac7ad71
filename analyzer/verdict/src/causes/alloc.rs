// SPDX-License-Identifier: Apache-2.0
//! GP108 ALLOC: allocating or freeing memory stops the GPU.
//!
//! # What it means
//! `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and related calls are slow and wait for the device.
//! The framework's caching allocator normally avoids them after the first steps.
//! `torch.cuda.empty_cache()`, fragmentation, or memory that is almost full bring them back into
//! every step.
//!
//! # How it is recognised
//! An allocating or freeing call lasted until the queue was empty, and no thread launched
//! meanwhile. The gaps after it are charged to it, up to the length of the call. Time of the call
//! in which the GPU was idle already is charged too. If most of it belongs to allocations that
//! failed and were tried again, it is GP118 ALLOC-FRAGMENTED.
//!
//! # How sure
//! The calls and their times are exact. The prediction leaves these calls out.
//!
//! # Example
//! ```python
//! # slow: returns all cached memory and allocates it again in every step
//! for batch in loader:
//!     train_step(batch)
//!     torch.cuda.empty_cache()
//! # fixed: the caching allocator reuses it
//! for batch in loader:
//!     train_step(batch)
//! ```
//!
//! # What to change
//! Remove `torch.cuda.empty_cache()` from the loop. Leave some memory free. Avoid shapes that grow
//! step by step, or set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`. Allocate pinned buffers
//! once.

use super::memory::Failures;
use super::{alloc_fragmented, Case};
use crate::analysis::{Advice, Bucket, Fact, Finding};
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP108";
/// Name in the line.
pub const NAME: &str = "ALLOC";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    match kind(case) {
        Some(_) => None, // it has a name of its own
        None => stops(case, (CODE, NAME), FIX),
    }
}

const FIX: Advice = Advice::new(
    "keep memory, no empty_cache",
    "remove empty_cache() from the loop, leave head room in memory, allocate pinned buffers once",
);

/// The finding where it is of this kind.
pub(super) fn of_kind(case: &Case, cause: (&'static str, &'static str), advice: Advice) -> Option<Finding> {
    kind(case).filter(|k| *k == cause.0).and_then(|_| stops(case, cause, advice))
}

/// The code of what at least half of the time belongs to; `None`: no more is known.
fn kind(case: &Case) -> Option<&'static str> {
    let failures = Failures::of(case.run);
    if failures.retried.is_empty() {
        return None;
    }
    let (mut retried, mut all) = (0u64, 0u64);
    for s in case.device.slices.iter().filter(|s| s.bucket == Bucket::Alloc) {
        let ns = case.analysis.counts.measure(s.span());
        all += ns;
        retried += if ns > 0 && failures.retry_of(case.run, s.call).is_some() { ns } else { 0 };
    }
    (all > 0 && retried * 2 >= all).then_some(alloc_fragmented::CODE)
}

fn stops(case: &Case, cause: (&'static str, &'static str), advice: Advice) -> Option<Finding> {
    let share = case.share(&[Bucket::Alloc]);
    if share < NOTICED_SHARE {
        return None;
    }
    // a drained queue is caught up with in all of these
    let with_it: &[Bucket] = match case.trusts_replay() {
        true => &[Bucket::Alloc, Bucket::Launch, Bucket::Host, Bucket::Sync, Bucket::KernelGap],
        false => &[Bucket::Alloc],
    };
    let mut f = case.finding(cause, share, case.win(&[Fix::Alloc], case.touches(with_it)));
    f.advice = advice;
    let stops = Fact::new("{function} stops the device {often}");
    if let Some(spot) = case.spot(Bucket::Alloc) {
        let often = case.rhythm_at(Bucket::Alloc, &spot);
        f.facts.say(stops.with("function", &*spot.name).with("often", often));
        f.facts.add(spot.rest());
        f.count = spot.calls;
        spot.into(&mut f);
    } else if let Some(top) = case.top(Bucket::Alloc) {
        let often = case.rhythm_by(Bucket::Alloc, &top);
        f.facts.say(stops.with("function", top.name).with("often", often));
        (f.call, f.count) = (top.flat, top.calls);
    }
    case.name_by_range(&mut f, Bucket::Alloc);
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! What the sampler cost and could not do: written by its thread alone, read by the drain thread
//! for the header.

use std::sync::atomic::{AtomicU64, Ordering};

use trace::Total;

/// One number.
pub(super) struct Count(AtomicU64);

/// CPU time, ns.
pub(super) static CPU: Count = Count(AtomicU64::new(0));
/// Samples.
pub(super) static LOOKS: Count = Count(AtomicU64::new(0));
/// Of those of threads that call CUDA without a stack because it moved while it was read.
pub(super) static MOVED: Count = Count(AtomicU64::new(0));
/// Of those with the outer frames only.
pub(super) static OUTER: Count = Count(AtomicU64::new(0));
/// Waits for Python's lock whose holder could not be told.
pub(super) static HOLDERS_MISSED: Count = Count(AtomicU64::new(0));

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// All of them, as the header has them.
pub(crate) fn spent() -> [(Total, u64); 5] {
    let counts = [
        (Total::SamplerCpuNs, &CPU),
        (Total::Samples, &LOOKS),
        (Total::SamplesMoved, &MOVED),
        (Total::SamplesOuter, &OUTER),
        (Total::GilHoldersMissed, &HOLDERS_MISSED),
    ];
    counts.map(|(total, count)| (total, count.0.load(Ordering::Relaxed)))
}

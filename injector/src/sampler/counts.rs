// SPDX-License-Identifier: Apache-2.0
// WARM
//! What the sampler cost and could not do: written by its thread alone, read by the drain thread
//! for the header.

use std::sync::atomic::{AtomicU64, Ordering};

use trace::Total;

/// One number.
pub(super) struct Count(AtomicU64);

/// All of them.
pub(super) struct Counts {
    /// CPU time, ns.
    pub(super) cpu: Count,
    /// Samples.
    pub(super) looks: Count,
    /// Of those of threads that call CUDA without a stack because it moved while it was read.
    pub(super) moved: Count,
    /// Of those with the outer frames only.
    pub(super) outer: Count,
    /// Waits for Python's lock whose holder could not be told.
    pub(super) holders_missed: Count,
}

pub(super) static COUNTS: Counts = Counts {
    cpu: Count(AtomicU64::new(0)),
    looks: Count(AtomicU64::new(0)),
    moved: Count(AtomicU64::new(0)),
    outer: Count(AtomicU64::new(0)),
    holders_missed: Count(AtomicU64::new(0)),
};

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
        (Total::SamplerCpuNs, &COUNTS.cpu),
        (Total::Samples, &COUNTS.looks),
        (Total::SamplesMoved, &COUNTS.moved),
        (Total::SamplesOuter, &COUNTS.outer),
        (Total::GilHoldersMissed, &COUNTS.holders_missed),
    ];
    counts.map(|(total, count)| (total, count.0.load(Ordering::Relaxed)))
}

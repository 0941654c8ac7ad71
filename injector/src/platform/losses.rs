// SPDX-License-Identifier: Apache-2.0
// HOT
//! Live counters of everything lost. Anybody adds, the drain thread copies them into the
//! recording's header.

use std::sync::atomic::{AtomicU64, Ordering};

use trace::{loss, Loss};

static COUNTERS: [AtomicU64; loss::SLOTS] = [const { AtomicU64::new(0) }; loss::SLOTS];

/// Adds `n` to a counter.
#[inline]
pub(crate) fn add(loss: Loss, n: u64) {
    if let Some(c) = COUNTERS.get(loss.code() as usize) {
        c.fetch_add(n, Ordering::Relaxed);
    }
}

/// Reads a counter.
pub(crate) fn get(loss: Loss) -> u64 {
    COUNTERS.get(loss.code() as usize).map_or(0, |c| c.load(Ordering::Relaxed))
}

/// All counters, as the header stores them.
pub(crate) fn all() -> [u64; loss::SLOTS] {
    let mut out = [0; loss::SLOTS];
    for (o, c) in out.iter_mut().zip(&COUNTERS) {
        *o = c.load(Ordering::Relaxed);
    }
    out
}

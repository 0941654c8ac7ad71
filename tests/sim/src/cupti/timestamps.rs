// SPDX-License-Identifier: Apache-2.0
//! The clock CUPTI's records are in: CLOCK_REALTIME, or the client's timestamp callback.
//!
//! CPU-side times call the callback directly. Device times are CLOCK_MONOTONIC inside the engine
//! and are converted when a buffer is handed out, linearly between two readings of both clocks, as
//! the real library does. A callback that turns out to be CLOCK_MONOTONIC itself converts exactly,
//! so that tests can compare to the nanosecond.

use crate::clock;
use crate::foreign::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// `uint64_t (*)(void)`.
pub(crate) type Callback = extern "C" fn() -> u64;

static CALLBACK: AtomicUsize = AtomicUsize::new(0);
/// Engine time and client time at registration.
static ANCHOR: Mutex<(u64, u64)> = Mutex::new((0, 0));

fn callback() -> Option<Callback> {
    let at = CALLBACK.load(Ordering::Acquire);
    // SAFETY: only `register` stores here, a function pointer of exactly this type.
    (at != 0).then(|| unsafe { std::mem::transmute::<usize, Callback>(at) })
}

/// Both clocks at one moment: of 16 tries the one with the smallest bracket. True: all readings lay
/// in their bracket.
fn both(client: Callback) -> (u64, u64, bool) {
    let (mut best, mut same) = ((u64::MAX, 0, 0), true);
    for _ in 0..16 {
        let before = clock::now();
        let theirs = client();
        let after = clock::now();
        same &= before <= theirs && theirs <= after;
        if after - before < best.0 {
            best = (after - before, before + (after - before) / 2, theirs);
        }
    }
    (best.1, best.2, same)
}

/// Replaces the timestamp callback.
pub(crate) fn register(client: Callback) {
    let (mono, theirs, _) = both(client);
    *lock(&ANCHOR) = (mono, theirs);
    CALLBACK.store(client as usize, Ordering::Release);
}

/// Back to the default clock (cuptiFinalize).
pub(crate) fn reset() {
    CALLBACK.store(0, Ordering::Release);
}

/// Now, for CPU-side records.
pub(crate) fn now() -> u64 {
    match callback() {
        Some(client) => client(),
        None => clock::realtime(),
    }
}

/// Turns engine times into the client's; made once per delivery.
pub(crate) struct Converter {
    mono: u64,
    theirs: u64,
    slope: f64,
}

/// The conversion as of now.
pub(crate) fn converter() -> Converter {
    let Some(client) = callback() else {
        let mono = clock::now();
        return Converter { mono, theirs: clock::realtime(), slope: 1.0 };
    };
    let (mono, theirs, same) = both(client);
    if same {
        return Converter { mono: 0, theirs: 0, slope: 1.0 };
    }
    let (mono_0, theirs_0) = *lock(&ANCHOR);
    let span = mono.saturating_sub(mono_0);
    let slope = if span > 1_000_000 { theirs.saturating_sub(theirs_0) as f64 / span as f64 } else { 1.0 };
    Converter { mono, theirs, slope }
}

impl Converter {
    /// An engine time in the client's clock.
    pub(crate) fn apply(&self, at: u64) -> u64 {
        let distance = at as i64 - self.mono as i64;
        if self.slope == 1.0 {
            return (self.theirs as i64 + distance) as u64;
        }
        (self.theirs as i64 + (distance as f64 * self.slope) as i64) as u64
    }
}

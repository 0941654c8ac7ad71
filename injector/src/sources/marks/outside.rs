// SPDX-License-Identifier: Apache-2.0
// WARM
//! What a command outside asks for, and is told: recording on for a while whatever the program
//! wants (`control`).

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

/// Until when recording is on whatever the program wants, CLOCK_MONOTONIC ns; 0: it is as the
/// program wants it.
static FORCED_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Recording is on until `deadline` (CLOCK_MONOTONIC, ns), whatever the program wants; a later call
/// replaces an earlier one. The drain thread heeds it when its round begins (`Capture::heed`).
pub(crate) fn force_until(deadline: u64) {
    FORCED_UNTIL.store(deadline, Ordering::Relaxed);
}

/// From the next round on recording is as the program wants it.
pub(crate) fn release() {
    FORCED_UNTIL.store(0, Ordering::Relaxed);
}

/// Is recording on whatever the program wants?
pub(crate) fn is_forced(now: u64) -> bool {
    now < FORCED_UNTIL.load(Ordering::Relaxed)
}

/// A [`Recorded`].
static RECORDED: AtomicU8 = AtomicU8::new(Recorded::Part as u8);

/// What is recorded without being asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recorded {
    /// Everything: the program wants that, and there are no windows.
    All,
    /// Not all of it; more, if it is asked for.
    Part,
    /// Nothing, and nothing can be.
    NoMore,
}

/// By the drain thread.
pub(crate) fn set_recorded(recorded: Recorded) {
    RECORDED.store(recorded as u8, Ordering::Relaxed);
}

/// What it said last.
pub(crate) fn recorded() -> Recorded {
    let all = [Recorded::All, Recorded::Part, Recorded::NoMore];
    let number = RECORDED.load(Ordering::Relaxed);
    all.into_iter().find(|r| *r as u8 == number).unwrap_or(Recorded::Part)
}

// SPDX-License-Identifier: Apache-2.0
// HOT (one relaxed load)
//! Where gapprobe stands in this process.
//!
//! ```text
//!  Dormant --InitializeInjection--> Attached --first context or buffer--> Recording --atexit--> Leaving
//!     |                                |                                      |                    |
//!     +---------- fork child, caught panic, switched off, exec ---------------+---------> Inert <--+
//! ```
//! Inert is final: callbacks return at once, no thread of ours does anything for the program any
//! more.

use std::sync::atomic::{AtomicU32, Ordering};

/// The states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum State {
    /// Loaded; CUDA has not called us. No thread, no file, no CUPTI.
    Dormant = 0,
    /// CUPTI is set up; nothing was used yet.
    Attached = 1,
    /// The drain thread runs, the recording exists.
    Recording = 2,
    /// The exit handler has begun.
    Leaving = 3,
    /// Off for good.
    Inert = 4,
}

static STATE: AtomicU32 = AtomicU32::new(0);

/// The state now.
#[inline]
pub(crate) fn get() -> State {
    match STATE.load(Ordering::Acquire) {
        0 => State::Dormant,
        1 => State::Attached,
        2 => State::Recording,
        3 => State::Leaving,
        _ => State::Inert,
    }
}

/// Callbacks record only in these states.
#[inline]
pub(crate) fn is_live() -> bool {
    matches!(STATE.load(Ordering::Relaxed), 1 | 2)
}

/// Goes on to `to`, if that is forward: the only transition function. Returns whether this call
/// made the step.
pub(crate) fn set(to: State) -> bool {
    STATE.fetch_max(to as u32, Ordering::AcqRel) < to as u32
}

/// Tests run in one process.
#[cfg(test)]
pub(crate) fn reset_for_tests() {
    STATE.store(0, Ordering::SeqCst);
}

// SPDX-License-Identifier: Apache-2.0
// COLD
//! What the drain thread wants CUPTI to be, on or off, and what it is.

use std::sync::atomic::{AtomicU8, Ordering};

use super::safepoint;
use crate::sources::cupti::{arbiter, flushing, session};
use crate::sources::hostpool;

static SWITCH: AtomicU8 = AtomicU8::new(IS_ON);
const IS_ON: u8 = 0;
const WANTS_OFF: u8 = 1;
const IS_OFF: u8 = 2;
const WANTS_ON: u8 = 3;
const WANTS_OFF_FOR_GRAPHS: u8 = 4;
const WANTS_OFF_FOR_GOOD: u8 = 5;

/// What CUPTI is to do for a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Switch {
    On = WANTS_ON,
    Off = WANTS_OFF,
    /// Off, on and off: what was on when the context was created goes on recording the nodes of
    /// graphs after it was switched off for the first time (docs/windows.md).
    OffForGraphs = WANTS_OFF_FOR_GRAPHS,
    /// Off whoever launches meanwhile, by the flush thread: what CUPTI recorded behind that would
    /// be broken (docs/windows.md), and it is never on again.
    OffForGood = WANTS_OFF_FOR_GOOD,
}

/// Has CUPTI switched as soon as that can be done. By the drain thread.
pub(super) fn ask(switch: Switch) {
    SWITCH.store(switch as u8, Ordering::Release);
    if switch != Switch::OffForGood {
        safepoint::want(safepoint::SWITCH);
    }
}

/// Is CUPTI to be on?
pub(super) fn is_wanted_on() -> bool {
    matches!(SWITCH.load(Ordering::Acquire), IS_ON | WANTS_ON)
}

/// Is something to be switched?
pub(crate) fn is_pending() -> bool {
    !matches!(SWITCH.load(Ordering::Acquire), IS_ON | IS_OFF)
}

/// Is it done?
pub(crate) fn is_done(on: bool) -> bool {
    SWITCH.load(Ordering::Acquire) == if on { IS_ON } else { IS_OFF }
}

/// By the flush thread: what is to go off for good goes off now, whoever launches.
pub(crate) fn off_for_good() {
    if SWITCH.load(Ordering::Acquire) == WANTS_OFF_FOR_GOOD {
        at_rest();
    }
}

/// Switches as was asked for, by a thread that found no launch under way ([`safepoint`]); waits for
/// nothing. `false`: not now (a flush is under way, or another client has CUPTI).
pub(super) fn at_rest() -> bool {
    let Some(_held) = flushing::try_hold() else { return false };
    let wanted = SWITCH.load(Ordering::Acquire);
    let (on, done) = match wanted {
        WANTS_ON => (true, IS_ON),
        WANTS_OFF | WANTS_OFF_FOR_GRAPHS | WANTS_OFF_FOR_GOOD => (false, IS_OFF),
        _ => return true,
    };
    if wanted == WANTS_OFF_FOR_GRAPHS && session::switch(false) {
        session::switch(true);
    }
    // what was recorded comes back with later flushes
    if !session::switch(on) && (on || !arbiter::is_yielded()) {
        return false;
    }
    let _ = SWITCH.compare_exchange(wanted, done, Ordering::AcqRel, Ordering::Relaxed);
    hostpool::wake_reader();
    true
}

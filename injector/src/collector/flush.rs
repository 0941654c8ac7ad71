// SPDX-License-Identifier: Apache-2.0
// WARM
//! The thread that asks CUPTI for its buffers (beside XLA only at the end: `cupti::xla`), and does
//! nothing else while the program runs: a flush may take long (measured on the H200: over three
//! seconds while a CUDA graph of 856 tiny kernels was replayed without a pause), and rings and
//! buffers must be drained meanwhile. All its signals are blocked; it holds no lock while it is
//! inside CUPTI.

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::collector::drain;
use crate::collector::stopped::Sleep;
use crate::duty_cycle::safepoint;
use crate::platform::threads::Signal;
use crate::platform::{clock, lifecycle};
use crate::shutdown;
use crate::sources::cupti::{arbiter, buffers, choose, reroute, session, xla};

/// Between two plain flushes, ms.
const PERIOD_MS: u32 = 250;
/// A flush is put off for a switch this long, ns.
const GIVES_WAY: u64 = 500_000_000;
/// At the end: plain flushes for this long, then a forced one, ns.
const PLAIN_FOR: u64 = 500_000_000;
/// What a forced flush has not brought back after this long since the first plain one is given up,
/// ns.
const FORCED_BY: u64 = 650_000_000;

/// What the drain thread wants CUPTI to be, and what it is.
static SWITCH: AtomicU8 = AtomicU8::new(IS_ON);
const IS_ON: u8 = 0;
const WANTS_OFF: u8 = 1;
const IS_OFF: u8 = 2;
const WANTS_ON: u8 = 3;
const WANTS_OFF_FOR_GRAPHS: u8 = 4;
const WANTS_OFF_FOR_GOOD: u8 = 5;

static WAKE: Signal = Signal::new();
/// Progress of the final flush: 0 not asked, 1 asked, 2 done.
static FINAL: AtomicU8 = AtomicU8::new(0);
/// Everything the GPU did before this time was delivered, ns.
static COMPLETE_TO: AtomicU64 = AtomicU64::new(0);
/// Flushes of the thread that began, and that ended.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// How far the GPU's side of the recording is complete, ns.
pub(crate) fn complete_to() -> u64 {
    COMPLETE_TO.load(Ordering::Acquire)
}

/// The longest flush so far, ns.
pub(crate) fn longest() -> u64 {
    LONGEST.load(Ordering::Relaxed)
}

/// CUPTI asks for a buffer when the kernel that it is for is on its way: up to 20 us later, and
/// short kernels have ended by then (H200, CUPTI 13.0: in 34 of 34 buffers; of graphs' nodes none),
/// ns. (A thread that is kept from a CPU in between asks that much later.)
const ASKED_LATE: u64 = 1_000_000;

/// A plain flush. Returns from when on the GPU's side of the recording is not complete after it,
/// ns.
pub(crate) fn plain() -> u64 {
    flushed().unwrap_or(0).max(complete_to())
}

/// A plain flush: up to when what had a buffer was delivered, ns. `None` where CUPTI refused it:
/// then nothing is known of what it still holds, buffers of ours out or not.
fn flushed() -> Option<u64> {
    let begin = clock::monotonic();
    let delivered = session::flush(false).then(|| delivered(begin));
    LONGEST.fetch_max(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
    delivered
}

/// Up to when what had a buffer was delivered, ns, as seen after `now`.
fn delivered(now: u64) -> u64 {
    let delivered = buffers::oldest_pending().map_or(now, |lent| lent.min(now));
    COMPLETE_TO.fetch_max(delivered.saturating_sub(ASKED_LATE), Ordering::AcqRel);
    delivered
}

/// The thread's body.
pub(crate) fn run() {
    // (0: what came since we attached is looked at in the first round)
    let mut looked = Looked { loads: 0, at: session::first_use_at() };
    loop {
        if FINAL.load(Ordering::Acquire) == 0 {
            let period = Duration::from_millis(PERIOD_MS.into());
            let sleep = Sleep::begin(period.as_nanos() as u64);
            WAKE.wait(period);
            // before FINAL is looked at: who sets it wakes us after that
            WAKE.take();
            sleep.end();
        }
        if lifecycle::get() == lifecycle::State::Inert {
            return;
        }
        if FINAL.load(Ordering::Acquire) == 1 {
            last();
            FINAL.store(2, Ordering::Release);
            shutdown::remove_half_files();
            return;
        }
        // (first: a flush may take seconds, and the client is there already)
        step_aside_for_new_clients(&mut looked);
        safepoint::from_aside();
        if SWITCH.load(Ordering::Acquire) == WANTS_OFF_FOR_GOOD {
            switch_at_rest();
        }
        give_way();
        BEGUN.fetch_add(1, Ordering::AcqRel);
        {
            let _busy = BUSY.lock();
            if !xla::hands_out_alone(PERIOD_MS) {
                plain();
            } else if !arbiter::is_yielded() {
                delivered(clock::monotonic());
            }
        }
        ENDED.fetch_add(1, Ordering::AcqRel);
    }
}

/// A flush may take seconds (7.8 beside the replays of one graph), and nothing is switched
/// meanwhile: what is to be switched comes first, as far as it can be done soon. Not once the
/// process ends and the final flush is asked for.
fn give_way() {
    let begin = clock::monotonic();
    if is_to_switch() {
        safepoint::try_again();
    }
    let is_early = || clock::monotonic().saturating_sub(begin) < GIVES_WAY;
    while is_to_switch() && FINAL.load(Ordering::Acquire) == 0 && is_early() {
        std::thread::sleep(Duration::from_millis(2));
        safepoint::from_aside();
    }
}

/// Plain flushes until nothing is outstanding or the time is up, then a forced one: what the GPU
/// has not finished comes back with end 0 and is counted, never drawn.
fn last() {
    let begin = clock::monotonic();
    loop {
        let done = flushed().is_some() || arbiter::is_yielded();
        if buffers::oldest_pending().is_none() {
            if done {
                COMPLETE_TO.fetch_max(begin, Ordering::AcqRel);
            }
            return;
        }
        if clock::monotonic().saturating_sub(begin) > PLAIN_FOR {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    session::flush(true);
    // what CUPTI's own thread is delivering is in nobody's flush
    while buffers::oldest_pending().is_some() && clock::monotonic().saturating_sub(begin) < FORCED_BY {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asks the thread for a flush now and returns the number it will have at least: [`has_ended`]
/// tells. A thread of the program's must not flush itself: it would hang with it.
pub(crate) fn ask() -> u64 {
    let number = BEGUN.load(Ordering::Acquire) + 1;
    WAKE.set();
    number
}

/// Has the flush of this number, or a later one, ended?
pub(crate) fn has_ended(number: u64) -> bool {
    ENDED.load(Ordering::Acquire) >= number
}

/// What CUPTI is to do for a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Switch {
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
pub(crate) fn ask_switch(switch: Switch) {
    SWITCH.store(switch as u8, Ordering::Release);
    match switch {
        Switch::OffForGood => WAKE.set(),
        _ => safepoint::want(safepoint::SWITCH),
    }
}

/// Is CUPTI to be on?
pub(crate) fn is_wanted_on() -> bool {
    matches!(SWITCH.load(Ordering::Acquire), IS_ON | WANTS_ON)
}

/// Is something to be switched?
fn is_to_switch() -> bool {
    !matches!(SWITCH.load(Ordering::Acquire), IS_ON | IS_OFF)
}

/// Is it done?
pub(crate) fn is_switched(on: bool) -> bool {
    SWITCH.load(Ordering::Acquire) == if on { IS_ON } else { IS_OFF }
}

/// Held while the thread flushes, and while CUPTI is switched: neither waits inside of CUPTI for
/// the other.
static BUSY: Mutex<()> = Mutex::new(());

/// Switches as was asked for, by a thread that found no launch under way (`duty_cycle::safepoint`;
/// [`Switch::OffForGood`]: by the flush thread); waits for nothing. `false`: not now (a flush is
/// under way, or another client has CUPTI).
pub(crate) fn switch_at_rest() -> bool {
    let Some(_busy) = BUSY.try_lock() else { return false };
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
    drain::wake();
    true
}

/// Asks for the final flush. COLD.
pub(crate) fn ask_last() {
    let _ = FINAL.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire); // asked before, or done: fine
    WAKE.set();
}

/// Is it done?
pub(crate) fn last_is_done() -> bool {
    FINAL.load(Ordering::Acquire) == 2
}

/// When the loader's list was last looked at, ns, and its counter then.
struct Looked {
    loads: u64,
    at: u64,
}

/// A library that takes the subscription by dlsym was mapped since: lead it to our wrappers. One
/// that cannot be led is left the subscription.
fn step_aside_for_new_clients(looked: &mut Looked) {
    let at = clock::monotonic();
    let before = std::mem::replace(looked, Looked { loads: choose::load_count(), at });
    if looked.loads == before.loads {
        return;
    }
    reroute::clients(before.at);
    if session::is_subscribed() && !reroute::all_ask_us() {
        session::give_up_subscription();
        if let Some(session) = session::get().filter(|_| !arbiter::is_yielded() && is_switched(true)) {
            // now with all calls in the filter; the kinds are on already
            let _ = session::enable(session);
        }
    }
}

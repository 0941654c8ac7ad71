// SPDX-License-Identifier: Apache-2.0
// WARM
//! The thread that asks CUPTI for its buffers (beside XLA only at the end: `cupti::xla`), and does
//! nothing else while the program runs: a flush may take long (measured on the H200: over three
//! seconds while a CUDA graph of 856 tiny kernels was replayed without a pause), and rings and
//! buffers must be drained meanwhile. All its signals are blocked; it holds no lock while it is
//! inside CUPTI.

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::time::Duration;

use crate::collector::stopped::Sleep;
use crate::duty_cycle::{safepoint, switch};
use crate::platform::threads::Signal;
use crate::platform::{clock, lifecycle};
use crate::recording::half_files;
use crate::sources::cupti::{arbiter, buffers, choose, flushing, reroute, session, xla};

/// Between two plain flushes, ms.
const PERIOD_MS: u32 = 250;
/// A flush is put off for a switch this long, ns.
const GIVES_WAY: u64 = 500_000_000;
/// At the end: plain flushes for this long, then a forced one, ns.
const PLAIN_FOR: u64 = 500_000_000;
/// What a forced flush has not brought back after this long since the first plain one is given up,
/// ns.
const FORCED_BY: u64 = 650_000_000;

/// The thread, and how far it is.
struct Flusher {
    wake: Signal,
    /// Progress of the final flush: 0 not asked, 1 asked, 2 done.
    last_flush: AtomicU8,
    /// Flushes of the thread that began, and that ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

static FLUSHER: Flusher = Flusher {
    wake: Signal::new(),
    last_flush: AtomicU8::new(0),
    begun: AtomicU64::new(0),
    ended: AtomicU64::new(0),
};

/// The thread's body.
pub(crate) fn run() {
    // (0: what came since we attached is looked at in the first round)
    let mut looked = Looked { loads: 0, at: session::first_use_at() };
    loop {
        if FLUSHER.last_flush.load(Ordering::Acquire) == 0 {
            let period = Duration::from_millis(PERIOD_MS.into());
            let sleep = Sleep::begin(period.as_nanos() as u64);
            FLUSHER.wake.wait(period);
            // before it is looked at whether the last flush is asked for: who does wakes us after
            // that
            FLUSHER.wake.take();
            sleep.end();
        }
        if lifecycle::get() == lifecycle::State::Inert {
            return;
        }
        if FLUSHER.last_flush.load(Ordering::Acquire) == 1 {
            last();
            FLUSHER.last_flush.store(2, Ordering::Release);
            half_files::remove_when_wanted();
            return;
        }
        // (first: a flush may take seconds, and the client is there already)
        step_aside_for_new_clients(&mut looked);
        safepoint::from_aside();
        switch::off_for_good();
        give_way();
        FLUSHER.begun.fetch_add(1, Ordering::AcqRel);
        {
            let _held = flushing::hold();
            if !xla::hands_out_alone(PERIOD_MS) {
                flushing::plain();
            } else if !arbiter::is_yielded() {
                flushing::delivered(clock::monotonic());
            }
        }
        FLUSHER.ended.fetch_add(1, Ordering::AcqRel);
    }
}

/// A flush may take seconds (7.8 beside the replays of one graph), and nothing is switched
/// meanwhile: what is to be switched comes first, as far as it can be done soon. Not once the
/// process ends and the final flush is asked for.
fn give_way() {
    let begin = clock::monotonic();
    if switch::is_pending() {
        safepoint::try_again();
    }
    let is_early = || clock::monotonic().saturating_sub(begin) < GIVES_WAY;
    while switch::is_pending() && FLUSHER.last_flush.load(Ordering::Acquire) == 0 && is_early() {
        std::thread::sleep(Duration::from_millis(2));
        safepoint::from_aside();
    }
}

/// Plain flushes until nothing is outstanding or the time is up, then a forced one: what the GPU
/// has not finished comes back with end 0 and is counted, never drawn.
fn last() {
    let begin = clock::monotonic();
    loop {
        let done = flushing::flushed().is_some() || arbiter::is_yielded();
        if buffers::oldest_pending().is_none() {
            if done {
                flushing::all_delivered(begin);
            }
            return;
        }
        if clock::monotonic().saturating_sub(begin) > PLAIN_FOR {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    flushing::flush(true);
    // what CUPTI's own thread is delivering is in nobody's flush
    while buffers::oldest_pending().is_some() && clock::monotonic().saturating_sub(begin) < FORCED_BY {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asks the thread for a flush now and returns the number it will have at least: [`has_ended`]
/// tells. A thread of the program's must not flush itself: it would hang with it.
pub(crate) fn ask() -> u64 {
    let number = FLUSHER.begun.load(Ordering::Acquire) + 1;
    FLUSHER.wake.set();
    number
}

/// Has the flush of this number, or a later one, ended?
pub(crate) fn has_ended(number: u64) -> bool {
    FLUSHER.ended.load(Ordering::Acquire) >= number
}

/// Asks for the final flush. COLD.
pub(crate) fn ask_last() {
    let _ = FLUSHER.last_flush.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire); // asked before, or done: fine
    FLUSHER.wake.set();
}

/// Is it done?
pub(crate) fn last_is_done() -> bool {
    FLUSHER.last_flush.load(Ordering::Acquire) == 2
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
        if let Some(session) = session::get().filter(|_| !arbiter::is_yielded() && switch::is_done(true)) {
            // now with all calls in the filter; the kinds are on already
            let _ = session::enable(session);
        }
    }
}

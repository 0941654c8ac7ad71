// SPDX-License-Identifier: Apache-2.0
// WARM
//! What the flight recorder is to write: the drain thread asks, its thread takes the orders.
//! Bounded: [`MAX_TRACES`] traces a process, one in [`PAUSE`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use trace::event::Unobserved;
use verdict::text::duration::long;

use super::alarm::{self, Reason};
use super::sync_clock::UnderWay;
use crate::platform::threads::Signal;

/// Traces a process.
const MAX_TRACES: u64 = 10;
/// Between two of them, ns.
const PAUSE: u64 = 300_000_000_000;
/// What is asked for, and what became of it.
struct Desk {
    wanted: Signal,
    order: Mutex<Option<Order>>,
    /// When it was asked last, ns, and how often.
    last: AtomicU64,
    asked: AtomicU64,
    written: AtomicU64,
    /// The thread is there; it is at work.
    is_on: AtomicBool,
    is_busy: AtomicBool,
}

static DESK: Desk = Desk {
    wanted: Signal::new(),
    order: Mutex::new(None),
    last: AtomicU64::new(0),
    asked: AtomicU64::new(0),
    written: AtomicU64::new(0),
    is_on: AtomicBool::new(false),
    is_busy: AtomicBool::new(false),
};

/// A span in which nothing is recorded, and which has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Open {
    pub(crate) since: u64,
    pub(crate) why: Unobserved,
}

/// What is wanted.
pub(crate) struct Order {
    /// When the alarm rang, ns.
    pub(crate) at: u64,
    /// So long there had been no step by then, ns: what is told of begins before that.
    pub(crate) quiet: u64,
    /// Since when steps are slow, if it rang for that and they are recorded, ns.
    pub(crate) slow_since: Option<u64>,
    pub(crate) why: String,
    /// Nothing was recorded then.
    pub(crate) unobserved: Option<Open>,
}

/// Orders are taken from now on.
pub(crate) fn open() {
    DESK.is_on.store(true, Ordering::Release);
}

/// Waits for an order; `None`: there is none after all.
pub(crate) fn wait() -> Option<Order> {
    DESK.wanted.wait(Duration::from_secs(3600));
    DESK.wanted.take();
    let order = DESK.order.lock().take()?;
    DESK.is_busy.store(true, Ordering::Release);
    Some(order)
}

/// The order is done, or will not be.
pub(crate) fn done() {
    DESK.is_busy.store(false, Ordering::Release);
}

/// Is it writing? Who ends the process then has half files removed (`report::give_up`).
pub(crate) fn is_busy() -> bool {
    DESK.is_busy.load(Ordering::Acquire)
}

/// One more trace was written: how many those are.
pub(crate) fn one_more() -> u64 {
    DESK.written.fetch_add(1, Ordering::Relaxed) + 1
}

/// Traces written so far.
pub(super) fn written() -> u64 {
    DESK.written.load(Ordering::Relaxed)
}

/// The alarm rang `now`: a trace is written, unless there were enough. By the drain thread; waits
/// for nobody.
pub(super) fn ask(now: u64, reason: Reason, in_sync: Option<UnderWay>, unobserved: Option<Open>) {
    if matches!(reason, Reason::Missing { .. }) && !reason.is_hang() {
        return;
    }
    let last = DESK.last.load(Ordering::Relaxed);
    let is_early = last != 0 && now.saturating_sub(last) < PAUSE;
    if !DESK.is_on.load(Ordering::Acquire) || is_early || DESK.asked.load(Ordering::Relaxed) >= MAX_TRACES {
        return;
    }
    let Some(mut order) = DESK.order.try_lock() else { return };
    if order.is_some() || DESK.is_busy.load(Ordering::Acquire) {
        return;
    }
    DESK.last.store(now, Ordering::Relaxed);
    DESK.asked.fetch_add(1, Ordering::Relaxed);
    let (quiet, slow_since) = match reason {
        Reason::Missing { ns, .. } => (ns, None),
        Reason::Slow { ns, .. } => (0, Some(now.saturating_sub(ns.saturating_mul(alarm::IN_A_ROW)))),
    };
    // (where nothing is recorded there is nothing more to wait for)
    let slow_since = slow_since.filter(|_| unobserved.is_none());
    *order = Some(Order { at: now, quiet, slow_since, why: why(reason, now, in_sync), unobserved });
    drop(order);
    DESK.wanted.set();
}

/// The reason in words.
fn why(reason: Reason, now: u64, in_sync: Option<UnderWay>) -> String {
    match reason {
        Reason::Slow { ns, usual } => {
            format!("steps take {}, usually {}", step(ns), step(usual))
        }
        Reason::Missing { ns, idle, usual } => {
            let mut text = format!(
                "no step for {} and nothing else for {} (a step usually takes {})",
                long(ns),
                long(idle),
                step(usual)
            );
            if let Some(call) = in_sync {
                let name = trace::call::find(call.call).map_or("a synchronizing call", |c| c.name);
                let since = long(now.saturating_sub(call.since));
                text.push_str(&format!("; thread {} is in {name} for {since}", call.tid));
            }
            text
        }
    }
}

/// A step's time: `long` has no decimals below a second.
fn step(ns: u64) -> String {
    if ns < 1_000_000_000 {
        format!("{:.1} ms", ns as f64 / 1e6)
    } else {
        long(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_reason_names_times_and_the_call_under_way() {
        let slow = Reason::Slow { ns: 5_100_000, usual: 3_000_000 };
        assert_eq!(why(slow, 0, None), "steps take 5.1 ms, usually 3.0 ms");
        let missing = Reason::Missing { ns: 12 * S, idle: 11 * S, usual: 3_000_000 };
        let call = UnderWay { since: 8 * S, tid: 42, call: trace::call::pack(trace::call::RUNTIME, 131) };
        assert_eq!(
            why(missing, 20 * S, Some(call)),
            "no step for 12 s and nothing else for 11 s (a step usually takes 3.0 ms); thread 42 is in cudaStreamSynchronize for 12 s"
        );
    }

    #[test]
    fn there_are_ten_traces_and_five_minutes_between_two() {
        let slow = Reason::Slow { ns: 2, usual: 1 };
        ask(S, slow, None, None);
        assert!(DESK.order.lock().is_none(), "it is not on");
        open();
        let mut now = S;
        let mut asked = |after: u64| {
            now += after;
            ask(now, slow, None, None);
            DESK.order.lock().take().is_some()
        };
        assert!(asked(0));
        assert!(!asked(PAUSE - 1));
        assert_eq!((0..20).filter(|_| asked(PAUSE)).count() as u64, MAX_TRACES - 1);
        let evaluates = Reason::Missing { ns: 12 * S, idle: S, usual: 1 };
        DESK.asked.store(0, Ordering::Relaxed);
        ask(now + 10 * PAUSE, evaluates, None, None);
        assert!(DESK.order.lock().is_none(), "it does something else");
        ask(now + 10 * PAUSE, Reason::Missing { ns: 12 * S, idle: 12 * S, usual: 1 }, None, None);
        assert!(DESK.order.lock().take().is_some());
        DESK.wanted.take();
        DESK.is_on.store(false, Ordering::Release);
    }
}

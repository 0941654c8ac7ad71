// SPDX-License-Identifier: Apache-2.0
// HOT (`enter`, `leave`), COLD (`prepare`), WARM (the rest)
//! Synchronizing calls and the time in them, counted without CUPTI: the clock is read twice a call.
//! Where they are seen: `waits.rs`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::platform::{clock, thread_block};
use crate::sources::hostpool;

/// Waits so far.
struct Waited {
    /// Calls that returned, of all threads, and the time in them, ns.
    calls: AtomicU64,
    ns: AtomicU64,
    under_way: [Place; PLACES],
}

static WAITED: Waited =
    Waited { calls: AtomicU64::new(0), ns: AtomicU64::new(0), under_way: [const { Place::new() }; PLACES] };

/// Calls under way that are shown; the time of others counts as well, once they return.
const PLACES: usize = 64;
/// Places looked at for one call.
const PROBES: usize = 4;
/// `Place::since` while its call is being written.
const CLAIMED: u64 = 1;

/// A call under way. A cache line of its own: others are written by other threads.
#[repr(align(64))]
struct Place {
    /// When it began, ns; 0: free.
    since: AtomicU64,
    tid: AtomicU32,
    call: AtomicU32,
}

impl Place {
    const fn new() -> Place {
        Place { since: AtomicU64::new(0), tid: AtomicU32::new(0), call: AtomicU32::new(0) }
    }

    fn claim(&self, now: u64, tid: u32, call: u32) -> bool {
        let free = self.since.load(Ordering::Relaxed) == 0
            && self.since.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if free {
            self.tid.store(tid, Ordering::Relaxed);
            self.call.store(call, Ordering::Relaxed);
            // Release: pairs with the Acquire in `read`
            self.since.store(now, Ordering::Release);
        }
        free
    }

    fn read(&self) -> Option<UnderWay> {
        let since = self.since.load(Ordering::Acquire);
        let (tid, call) = (self.tid.load(Ordering::Relaxed), self.call.load(Ordering::Relaxed));
        let is_same = since > CLAIMED && self.since.load(Ordering::Relaxed) == since;
        is_same.then_some(UnderWay { since, tid, call })
    }
}

/// A synchronizing call that has not returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnderWay {
    /// When it began, ns.
    pub(crate) since: u64,
    /// Whose it is.
    pub(crate) tid: u32,
    /// Which it is, packed as in a call's event.
    pub(crate) call: u32,
}

/// What [`leave`] needs of [`enter`].
#[derive(Clone, Copy, Default)]
pub(super) struct Entered {
    /// 0: it is inside another one, which is counted.
    at: u64,
    /// Index of its place and 1; 0: none.
    place: usize,
}

/// A synchronizing call begins.
#[inline]
pub(super) fn enter(call: u32) -> Entered {
    if thread_block::with(|b| b.in_sync.replace(true)) {
        return Entered::default();
    }
    let (at, tid) = (clock::monotonic(), hostpool::tid());
    let first = tid as usize % PLACES;
    let mut places = (first..first + PROBES).map(|n| n % PLACES);
    let place = places.find(|n| WAITED.under_way.get(*n).is_some_and(|p| p.claim(at, tid, call)));
    Entered { at, place: place.map_or(0, |n| n + 1) }
}

/// It has returned.
#[inline]
pub(super) fn leave(entered: Entered) {
    if entered.at == 0 {
        return;
    }
    WAITED.ns.fetch_add(clock::monotonic().saturating_sub(entered.at), Ordering::Relaxed);
    WAITED.calls.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = entered.place.checked_sub(1).and_then(|n| WAITED.under_way.get(n)) {
        place.since.store(0, Ordering::Release);
    }
    thread_block::with(|b| b.in_sync.set(false));
}

/// Faults the places in: the program's threads write them. COLD.
pub(super) fn prepare() {
    for place in &WAITED.under_way {
        place.tid.fetch_or(0, Ordering::Relaxed);
    }
}

/// Calls that have returned so far.
pub(super) fn calls() -> u64 {
    WAITED.calls.load(Ordering::Relaxed)
}

/// Time in synchronizing calls until `now`, those under way included, ns. A call that ends
/// meanwhile may be in it twice, or not yet: the caller keeps the sum from going back.
pub(super) fn ns(now: u64) -> u64 {
    let under_way: u64 =
        WAITED.under_way.iter().filter_map(Place::read).map(|c| now.saturating_sub(c.since)).sum();
    WAITED.ns.load(Ordering::Relaxed).saturating_add(under_way)
}

/// Calls under way that began before this time, ns.
pub(super) fn under_way_since(before: u64) -> usize {
    WAITED.under_way.iter().filter_map(Place::read).filter(|c| c.since < before).count()
}

/// A call that took so long is asked whether its thread is still there, ns: one that ended in it
/// (`pthread_cancel`) never returns.
const LONG: u64 = 1_000_000_000;

/// The call that is under way longest.
pub(super) fn longest(now: u64) -> Option<UnderWay> {
    for place in &WAITED.under_way {
        let gone = |c: UnderWay| now.saturating_sub(c.since) > LONG && !is_there(c.tid);
        if let Some(call) = place.read().filter(|c| gone(*c)) {
            let _ = place.since.compare_exchange(call.since, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    WAITED.under_way.iter().filter_map(Place::read).min_by_key(|c| c.since)
}

fn is_there(tid: u32) -> bool {
    let process = std::process::id();
    // SAFETY: takes numbers; signal 0 is none, only the asking.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, 0) };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// One after the other: the counters are the process's.
    static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

    #[test]
    fn a_call_counts_once_with_its_time_and_is_seen_while_it_is_under_way() {
        let _alone = ALONE.lock();
        let before = (calls(), WAITED.ns.load(Ordering::Relaxed));
        let outer = enter(7);
        let begun = clock::monotonic();
        let inner = enter(8); // a library's wrapper that calls the same function
        leave(inner);
        let seen = longest(begun).unwrap();
        assert_eq!((seen.tid, seen.call, calls()), (hostpool::tid(), 7, before.0));
        std::thread::sleep(Duration::from_millis(20));
        let now = clock::monotonic();
        assert!(ns(now) - before.1 >= now - begun, "its time counts before it returns");
        leave(outer);
        assert_eq!((calls(), longest(now)), (before.0 + 1, None));
        let spent = WAITED.ns.load(Ordering::Relaxed) - before.1;
        assert!((20_000_000..clock::monotonic() - seen.since + 1).contains(&spent), "{spent}");
    }

    #[test]
    fn a_thread_that_ended_inside_a_call_is_in_none() {
        let _alone = ALONE.lock();
        let tid = std::thread::scope(|s| {
            let ends_inside = s.spawn(|| {
                let _ = enter(7);
                hostpool::tid()
            });
            ends_inside.join().unwrap()
        });
        let later = clock::monotonic() + 2 * LONG;
        let begun = Instant::now();
        while longest(later).is_some_and(|c| c.tid == tid) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1)); // the kernel lets go of it after the join
        }
        assert_eq!(longest(later), None);
    }

    #[test]
    fn more_calls_than_places_count_all() {
        let _alone = ALONE.lock();
        let before = calls();
        std::thread::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| (0..100).for_each(|_| leave(enter(1))));
            }
        });
        assert_eq!((calls() - before, longest(clock::monotonic())), (10_000, None));
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! When we come back after another client of CUPTI's: once it is done, while no thread launches.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{has_launched_since, lead_calls, safepoint, switch};
use crate::platform::clock;
use crate::sources::cupti::{arbiter, session};
use crate::sources::hostpool;

/// Where no launch was seen for so long, ns, there is no safepoint to wait at.
const NO_LAUNCH: u64 = 1_000_000_000;

/// The span that was not observed when we came back, until the drain thread takes it. Begin and
/// end, ns; 0: none.
static AWAY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The span that was not observed until we came back, once.
pub(crate) fn take_span() -> Option<(u64, u64)> {
    let [from, to] = &AWAY;
    // Acquire pairs with the Release of `at_rest`: with the end the begin is there.
    let ended = to.swap(0, Ordering::Acquire);
    (ended != 0).then(|| (from.load(Ordering::Relaxed), ended))
}

/// From the drain thread: has us re-armed once the other client is done. Returns the span that was
/// not observed.
pub(crate) fn try_to_return() -> Option<(u64, u64)> {
    let span = take_span();
    if span.is_some() || !arbiter::is_yielded() {
        return span;
    }
    // launches are to be seen from now on, for the safepoint
    lead_calls();
    if !arbiter::is_over() {
        return None;
    }
    if has_launched_since(clock::monotonic().saturating_sub(NO_LAUNCH)) {
        safepoint::want(safepoint::RETURN);
        return None;
    }
    // nothing is launched, or nothing that is seen: then no moment is known to be better than this
    // one
    let held = session::hold()?;
    arbiter::return_now(&held, switch::is_wanted_on())
}

/// As [`try_to_return`], by a thread that found no launch under way; waits for nothing. `false`:
/// not now.
pub(super) fn at_rest() -> bool {
    let Some(held) = session::try_hold() else { return false };
    let Some((since, now)) = arbiter::return_now(&held, switch::is_wanted_on()) else {
        return !arbiter::is_yielded() || !arbiter::is_over();
    };
    let [from, to] = &AWAY;
    from.store(since, Ordering::Relaxed);
    to.store(now, Ordering::Release);
    hostpool::wake_reader();
    true
}

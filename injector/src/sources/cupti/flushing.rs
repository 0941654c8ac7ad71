// SPDX-License-Identifier: Apache-2.0
// WARM
//! Flushes: CUPTI is asked for its buffers, and how far the GPU's side of the recording is complete
//! by that.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::session::{self, Session};
use super::{arbiter, buffers};
use crate::platform::{clock, threads};

/// What was flushed.
struct Flushes {
    /// Everything the GPU did before this time was delivered, ns.
    complete_to: AtomicU64,
    longest: AtomicU64,
    /// Held while the flush thread flushes, and while CUPTI is switched: neither waits inside of
    /// CUPTI for the other.
    busy: Mutex<()>,
    /// Flushes of ours under way.
    under_way: AtomicU32,
    /// A forced flush was done: from then on a record without times is one that was not finished.
    forced: AtomicBool,
}

static FLUSHES: Flushes = Flushes {
    complete_to: AtomicU64::new(0),
    longest: AtomicU64::new(0),
    busy: Mutex::new(()),
    under_way: AtomicU32::new(0),
    forced: AtomicBool::new(false),
};

/// Nothing is switched while this is held.
pub(crate) fn hold() -> MutexGuard<'static, ()> {
    FLUSHES.busy.lock()
}

/// No flush is under way while this is held; `None`: one is.
pub(crate) fn try_hold() -> Option<MutexGuard<'static, ()>> {
    FLUSHES.busy.try_lock()
}

/// How far the GPU's side of the recording is complete, ns.
pub(crate) fn complete_to() -> u64 {
    FLUSHES.complete_to.load(Ordering::Acquire)
}

/// The longest flush so far, ns.
pub(crate) fn longest() -> u64 {
    FLUSHES.longest.load(Ordering::Relaxed)
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
pub(crate) fn flushed() -> Option<u64> {
    let begin = clock::monotonic();
    let delivered = flush(false).then(|| delivered(begin));
    FLUSHES.longest.fetch_max(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
    delivered
}

/// Up to when what had a buffer was delivered, ns, as seen after `now`.
pub(crate) fn delivered(now: u64) -> u64 {
    let delivered = buffers::oldest_pending().map_or(now, |lent| lent.min(now));
    FLUSHES.complete_to.fetch_max(delivered.saturating_sub(ASKED_LATE), Ordering::AcqRel);
    delivered
}

/// Nothing is outstanding: everything before `begin` was delivered.
pub(crate) fn all_delivered(begin: u64) {
    FLUSHES.complete_to.fetch_max(begin, Ordering::AcqRel);
}

/// Asks CUPTI for its buffers. Plain: those whose records are all complete. Forced: all of them;
/// what is unfinished comes back with end 0 and never again. Blocks; WARM threads only, no lock
/// held.
pub(crate) fn flush(forced: bool) -> bool {
    let Some(session) = session::get() else { return false };
    // counted before it is asked whether we stand aside, and the other way round there: one of the
    // two sees the other
    FLUSHES.under_way.fetch_add(1, Ordering::SeqCst);
    let done = !arbiter::is_yielded() && flush_now(session, forced);
    FLUSHES.under_way.fetch_sub(1, Ordering::SeqCst);
    done
}

fn flush_now(session: &Session, forced: bool) -> bool {
    if forced {
        FLUSHES.forced.store(true, Ordering::Release);
    }
    // SAFETY: plain call; no lock of ours is held (callers' contract).
    session::ok(unsafe { (session.cupti.activity_flush_all)(u32::from(forced)) })
}

/// A slow flush takes three seconds (measured, under CUDA graphs); one that takes longer hangs.
const LONGEST_FLUSH: u64 = 5_000_000_000;

/// Another client is about to register its buffers, and we stand aside already: waits until no
/// flush of ours is under way. What such a flush still has to hand out would be handed to the other
/// client, which frees it. Not without end: a flush may hang.
pub(super) fn wait_for_flushes() {
    let begin = clock::monotonic();
    while FLUSHES.under_way.load(Ordering::SeqCst) != 0
        && clock::monotonic().saturating_sub(begin) < LONGEST_FLUSH
    {
        threads::pause(1);
    }
}

/// Together 127 ms, where one never comes back.
const REST_PAUSES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Everything of ours is switched off, and buffers are out all the same: other threads launched
/// meanwhile. Collects them.
pub(super) fn flush_rest(session: &Session) {
    for pause in REST_PAUSES {
        if !buffers::is_any_lent() {
            return;
        }
        flush_now(session, true);
        threads::pause(pause); // one of them may be in a launch that has just been given it
    }
}

/// Was anything ever flushed by force?
pub(super) fn was_forced() -> bool {
    FLUSHES.forced.load(Ordering::Acquire)
}

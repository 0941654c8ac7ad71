// SPDX-License-Identifier: Apache-2.0
// COLD
//! Between CUPTI and its other clients. Our library exports the five CUPTI functions through which
//! a client takes over (`exports.rs`); PyTorch's calls arrive here first (measured on the H200).
//!
//! * `cuptiSubscribe`: we give our subscription up, then forward.
//! * `cuptiActivityRegisterCallbacks`: we flush, wait for flushes of ours that are under way (what
//!   they hand out later would be handed to the other, which frees it), switch everything of ours
//!   off (a kind left on leaks into the other's trace) and step aside; the span until we are back
//!   is recorded as unobserved, never as idle. What the other has switched on before it (Proton
//!   does) went off with it, and goes on again once the buffers are its own.
//! * when all kinds the other switched on are off again and it has flushed, the drain thread has us
//!   re-armed, while no thread launches (`duty_cycle::comeback`);
//! * after another client's `cuptiFinalize` we do not come back: the rest of the run is unobserved.
//!   The same where a client has another copy of libcupti, or comes by the V2 API.
//!
//! Clients that resolve these functions by `dlsym` are led here too (`reroute`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cupti_sys::{Cupti, CuptiResult};
use trace::Loss;

use super::{buffers, choose, flushing, session};
use crate::platform::guard::guard;
use crate::platform::{clock, heap, lifecycle, losses, say};
use crate::sources::above;

/// What is known of the other client.
struct Other {
    yielded_at: AtomicU64,
    /// Kinds the other client has on, one bit each.
    their_kinds: AtomicU64,
    they_flushed: AtomicBool,
    /// Some of these went off with ours: CUPTI has one switch a kind.
    theirs_went_off: AtomicBool,
    last_call: AtomicU64,
    /// Another client tore CUPTI down: re-enabling after that has crashed processes with CUDA
    /// graphs (H200).
    torn_down: AtomicBool,
    /// A client of the V2 API has subscribed, or is about to; and we made room for it.
    v2_is_here: AtomicBool,
    finalized: AtomicBool,
    was_said: AtomicBool,
    /// The buffers that CUPTI has are another client's: they are handed over again with the next
    /// window.
    buffers_were_theirs: AtomicBool,
    /// Calls of the other that are under way and take long: it registers its buffers (and waits for
    /// us), or it flushes.
    under_way: AtomicU32,
}

static OTHER: Other = Other {
    yielded_at: AtomicU64::new(0),
    their_kinds: AtomicU64::new(0),
    they_flushed: AtomicBool::new(false),
    theirs_went_off: AtomicBool::new(false),
    last_call: AtomicU64::new(0),
    torn_down: AtomicBool::new(false),
    v2_is_here: AtomicBool::new(false),
    finalized: AtomicBool::new(false),
    was_said: AtomicBool::new(false),
    buffers_were_theirs: AtomicBool::new(false),
    under_way: AtomicU32::new(0),
};

/// After the other's last call of any kind we wait this long before we re-arm, ns.
const SETTLE: u64 = 300_000_000;
/// ... and this long where it switched its kinds off but was never seen to flush.
const SETTLE_UNFLUSHED: u64 = 5_000_000_000;

/// Another client has the activity buffers.
pub(crate) fn is_yielded() -> bool {
    OTHER.yielded_at.load(Ordering::SeqCst) != 0
}

/// Are the buffers another client's? From now on they are ours again.
pub(crate) fn buffers_were_theirs() -> bool {
    OTHER.buffers_were_theirs.swap(false, Ordering::AcqRel)
}

/// The real functions: ours if attached, else of whatever libcupti is mapped by now. `None`: no
/// CUPTI in the process.
pub(crate) fn real() -> Option<Cupti> {
    if let Some(session) = session::get() {
        return Some(session.cupti);
    }
    choose::driver()?; // some releases crash on any call without it
    let library = choose::already_mapped()?;
    // SAFETY: an open handle, kept for ever; libcupti by name.
    unsafe { cupti_sys::open_handle(library.handle.as_ptr()) }.ok()
}

/// The real functions if we are attached. Where the search for them failed (a fault of ours) the
/// client's call still arrives.
pub(crate) fn attached() -> Option<Cupti> {
    session::get().map(|s| s.cupti)
}

/// After a fault gapprobe is off, but CUPTI still records for us, and has buffers of ours: nothing
/// of it may reach another client. Called where one of its calls is about to be forwarded;
/// `takes_over`: the one that registers its buffers.
pub(crate) fn after_fault(takes_over: bool) {
    static DISARMED: AtomicBool = AtomicBool::new(false);
    static TAKEN_OVER: AtomicBool = AtomicBool::new(false);
    if losses::get(Loss::CaughtPanic) == 0 && !heap::has_ended_us() {
        return;
    }
    guard((), || {
        if is_yielded() || TAKEN_OVER.load(Ordering::Acquire) {
            return;
        }
        let Some(session) = session::get() else { return };
        if !DISARMED.swap(true, Ordering::AcqRel) && OTHER.their_kinds.load(Ordering::Acquire) == 0 {
            session::give_up_subscription();
            session::disable(session);
        }
        if takes_over {
            TAKEN_OVER.store(true, Ordering::Release);
            flushing::wait_for_flushes();
            flushing::flush(true); // the other would free our buffers
        }
    });
}

fn note() {
    OTHER.last_call.store(clock::monotonic(), Ordering::Relaxed);
}

/// Before another client's `cuptiSubscribe` is forwarded.
pub(crate) fn before_subscribe() {
    note();
    session::give_up_subscription();
}

/// Before another client's `cuptiActivityRegisterCallbacks` is forwarded.
pub(crate) fn before_register() {
    OTHER.under_way.fetch_add(1, Ordering::AcqRel);
    note();
    let Some(session) = session::get() else { return };
    OTHER.buffers_were_theirs.store(true, Ordering::Release);
    // who is about to come back has come back, or sees that we were here
    drop(session::hold());
    if lifecycle::is_live() && OTHER.yielded_at.load(Ordering::Acquire) == 0 {
        // what is still queued comes back unfinished: it belongs to the span we do not observe,
        // which begins with it
        let since = flushing::plain().min(clock::monotonic()).max(1);
        flushing::flush(true);
        OTHER.yielded_at.store(since, Ordering::SeqCst);
        OTHER.buffers_were_theirs.store(true, Ordering::Release); // a window may have begun meanwhile
        flushing::wait_for_flushes();
        session::disable(session);
        OTHER.theirs_went_off.store(OTHER.their_kinds.load(Ordering::Acquire) != 0, Ordering::Release);
        flushing::flush_rest(session);
        buffers::write_off_lent();
        OTHER.they_flushed.store(false, Ordering::Relaxed);
    }
}

/// It was forwarded.
pub(crate) fn after_register() {
    note();
    if let (true, Some(session)) = (OTHER.theirs_went_off.swap(false, Ordering::AcqRel), session::get()) {
        // not before: a buffer of ours that is lent to such a kind would be handed to the other,
        // which frees it
        let theirs = OTHER.their_kinds.load(Ordering::Acquire);
        for kind in (0..u64::BITS).filter(|kind| theirs >> kind & 1 != 0) {
            // SAFETY: a kind that the other switched on with success.
            session::ok(unsafe { (session.cupti.activity_enable)(kind) });
        }
    }
    OTHER.under_way.fetch_sub(1, Ordering::AcqRel);
}

/// Another client switched a kind on or off.
pub(crate) fn on_kind(kind: u32, on: bool) {
    note();
    let bit = 1u64.checked_shl(kind).unwrap_or(0);
    if on {
        OTHER.their_kinds.fetch_or(bit, Ordering::AcqRel);
        OTHER.they_flushed.store(false, Ordering::Relaxed);
    } else {
        OTHER.their_kinds.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Have clients of V1 kinds on that we were told of?
pub(super) fn has_seen_kinds() -> bool {
    OTHER.their_kinds.load(Ordering::Acquire) != 0
}

/// Another client begins to flush.
pub(crate) fn before_flush() {
    OTHER.under_way.fetch_add(1, Ordering::AcqRel);
}

/// Another client flushed.
pub(crate) fn on_flush() {
    note();
    OTHER.under_way.fetch_sub(1, Ordering::AcqRel);
    OTHER.they_flushed.store(true, Ordering::Relaxed);
}

/// Another client tears CUPTI down: our kinds and subscription go with it, and we do not come back.
pub(crate) fn before_finalize() {
    note();
    session::give_up_subscription();
    OTHER.torn_down.store(true, Ordering::Release);
    OTHER.yielded_at.compare_exchange(0, clock::monotonic().max(1), Ordering::SeqCst, Ordering::Relaxed).ok();
    flushing::wait_for_flushes(); // CUPTI is to be left alone by then
}

/// Another client uses another copy of libcupti, and two in a process silence each other: we leave
/// ours, for good. It may have begun at any time after `since`, ns: what was recorded from then on
/// may be anything.
pub(crate) fn leave(since: u64) {
    if OTHER.torn_down.swap(true, Ordering::AcqRel) || session::get().is_none() {
        return;
    }
    session::give_up_subscription();
    before_register();
    OTHER.under_way.fetch_sub(1, Ordering::AcqRel);
    if is_yielded() {
        OTHER.yielded_at.fetch_min(since.max(1), Ordering::SeqCst);
    }
}

/// Who has CUPTI where V1 is refused.
pub(crate) const V2_HAS_IT: &str =
    "a client of CUPTI's V2 API (torch.profiler with CuspyConfig, cupti-python) has the GPU's records";

/// From this release on a client of the V2 API can begin after V1 was torn down.
const V2_IS_WHOLE: u32 = 130_300;

/// A client of the V2 API subscribes. V1 and V2 cannot share a process: it would be answered
/// MULTIPLE_SUBSCRIBERS, and once we had gone NOT_COMPATIBLE, until CUPTI is torn down (H200, CUPTI
/// 13.2 to 13.5, `tests/gpu/programs/v2_client.c`). So we leave for good; then [`make_room`].
pub(crate) fn before_subscribe_v2() {
    note();
    OTHER.v2_is_here.store(true, Ordering::Release);
    let (Some(above), Some(_), false) = (above::get(), gives_way(), has_left()) else { return };
    (above.settle)(); // what was recorded is read with CUPTI's help
    leave(clock::monotonic());
    (above.settle)();
}

/// The session, where it can give way to V2: not below 13.3, which clients refuse (a teardown
/// crashed there in one of two runs, H200), nor while another client of V1 records.
fn gives_way() -> Option<&'static session::Session> {
    session::get().filter(|s| s.version >= V2_IS_WHOLE && !has_seen_kinds())
}

/// Tears CUPTI down for it, and says so. `true`, if it comes to its end.
pub(crate) fn make_room() -> bool {
    if gives_way().is_some() && !is_finalized() {
        tear_down();
    }
    if is_finalized() && !OTHER.was_said.swap(true, Ordering::AcqRel) {
        say::line(&format!("gapprobe: recording ends here: {V2_HAS_IT}"));
    }
    true
}

/// Once, while nobody launches: beside threads that launch and copy it crashed CUPTI 13.4 in two of
/// 4,800. Cannot fail.
pub(crate) fn tear_down() {
    let (Some(above), Some(_), false) = (above::get(), gives_way(), is_finalized()) else { return };
    (above.while_nobody_launches)(|| {
        OTHER.finalized.store(true, Ordering::Release);
        if let Some(finalize) = session::get().and_then(|s| s.cupti.finalize) {
            // SAFETY: nothing of ours is on, no launch is under way, and we do not come back.
            let _ = unsafe { finalize() }; // refused: the other is told so, as without us
        }
    });
}

/// Has a client of the V2 API come, before us or after?
pub(crate) fn v2_is_here() -> bool {
    OTHER.v2_is_here.load(Ordering::Acquire)
}

/// CUPTI is torn down: nothing is to be asked of it any more.
pub(crate) fn is_finalized() -> bool {
    OTHER.finalized.load(Ordering::Acquire)
}

/// Have we left, or has another client torn CUPTI down?
pub(crate) fn has_left() -> bool {
    OTHER.torn_down.load(Ordering::Acquire)
}

/// Does the other client seem to be done?
pub(crate) fn is_over() -> bool {
    let settle = if OTHER.they_flushed.load(Ordering::Relaxed) { SETTLE } else { SETTLE_UNFLUSHED };
    OTHER.yielded_at.load(Ordering::Acquire) != 0
        && !OTHER.torn_down.load(Ordering::Acquire)
        && OTHER.their_kinds.load(Ordering::Acquire) == 0
        && OTHER.under_way.load(Ordering::Acquire) == 0
        && lifecycle::is_live()
        && clock::monotonic().saturating_sub(OTHER.last_call.load(Ordering::Relaxed)) >= settle
}

/// We are re-armed now, where the other client is done: with our kinds on, if `records` (between
/// two windows there is nothing to switch on). Returns the span that was not observed.
pub(crate) fn return_now(held: &session::Held, records: bool) -> Option<(u64, u64)> {
    if !is_over() {
        return None;
    }
    let since = OTHER.yielded_at.load(Ordering::Acquire);
    if records {
        session::enable_held(session::get()?, held).ok()?;
        OTHER.buffers_were_theirs.store(false, Ordering::Release);
    }
    let now = clock::monotonic();
    OTHER.yielded_at.store(0, Ordering::Release);
    Some((since, now))
}

/// The span not observed so far, if we stand aside now.
pub(crate) fn open_span() -> Option<u64> {
    Some(OTHER.yielded_at.load(Ordering::Acquire)).filter(|s| *s != 0)
}

/// What a wrapper answers where there is no CUPTI.
pub(crate) const NONE: CuptiResult = CuptiResult::NOT_INITIALIZED;

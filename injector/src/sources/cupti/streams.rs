// SPDX-License-Identifier: Apache-2.0
// HOT (`named_by`, `forget`), WARM (`told`), COLD (`prepare`)
//! Which stream a call waits for, or makes wait for an event: told by the call's own arguments, in
//! the form of CUPTI's record of it.
//!
//! CUPTI's SYNCHRONIZATION records say the same, but while that kind is on every call of the
//! runtime takes 0.24 to 0.34 us longer, calls that wait for nothing too: half of what recording
//! costs in eager PyTorch (docs/run-cost.md). So the kind is off while we hold the subscription
//! (`session`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cupti_sys::bindings::{CUcontext, CUpti_CallbackData, CUstream};
use cupti_sys::cbid::{driver, runtime};
use cupti_sys::domain;
use trace::{Event, Kind};

use super::session;
use crate::ring::latest::Latest;

/// CUPTI's numbers of the two kinds of waits that name a stream (`trace::Kind::SyncRecord`).
const STREAM_WAITS_FOR_EVENT: u32 = 2;
const CALL_WAITS_FOR_STREAM: u32 = 3;
/// CUPTI's number for an event that is not named.
const NO_EVENT: u32 = u32::MAX;

/// What such a call waits as, and whether 0 means the thread's own default stream there. All take
/// the stream first.
fn kind_of(area: u32, id: u32) -> Option<(u32, bool)> {
    Some(match (area, id) {
        (domain::RUNTIME_API, runtime::CUDA_STREAM_SYNCHRONIZE_V3020)
        | (domain::DRIVER_API, driver::CU_STREAM_SYNCHRONIZE) => (CALL_WAITS_FOR_STREAM, false),
        (domain::RUNTIME_API, runtime::CUDA_STREAM_SYNCHRONIZE_PTSZ_V7000)
        | (domain::DRIVER_API, driver::CU_STREAM_SYNCHRONIZE_PTSZ) => (CALL_WAITS_FOR_STREAM, true),
        (domain::RUNTIME_API, runtime::CUDA_STREAM_WAIT_EVENT_V3020)
        | (domain::DRIVER_API, driver::CU_STREAM_WAIT_EVENT) => (STREAM_WAITS_FOR_EVENT, false),
        (domain::RUNTIME_API, runtime::CUDA_STREAM_WAIT_EVENT_PTSZ_V7000)
        | (domain::DRIVER_API, driver::CU_STREAM_WAIT_EVENT_PTSZ) => (STREAM_WAITS_FOR_EVENT, true),
        _ => return None,
    })
}

/// At the exit of a call: CUPTI's number of the stream it waited for, or made wait, + 1; 0 for
/// other calls, for one that failed, and where CUPTI does not know the stream. It goes to the drain
/// thread in a field that only that one fills ([`wait_of`]): no event of its own on the program's
/// threads.
#[inline]
pub(crate) fn named_by(area: u32, id: u32, data: &CUpti_CallbackData, result: u32) -> u32 {
    let Some((_, own)) = kind_of(area, id) else { return 0 };
    if result != 0 || data.functionParams.is_null() || data.context.is_null() {
        return 0;
    }
    // SAFETY: at exit of these calls this points to their arguments, of which the stream is the
    // first (documented; the call has succeeded with it, so it names a stream).
    let stream = unsafe { data.functionParams.cast::<CUstream>().read() };
    number(data.context, stream, own).map_or(0, |n| n.wrapping_add(1))
}

/// The wait that a call from a callback tells of ([`named_by`], in `c`), as CUPTI's record would.
/// WARM.
pub(crate) fn wait_of(call: &Event) -> Option<Event> {
    let number = call.c.checked_sub(1)?;
    let (what, _) = kind_of(call.a >> 24, call.a & 0xff_ffff)?;
    let mut wait = Event::new(Kind::SyncRecord, call.start, call.end);
    (wait.a, wait.b, wait.c, wait.correlation) = (what, NO_EVENT, number, call.correlation);
    Some(wait)
}

/// Touches what callbacks will read: no page of it is faulted in there. COLD, before the first
/// callback.
pub(crate) fn prepare() {
    for place in &KNOWN {
        place.written.store(false, Ordering::Relaxed);
    }
}

/// A stream or a context is about to go: its handle may come again for another one.
#[inline]
pub(crate) fn forget() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Streams remembered at a time, each at the place that its handle says: who waits for more asks
/// CUPTI more often.
const PLACES: usize = 64;

/// Context, handle, generation << 32 | CUPTI's number.
struct Place {
    written: AtomicBool,
    stream: Latest,
}

static KNOWN: [Place; PLACES] =
    [const { Place { written: AtomicBool::new(false), stream: Latest::new() } }; PLACES];
/// Counts streams and contexts that went: what was learned before is asked for again.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// CUPTI's number of a stream: known from before, or asked for (each time for a thread's own
/// default stream, which no handle tells apart).
fn number(context: CUcontext, stream: CUstream, own: bool) -> Option<u32> {
    // before the question: a stream that goes meanwhile makes the answer old at once
    let generation = GENERATION.load(Ordering::Acquire);
    let own = own && stream.is_null();
    if own {
        return ask(context, stream, own); // another one on each thread
    }
    let handle = stream as u64;
    let place = KNOWN.get((handle >> 4 ^ handle >> 10 ^ handle) as usize % PLACES)?;
    if let Some([of, known, found, _]) = place.stream.read() {
        if (of, known, (found >> 32) as u32) == (context as u64, handle, generation) {
            return Some(found as u32);
        }
    }
    let number = ask(context, stream, own)?;
    // one writer at a time: who finds another at it leaves it
    if !place.written.swap(true, Ordering::Acquire) {
        place.stream.write([context as u64, handle, u64::from(generation) << 32 | u64::from(number), 0]);
        place.written.store(false, Ordering::Release);
    }
    Some(number)
}

#[cold]
fn ask(context: CUcontext, stream: CUstream, own: bool) -> Option<u32> {
    let question = session::get()?.cupti.get_stream_id_ex?;
    let mut number = 0;
    // SAFETY: handles of a call that has just succeeded with them, and a valid out-pointer.
    unsafe { question(context, stream, u8::from(own), &mut number) }.is_success().then_some(number)
}

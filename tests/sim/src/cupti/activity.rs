// SPDX-License-Identifier: Apache-2.0
//! Which activity kinds and calls are recorded, and the records of each event.

use super::buffers::{append, make_ready};
use super::layout::{self, kind};
use super::records::{self, Place};
use super::switching;
use crate::api::{DRIVER, RUNTIME};
use crate::clock;
use crate::foreign::{lock, tid};
use crate::settings::settings;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;

static KINDS: [AtomicBool; kind::COUNT as usize] = [const { AtomicBool::new(false) }; kind::COUNT as usize];
/// The per-call filters of 12.5 and later.
static DRIVER_CALLS: [AtomicBool; 1024] = [const { AtomicBool::new(false) }; 1024];
static RUNTIME_CALLS: [AtomicBool; 1024] = [const { AtomicBool::new(false) }; 1024];
/// Set once any call is filtered in: keeps the usual path short.
static ANY_CALL: AtomicBool = AtomicBool::new(false);
/// The filters do nothing any more: below 13.5 they do not outlive the kinds' being switched off
/// (H200, 12.9 and 13.0: docs/design/cupti-clients.md).
static FILTERS_GONE: AtomicBool = AtomicBool::new(false);
static THREAD_ID_TYPE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// External correlation ids: (kind, id), innermost last.
    static EXTERNAL: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Switches a kind; false when there is no such kind.
pub(crate) fn set_kind(kind: u32, on: bool) -> bool {
    let Some(flag) = KINDS.get(kind as usize) else { return false };
    if flag.swap(on, Ordering::Relaxed) != on {
        match kind {
            kind::CONCURRENT_KERNEL => switching::switched(),
            kind::DRIVER | kind::RUNTIME if !on && layout::release() < 1305 => {
                FILTERS_GONE.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }
    true
}

/// True when a kind is on.
pub(crate) fn kind_on(kind: u32) -> bool {
    KINDS.get(kind as usize).is_some_and(|k| k.load(Ordering::Relaxed)) && !layout::silent()
}

static ATTRIBUTES: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// cuptiActivitySetAttribute.
pub(crate) fn set_attribute(attribute: u32, value: u64) {
    lock(&ATTRIBUTES).insert(attribute, value);
}

/// An attribute's value, CUPTI's default when it was never set.
pub(crate) fn attribute(attribute: u32) -> u64 {
    let default = match attribute {
        0 => 3_200_000,
        2 => 250,
        6 => 3,
        9 => 1,
        _ => 0,
    };
    lock(&ATTRIBUTES).get(&attribute).copied().unwrap_or(default)
}

/// GPU memory that CUPTI takes in a context created now: device buffer size times the number
/// allocated up front.
pub(crate) fn device_bytes() -> u64 {
    attribute(0).saturating_mul(attribute(6))
}

/// Kinds that are on.
pub(crate) fn kinds_on() -> Vec<u32> {
    (1..kind::COUNT).filter(|k| kind_on(*k)).collect()
}

/// Switches the record of one API call; false when there is no such call.
pub(crate) fn set_call(domain: u32, cbid: u32, on: bool) -> bool {
    let calls = if domain == DRIVER { &DRIVER_CALLS } else { &RUNTIME_CALLS };
    let Some(flag) = calls.get(cbid as usize) else { return false };
    flag.store(on, Ordering::Relaxed);
    ANY_CALL.store(true, Ordering::Relaxed);
    true
}

/// Everything off (cuptiFinalize).
pub(crate) fn all_off() {
    KINDS
        .iter()
        .chain(&DRIVER_CALLS)
        .chain(&RUNTIME_CALLS)
        .for_each(|flag| flag.store(false, Ordering::Relaxed));
    ANY_CALL.store(false, Ordering::Relaxed);
}

/// 0: truncated pthread_self, 1: kernel thread id.
pub(crate) fn set_thread_id_type(which: u32) {
    THREAD_ID_TYPE.store(which, Ordering::Relaxed);
}

/// The current thread id type.
pub(crate) fn thread_id_type() -> u32 {
    THREAD_ID_TYPE.load(Ordering::Relaxed)
}

/// True when this call is recorded.
pub(crate) fn api_wanted(domain: u32, cbid: u32) -> bool {
    let (kind, calls) = match domain {
        DRIVER => (kind::DRIVER, &DRIVER_CALLS),
        RUNTIME => (kind::RUNTIME, &RUNTIME_CALLS),
        _ => return false,
    };
    let filtered = || calls.get(cbid as usize).is_some_and(|c| c.load(Ordering::Relaxed));
    let has_filters = || ANY_CALL.load(Ordering::Relaxed) && !FILTERS_GONE.load(Ordering::Relaxed);
    kind_on(kind) || (has_filters() && filtered() && !layout::silent())
}

/// The record of a call; times already in the client's clock.
pub(crate) fn api(domain: u32, cbid: u32, start: u64, end: u64, correlation: u32, result: i32) {
    let thread = match thread_id_type() {
        1 => tid(),
        // SAFETY: pthread_self has no preconditions.
        _ => (unsafe { libc::pthread_self() }) as u32,
    };
    let kind = if domain == DRIVER { kind::DRIVER } else { kind::RUNTIME };
    let mut record = records::api(kind, cbid, thread, correlation, result);
    record.set_times(start, end);
    append(&record, None);
}

/// Pushes a client's id on this thread.
pub(crate) fn push_external(kind_of: u32, id: u64) {
    EXTERNAL.with_borrow_mut(|stack| stack.push((kind_of, id)));
}

/// Pops the innermost id of that kind.
pub(crate) fn pop_external(kind_of: u32) -> Option<u64> {
    EXTERNAL.with_borrow_mut(|stack| {
        let at = stack.iter().rposition(|(k, _)| *k == kind_of)?;
        Some(stack.remove(at).1)
    })
}

/// One record per external kind for the call that begins.
pub(crate) fn external_correlation(correlation: u32) {
    if !kind_on(kind::EXTERNAL_CORRELATION) || !(kind_on(kind::RUNTIME) || kind_on(kind::DRIVER)) {
        return;
    }
    let stack = EXTERNAL.try_with(|stack| stack.borrow().clone()).unwrap_or_default();
    for (at, (kind_of, id)) in stack.iter().enumerate() {
        let innermost = stack.get(at + 1..).unwrap_or_default().iter().all(|(k, _)| k != kind_of);
        if innermost {
            append(&records::external(*kind_of, *id, correlation), None);
        }
    }
}

fn kernel_kind() -> Option<u32> {
    [kind::CONCURRENT_KERNEL, kind::KERNEL].into_iter().find(|k| kind_on(*k))
}

/// A kernel is about to be launched.
pub(crate) fn expect_kernel() {
    if let Some(len) = kernel_kind().and_then(|kind| layout::record_size(kind, layout::release())) {
        make_ready(len);
    }
}

/// A kernel; `name` is the pointer the record shall hold.
pub(crate) fn kernel(place: Place, grid: [u32; 3], block: [u32; 3], name: usize, times: (u64, u64)) {
    if let Some(kind) = kernel_kind() {
        if settings().cupti_ns > 0 {
            clock::spin_until(clock::now() + settings().cupti_ns);
        }
        let place = Place { correlation: switching::correlation(place.correlation), ..place };
        append(&records::kernel(kind, place, grid, block, name), Some(times));
    }
}

/// A copy or, between devices, a peer copy (which needs kind 22).
pub(crate) fn memcpy(
    place: Place,
    copy: u8,
    source: u8,
    destination: u8,
    bytes: u64,
    flag: bool,
    times: (u64, u64),
) {
    if kind_on(kind::MEMCPY) {
        append(&records::memcpy(place, copy, source, destination, bytes, flag), Some(times));
    }
}

/// A copy between devices.
pub(crate) fn peer(place: Place, bytes: u64, from: u32, to: u32, times: (u64, u64)) {
    if kind_on(kind::MEMCPY2) && kind_on(kind::MEMCPY) {
        append(&records::peer(place, bytes, from, to), Some(times));
    }
}

/// A memset.
pub(crate) fn memset(place: Place, value: u32, bytes: u64, times: (u64, u64)) {
    if kind_on(kind::MEMSET) {
        append(&records::memset(place, value, bytes), Some(times));
    }
}

/// A synchronization; times already in the client's clock.
pub(crate) fn synchronization(kind_of: u32, ids: (u32, u32, u32), correlation: u32, start: u64, end: u64) {
    if kind_on(kind::SYNCHRONIZATION) {
        let mut record = records::synchronization(kind_of, correlation, ids.0, ids.1, ids.2);
        record.set_times(start, end);
        append(&record, None);
    }
}

/// A whole graph launch.
pub(crate) fn graph(place: Place, times: (u64, u64)) {
    append(&records::graph(place), Some(times));
}

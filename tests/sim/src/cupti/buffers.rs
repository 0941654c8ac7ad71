// SPDX-License-Identifier: Apache-2.0
//! Activity buffers: asked from the client on the launching thread, filled, handed back.
//!
//! Each thread fills a buffer of its own (attribute 9, default from 12.3 on), else all share one. A
//! record takes its place when its operation is issued; its times are written when the buffer is
//! handed out. A plain flush returns only buffers whose records have all ended; a forced one
//! returns all, unfinished records with end = 0, never to be seen again. No lock is held while a
//! client's callback runs.

use super::layout::release;
use super::records::Record;
use super::subscriber::{misuse, restricted};
use super::timestamps::converter;
use crate::clock;
use crate::foreign::lock;
use crate::issuing;
use crate::settings::settings;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

/// `void (*)(uint8_t **buffer, size_t *size, size_t *maxNumRecords)`.
pub(crate) type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `void (*)(CUcontext, uint32_t streamId, uint8_t *buffer, size_t size, size_t validSize)`.
pub(crate) type Complete = extern "C" fn(usize, u32, *mut u8, usize, usize);

/// Times still to be written into a record of the buffer.
struct Pending {
    at: usize,
    start: u64,
    end: u64,
}

/// A client's buffer being filled.
pub(crate) struct Buffer {
    at: usize,
    size: usize,
    /// Most records the client allows; 0: as many as fit.
    most: usize,
    used: usize,
    count: usize,
    pending: Vec<Pending>,
    /// When its last operation ends.
    pub(crate) last_end: u64,
}

#[derive(Default)]
struct Slot(Mutex<Option<Buffer>>);

static REQUEST: AtomicUsize = AtomicUsize::new(0);
static COMPLETE: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static PER_THREAD: AtomicBool = AtomicBool::new(true);
static ZEROED_BY_CLIENT: AtomicBool = AtomicBool::new(false);
static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());

/// Buffers that no record fits in any more.
pub(crate) struct Full {
    /// Oldest first.
    pub(crate) waiting: VecDeque<Buffer>,
    /// Taken from there by the worker and not yet with the client.
    pub(crate) under_way: usize,
}

/// The worker waits on the condition for buffers, a flush for the worker.
pub(crate) static FULL: (Mutex<Full>, Condvar) =
    (Mutex::new(Full { waiting: VecDeque::new(), under_way: 0 }), Condvar::new());

thread_local! {
    static MINE: OnceCell<Arc<Slot>> = const { OnceCell::new() };
}

/// Replaces both callbacks, as a second client's registration does.
pub(crate) fn register(request: Request, complete: Complete) {
    REQUEST.store(request as usize, Ordering::Release);
    COMPLETE.store(complete as usize, Ordering::Release);
}

/// No client any more (cuptiFinalize): what is asked for from now on nobody gives.
pub(crate) fn forget_client() {
    REQUEST.store(0, Ordering::Release);
    COMPLETE.store(0, Ordering::Release);
}

/// Attribute 9.
pub(crate) fn set_per_thread(on: bool) {
    PER_THREAD.store(on, Ordering::Relaxed);
}

/// Attribute 5: the client hands out zeroed buffers.
pub(crate) fn set_zeroed_by_client(on: bool) {
    ZEROED_BY_CLIENT.store(on, Ordering::Relaxed);
}

/// Records lost since the last question.
pub(crate) fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

fn new_slot() -> Arc<Slot> {
    let slot = Arc::new(Slot::default());
    lock(&SLOTS).push(slot.clone());
    slot
}

fn slot() -> Arc<Slot> {
    static SHARED: OnceLock<Arc<Slot>> = OnceLock::new();
    let shared = || SHARED.get_or_init(new_slot).clone();
    if !PER_THREAD.load(Ordering::Relaxed) {
        return shared();
    }
    MINE.try_with(|mine| mine.get_or_init(new_slot).clone()).unwrap_or_else(|_| shared())
}

fn request() -> Option<Buffer> {
    let request = REQUEST.load(Ordering::Acquire);
    if request == 0 {
        return None;
    }
    // SAFETY: `register` stored a function pointer of exactly this type.
    let request: Request = unsafe { std::mem::transmute(request) };
    let (mut at, mut size, mut most) = (std::ptr::null_mut::<u8>(), 0usize, 0usize);
    restricted(|| request(&mut at, &mut size, &mut most));
    if at.is_null() && release() < 1209 {
        misuse("bufferRequested gave NULL: releases before 12.9 crash");
    }
    if at.is_null() || size == 0 {
        return None;
    }
    if at as usize % 8 != 0 {
        misuse("bufferRequested gave a buffer that is not 8-byte aligned");
    }
    if !ZEROED_BY_CLIENT.load(Ordering::Relaxed) {
        // SAFETY: the client just lent `size` bytes at `at`.
        unsafe { at.write_bytes(0, size) };
    }
    Some(Buffer { at: at as usize, size, most, used: 0, count: 0, pending: Vec::new(), last_end: 0 })
}

impl Buffer {
    fn fits(&self, len: usize) -> bool {
        self.used + len <= self.size && (self.most == 0 || self.count < self.most)
    }

    fn push(&mut self, record: &Record, times: Option<(u64, u64)>) {
        let bytes = record.bytes();
        // SAFETY: `fits` was asked: `used + len` stays within the buffer the client lent.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.at + self.used) as *mut u8, bytes.len())
        };
        if let Some((start, end)) = times {
            self.pending.push(Pending { at: self.used + usize::from(record.times_at), start, end });
            self.last_end = self.last_end.max(end);
        }
        self.used += bytes.len();
        self.count += 1;
    }

    /// Writes the times and hands the buffer to the client.
    pub(crate) fn hand_out(self) {
        let (converter, now) = (converter(), clock::now());
        let (zero_every, backward, foreign) = (
            settings().fault_every("zero_ts"),
            settings().fault_is("backward_ts", ""),
            settings().fault_every("foreign_ts"),
        );
        let ahead = clock::realtime().saturating_sub(now);
        for pending in &self.pending {
            let nth = WRITTEN.fetch_add(1, Ordering::Relaxed) + 1;
            let lost = zero_every.is_some_and(|n| nth % n == 0);
            let mut start = if pending.start <= now && !lost { converter.apply(pending.start) } else { 0 };
            let mut end = if pending.end <= now && !lost { converter.apply(pending.end) } else { 0 };
            if backward && nth % 100 == 0 {
                std::mem::swap(&mut start, &mut end);
            }
            if foreign.is_some_and(|n| nth % n == 0) && end != 0 {
                (start, end) = (start + ahead, end + ahead);
            }
            let at = (self.at + pending.at) as *mut u64;
            // SAFETY: `push` put the record, with both its time fields, inside the client's buffer.
            unsafe {
                at.write_unaligned(start);
                at.add(1).write_unaligned(end);
            }
        }
        complete(self.at, self.size, self.used);
    }
}

/// Calls the client's buffer-completed callback.
pub(crate) fn complete(at: usize, size: usize, valid: usize) {
    let complete = COMPLETE.load(Ordering::Acquire);
    if complete != 0 {
        // SAFETY: `register` stored a function pointer of exactly this type.
        let complete: Complete = unsafe { std::mem::transmute(complete) };
        restricted(|| complete(0, 0, at as *mut u8, size, valid));
    }
}

/// One buffer from the client, to be filled by the caller and given to `complete`: (address, size).
/// For replay.
pub(crate) fn lend() -> Option<(usize, usize)> {
    request().map(|buffer| (buffer.at, buffer.size))
}

/// Counts a record as lost.
pub(crate) fn drop_one() {
    DROPPED.fetch_add(1, Ordering::Relaxed);
}

fn retire(buffer: Buffer) {
    lock(&FULL.0).waiting.push_back(buffer);
    FULL.1.notify_all();
}

/// Has a buffer with room for a record of `len` bytes at hand before its operation is issued.
/// (CUPTI asks some 20 us after that; here it would be as long as the machine keeps the thread
/// waiting.)
pub(crate) fn make_ready(len: usize) {
    let slot = slot();
    if lock(&slot.0).as_ref().is_some_and(|b| b.fits(len)) {
        return;
    }
    let Some(fresh) = request() else { return };
    if !fresh.fits(len) {
        return retire(fresh);
    }
    let mut held = lock(&slot.0);
    if held.as_ref().is_some_and(|b| b.fits(len)) {
        // Another thread filled the shared slot meanwhile.
        drop(held);
        return retire(fresh);
    }
    held.replace(fresh).into_iter().for_each(retire);
}

/// Puts a record into this thread's buffer; `times` (engine clock) are written at delivery.
pub(crate) fn append(record: &Record, times: Option<(u64, u64)>) {
    if let Some(every) = settings().fault_every("drop") {
        static SEEN: AtomicU64 = AtomicU64::new(0);
        if SEEN.fetch_add(1, Ordering::Relaxed) % every == every - 1 {
            return drop_one();
        }
    }
    let (slot, len) = (slot(), record.bytes().len());
    for _ in 0..8 {
        {
            let mut held = lock(&slot.0);
            if let Some(buffer) = held.as_mut().filter(|b| b.fits(len)) {
                buffer.push(record, times);
                if buffer.most != 0 && buffer.count == buffer.most {
                    held.take().into_iter().for_each(retire);
                }
                return;
            }
            held.take().into_iter().for_each(retire);
        }
        let Some(fresh) = request() else { return drop_one() };
        let mut held = lock(&slot.0);
        if held.is_none() {
            *held = Some(fresh);
        } else {
            // Another thread filled the shared slot meanwhile: its buffer is used, ours goes back
            // empty.
            retire(fresh);
        }
    }
    // The client's buffers are too small for one record.
    drop_one();
}

/// cuptiActivityFlushAll: what had ended when it was called is with the client when it returns,
/// also what the worker was about to deliver. With the fault `worker=slow:...` it does not wait.
pub(crate) fn flush(forced: bool) {
    issuing::settle();
    let now = clock::now();
    let ready = |b: &Buffer| forced || (b.last_end <= now && b.count > 0);
    let mut out: Vec<Buffer> = Vec::new();
    {
        let mut full = lock(&FULL.0);
        let (done, waiting): (Vec<_>, Vec<_>) =
            full.waiting.drain(..).partition(|b| ready(b) || b.count == 0);
        out.extend(done);
        full.waiting.extend(waiting);
    }
    let slots = lock(&SLOTS).clone();
    for slot in &slots {
        let mut held = lock(&slot.0);
        if held.as_ref().is_some_and(ready) {
            out.extend(held.take());
        }
    }
    drop(slots);
    // Slots of threads that are gone: only this list still holds them.
    lock(&SLOTS).retain(|slot| Arc::strong_count(slot) > 1 || lock(&slot.0).is_some());
    if let (false, false, Some(ms)) = (forced, out.is_empty(), settings().fault_slow_ms("hand_out")) {
        clock::nap(ms * 1_000_000); // nobody else sees these buffers, as with one that CUPTI's own thread is about to deliver
    }
    out.into_iter().for_each(Buffer::hand_out);
    let mut full = lock(&FULL.0);
    while full.under_way > 0 && settings().fault_slow_ms("worker").is_none() {
        full = FULL.1.wait(full).unwrap_or_else(PoisonError::into_inner);
    }
}

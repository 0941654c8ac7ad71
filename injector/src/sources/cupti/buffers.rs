// SPDX-License-Identifier: Apache-2.0
// HOT (`request`, `complete`), WARM (`take_full`, `give_back`), COLD (`prepare`)
//! The activity buffers we lend to CUPTI: a fixed pool, faulted in beforehand, each with a state
//! that moves free -> lent -> full -> (decoded and zeroed by the drain thread) -> free.
//!
//! Buffers are small and hold few records while the program launches slowly, because a plain flush
//! returns a buffer only when all its records are complete: with a GPU that always has work queued,
//! the newest buffer comes back only once it is full (measured on the H200: 20 queued kernels of 50
//! ms stayed in one buffer for a second; with a record limit the buffers came back one by one). The
//! limit is about a tenth of a second's records ([`set_record_limit`]).
//!
//! CUPTI puts a record into the buffer at launch, marked by the high bit of its kind, and completes
//! it in place (measured, CUPTI 13.0). So a lent buffer whose first word is zero holds nothing; see
//! [`oldest_pending`].

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use trace::Loss;

use super::session;
use crate::platform::guard::guard;
use crate::platform::{clock, losses, memory};

/// Bytes of a buffer: about 500 kernels with their launch records.
pub(crate) const BUFFER_BYTES: usize = 128 * 1024;
/// Most buffers a pool has (32 MB).
pub(crate) const MAX_BUFFERS: usize = 256;
/// Lent when the pool is empty; what lands there is thrown away and counted.
const DISCARD_BYTES: usize = 64 * 1024;

const FREE: u32 = 0;
const LENT: u32 = 1;
const FULL: u32 = 2;

struct Slot {
    state: AtomicU32,
    valid: AtomicUsize,
    lent_at: AtomicU64,
    /// Order of completion.
    number: AtomicU64,
    /// Records the drain thread has read in place, before the buffer came back. Only that thread
    /// touches it.
    consumed: AtomicUsize,
    /// Start of the newest API call among them, ns: what is still pending was launched after it.
    launched: AtomicU64,
}

static SLOTS: [Slot; MAX_BUFFERS] = [const {
    Slot {
        state: AtomicU32::new(FREE),
        valid: AtomicUsize::new(0),
        lent_at: AtomicU64::new(0),
        number: AtomicU64::new(0),
        consumed: AtomicUsize::new(0),
        launched: AtomicU64::new(0),
    }
}; MAX_BUFFERS];
/// The buffers, and how they are lent.
struct Pool {
    base: AtomicPtr<u8>,
    count: AtomicUsize,
    /// Buffers lent or waiting for the drain thread.
    in_use: AtomicUsize,
    hint: AtomicUsize,
    number: AtomicU64,
    /// When a buffer was last asked for or came back with records, ns.
    touched: AtomicU64,
    record_limit: AtomicUsize,
    bare: AtomicBool,
}

static POOL: Pool = Pool {
    base: AtomicPtr::new(std::ptr::null_mut()),
    count: AtomicUsize::new(0),
    in_use: AtomicUsize::new(0),
    hint: AtomicUsize::new(0),
    number: AtomicU64::new(0),
    touched: AtomicU64::new(0),
    record_limit: AtomicUsize::new(16),
    bare: AtomicBool::new(false),
};

/// The buffer of last resort, never read by us. 8-byte aligned as CUPTI asks.
#[repr(C, align(64))]
struct Discard([AtomicU64; DISCARD_BYTES / 8]);
static DISCARD: Discard = Discard([const { AtomicU64::new(0) }; DISCARD_BYTES / 8]);

/// Maps the pool. COLD, once. `bytes` bounds it; at least 16 buffers.
pub(crate) fn prepare(bytes: usize) -> bool {
    if POOL.count.load(Ordering::Acquire) != 0 {
        return true;
    }
    let count = (bytes / BUFFER_BYTES).clamp(16, MAX_BUFFERS);
    let Some(base) = memory::map(count * BUFFER_BYTES, true) else { return false };
    // the states and the buffer of last resort are faulted in too: a first touch in a callback
    // would be a page fault
    for slot in &SLOTS {
        slot.state.store(FREE, Ordering::Relaxed);
    }
    for page in DISCARD.0.iter().step_by(4096 / 8) {
        page.store(0, Ordering::Relaxed);
    }
    POOL.base.store(base.as_ptr(), Ordering::Release);
    POOL.count.store(count, Ordering::Release);
    true
}

/// Test switch: hand out and take back without looking (bare CUPTI).
pub(crate) fn set_bare(on: bool) {
    POOL.bare.store(on, Ordering::Relaxed);
}

/// Is the test switch on?
pub(crate) fn is_bare() -> bool {
    POOL.bare.load(Ordering::Relaxed)
}

/// Records a buffer may hold from now on; 0 = as many as fit. Set by the drain thread from the rate
/// of launches.
pub(crate) fn set_record_limit(records: usize) {
    POOL.record_limit.store(records, Ordering::Relaxed);
}

/// When CUPTI last asked for a buffer or gave one back with records, ns.
pub(crate) fn last_touched() -> u64 {
    POOL.touched.load(Ordering::Relaxed)
}

fn slot_address(index: usize) -> Option<NonNull<u8>> {
    let base = NonNull::new(POOL.base.load(Ordering::Acquire))?;
    if index >= POOL.count.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: the mapping has `count` buffers and `index` is one of them.
    Some(unsafe { base.add(index * BUFFER_BYTES) })
}

fn index_of(buffer: *mut u8) -> Option<usize> {
    let offset = (buffer as usize).checked_sub(POOL.base.load(Ordering::Acquire) as usize)?;
    let index = offset / BUFFER_BYTES;
    (offset % BUFFER_BYTES == 0 && index < POOL.count.load(Ordering::Acquire)).then_some(index)
}

fn lend() -> Option<usize> {
    let count = POOL.count.load(Ordering::Acquire);
    let from = POOL.hint.fetch_add(1, Ordering::Relaxed);
    for i in 0..count {
        let index = (from + i) % count;
        let Some(slot) = SLOTS.get(index) else { continue };
        // Acquire pairs with the Release in `give_back`: the zeroes are visible before CUPTI
        // writes.
        if slot.state.load(Ordering::Relaxed) == FREE
            && slot.state.compare_exchange(FREE, LENT, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            slot.lent_at.store(clock::monotonic(), Ordering::Relaxed);
            POOL.in_use.fetch_add(1, Ordering::Relaxed);
            return Some(index);
        }
    }
    None
}

/// CUPTI wants a buffer. Never null: releases before 12.9 crash on it.
pub(crate) unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let lent = guard(None, || {
        session::first_use();
        POOL.touched.store(clock::monotonic(), Ordering::Relaxed);
        lend().and_then(slot_address)
    });
    let (address, bytes, limit) = match lent {
        Some(a) => {
            // a quarter gone: launches come faster than the limit was set for, or the queue runs
            // far ahead of the GPU
            let crowded = POOL.in_use.load(Ordering::Relaxed) * 4 > POOL.count.load(Ordering::Relaxed);
            let limit = if crowded || is_bare() { 0 } else { POOL.record_limit.load(Ordering::Relaxed) };
            (a.as_ptr(), BUFFER_BYTES, limit)
        }
        None => (DISCARD.0.as_ptr().cast_mut().cast(), DISCARD_BYTES, 0),
    };
    // SAFETY: CUPTI passes three valid out-pointers (its documented contract); the buffer outlives
    // the process.
    unsafe { buffer.write(address) };
    // SAFETY: as above.
    unsafe { size.write(bytes) };
    // SAFETY: as above.
    unsafe { records.write(limit) };
}

/// CUPTI gives a buffer back. On its worker thread, the flushing thread or the program's.
pub(crate) unsafe extern "C" fn complete(
    context: cupti_sys::bindings::CUcontext,
    stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    guard((), || {
        let Some(slot) = index_of(buffer).and_then(|i| SLOTS.get(i)) else {
            let ours = std::ptr::eq(buffer, DISCARD.0.as_ptr().cast());
            losses::add(if ours { Loss::BufferExhausted } else { Loss::ForeignBuffer }, 1);
            return;
        };
        if valid > 0 {
            POOL.touched.store(clock::monotonic(), Ordering::Relaxed);
        }
        slot.valid.store(valid.min(BUFFER_BYTES), Ordering::Relaxed);
        slot.number.store(POOL.number.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        // Release pairs with the Acquire load in `take_full`: records and `valid` are visible to
        // the drain thread.
        slot.state.store(FULL, Ordering::Release);
        if !is_bare() {
            losses::add(Loss::CuptiDropped, session::dropped_records(context, stream));
        }
    });
}

/// A full buffer, owned by the drain thread until [`give_back`].
pub(crate) struct Full {
    index: usize,
    /// Address of the first record.
    pub(crate) address: NonNull<u8>,
    /// Bytes of records.
    pub(crate) valid: usize,
    /// Records at its front that were read in place already.
    pub(crate) consumed: usize,
}

/// A buffer that is slow to come back: some of its records are complete, others still pending.
pub(crate) struct Stuck {
    index: usize,
    /// Address of the first record.
    pub(crate) address: NonNull<u8>,
    /// Records read so far.
    pub(crate) consumed: usize,
}

/// Lent buffers with records that were lent before `before`, ns. A plain flush completes records in
/// place but returns a buffer only when all its records are complete: a queue of long kernels in
/// one buffer would be invisible, and lost with a killed process, until its last one ends.
pub(crate) fn stuck(before: u64) -> Vec<Stuck> {
    let mut found = Vec::new();
    for (index, slot) in SLOTS.iter().enumerate().take(POOL.count.load(Ordering::Acquire)) {
        if slot.state.load(Ordering::Acquire) != LENT || slot.lent_at.load(Ordering::Relaxed) >= before {
            continue;
        }
        if let Some(address) = slot_address(index).filter(|a| is_begun(*a)) {
            found.push(Stuck { index, address, consumed: slot.consumed.load(Ordering::Relaxed) });
        }
    }
    found
}

/// Says how far a stuck buffer was read, and the start of the newest API call in that part (0:
/// none).
pub(crate) fn consumed(stuck: &Stuck, records: usize, launched: u64) {
    if let Some(slot) = SLOTS.get(stuck.index) {
        slot.consumed.store(records, Ordering::Relaxed);
        slot.launched.fetch_max(launched, Ordering::Relaxed);
    }
}

/// The first word of a buffer: who looks for what is pending reads it whoever has the buffer by
/// then, CUPTI or the drain thread that zeroes it.
fn first_word(address: NonNull<u8>) -> &'static AtomicU64 {
    // SAFETY: inside our own mapping, which is never unmapped, and aligned. Of ours only
    // `give_back` writes it, through here; the drain thread's readers of records only read.
    unsafe { AtomicU64::from_ptr(address.as_ptr().cast::<u64>()) }
}

/// Does it hold a record?
fn is_begun(address: NonNull<u8>) -> bool {
    first_word(address).load(Ordering::Relaxed) != 0
}

/// All buffers that came back, in the order they did.
pub(crate) fn take_full() -> Vec<Full> {
    let mut found = Vec::new();
    for (index, slot) in SLOTS.iter().enumerate().take(POOL.count.load(Ordering::Acquire)) {
        if slot.state.load(Ordering::Acquire) == FULL {
            if let Some(address) = slot_address(index) {
                let full = Full {
                    index,
                    address,
                    valid: slot.valid.load(Ordering::Relaxed),
                    consumed: slot.consumed.load(Ordering::Relaxed),
                };
                found.push((slot.number.load(Ordering::Relaxed), full));
            }
        }
    }
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, full)| full).collect()
}

/// Zeroes a buffer and makes it free again: CUPTI is told that buffers come zeroed, and need not do
/// it on the program's threads; what reads lent buffers ([`stuck`]) must find nothing.
pub(crate) fn give_back(full: Full) {
    // records end at `valid`; the margin is for one begun and never finished
    let written = (full.valid + 1024).min(BUFFER_BYTES);
    first_word(full.address).store(0, Ordering::Relaxed);
    let first = size_of::<AtomicU64>();
    // SAFETY: the buffer is BUFFER_BYTES long, more than its first word.
    let rest = unsafe { full.address.add(first) };
    // SAFETY: as above, `written` is no more than that; the drain thread owns the buffer (state
    // FULL), and others look at its first word alone.
    unsafe { std::ptr::write_bytes(rest.as_ptr(), 0, written - first) };
    if let Some(slot) = SLOTS.get(full.index) {
        slot.consumed.store(0, Ordering::Relaxed);
        slot.launched.store(0, Ordering::Relaxed);
        slot.state.store(FREE, Ordering::Release);
        POOL.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When the oldest buffer that still holds an unreturned record was lent, ns; `None` where nothing
/// is outstanding. What it holds was launched after that moment or shortly before
/// (`flushing::ASKED_LATE`), so everything launched earlier has been delivered.
pub(crate) fn oldest_pending() -> Option<u64> {
    let mut oldest = None;
    for (index, slot) in SLOTS.iter().enumerate().take(POOL.count.load(Ordering::Acquire)) {
        if slot.state.load(Ordering::Acquire) != LENT {
            continue;
        }
        let Some(address) = slot_address(index) else { continue };
        if is_begun(address) {
            // what is pending in it was launched after it was lent, and after the newest call read
            // from it
            let at = slot.lent_at.load(Ordering::Relaxed).max(slot.launched.load(Ordering::Relaxed));
            oldest = Some(oldest.map_or(at, |o: u64| o.min(at)));
        }
    }
    oldest
}

/// Is any buffer with CUPTI?
pub(crate) fn is_any_lent() -> bool {
    let count = POOL.count.load(Ordering::Acquire);
    SLOTS.iter().take(count).any(|slot| slot.state.load(Ordering::Acquire) == LENT)
}

/// More than a quarter of the pool is in use: come back sooner.
pub(crate) fn under_pressure() -> bool {
    POOL.in_use.load(Ordering::Relaxed) * 4 > POOL.count.load(Ordering::Relaxed)
}

/// Another client took the callbacks over: what is lent will never come back to us. Takes those
/// buffers out of service (the other client may still write to them) and counts the ones that held
/// records.
pub(crate) fn write_off_lent() {
    const GONE: u32 = 3;
    for (index, slot) in SLOTS.iter().enumerate().take(POOL.count.load(Ordering::Acquire)) {
        if slot.state.compare_exchange(LENT, GONE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let Some(address) = slot_address(index) else { continue };
            losses::add(Loss::BufferNotReturned, u64::from(is_begun(address)));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// HOT (`push`, `push_ranges`), WARM (`drain`, `reclaim`), COLD (`prepare`)
//! The pool of thread rings: a thread claims one with its first event and keeps it; threads beyond
//! the pool share the overflow ring. A ring whose thread is gone is given back by the drain thread
//! (no TLS destructors: CPython, CUDA and the program run code after ours would).

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use trace::Loss;

use crate::platform::thread_block::{self, ThreadBlock};
use crate::platform::threads::Signal;
use crate::platform::{losses, memory};
use crate::ring::{overflow, spsc, SLOT_WORDS};
use crate::sources::memo::Memo;

/// Thread rings in the pool.
pub(crate) const RINGS: usize = 48;
/// Events a thread ring holds: 36 ms of a thread that launches 230,000 times a second (H100). The
/// drain thread comes before it is full (`drain/pace.rs`).
pub(crate) const RING_EVENTS: usize = 8192;
const OVERFLOW_EVENTS: usize = 8192;

/// One thread's place in the pool. All-zero is free and empty.
#[repr(C)]
struct Place {
    /// Owner's thread id; 0 = free.
    owner: AtomicU32,
    ring: spsc::Ring<RING_EVENTS>,
    /// What its walks found out about its Python stacks.
    memo: Memo,
    stack: OwnStack,
}

/// The stack that libc made for a thread.
#[repr(C)]
struct OwnStack {
    /// libc's descriptor of the thread, at the upper end.
    high: AtomicU64,
    /// The lower end; 0: not looked for, `u64::MAX`: not known.
    low: AtomicU64,
}

#[repr(C)]
struct Pool {
    places: [Place; RINGS],
    overflow: overflow::Ring<OVERFLOW_EVENTS>,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
/// Offset of the thread id in libc's thread descriptor, where the self-check at attach found it; 0
/// = unknown.
static TID_OFFSET: AtomicU32 = AtomicU32::new(0);

/// ThreadBlock::ring value of a thread that found no free ring.
const NO_RING: usize = 1;

fn pool() -> Option<&'static Pool> {
    let p = NonNull::new(POOL.load(Ordering::Acquire))?;
    // SAFETY: set once by `prepare` to a zeroed mapping of the right size that is never unmapped;
    // all fields are atomics for which zero is valid.
    Some(unsafe { p.as_ref() })
}

/// Maps and faults in the pool (14 MB). COLD, once; `false` where memory cannot be had.
pub(crate) fn prepare() -> bool {
    if pool().is_some() {
        return true;
    }
    find_tid_offset();
    let Some(p) = memory::map(size_of::<Pool>(), true) else { return false };
    POOL.store(p.as_ptr().cast(), Ordering::Release);
    true
}

fn gettid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// glibc keeps the thread id in its thread descriptor, at an offset that has been 720 on x86-64
/// since 2.10; it has no call for it that is not a syscall. Checked against the real one before it
/// is used.
fn find_tid_offset() {
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    {
        const OFFSET: u32 = 720;
        // SAFETY: takes nothing, cannot fail.
        let descriptor = unsafe { libc::pthread_self() } as usize;
        // SAFETY: glibc's struct pthread is larger than 2 KB in every version; reading 4 bytes
        // inside it.
        let there = unsafe { std::ptr::read_volatile((descriptor + OFFSET as usize) as *const u32) };
        if there == gettid() {
            TID_OFFSET.store(OFFSET, Ordering::Relaxed);
        }
    }
}

/// Where libc's thread descriptor (what a `pthread_t` points to) has the kernel's thread id, where
/// that is known.
pub(crate) fn tid_offset() -> Option<usize> {
    Some(TID_OFFSET.load(Ordering::Relaxed) as usize).filter(|at| *at != 0)
}

fn own_tid() -> u32 {
    match TID_OFFSET.load(Ordering::Relaxed) {
        0 => gettid(),
        offset => {
            // SAFETY: takes nothing, cannot fail.
            let descriptor = unsafe { libc::pthread_self() } as usize;
            // SAFETY: the self-check found the id at this offset of the descriptor.
            unsafe { std::ptr::read_volatile((descriptor + offset as usize) as *const u32) }
        }
    }
}

/// The calling thread's id. No call to the kernel where libc's descriptor has it, else one a
/// thread.
#[inline]
pub(crate) fn tid() -> u32 {
    thread_block::with(|block| {
        if block.tid.get() == 0 {
            block.tid.set(own_tid());
        }
        block.tid.get()
    })
}

fn claim(pool: &Pool, tid: u32) -> usize {
    for place in &pool.places {
        if place.owner.load(Ordering::Relaxed) == 0
            && place.owner.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // SAFETY: takes nothing, cannot fail.
            place.stack.high.store(unsafe { libc::pthread_self() }, Ordering::Relaxed);
            place.stack.low.store(0, Ordering::Release);
            return std::ptr::from_ref(place) as usize;
        }
    }
    losses::add(Loss::ThreadOverflow, 1);
    NO_RING
}

/// The calling thread's place, claimed with its first event; `None` where there is none left.
#[inline]
fn place(pool: &'static Pool, block: &ThreadBlock) -> Option<&'static Place> {
    if block.ring.get() == 0 {
        block.tid.set(own_tid());
        block.ring.set(claim(pool, block.tid.get()));
    }
    if block.ring.get() == NO_RING {
        return None;
    }
    // SAFETY: a value other than 0 and NO_RING is the address of a place of the pool, which is
    // never unmapped, and this thread owns it until `reclaim` finds the thread gone.
    Some(unsafe { &*(block.ring.get() as *const Place) })
}

/// The calling thread's own place, claimed with its first event; else its thread id.
#[inline]
fn own_place(pool: &'static Pool) -> Result<&'static Place, u32> {
    thread_block::with(|block| place(pool, block).ok_or(block.tid.get()))
}

/// Stores `items` together in the calling thread's ring; what does not fit is counted. Nothing
/// before `prepare`.
#[inline]
pub(crate) fn push(items: &[[u64; SLOT_WORDS]]) {
    let Some(pool) = pool() else { return };
    match own_place(pool) {
        Ok(place) => {
            if !place.ring.push(items) {
                losses::add(Loss::HostRingFull, items.len() as u64);
            }
        }
        Err(tid) => {
            for item in items {
                push_overflow(pool, tid, *item);
            }
        }
    }
}

/// What goes with events but is none must not cost one: it gets no more than this much of a ring.
const BESIDE_EVENTS: u64 = RING_EVENTS as u64 / 2;

/// Stores `event` with `before` in front of it: the event alone where the ring is half full
/// (counted as `loss`), or shared by threads. Was `before` stored?
#[inline]
pub(crate) fn push_behind(before: [u64; SLOT_WORDS], event: [u64; SLOT_WORDS], loss: Loss) -> bool {
    let Some(pool) = pool() else { return false };
    match own_place(pool) {
        Err(tid) => {
            losses::add(loss, 1);
            push_overflow(pool, tid, event);
        }
        Ok(place) => {
            let roomy = place.ring.waiting() < BESIDE_EVENTS;
            if roomy && place.ring.push(&[before, event]) {
                return true;
            }
            losses::add(loss, u64::from(!roomy));
            if !place.ring.push(&[event]) {
                losses::add(Loss::HostRingFull, 1);
            }
        }
    }
    false
}

/// Has the calling thread a ring of its own, and is that less than half full?
pub(crate) fn has_room_beside() -> bool {
    let place = pool().and_then(|pool| own_place(pool).ok());
    place.is_some_and(|place| place.ring.waiting() < BESIDE_EVENTS)
}

/// Stores `items` together in the calling thread's own ring, or says that it is half full or that
/// there is none.
pub(crate) fn push_together(items: &[[u64; SLOT_WORDS]]) -> bool {
    let place = pool().and_then(|pool| own_place(pool).ok());
    place.is_some_and(|place| place.ring.waiting() < BESIDE_EVENTS && place.ring.push(items))
}

/// The calling thread's, where it has a place of its own.
#[inline]
pub(crate) fn memo() -> Option<&'static Memo> {
    pool().and_then(|pool| own_place(pool).ok()).map(|place| &place.memo)
}

/// The calling thread's own stack, where it is known; `Err(true)`: it may be soon.
#[inline]
pub(crate) fn own_stack() -> Result<Range<u64>, bool> {
    let place = pool().and_then(|pool| own_place(pool).ok()).ok_or(false)?;
    match place.stack.low.load(Ordering::Acquire) {
        0 => Err(true),
        u64::MAX => Err(false),
        low => Ok(low..place.stack.high.load(Ordering::Relaxed)),
    }
}

/// Looks for the stacks of threads that are new: `low_of` gives the lower end of the one that ends
/// at libc's descriptor of the thread. Only the drain thread, which alone gives places back: no
/// place changes hands meanwhile.
pub(crate) fn look_for_stacks(mut low_of: impl FnMut(u64) -> Option<u64>) {
    for place in pool().map(|pool| &pool.places).into_iter().flatten() {
        let is_new = place.owner.load(Ordering::Acquire) != 0 && place.stack.low.load(Ordering::Acquire) == 0;
        let high = place.stack.high.load(Ordering::Relaxed);
        if is_new && high != 0 {
            place.stack.low.store(low_of(high).unwrap_or(u64::MAX), Ordering::Release);
        }
    }
}

/// Ranges get no more than this much of a ring: what waits for the GPU comes behind them, and must
/// find room.
pub(crate) const FOR_RANGES: u64 = RING_EVENTS as u64 / 4 * 3;

/// As [`push`], for items that belong together and mean nothing without the ones stored before.
/// Once some were refused, `gap` is stored before the next. In the overflow ring, where several
/// could be mixed with another thread's, `alone` is stored for them, and their loss is counted.
/// `false`: not stored.
#[inline]
pub(crate) fn push_ranges(
    items: &[[u64; SLOT_WORDS]],
    alone: [u64; SLOT_WORDS],
    gap: [u64; SLOT_WORDS],
) -> bool {
    let Some(pool) = pool() else { return false };
    thread_block::with(|block| {
        let place = place(pool, block);
        let tid = block.tid.get();
        if block.gap.get() {
            let told = match place {
                Some(place) => place.ring.waiting() < FOR_RANGES && place.ring.push(&[gap]),
                None => push_overflow(pool, tid, gap),
            };
            block.gap.set(!told);
        }
        let stored = !block.gap.get()
            && match place {
                Some(place) => place.ring.waiting() < FOR_RANGES && place.ring.push(items),
                None => push_overflow(pool, tid, alone),
            };
        match place {
            Some(_) if !stored => losses::add(Loss::RangeDropped, 1),
            None if stored && items.len() > 1 => losses::add(Loss::OverflowRingFull, 1),
            _ => {}
        }
        block.gap.set(!stored);
        stored
    })
}

/// `false`: full, and counted.
#[cold]
fn push_overflow(pool: &Pool, tid: u32, item: [u64; SLOT_WORDS]) -> bool {
    let [a, b, c, d] = item;
    let stored = pool.overflow.push([a, b, c, d, u64::from(tid)]);
    losses::add(Loss::OverflowRingFull, u64::from(!stored));
    stored
}

/// Takes everything from all rings: `f(tid, words)`. Only the drain thread (or who stands in for it
/// at exit). How many events lay in the ring that had most.
pub(crate) fn drain(mut f: impl FnMut(u32, [u64; SLOT_WORDS])) -> u64 {
    let Some(pool) = pool() else { return 0 };
    let mut most = 0;
    for place in &pool.places {
        let tid = place.owner.load(Ordering::Acquire);
        if tid != 0 {
            most = most.max(place.ring.drain(|words| f(tid, words)));
        }
    }
    most.max(pool.overflow.drain(|[a, b, c, d, tid]| f(tid as u32, [a, b, c, d])))
}

/// Gives back the rings of threads that no longer exist (a file in /proc/self/task says so).
pub(crate) fn reclaim() {
    let Some(pool) = pool() else { return };
    for place in &pool.places {
        let tid = place.owner.load(Ordering::Acquire);
        if tid != 0 && place.ring.waiting() == 0 && !exists(tid) && place.ring.waiting() == 0 {
            place.stack.low.store(u64::MAX, Ordering::Relaxed); // until the next owner has said where
            place.owner.store(0, Ordering::Release);
        }
    }
}

fn exists(tid: u32) -> bool {
    // SAFETY: takes nothing, cannot fail.
    let pid = unsafe { libc::getpid() };
    // SAFETY: signal 0 is never delivered; it only asks whether the thread exists.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid as libc::pid_t, 0) };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The reader of the rings is wanted.
static WAKE: Signal = Signal::new();

/// The reader is wanted now: a window begins or ends. One call to the kernel.
pub(crate) fn wake_reader() {
    WAKE.set();
}

/// The reader waits until it is wanted, or this long.
pub(crate) fn wait_to_read(time: Duration) {
    WAKE.wait(time);
    WAKE.take();
}

/// Tests of one process share the pool: held by the one that has it now.
#[cfg(test)]
pub(crate) fn for_one_test() -> parking_lot::MutexGuard<'static, ()> {
    static TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    TEST.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_pool_share_the_overflow_ring_and_dead_ones_give_theirs_back() {
        let _alone = for_one_test();
        assert!(prepare());
        let n = RINGS + 8;
        let barrier = std::sync::Barrier::new(n);
        std::thread::scope(|s| {
            for i in 0..n {
                let barrier = &barrier;
                s.spawn(move || {
                    push(&[[i as u64, 0, 0, 1]]);
                    barrier.wait();
                });
            }
        });
        let mut seen = Vec::new();
        drain(|tid, words| seen.push((tid, words[0])));
        seen.sort_by_key(|s| s.1);
        assert_eq!(seen.iter().map(|s| s.1).collect::<Vec<_>>(), (0..n as u64).collect::<Vec<_>>());
        let mut tids: Vec<u32> = seen.iter().map(|s| s.0).collect();
        tids.sort_unstable();
        tids.dedup();
        assert_eq!(tids.len(), n, "each event knows its thread");
        assert!(losses::get(Loss::ThreadOverflow) >= 8);
        // a joined thread may still be on its way out of the kernel
        let free = || pool().unwrap().places.iter().filter(|p| p.owner.load(Ordering::Relaxed) == 0).count();
        for _ in 0..200 {
            reclaim();
            if free() == RINGS {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(free(), RINGS);
        assert_eq!(own_tid(), gettid());
    }
}

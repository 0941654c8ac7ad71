// SPDX-License-Identifier: Apache-2.0
// HOT (`capture`: once for a return address that is new), WARM (`take`, `give_back`), COLD
// (`prepare`)
//! Copies of the top of a thread's stack, for the drain thread to unwind: made by the thread itself
//! where its walk meets a return address without a row. A fixed pool; what finds no room in it is a
//! call without its caller, counted.
//!
//! The copy ends where the stack is not known to go on ([`super::stack`]): with the page, but on
//! the main thread. That is enough to learn the way by and by: each call gets a frame further than
//! the one before it, so that beyond a page no more than a thread's first calls from a place are
//! without their caller, counted. Nothing here asks the kernel for anything.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::rows::Place;
use super::stack;
use crate::platform::memory;

/// Bytes of a stack copied at most.
const BYTES: usize = 4096;
/// Copies that wait for the drain thread at most. It comes 500 times a second while there are new
/// ones (`Callers::period`).
const POOL: usize = 192;

/// One copy. All-zero is free.
#[repr(C)]
struct Slot {
    taken: AtomicBool,
    copy: UnsafeCell<Copied>,
}

/// The top of a stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Copied {
    /// Where the walk ended; the bytes begin there.
    pub(super) place: Place,
    /// The call is one of CUDA's runtime.
    pub(super) of_runtime: bool,
    length: usize,
    bytes: [u8; BYTES],
}

impl Copied {
    /// The word that was at this address.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.place.at)?).ok()?;
        let bytes = self.bytes.get(..self.length)?.get(from..from.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

#[repr(C)]
struct Pool {
    next: AtomicU32,
    slots: [Slot; POOL],
}

static TABLE: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Memory for the copies, faulted in. COLD, once; `false` where it cannot be had.
pub(super) fn prepare() -> bool {
    stack::prepare();
    let Some(pool) = memory::map(size_of::<Pool>(), true) else { return false };
    TABLE.store(pool.as_ptr().cast(), Ordering::Release);
    true
}

fn pool() -> Option<&'static Pool> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never
    // unmapped; zero is valid for all of it. What is in the cells is reached by whoever set `taken`
    // alone.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Copies the calling thread's stack from `place` on; the copy's number. `None`: all are taken, or
/// nothing could be read.
///
/// # Safety
/// `place` lies in a frame of the calling thread's that does not end before this returns.
#[cold]
#[inline(never)]
pub(super) unsafe fn capture(place: Place, of_runtime: bool) -> Option<u64> {
    let pool = pool()?;
    let first = pool.next.fetch_add(1, Ordering::Relaxed) as usize;
    let number = (0..POOL).map(|n| (first + n) % POOL).find(|n| {
        // Acquire pairs with the Release of `give_back`: what was read of it was read before.
        pool.slots.get(*n).is_some_and(|s| {
            !s.taken.load(Ordering::Relaxed)
                && s.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    })?;
    let slot = pool.slots.get(number)?;
    // SAFETY: this thread set `taken`: until its number is handed over nobody else looks at the
    // copy.
    let copied = unsafe { &mut *slot.copy.get() };
    (copied.place, copied.of_runtime) = (place, of_runtime);
    // SAFETY: our caller's.
    copied.length = unsafe { stack::copy(place.at, &mut copied.bytes) };
    if copied.length < 8 {
        give_back(number as u64);
        return None;
    }
    Some(number as u64)
}

/// The copy of this number, which came through a ring. Only the drain thread, until it gives it
/// back.
pub(super) fn taken(number: u64) -> Option<Copied> {
    let slot = pool()?.slots.get(usize::try_from(number).ok()?)?;
    // SAFETY: the thread that made it handed it over by its ring (Release and Acquire of the ring's
    // head), and `taken` is set until the drain thread gives it back: nobody writes to it.
    slot.taken.load(Ordering::Relaxed).then(|| unsafe { *slot.copy.get() })
}

/// Done with it.
pub(super) fn give_back(number: u64) {
    let Some(pool) = pool() else { return };
    if let Some(slot) = usize::try_from(number).ok().and_then(|n| pool.slots.get(n)) {
        slot.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On one page.
    #[repr(align(32))]
    struct Aligned([u64; 3]);

    fn of(place: Place, of_runtime: bool) -> Option<u64> {
        // SAFETY: a place in a frame of the test's.
        unsafe { capture(place, of_runtime) }
    }

    #[test]
    fn copies_are_given_out_once_and_again_when_they_came_back() {
        assert!(prepare());
        let stack = Aligned([11u64, 22, 33]);
        let at = stack.0.as_ptr() as u64;
        let place = Place { at, rbp: 9, through_cudart: true };
        let mut numbers: Vec<u64> = (0..POOL).map(|_| of(place, true).unwrap()).collect();
        assert_eq!(of(place, true), None, "all are taken");
        let copied = taken(numbers[5]).unwrap();
        assert_eq!((copied.place, copied.of_runtime), (place, true));
        assert_eq!([at, at + 8, at + 16].map(|a| copied.word(a)), [Some(11), Some(22), Some(33)]);
        assert_eq!([at - 8, at + BYTES as u64 - 7, u64::MAX].map(|a| copied.word(a)), [None; 3]);
        give_back(numbers[5]);
        assert!(taken(numbers[5]).is_none() && taken(1000).is_none());
        assert_eq!(of(place, false), Some(numbers[5]));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), POOL);
        numbers.into_iter().for_each(give_back);
    }
}

// SPDX-License-Identifier: Apache-2.0
// HOT (`capture`: once for a return address that is new), WARM (`take`, `give_back`), COLD (`prepare`)
//! Copies of the top of a thread's stack, for the drain thread to unwind: made by the thread itself where its walk meets a return
//! address without a row. A fixed pool; what finds no room in it is a call without its caller, counted.
//!
//! The copy is made by the kernel (`process_vm_readv` on ourselves, about a microsecond), the one system call of a recorded call on
//! the program's threads: nothing tells where a stack ends that is a coroutine's or a signal handler's, and what is not mapped is an
//! error there, never a fault. And, seldom, one to wake the drain thread.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::rows::Place;
use crate::memory;

/// Bytes of a stack copied at most.
const BYTES: usize = 8192;
/// Copies that wait for the drain thread at most. It comes 20 times a second, and is woken once a quarter is taken.
const POOL: usize = 96;
const PAGE: u64 = 4096;

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
    /// How many are taken.
    out: AtomicU32,
    slots: [Slot; POOL],
}

static TABLE: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Memory for the copies, faulted in. COLD, once; `false` where it cannot be had, or where no memory of our own may be read.
pub(super) fn prepare() -> bool {
    let probe = 0x1234_5678_9abc_def0u64;
    let mut read = [0u8; 8];
    if copy(std::ptr::from_ref(&probe) as u64, &mut read) != 8 || u64::from_le_bytes(read) != probe {
        return false;
    }
    let Some(pool) = memory::map(size_of::<Pool>(), true) else { return false };
    TABLE.store(pool.as_ptr().cast(), Ordering::Release);
    true
}

fn pool() -> Option<&'static Pool> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never unmapped; zero is valid for all
    // of it. What is in the cells is reached by whoever set `taken` alone.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Copies what is mapped of `out.len()` bytes from `from` on; how many there were. Leaves errno as it was.
fn copy(from: u64, out: &mut [u8]) -> usize {
    let to_page = (PAGE - from % PAGE) as usize;
    // a piece a page: the kernel copies whole pieces up to the first that is not there
    let piece = |at: usize, length: usize| libc::iovec {
        iov_base: from.wrapping_add(at as u64) as *mut libc::c_void,
        iov_len: length.min(out.len().saturating_sub(at)),
    };
    let page = PAGE as usize;
    let pieces = [piece(0, to_page), piece(to_page, page), piece(to_page + page, page)];
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    // SAFETY: takes nothing; the calling thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address of this thread's errno.
    let before = unsafe { errno.read() };
    // this thread, which has the memory of the process even when the main thread has ended
    // SAFETY: takes nothing, cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
    let count = pieces.len() as libc::c_ulong;
    // SAFETY: `local` is `out`, a buffer of ours; the kernel checks the rest and stops where it is not mapped.
    let n = unsafe { libc::process_vm_readv(thread, &local, 1, pieces.as_ptr(), count, 0) };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    usize::try_from(n).unwrap_or(0)
}

/// Copies the calling thread's stack from `place` on; the copy's number. `None`: all are taken, or nothing could be read.
#[cold]
#[inline(never)]
pub(super) fn capture(place: Place, of_runtime: bool) -> Option<u64> {
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
    if pool.out.fetch_add(1, Ordering::Relaxed) + 1 == POOL as u32 / 4 {
        crate::drain::wake();
    }
    // SAFETY: this thread set `taken`: until its number is handed over nobody else looks at the copy.
    let copied = unsafe { &mut *slot.copy.get() };
    (copied.place, copied.of_runtime) = (place, of_runtime);
    copied.length = copy(place.at, &mut copied.bytes);
    if copied.length < 8 {
        give_back(number as u64);
        return None;
    }
    Some(number as u64)
}

/// The copy of this number, which came through a ring. Only the drain thread, until it gives it back.
pub(super) fn taken(number: u64) -> Option<Copied> {
    let slot = pool()?.slots.get(usize::try_from(number).ok()?)?;
    // SAFETY: the thread that made it handed it over by its ring (Release and Acquire of the ring's head), and `taken` is set
    // until the drain thread gives it back: nobody writes to it.
    slot.taken.load(Ordering::Relaxed).then(|| unsafe { *slot.copy.get() })
}

/// Done with it.
pub(super) fn give_back(number: u64) {
    let Some(pool) = pool() else { return };
    if let Some(slot) = usize::try_from(number).ok().and_then(|n| pool.slots.get(n)) {
        if slot.taken.swap(false, Ordering::AcqRel) {
            pool.out.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_copied_and_the_rest_left_out() {
        let page = memory::map(2 * 4096, true).unwrap().as_ptr();
        // SAFETY: the second page of a mapping of our own that nobody else knows.
        unsafe { libc::munmap(page.wrapping_add(4096).cast(), 4096) };
        // SAFETY: inside of the first page.
        unsafe { page.wrapping_add(4088).cast::<u64>().write(7) };
        let mut out = [1u8; BYTES];
        // SAFETY: takes nothing; the calling thread's own errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's errno.
        unsafe { errno.write(5) };
        assert_eq!(copy(page as u64 + 4000, &mut out), 96);
        // SAFETY: as above.
        assert_eq!(unsafe { errno.read() }, 5, "errno is the program's");
        assert_eq!(out[88..97], [7, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(copy(page as u64 + 4096, &mut out), 0);
        assert_eq!(copy(0, &mut out), 0);
    }

    #[test]
    fn copies_are_given_out_once_and_again_when_they_came_back() {
        assert!(prepare());
        let stack = [11u64, 22, 33];
        let at = stack.as_ptr() as u64;
        let place = Place { at, rbp: 9, through_cudart: true };
        let mut numbers: Vec<u64> = (0..POOL).map(|_| capture(place, true).unwrap()).collect();
        assert_eq!(capture(place, true), None, "all are taken");
        let copied = taken(numbers[5]).unwrap();
        assert_eq!((copied.place, copied.of_runtime), (place, true));
        assert_eq!([at, at + 8, at + 16].map(|a| copied.word(a)), [Some(11), Some(22), Some(33)]);
        assert_eq!([at - 8, at + BYTES as u64 - 7, u64::MAX].map(|a| copied.word(a)), [None; 3]);
        give_back(numbers[5]);
        assert!(taken(numbers[5]).is_none() && taken(1000).is_none());
        assert_eq!(capture(place, false), Some(numbers[5]));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), POOL);
        assert_eq!(capture(Place { at: 8, ..place }, false), None);
        numbers.into_iter().for_each(give_back);
        assert_eq!(capture(Place { at: 8, ..place }, false), None, "nothing could be read");
    }
}

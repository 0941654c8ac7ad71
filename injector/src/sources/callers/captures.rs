// SPDX-License-Identifier: Apache-2.0
// HOT (`capture`: once for a return address that is new), COLD (`prepare`)
//! Copies of the top of a thread's stack, for the drain thread to unwind: made by the thread itself
//! where its walk meets a return address without a row. A fixed pool; what finds no room in it is a
//! call without its caller, counted.
//!
//! The copy ends where the stack is not known to go on ([`super::stack`]): with the page, on a
//! thread that is new or a stack that libc has not made. That is enough to learn the way by and by:
//! each call gets a frame further than the one before it, so that beyond a page no more than a
//! thread's first calls from a place are without their caller, counted. Nothing here asks the
//! kernel for anything.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::pool;
use super::rows::Place;
use super::stack;
use crate::platform::memory;

/// Bytes of a stack copied at most.
const BYTES: usize = 4096;
/// Copies that wait for the drain thread at most. It comes 500 times a second while there are new
/// ones (`Callers::period`).
const POOL: usize = 192;
/// Of them for launches, hundreds of which may come before the way of the first one is learnt.
const OF_LAUNCHES: usize = 32;

/// The top of a stack.
#[repr(C)]
pub(super) struct Bytes<const N: usize> {
    /// Where the bytes begin: where a walk is to go on.
    pub(super) place: Place,
    pub(super) length: usize,
    pub(super) bytes: [u8; N],
}

impl<const N: usize> Bytes<N> {
    /// The word that was at this address.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.place.at)?).ok()?;
        let bytes = self.bytes.get(..self.length)?.get(from..from.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// One copy.
#[repr(C)]
pub(super) struct Copied {
    /// The call is one of CUDA's runtime.
    pub(super) of_runtime: bool,
    /// Address of the name of the kernel that it launched; 0: none.
    pub(super) symbol: u64,
    pub(super) stack: Bytes<BYTES>,
}

type Pool = pool::Pool<Copied, POOL>;

static TABLE: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Memory for the copies, faulted in. COLD, once; `false` where it cannot be had.
pub(super) fn prepare() -> bool {
    stack::prepare();
    let Some(pool) = memory::map(size_of::<Pool>(), true) else { return false };
    TABLE.store(pool.as_ptr().cast(), Ordering::Release);
    true
}

/// The copies; `None` before [`prepare`].
pub(super) fn pool() -> Option<&'static Pool> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never
    // unmapped; zero is valid for all of it.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Copies the calling thread's stack from `place` on, of a call that launched the kernel whose name
/// is at `symbol` (0: none); the copy's number. `None`: all are taken, or
/// nothing could be read.
///
/// # Safety
/// `place` lies in a frame of the calling thread's that does not end before this returns.
#[cold]
#[inline(never)]
pub(super) unsafe fn capture(place: Place, of_runtime: bool, symbol: u64) -> Option<u64> {
    let most = if symbol == 0 { POOL } else { OF_LAUNCHES };
    pool()?.claim_of(most, |copied| {
        (copied.stack.place, copied.of_runtime, copied.symbol) = (place, of_runtime, symbol);
        // SAFETY: our caller's.
        copied.stack.length = unsafe { stack::copy(place.at, &mut copied.stack.bytes) };
        copied.stack.length >= 8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On one page.
    #[repr(align(32))]
    struct Aligned([u64; 3]);

    #[test]
    fn a_copy_has_the_words_of_the_stack_by_their_addresses() {
        assert!(prepare());
        let stack = Aligned([11u64, 22, 33]);
        let at = stack.0.as_ptr() as u64;
        let place = Place { at, rbp: 9, through_cudart: true };
        // SAFETY: a place in a frame of the test's.
        let number = unsafe { capture(place, true, 0) }.unwrap();
        let check = |copied: &Copied| {
            assert_eq!((copied.stack.place, copied.of_runtime), (place, true));
            let word = |a| copied.stack.word(a);
            assert_eq!([at, at + 8, at + 16].map(word), [Some(11), Some(22), Some(33)]);
            assert_eq!([at - 8, at + BYTES as u64 - 7, u64::MAX].map(word), [None; 3]);
        };
        assert_eq!(pool().unwrap().read(number, check), Some(()));
    }
}

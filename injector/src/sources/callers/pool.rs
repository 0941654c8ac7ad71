// SPDX-License-Identifier: Apache-2.0
// HOT (`claim`), WARM (`read`)
//! A fixed number of places that threads fill and the drain thread empties. Who finds none free
//! goes without.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// All-zero is free.
#[repr(C)]
struct Slot<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

/// `N` places. All-zero is empty, where zero is valid for `T`.
#[repr(C)]
pub(super) struct Pool<T, const N: usize> {
    next: AtomicU32,
    slots: [Slot<T>; N],
}

impl<T, const N: usize> Pool<T, N> {
    /// Takes a place and fills it, or gives it back where `fill` says `false`. Its number, to be
    /// handed to the drain thread through a ring.
    pub(super) fn claim(&self, fill: impl FnOnce(&mut T) -> bool) -> Option<u64> {
        self.claim_of(N, fill)
    }

    /// As [`Pool::claim`], one of the first `most`: the rest are kept for others.
    pub(super) fn claim_of(&self, most: usize, fill: impl FnOnce(&mut T) -> bool) -> Option<u64> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let number = (0..most).map(|n| (first + n) % most).find(|n| {
            // Acquire pairs with the Release of `give_back`: what was read of it was read before.
            self.slots.get(*n).is_some_and(|s| {
                !s.taken.load(Ordering::Relaxed)
                    && s.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
        })?;
        let slot = self.slots.get(number)?;
        // SAFETY: this thread set `taken`: until its number is handed over nobody else looks at the
        // value.
        let is_filled = fill(unsafe { &mut *slot.value.get() });
        if !is_filled {
            self.give_back(number as u64);
        }
        is_filled.then_some(number as u64)
    }

    /// Reads the value of this number, which came through a ring; its place is free then. Only the
    /// drain thread.
    pub(super) fn read<R>(&self, number: u64, f: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = self.slots.get(usize::try_from(number).ok()?)?;
        // SAFETY: the thread that made it handed it over by its ring (Release and Acquire of the
        // ring's head), and `taken` is set until it is given back, below: nobody writes to it.
        let read = slot.taken.load(Ordering::Relaxed).then(|| f(unsafe { &*slot.value.get() }));
        self.give_back(number);
        read
    }

    /// Done with it.
    pub(super) fn give_back(&self, number: u64) {
        if let Some(slot) = usize::try_from(number).ok().and_then(|n| self.slots.get(n)) {
            slot.taken.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_out_once_and_again_when_they_came_back() {
        // SAFETY: atomics and integers, for which zero is valid.
        let pool: Box<Pool<u64, 8>> = Box::new(unsafe { std::mem::zeroed() });
        let claim = |value| {
            pool.claim(|place| {
                *place = value;
                value != 0
            })
        };
        assert_eq!(claim(0), None, "given back at once");
        let mut numbers: Vec<u64> = (1..=8).map(|n| claim(n).unwrap()).collect();
        assert_eq!(claim(9), None, "all are taken");
        assert_eq!(pool.read(numbers[5], |n| *n), Some(6));
        assert_eq!([numbers[5], 1000].map(|number| pool.read(number, |n| *n)), [None, None]);
        assert_eq!(claim(10), Some(numbers[5]));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
    }
}

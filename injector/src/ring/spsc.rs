// SPDX-License-Identifier: Apache-2.0
// HOT
//! One thread's own ring: the owning thread pushes, the drain thread pops. Full = the event is
//! refused and the caller counts it; nothing waits.
//!
//! All-zero memory is an empty ring, so a pool of them is one anonymous mapping, faulted in
//! beforehand.

use super::sync::{AtomicU64, Ordering};
use super::SLOT_WORDS;

/// Keeps producer and consumer indices on cache lines of their own.
#[repr(align(128))]
struct Line(AtomicU64);

/// A ring of `N` slots (a power of two).
#[repr(C)]
pub struct Ring<const N: usize> {
    /// Slots ever published; written by the owning thread only.
    head: Line,
    /// Slots ever taken; written by the drain thread only.
    tail: Line,
    slots: [[AtomicU64; SLOT_WORDS]; N],
}

impl<const N: usize> Ring<N> {
    const MASK: u64 = {
        assert!(N.is_power_of_two());
        N as u64 - 1
    };

    /// Publishes `items` together, or refuses them all where there is no room. Only the owning
    /// thread may call it.
    #[inline]
    pub fn push(&self, items: &[[u64; SLOT_WORDS]]) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        // Acquire pairs with the Release store of `tail` in `drain`: the slots it gave back were
        // read before.
        let tail = self.tail.0.load(Ordering::Acquire);
        if head.wrapping_sub(tail) + items.len() as u64 > N as u64 {
            return false;
        }
        for (i, item) in items.iter().enumerate() {
            if let Some(slot) = self.slots.get((head.wrapping_add(i as u64) & Self::MASK) as usize) {
                for (cell, word) in slot.iter().zip(item) {
                    cell.store(*word, Ordering::Relaxed);
                }
            }
        }
        // Release pairs with the Acquire load of `head` in `drain`.
        self.head.0.store(head.wrapping_add(items.len() as u64), Ordering::Release);
        true
    }

    /// Takes everything published so far, oldest first. Only the drain thread may call it. Returns
    /// how many.
    pub fn drain(&self, mut f: impl FnMut([u64; SLOT_WORDS])) -> u64 {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let head = self.head.0.load(Ordering::Acquire);
        let count = head.wrapping_sub(tail);
        for i in 0..count {
            if let Some(slot) = self.slots.get((tail.wrapping_add(i) & Self::MASK) as usize) {
                let mut words = [0; SLOT_WORDS];
                for (word, cell) in words.iter_mut().zip(slot) {
                    *word = cell.load(Ordering::Relaxed);
                }
                f(words);
            }
        }
        self.tail.0.store(head, Ordering::Release);
        count
    }

    /// Slots waiting to be drained.
    pub fn waiting(&self) -> u64 {
        self.head.0.load(Ordering::Relaxed).wrapping_sub(self.tail.0.load(Ordering::Relaxed))
    }
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Ring {
            head: Line(AtomicU64::new(0)),
            tail: Line(AtomicU64::new(0)),
            slots: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        let ring: Ring<4> = Ring::default();
        assert!(ring.push(&[[1; 4], [2; 4], [3; 4]]));
        assert!(!ring.push(&[[4; 4], [5; 4]]), "two do not fit into one free slot");
        assert!(ring.push(&[[4; 4]]));
        let mut seen = Vec::new();
        assert_eq!(ring.drain(|w| seen.push(w[0])), 4);
        assert_eq!(seen, [1, 2, 3, 4]);
    }

    #[test]
    fn order_and_content_survive_many_laps_across_threads() {
        let ring: Ring<64> = Ring::default();
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut i = 0u64;
                while i < 200_000 {
                    if ring.push(&[[i, !i, i * 3, i ^ 7]]) {
                        i += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < 200_000 {
                ring.drain(|w| {
                    assert_eq!(w, [next, !next, next * 3, next ^ 7]);
                    next += 1;
                });
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Two slots, three events: the producer laps, the consumer sees what was accepted, whole and
    /// in order. (The consumer is the spawned thread: see `overflow`.)
    #[test]
    fn a_lapping_producer_never_shows_a_torn_event() {
        loom::model(|| {
            let ring: Arc<Ring<2>> = Arc::new(Ring::default());
            let consumer = {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || {
                    let mut seen = Vec::new();
                    ring.drain(|w| seen.push(w));
                    ring.drain(|w| seen.push(w));
                    seen
                })
            };
            let accepted: Vec<u64> = (1..=3).filter(|i| ring.push(&[[*i; SLOT_WORDS]])).collect();
            let mut seen = consumer.join().unwrap();
            ring.drain(|w| seen.push(w));
            let whole: Vec<_> = accepted.iter().map(|i| [*i; SLOT_WORDS]).collect();
            assert_eq!(seen, whole);
        });
    }
}

// SPDX-License-Identifier: Apache-2.0
// HOT
//! The ring shared by the threads beyond the pool: many producers, one consumer.
//!
//! Each slot has a turn: `2 * lap` = may be written in that lap, `2 * lap + 1` = may be read. A
//! producer owns a slot only after it moved `head` past it by compare-and-swap: without that claim,
//! two producers a lap apart write the same slot (measured without the claim: 106 to 169,350 mixed
//! events a run). Zeroed memory is an empty ring.

use super::sync::{AtomicU64, Ordering};
use super::SLOT_WORDS;

/// Words of a slot: the event, then whose it is.
pub const OVERFLOW_WORDS: usize = SLOT_WORDS + 1;

#[repr(C)]
struct Slot {
    turn: AtomicU64,
    words: [AtomicU64; OVERFLOW_WORDS],
}

/// A ring of `N` slots (a power of two).
#[repr(C)]
pub struct Ring<const N: usize> {
    head: AtomicU64,
    tail: AtomicU64,
    slots: [Slot; N],
}

impl<const N: usize> Ring<N> {
    const MASK: u64 = {
        assert!(N.is_power_of_two());
        N as u64 - 1
    };

    /// Publishes one item, or refuses it where the ring is full (or a stalled producer holds the
    /// slot it would need). Any thread. Never waits: a lost race is tried again, and each loss
    /// means that another thread got on.
    pub fn push(&self, item: [u64; OVERFLOW_WORDS]) -> bool {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let Some(slot) = self.slots.get((position & Self::MASK) as usize) else { return false };
            let free = 2 * (position / N as u64);
            // Acquire pairs with the Release store of `turn` in `drain`: the slot was read before
            // it is written anew.
            let turn = slot.turn.load(Ordering::Acquire);
            if turn == free {
                // The claim. Relaxed: the slot's own `turn` orders its content.
                match self.head.compare_exchange_weak(
                    position,
                    position + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        for (cell, word) in slot.words.iter().zip(item) {
                            cell.store(word, Ordering::Relaxed);
                        }
                        // Release pairs with the Acquire load of `turn` in `drain`.
                        slot.turn.store(free + 1, Ordering::Release);
                        return true;
                    }
                    Err(now) => position = now,
                }
            } else if turn < free {
                return false;
            } else {
                position = self.head.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes what is ready, oldest first, up to the first slot still being written. Only the drain
    /// thread may call it.
    pub fn drain(&self, mut f: impl FnMut([u64; OVERFLOW_WORDS])) -> u64 {
        let mut count = 0;
        while count < N as u64 {
            let position = self.tail.load(Ordering::Relaxed);
            let Some(slot) = self.slots.get((position & Self::MASK) as usize) else { break };
            let ready = 2 * (position / N as u64) + 1;
            if slot.turn.load(Ordering::Acquire) != ready {
                break;
            }
            let mut words = [0; OVERFLOW_WORDS];
            for (word, cell) in words.iter_mut().zip(&slot.words) {
                *word = cell.load(Ordering::Relaxed);
            }
            slot.turn.store(ready + 1, Ordering::Release);
            self.tail.store(position + 1, Ordering::Relaxed);
            f(words);
            count += 1;
        }
        count
    }
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Ring {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            slots: std::array::from_fn(|_| Slot {
                turn: AtomicU64::new(0),
                words: std::array::from_fn(|_| AtomicU64::new(0)),
            }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn four_producers_lose_nothing_that_was_accepted_and_mix_nothing() {
        let ring: Ring<64> = Ring::default();
        let accepted = std::sync::atomic::AtomicU64::new(0);
        let running = std::sync::atomic::AtomicU64::new(4);
        let mut seen = 0u64;
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let (ring, accepted, running) = (&ring, &accepted, &running);
                s.spawn(move || {
                    for i in 0..50_000u64 {
                        let v = t << 32 | i;
                        if ring.push([v, v, v, v, v]) {
                            accepted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                    running.fetch_sub(1, std::sync::atomic::Ordering::Release);
                });
            }
            let mut last = [0u64; 4];
            loop {
                let over = running.load(std::sync::atomic::Ordering::Acquire) == 0;
                let got = ring.drain(|w| {
                    assert!(w.iter().all(|x| *x == w[0]), "mixed: {w:x?}");
                    let (t, i) = ((w[0] >> 32) as usize, w[0] & 0xffff_ffff);
                    assert!(i == 0 || i > last[t] || last[t] == 0, "a producer's own order holds");
                    last[t] = i;
                    seen += 1;
                });
                if over && got == 0 {
                    break;
                }
            }
        });
        assert_eq!(seen, accepted.into_inner());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    // The consumer is the last thread in each model. loom forgets a thread's load of a location
    // once another thread has loaded it too, so it would not try the orders in which a consumer
    // that looked first looks again later.

    /// Two slots, two producers with two events each, a consumer: one producer may stall for more
    /// than a lap.
    #[test]
    fn a_stalled_producer_never_mixes_with_the_next_lap() {
        loom::model(|| {
            let ring: Arc<Ring<2>> = Arc::new(Ring::default());
            let push_two =
                |ring: &Ring<2>, base: u64| (0..2).filter(|i| ring.push([base + i; OVERFLOW_WORDS])).count();
            let producer = {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || push_two(&ring, 10))
            };
            let consumer = {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || {
                    let mut seen = Vec::new();
                    ring.drain(|w| seen.push(w));
                    seen
                })
            };
            let accepted = push_two(&ring, 1) + producer.join().unwrap();
            let mut seen = consumer.join().unwrap();
            ring.drain(|w| seen.push(w));
            assert_eq!(seen.len(), accepted);
            for w in seen {
                assert!(w.iter().all(|x| *x == w[0] && *x != 0), "mixed: {w:?}");
            }
        });
    }

    /// One producer, one consumer, a lap: what may be read is whole and in order.
    #[test]
    fn an_item_that_may_be_read_is_whole() {
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
            let accepted: Vec<u64> = (1..=3).filter(|i| ring.push([*i; OVERFLOW_WORDS])).collect();
            let mut seen = consumer.join().unwrap();
            ring.drain(|w| seen.push(w));
            let whole: Vec<_> = accepted.iter().map(|i| [*i; OVERFLOW_WORDS]).collect();
            assert_eq!(seen, whole);
        });
    }
}

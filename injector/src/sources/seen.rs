// SPDX-License-Identifier: Apache-2.0
// HOT (`has`), WARM (`clear`)
//! Which hashes threads have met before. Where more come than there are places, one takes that of
//! another, which then counts as new again: nothing is ever full.

use std::sync::atomic::{AtomicU64, Ordering};

/// Places a hash may stand at.
const WAYS: usize = 4;

/// `N` hashes, `N` a multiple of [`WAYS`]. All-zero is empty; a hash is not 0.
#[repr(C)]
pub(super) struct Seen<const N: usize>([AtomicU64; N]);

impl<const N: usize> Seen<N> {
    #[inline]
    fn places(&self, hash: u64) -> &[AtomicU64] {
        let from = hash as usize % (N / WAYS) * WAYS;
        self.0.get(from..from + WAYS).unwrap_or(&[])
    }

    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        self.places(hash).iter().any(|place| place.load(Ordering::Relaxed) == hash)
    }

    /// Into a free place, else into one that the hash itself names.
    pub(super) fn add(&self, hash: u64) {
        let places = self.places(hash);
        let free = places.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        if let Some(place) = free.or_else(|| places.get((hash >> 40) as usize % WAYS)) {
            place.store(hash, Ordering::Relaxed);
        }
    }

    pub(super) fn forget(&self, hash: u64) {
        for place in self.places(hash) {
            if place.load(Ordering::Relaxed) == hash {
                place.store(0, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn clear(&self) {
        for place in &self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_known_until_it_is_forgotten_or_another_takes_its_place() {
        let seen = Seen::<8>([const { AtomicU64::new(0) }; 8]);
        assert!(!seen.has(2));
        (1..=4).for_each(|n| seen.add(2 * n));
        assert!((1..=4).all(|n| seen.has(2 * n)) && !seen.has(10));
        seen.forget(4);
        assert!(!seen.has(4) && seen.has(2));
        seen.add(10);
        seen.add(12);
        assert_eq!((1..=6).filter(|n| seen.has(2 * n)).count(), 4, "one has made room");
        assert!(seen.has(12));
        seen.clear();
        assert!((1..=6).all(|n| !seen.has(2 * n)));
    }
}

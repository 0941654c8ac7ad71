// SPDX-License-Identifier: Apache-2.0
// HOT
//! What a thread's last walks found out about its stacks, so that a stack that comes again costs
//! its frames' own words and one product each: no look at the type of its code objects, none into
//! the table of stamps (256 KB that threads share).
//!
//! A stack is asked for by a hash over the words of its frames as they lie there, which say nothing
//! of an address that another code object has meanwhile. So what is kept holds for one [`Era`]
//! only: a time in which no code object dies.
//!
//! One to a thread's place in the pool of rings: only the thread that owns it comes here (a
//! signal's handler that calls CUDA on that thread included: see `Entry`). A thread that gets the
//! place of one that is gone finds what is still true.

use std::sync::atomic::{AtomicU64, Ordering};

/// Stacks kept; one that comes where another lies replaces it. A training step of PyTorch's
/// launches from some hundred.
const KEPT: usize = 2048;

/// All-zero is none.
#[repr(C)]
struct Entry {
    /// Of words, era and `site` together ([`key`]): two halves of different entries match nothing,
    /// in whatever order a handler of a signal came between.
    key: AtomicU64,
    site: AtomicU64,
}

#[inline]
fn key(words: u64, era: Era, site: u64) -> u64 {
    words ^ site.rotate_left(32) ^ era.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// All-zero is empty.
#[repr(C)]
pub(crate) struct Memo {
    entries: [Entry; KEPT],
}

/// Between two deaths of code objects.
#[derive(Clone, Copy)]
pub(super) struct Era(u64);

static ERA: AtomicU64 = AtomicU64::new(1);

/// The one that it is; to be asked for before a frame is read. Whoever runs the code that came
/// after a death sees that one: what hands the new code object on to that thread (the GIL, the
/// stores that publish an object) hands this on as well.
#[inline]
pub(super) fn era() -> Era {
    Era(ERA.load(Ordering::Relaxed))
}

/// To be called where a code object dies, before its address can be another's; and where a stack
/// turns out not to be readable by its stamps.
pub(crate) fn end_era() {
    ERA.fetch_add(1, Ordering::Release);
}

impl Memo {
    #[inline]
    fn entry(&self, words: u64) -> &Entry {
        #[expect(clippy::indexing_slicing, reason = "the remainder by the array's own length")]
        &self.entries[words as usize % KEPT]
    }

    /// The stack whose frames' words have this hash.
    #[inline]
    pub(super) fn get(&self, words: u64, era: Era) -> Option<u64> {
        let entry = self.entry(words);
        let site = entry.site.load(Ordering::Relaxed);
        (site != 0 && entry.key.load(Ordering::Relaxed) == key(words, era, site)).then_some(site)
    }

    /// Keeps it. `site` is not 0.
    pub(super) fn keep(&self, words: u64, era: Era, site: u64) {
        let entry = self.entry(words);
        entry.site.store(site, Ordering::Relaxed);
        entry.key.store(key(words, era, site), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memo() -> Box<Memo> {
        // SAFETY: atomics, for which zero is valid.
        Box::new(unsafe { std::mem::zeroed() })
    }

    #[test]
    fn a_stack_is_found_by_its_words_alone_and_replaced_where_another_lies() {
        let (memo, era) = (memo(), Era(1));
        assert_eq!(memo.get(0x1234, era), None);
        assert_eq!(memo.get(0, era), None, "an empty entry is none");
        memo.keep(0x1234, era, 77);
        assert_eq!((memo.get(0x1234, era), memo.get(0x1235, era)), (Some(77), None));
        memo.keep(0x1234 + KEPT as u64, era, 78);
        assert_eq!(memo.get(0x1234, era), None);
    }

    #[test]
    fn nothing_is_found_in_another_era() {
        let (memo, before) = (memo(), era());
        memo.keep(0x1234, before, 77);
        end_era();
        assert_eq!(memo.get(0x1234, era()), None);
        assert_eq!(memo.get(0x1234, before), Some(77));
    }

    /// A handler of a signal that comes between the two words of an entry, reading or writing,
    /// leaves halves of two.
    #[test]
    fn halves_of_two_entries_are_no_entry() {
        let (memo, era) = (memo(), Era(7));
        let (one, other) = (0x1234, 0x1234 + KEPT as u64);
        memo.keep(one, era, 77);
        let entry = memo.entry(one);
        entry.site.store(78, Ordering::Relaxed);
        assert_eq!((memo.get(one, era), memo.get(other, era)), (None, None));
        entry.key.store(key(other, era, 78), Ordering::Relaxed);
        assert_eq!((memo.get(one, era), memo.get(other, era)), (None, Some(78)));
        entry.site.store(77, Ordering::Relaxed);
        assert_eq!((memo.get(one, era), memo.get(other, era)), (None, None));
    }
}

// SPDX-License-Identifier: Apache-2.0
// HOT
//! What a thread's last walks found out about its stacks, so that a stack that comes again costs its frames' own words and one product each: no
//! look at the type of its code objects, none into the table of stamps (256 KB that threads share).
//!
//! A stack is asked for by a hash over the words of its frames as they lie there, which say nothing of an address that another code object has
//! meanwhile. So what is kept holds for one [`Era`] only: a time in which no code object dies.
//!
//! One to a thread's place in the pool of rings: only the thread that owns it comes here (a signal's handler that calls CUDA on that thread
//! included: see `get`). A thread that gets the place of one that is gone finds what is still true.

use std::sync::atomic::{AtomicU64, Ordering};

/// Stacks kept; one that comes where another lies replaces it.
const KEPT: usize = 256;

/// All-zero is none.
#[repr(C)]
struct Entry {
    words: AtomicU64,
    era: AtomicU64,
    site: AtomicU64,
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

/// The one that it is; to be asked for before a frame is read. Whoever runs the code that came after a death sees that one: what hands the new code
/// object on to that thread (the GIL, the stores that publish an object) hands this on as well.
#[inline]
pub(super) fn era() -> Era {
    Era(ERA.load(Ordering::Relaxed))
}

/// To be called where a code object dies, before its address can be another's.
pub(super) fn end_era() {
    ERA.fetch_add(1, Ordering::Release);
}

impl Memo {
    #[inline]
    fn entry(&self, words: u64) -> &Entry {
        #[expect(clippy::indexing_slicing, reason = "the remainder by the array's own length")]
        &self.entries[words as usize % KEPT]
    }

    /// The stack whose frames' words have this hash. `site` is read first and by Acquire: where a signal's handler replaces the entry meanwhile, the
    /// words that are compared are the newer ones.
    #[inline]
    pub(super) fn get(&self, words: u64, era: Era) -> Option<u64> {
        let entry = self.entry(words);
        let site = entry.site.load(Ordering::Acquire);
        let same = entry.words.load(Ordering::Relaxed) == words && entry.era.load(Ordering::Relaxed) == era.0;
        same.then_some(site)
    }

    /// Keeps it, in this order: an entry that is half written is of no era.
    pub(super) fn keep(&self, words: u64, era: Era, site: u64) {
        let entry = self.entry(words);
        entry.era.store(0, Ordering::Relaxed);
        entry.words.store(words, Ordering::Release);
        entry.site.store(site, Ordering::Release);
        entry.era.store(era.0, Ordering::Release);
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
        assert_eq!(memo.get(0, era), None, "an empty entry is of no era");
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
}

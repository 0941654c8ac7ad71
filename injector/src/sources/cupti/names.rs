// SPDX-License-Identifier: Apache-2.0
// WARM (HOT: `module_unloading`)
//! Kernel names. CUPTI's records point to them, and the pointer dangles once the module is
//! unloaded: they are copied on the drain thread through the kernel (`process_vm_readv` on
//! ourselves: a fault becomes an error, measured 1.1 µs) and cached by pointer. After a module is
//! unloaded the cache forgets pointers it did not see before; a record that ran before the
//! unloading and whose pointer was not read since the unloading before that is `<unloaded>`,
//! counted: what lies there now, or lay there before, may be another module's name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use trace::Loss;

use crate::platform::losses;
use crate::platform::memory::read_string;

/// Unloadings whose times are remembered: a context takes its modules with it all at once.
const REMEMBERED: usize = 1024;

/// Module unloadings, ns.
struct Unloadings {
    count: AtomicU64,
    /// When each of the last ones began, at the place of its number.
    times: [AtomicU64; REMEMBERED],
    /// When anything of the newest one was.
    newest: AtomicU64,
}

static UNLOADINGS: Unloadings = Unloadings {
    count: AtomicU64::new(0),
    times: [const { AtomicU64::new(0) }; REMEMBERED],
    newest: AtomicU64::new(0),
};

/// A module is about to be unloaded. HOT: three stores.
pub(crate) fn module_unloading(now: u64) {
    let number = UNLOADINGS.count.fetch_add(1, Ordering::Relaxed);
    if let Some(time) = UNLOADINGS.times.get(number as usize % REMEMBERED) {
        time.store(now, Ordering::Relaxed);
    }
    UNLOADINGS.newest.fetch_max(now, Ordering::Release);
}

/// It was unloaded: what was read meanwhile is no name of what lies there now. HOT: one store.
pub(crate) fn module_unloaded(now: u64) {
    UNLOADINGS.newest.fetch_max(now, Ordering::Release);
}

/// Was a module ever unloaded? While not, a pointer stands for the same name for ever.
pub(crate) fn unloaded_since_start() -> bool {
    UNLOADINGS.newest.load(Ordering::Relaxed) != 0
}

/// Was a module unloaded between `known` was read and this moment? (So too where nobody remembers.)
fn unloaded_between(known: &Known, ended: u64, count: u64) -> bool {
    let mut since = known.unloadings..count;
    let time = |number: u64| {
        UNLOADINGS.times.get(number as usize % REMEMBERED).map_or(0, |time| time.load(Ordering::Relaxed))
    };
    count.saturating_sub(known.unloadings) > REMEMBERED as u64 || since.any(|number| time(number) < ended)
}

/// Pointers remembered at most; beyond that the cache starts anew.
const MAX_POINTERS: usize = 65_536;

/// What is stored where a name cannot be read.
pub(crate) const UNLOADED: &[u8] = b"<unloaded>";

struct Known {
    text: Box<[u8]>,
    read_at: u64,
    /// So many unloadings had begun before it was read.
    unloadings: u64,
}

/// The cache; belongs to the drain thread.
#[derive(Default)]
pub(crate) struct Names {
    known: HashMap<u64, Known>,
    distrust_before: u64,
}

impl Names {
    /// Without the subscription no unloading is seen: from here on every pointer is read again with
    /// its first use (once a buffer), and what was known serves only where nothing can be read any
    /// more.
    pub(crate) fn distrust(&mut self, now: u64) {
        self.distrust_before = now;
    }

    /// The name behind `pointer` of an op that ended at `ended`, read at `now` where it is not
    /// known.
    pub(crate) fn resolve(&mut self, pointer: u64, ended: u64, now: u64) -> &[u8] {
        let unloaded = UNLOADINGS.newest.load(Ordering::Acquire);
        let unloadings = UNLOADINGS.count.load(Ordering::Relaxed);
        let known = self.known.get(&pointer);
        let fresh = known.is_some_and(|k| {
            k.read_at > unloaded || (ended <= unloaded && !unloaded_between(k, ended, unloadings))
        });
        if !fresh || known.is_some_and(|k| k.read_at < self.distrust_before) {
            // the op ran before a module went, and its pointer was not read before that: what is
            // there now is a guess
            let stale = unloaded != 0 && ended <= unloaded;
            let text = if pointer == 0 || stale { None } else { read_string(pointer) };
            if text.is_none() && fresh {
                return self.known.get(&pointer).map_or(UNLOADED, |k| &k.text);
            }
            if text.is_none() {
                losses::add(Loss::NameUnreadable, 1);
                return UNLOADED;
            }
            if self.known.len() >= MAX_POINTERS {
                self.known.clear();
            }
            if let Some(text) = text {
                self.known.insert(pointer, Known { text: text.into(), read_at: now, unloadings });
            }
        }
        self.known.get(&pointer).map_or(UNLOADED, |k| &k.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_unloading_old_names_hold_for_old_ops_only() {
        let text = *b"old_kernel\0";
        let other = *b"new_kernel\0";
        let mut memory = text;
        let pointer = memory.as_ptr() as u64;
        let mut names = Names::default();
        assert_eq!(names.resolve(pointer, 100, 110), b"old_kernel");
        module_unloading(200);
        memory.copy_from_slice(&other);
        std::hint::black_box(&memory);
        assert_eq!(names.resolve(pointer, 150, 300), b"old_kernel", "it ran before the unloading");
        assert_eq!(names.resolve(pointer, 250, 300), b"new_kernel", "it ran after it");
        let unseen = other.as_ptr() as u64;
        assert_eq!(names.resolve(unseen, 150, 300), UNLOADED, "never read while its module was there");
        module_unloading(400);
        memory.copy_from_slice(b"3rd_kernel\0");
        std::hint::black_box(&memory);
        module_unloading(500);
        assert_eq!(
            names.resolve(pointer, 450, 600),
            UNLOADED,
            "it ran between two, and what was read lay there before"
        );
        assert_eq!(names.resolve(pointer, 550, 600), b"3rd_kernel");
        // a context takes all its modules with it
        (700..900).for_each(module_unloading);
        assert_eq!(names.resolve(pointer, 650, 1000), b"3rd_kernel", "it ran before all of them");
    }
}

// SPDX-License-Identifier: Apache-2.0
// HOT (`read`); one writer at a time: the drain thread, WARM
//! A few words that one thread writes and every thread reads: the newest, whole or not at all.
//! Nobody waits.

use super::sync::{fence, AtomicU64, Ordering};

/// Two under loom.
pub const WORDS: usize = if cfg!(loom) { 2 } else { 4 };

/// The words, and a version that is odd while they are written.
pub struct Latest {
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Latest {
    /// All zero.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Latest {
        Latest { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// As they were last written; `None` while they are being written.
    #[inline]
    pub fn read(&self) -> Option<[u64; WORDS]> {
        // Acquire pairs with the Release in `write`: who sees a version sees its words or later
        // ones.
        let before = self.version.load(Ordering::Acquire);
        let words = std::array::from_fn(|i| self.words.get(i).map_or(0, |w| w.load(Ordering::Relaxed)));
        // Acquire fence, then the version again: pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        (before % 2 == 0 && self.version.load(Ordering::Relaxed) == before).then_some(words)
    }

    /// One thread at a time.
    pub fn write(&self, words: [u64; WORDS]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release fence: a reader that sees any word written after this point, and then fences
        // Acquire, sees the odd (or a later) version.
        fence(Ordering::Release);
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Two words, written twice while they are read twice: both of one writing, and the second
    /// reading is none older than the first.
    #[test]
    fn a_reader_gets_words_of_one_writing() {
        loom::model(|| {
            let latest = Arc::new(Latest {
                version: AtomicU64::new(0),
                words: [AtomicU64::new(0), AtomicU64::new(0)],
            });
            let writer = {
                let latest = Arc::clone(&latest);
                loom::thread::spawn(move || {
                    latest.write([1, 1]);
                    latest.write([2, 2]);
                })
            };
            let mut last = 0;
            for _ in 0..2 {
                if let Some([a, b]) = latest.read() {
                    assert_eq!(a, b, "of two writings");
                    assert!(a >= last, "{a} after {last}");
                    last = a;
                }
            }
            writer.join().unwrap();
        });
    }
}

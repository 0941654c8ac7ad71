// SPDX-License-Identifier: Apache-2.0
// COLD (`string`, `domain`, `name_thread`), HOT (`index`, `nccl`), WARM (`text`, `thread_names`)
//! What NVTX lets a program register: strings and domains, told by handles that we choose; and
//! names of threads.
//!
//! A handle is the number of its place in one table of texts, so a range with a registered name
//! takes one slot of its thread's ring and touches no other memory. The table is an open hash of
//! pointers that are set once and never freed: no lock, since a program may fork while another
//! thread registers a name, and a name looked up is valid for ever. Registering works before the
//! first use of a GPU too: programs keep their handles.

use std::ffi::c_void;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use trace::define::MAX_STRING;
use trace::Loss;

use crate::platform::losses;

/// Places (a power of two). Zero pages until used: a text touches one of them.
const PLACES: usize = 1 << 17;
/// Texts and their bytes kept at most.
const MOST_TEXTS: usize = PLACES / 4 * 3;
const MOST_BYTES: usize = 8 << 20;
/// Threads whose names are kept.
const THREADS: usize = 256;

/// What has names.
struct Known {
    table: [AtomicPtr<Box<[u8]>>; PLACES],
    texts: AtomicUsize,
    bytes: AtomicUsize,
    /// Handle of the domain `NCCL`, 0 while there is none.
    nccl: AtomicU32,
    /// Thread id << 32 | handle of its name.
    named_threads: [AtomicU64; THREADS],
}

static KNOWN: Known = Known {
    table: [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES],
    texts: AtomicUsize::new(0),
    bytes: AtomicUsize::new(0),
    nccl: AtomicU32::new(0),
    named_threads: [const { AtomicU64::new(0) }; THREADS],
};

fn at(place: usize) -> Option<&'static [u8]> {
    // Acquire pairs with the Release of `string`: who sees the pointer sees the text.
    let text = KNOWN.table.get(place)?.load(Ordering::Acquire);
    // SAFETY: null, or leaked by `string` and never changed again.
    unsafe { text.as_ref() }.map(|t| &t[..])
}

/// Handle of a text; the same for the same text. 0 where there is no room (counted).
pub(crate) fn string(text: &[u8]) -> u32 {
    let text = text.get(..MAX_STRING).unwrap_or(text);
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text) as usize;
    let mut new: *mut Box<[u8]> = std::ptr::null_mut();
    for step in 0..PLACES {
        let place = hash.wrapping_add(step) & (PLACES - 1);
        if at(place).is_none() {
            if new.is_null() {
                if KNOWN.texts.load(Ordering::Relaxed) >= MOST_TEXTS
                    || KNOWN.bytes.load(Ordering::Relaxed) + text.len() > MOST_BYTES
                {
                    break;
                }
                new = Box::into_raw(Box::new(Box::from(text)));
            }
            let Some(cell) = KNOWN.table.get(place) else { break };
            let free = std::ptr::null_mut();
            // Release pairs with the Acquire of `at`.
            if cell.compare_exchange(free, new, Ordering::Release, Ordering::Relaxed).is_ok() {
                KNOWN.texts.fetch_add(1, Ordering::Relaxed);
                KNOWN.bytes.fetch_add(text.len(), Ordering::Relaxed);
                return place as u32 + 1;
            }
            // another thread was first: it may be the same text
        }
        if at(place) == Some(text) {
            if !new.is_null() {
                // SAFETY: made above and given to nobody.
                drop(unsafe { Box::from_raw(new) });
            }
            return place as u32 + 1;
        }
    }
    losses::add(Loss::DefinitionsFull, 1);
    0
}

/// Handle of a domain; one of the same name is the same.
pub(crate) fn domain(name: &[u8]) -> u32 {
    let handle = string(name);
    if name == b"NCCL" {
        KNOWN.nccl.store(handle, Ordering::Relaxed);
    }
    handle
}

/// Handle of NCCL's domain, 0 where there is none.
pub(crate) fn nccl() -> u32 {
    KNOWN.nccl.load(Ordering::Relaxed)
}

/// The handle as it comes back from the program; 0 for what was never one of ours.
pub(crate) fn index(handle: *const c_void) -> u32 {
    match handle as usize {
        n if n <= PLACES => n as u32,
        _ => 0,
    }
}

/// The text behind a handle.
pub(crate) fn text(handle: u32) -> Option<&'static [u8]> {
    at((handle as usize).checked_sub(1)?)
}

/// A thread gets a name.
pub(crate) fn name_thread(tid: u32, name: u32) {
    if tid == 0 || name == 0 {
        return;
    }
    let entry = u64::from(tid) << 32 | u64::from(name);
    for cell in &KNOWN.named_threads {
        let there = cell.load(Ordering::Relaxed);
        let free = there == 0 || there >> 32 == u64::from(tid);
        if free && cell.compare_exchange(there, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
    losses::add(Loss::DefinitionsFull, 1);
}

/// The threads that were given names: thread id and name.
pub(crate) fn thread_names() -> impl Iterator<Item = (u32, &'static [u8])> {
    let entries = KNOWN.named_threads.iter().map(|c| c.load(Ordering::Relaxed));
    entries.take_while(|e| *e != 0).filter_map(|e| Some(((e >> 32) as u32, text(e as u32)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_has_the_same_handle_from_whatever_thread() {
        let all: Vec<Vec<u32>> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4)
                .map(|_| s.spawn(|| (0..2000).map(|i| string(format!("text {i}").as_bytes())).collect()))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.iter().all(|a| *a == all[0]), "no text has two handles");
        let mut handles = all[0].clone();
        handles.sort_unstable();
        handles.dedup();
        assert_eq!(handles.len(), 2000, "no two texts have one");
        assert!(handles[0] > 0);
        for (i, handle) in all[0].iter().enumerate() {
            assert_eq!(text(*handle), Some(format!("text {i}").as_bytes()));
        }
        assert_eq!(string(b""), string(b""), "an empty text is one too");
    }

    #[test]
    fn what_is_no_handle_has_no_text() {
        for wild in [0usize, PLACES + 1, usize::MAX, 0x7fff_1234_5678] {
            assert_eq!(text(index(wild as *const c_void)), None);
        }
        assert_eq!(text(u32::MAX), None);
    }

    #[test]
    fn a_thread_has_the_name_it_was_given_last() {
        let (first, second) = (string(b"loader"), string(b"loader 2"));
        name_thread(77, first);
        name_thread(78, first);
        name_thread(77, second);
        let names: Vec<_> = thread_names().filter(|n| [77, 78].contains(&n.0)).collect();
        assert_eq!(names, [(77, &b"loader 2"[..]), (78, b"loader")]);
        name_thread(0, first);
        name_thread(79, 0);
        assert!(thread_names().all(|n| n.0 != 0 && n.0 != 79));
    }
}

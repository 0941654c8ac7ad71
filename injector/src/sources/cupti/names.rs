// SPDX-License-Identifier: Apache-2.0
// WARM (HOT: `module_unloading`)
//! Kernel names. CUPTI's records point to them, and the pointer dangles once the module is
//! unloaded: they are copied on the drain thread through the kernel (`process_vm_readv` on
//! ourselves: a fault becomes an error, measured 1.1 µs) and cached by pointer. After a module is
//! unloaded the cache forgets pointers it did not see before; a record that ran before the
//! unloading and whose pointer was never read is `<unloaded>`, counted: what lies there now may be
//! another module's name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use trace::Loss;

use crate::platform::{losses, memory};

/// Time of the newest module unloading, ns.
static UNLOADED_AT: AtomicU64 = AtomicU64::new(0);

/// A module is about to be unloaded. HOT: one store.
pub(crate) fn module_unloading(now: u64) {
    UNLOADED_AT.fetch_max(now, Ordering::Relaxed);
}

/// Was a module ever unloaded? While not, a pointer stands for the same name for ever.
pub(crate) fn unloaded_since_start() -> bool {
    UNLOADED_AT.load(Ordering::Relaxed) != 0
}

/// Longest name kept, bytes.
const LONGEST: usize = 2048;
/// Pointers remembered at most; beyond that the cache starts anew.
const MAX_POINTERS: usize = 65_536;

/// What is stored where a name cannot be read.
pub(crate) const UNLOADED: &[u8] = b"<unloaded>";

struct Known {
    text: Box<[u8]>,
    read_at: u64,
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
        let unloaded = UNLOADED_AT.load(Ordering::Relaxed);
        let known = self.known.get(&pointer);
        let fresh = known.is_some_and(|k| k.read_at > unloaded || ended <= unloaded);
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
                self.known.insert(pointer, Known { text: text.into(), read_at: now });
            }
        }
        self.known.get(&pointer).map_or(UNLOADED, |k| &k.text)
    }
}

/// The C string at `address` of our own memory, or `None` where it is not mapped, empty, not ended
/// within [`LONGEST`] bytes, or holds control characters (memory used for something else
/// meanwhile).
pub(crate) fn read_string(address: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < LONGEST {
        // never across a page in one read: the next page may not be mapped
        let room = 4096 - (at % 4096) as usize;
        let mut chunk = [0u8; 4096];
        let want = room.min(256);
        let got = read_memory(at, chunk.get_mut(..want)?)?;
        let piece = chunk.get(..got)?;
        match piece.iter().position(|&b| b == 0) {
            Some(end) => {
                text.extend_from_slice(piece.get(..end)?);
                let printable = !text.is_empty() && text.iter().all(|&b| b >= 0x20 && b != 0x7f);
                return printable.then_some(text);
            }
            None => text.extend_from_slice(piece),
        }
        at += got as u64;
    }
    None
}

/// Copies our own memory at `address` into `out` and says how much of it there was.
pub(crate) fn read_memory(address: u64, out: &mut [u8]) -> Option<usize> {
    let place = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: out.len() };
    let n = memory::copy_from(memory::own_id(), &[place], out);
    if n > 0 {
        return usize::try_from(n).ok();
    }
    // a container's seccomp filter may forbid the call; the same memory is a file
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            use std::os::unix::fs::FileExt;
            std::fs::File::open("/proc/thread-self/mem").ok()?.read_at(out, address).ok().filter(|n| *n > 0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_up_to_the_end_of_its_page_and_no_further() {
        let page = crate::platform::memory::map(8192, true).unwrap().as_ptr();
        // SAFETY: the second of two pages of our own mapping.
        unsafe { libc::munmap(page.wrapping_add(4096).cast(), 4096) };
        // SAFETY: the last 5 bytes of the first page.
        unsafe { page.wrapping_add(4091).copy_from(c"gemm".as_ptr().cast(), 5) };
        assert_eq!(read_string(page as u64 + 4091).as_deref(), Some(b"gemm".as_slice()));
        // SAFETY: the last byte of the page.
        unsafe { page.wrapping_add(4095).write(b'x') };
        assert_eq!(read_string(page as u64 + 4091), None, "runs into the unmapped page");
        assert_eq!(read_string(page as u64 + 4096), None);
        assert_eq!(read_string(8), None);
    }

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
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! Memory of our own process that another thread may change or free meanwhile, read through the kernel
//! (`process_vm_readv` on ourselves): what is gone is an error, never a fault. Several places at once, since each call
//! costs 0.3 to 3 µs and each place in it about a third of that.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::cupti::names::read_memory;

/// Places a call takes at most (IOV_MAX is 1024).
const MOST: usize = 512;

/// Places to be read together.
#[derive(Default)]
pub(super) struct Batch {
    places: Vec<libc::iovec>,
    bytes: Vec<u8>,
    wanted: usize,
}

/// Where a place's bytes are once they were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    at: usize,
    length: usize,
}

impl Batch {
    /// Forgets all places.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.wanted = 0;
    }

    /// `length` bytes at `address` are wanted. `None` for what is no address of a program, or where the batch is full.
    pub(super) fn want(&mut self, address: u64, length: usize) -> Option<Slot> {
        if !is_address(address) || self.places.len() >= MOST {
            return None;
        }
        let slot = Slot { at: self.wanted, length };
        self.places.push(libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length });
        self.wanted += length;
        Some(slot)
    }

    /// Reads them. Whether all could be read.
    pub(super) fn read(&mut self) -> bool {
        self.bytes.resize(self.wanted.max(self.bytes.len()), 0);
        let local = libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: self.wanted };
        // this thread, which has the memory of the process even when the main thread has ended
        // SAFETY: takes nothing, cannot fail.
        let pid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        let count = self.places.len() as libc::c_ulong;
        // SAFETY: `local` is a buffer of ours; the kernel checks the other side and stops where it is not mapped.
        let n = unsafe { libc::process_vm_readv(pid, &local, 1, self.places.as_ptr(), count, 0) };
        if n >= 0 {
            return n as usize == self.wanted;
        }
        // a container's seccomp filter may forbid the call; the same memory is a file
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => self.read_file().is_some(),
            _ => false,
        }
    }

    fn read_file(&mut self) -> Option<()> {
        let memory = File::open("/proc/thread-self/mem").ok()?;
        let mut at = 0;
        for place in &self.places {
            let out = self.bytes.get_mut(at..at + place.iov_len)?;
            memory.read_exact_at(out, place.iov_base as u64).ok()?;
            at += place.iov_len;
        }
        Some(())
    }

    /// The bytes of a place.
    pub(super) fn bytes(&self, slot: Slot) -> &[u8] {
        self.bytes.get(slot.at..slot.at + slot.length).unwrap_or(&[])
    }
}

/// Could this be an address of a program (page 0 and the kernel's half are not)?
pub(super) fn is_address(address: u64) -> bool {
    (4096..1 << 56).contains(&address)
}

/// `length` bytes at `address`.
pub(super) fn read(address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    (is_address(address) && read_memory(address, &mut bytes)? == length).then_some(bytes)
}

/// The word at `address`.
pub(super) fn word(address: u64) -> Option<u64> {
    read(address, 8).map(|b| u64_at(&b, 0))
}

/// Eight bytes of `bytes`, little-endian; 0 beyond its end.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(from) = bytes.get(at..at + 8) {
        word.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}

/// As [`u64_at`], four bytes.
pub(super) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut word = [0; 4];
    if let Some(from) = bytes.get(at..at + 4) {
        word.copy_from_slice(from);
    }
    i32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_places_come_back_in_order_and_a_hole_is_an_error() {
        let (a, b) = (0x1122_3344_5566_7788u64, [7u8; 40]);
        let mut batch = Batch::default();
        let first = batch.want(std::ptr::from_ref(&a) as u64, 8).unwrap();
        let second = batch.want(b.as_ptr() as u64, 40).unwrap();
        assert!(batch.read());
        assert_eq!((u64_at(batch.bytes(first), 0), batch.bytes(second)), (a, &b[..]));
        assert_eq!(i32_at(batch.bytes(first), 4), 0x1122_3344);
        assert!(batch.want(0, 8).is_none() && batch.want(u64::MAX - 8, 8).is_none());
        let page = crate::memory::map(4096, true).unwrap().as_ptr();
        assert_eq!(word(page as u64), Some(0));
        // SAFETY: a mapping of our own that nobody else knows.
        unsafe { libc::munmap(page.cast(), 4096) };
        assert_eq!(word(page as u64), None, "not mapped any more");
    }

    #[test]
    fn the_file_gives_the_same_as_the_call() {
        let text = *b"0123456789abcdef";
        let mut batch = Batch::default();
        let one = batch.want(text.as_ptr() as u64, 4).unwrap();
        let two = batch.want(text.as_ptr() as u64 + 10, 6).unwrap();
        batch.bytes.resize(16, 0);
        assert!(batch.read_file().is_some());
        assert_eq!((batch.bytes(one), batch.bytes(two)), (&b"0123"[..], &b"abcdef"[..]));
    }
}

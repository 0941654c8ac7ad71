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

/// Memory that may change while it is read.
pub(super) trait Memory: Default {
    /// Copies the places one behind the other to `out`, in their order. Whether all could be read.
    fn copy(&mut self, places: &[libc::iovec], out: &mut [u8]) -> bool;
}

/// Our own process's.
#[derive(Default)]
pub(super) struct Own;

/// Places to be read together.
#[derive(Default)]
pub(super) struct Batch<M: Memory = Own> {
    pub(super) memory: M,
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

impl<M: Memory> Batch<M> {
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
        self.bytes.get_mut(..self.wanted).is_some_and(|out| self.memory.copy(&self.places, out))
    }

    /// `length` bytes at `address`, alone.
    pub(super) fn read_one(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; length];
        let place = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
        (is_address(address) && self.memory.copy(&[place], &mut out)).then_some(out)
    }

    /// The bytes of a place.
    pub(super) fn bytes(&self, slot: Slot) -> &[u8] {
        self.bytes.get(slot.at..slot.at + slot.length).unwrap_or(&[])
    }
}

impl Memory for Own {
    fn copy(&mut self, places: &[libc::iovec], out: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        // SAFETY: takes nothing, cannot fail.
        let pid = unsafe { libc::getpid() };
        let count = places.len() as libc::c_ulong;
        // SAFETY: `local` is a buffer of ours; the kernel checks the other side and stops where it is not mapped.
        let n = unsafe { libc::process_vm_readv(pid, &local, 1, places.as_ptr(), count, 0) };
        if n >= 0 {
            return n as usize == out.len();
        }
        // a container's seccomp filter may forbid the call; the same memory is a file
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => read_file(places, out).is_some(),
            _ => false,
        }
    }
}

fn read_file(places: &[libc::iovec], out: &mut [u8]) -> Option<()> {
    let memory = File::open("/proc/self/mem").ok()?;
    let mut at = 0;
    for place in places {
        let piece = out.get_mut(at..at + place.iov_len)?;
        memory.read_exact_at(piece, place.iov_base as u64).ok()?;
        at += place.iov_len;
    }
    Some(())
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
        let mut batch: Batch = Batch::default();
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
        let place = |from: usize, length| libc::iovec {
            iov_base: (text.as_ptr() as u64 + from as u64) as *mut libc::c_void,
            iov_len: length,
        };
        let places = [place(0, 4), place(10, 6)];
        let (mut by_call, mut by_file) = ([0; 10], [0; 10]);
        assert!(Own.copy(&places, &mut by_call));
        assert!(read_file(&places, &mut by_file).is_some());
        assert_eq!((&by_call, &by_file), (b"0123abcdef", b"0123abcdef"));
    }
}

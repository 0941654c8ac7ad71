// SPDX-License-Identifier: Apache-2.0
// COLD (`copy_from`, `copy_own`: WARM)
//! Anonymous memory for rings, buffers and the recording, never freed (callbacks may run until the
//! last instruction); and memory copied by the kernel, for which a place that is not mapped is an
//! error and no fault.
//!
//! The calls that copy are made by number, not by libc's functions: AddressSanitizer puts its own
//! in their place, wants memory that is not ours to be sound, and ends the program where another
//! thread frees some of it meanwhile ("CHECK failed: asan_poisoning").

use std::ptr::NonNull;

/// `bytes` of zeroed, private, anonymous memory; with `populate` every page is faulted in now.
/// `None` on failure. Not inherited by fork children (they have no use for it).
pub(crate) fn map(bytes: usize, populate: bool) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE
        | libc::MAP_ANONYMOUS
        | if populate { libc::MAP_POPULATE } else { libc::MAP_NORESERVE };
    // SAFETY: a fresh anonymous mapping, no address asked for.
    let p =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return None;
    }
    // The pages of a forked child are its parent's until one of them writes: each store of a
    // program's thread into a ring would be a page fault and a copy, after every worker it forks. A
    // child finds zeroes (Linux 4.14; else as ever). SAFETY: the mapping made above.
    unsafe { libc::madvise(p, bytes, libc::MADV_WIPEONFORK) };
    // The program's core dump is the program's: with a limit on its size (`ulimit -c`) ours would
    // be in it and the program's stacks would not. SAFETY: as above.
    unsafe { libc::madvise(p, bytes, libc::MADV_DONTDUMP) };
    NonNull::new(p.cast())
}

/// The calling thread's id, which names the memory of its process even when the main thread has
/// ended.
pub(crate) fn own_id() -> libc::pid_t {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// process_vm_readv: `places` of process `pid`, one behind the other, to `out`. Returns the bytes
/// copied, or -1 with errno.
pub(crate) fn copy_from(pid: libc::pid_t, places: &[libc::iovec], out: &mut [u8]) -> isize {
    between(libc::SYS_process_vm_readv, pid, &[piece(out)], places)
}

/// As [`copy_from`] of our own process by process_vm_writev on it, which looks up `out` and not the
/// places (see `sampler/remote.rs`).
pub(crate) fn copy_own(places: &[libc::iovec], out: &mut [u8]) -> isize {
    between(libc::SYS_process_vm_writev, own_id(), places, &[piece(out)])
}

fn piece(out: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() }
}

/// Of the two sides, the one that is written to must be the caller's own buffer: the two above keep
/// that.
fn between(call: libc::c_long, pid: libc::pid_t, local: &[libc::iovec], remote: &[libc::iovec]) -> isize {
    // SAFETY: what is written to is a buffer of ours (above); the kernel checks what is read, and
    // stops where it is not mapped.
    let n = unsafe {
        libc::syscall(call, pid, local.as_ptr(), local.len(), remote.as_ptr(), remote.len(), 0usize)
    };
    n as isize
}

/// Longest string read by [`read_string`], bytes.
const LONGEST: usize = 2048;

/// The C string at `address` of our own memory, or `None` where it is not mapped, empty, not ended
/// within [`LONGEST`] bytes, or holds control characters (memory used for something else
/// meanwhile).
pub(crate) fn read_string(address: u64) -> Option<Vec<u8>> {
    let text = Reader::default().string(address, LONGEST)?;
    let is_printable = !text.is_empty() && text.iter().all(|&b| b >= 0x20 && b != 0x7f);
    is_printable.then_some(text)
}

/// Our own memory, a page's rest with each call of the kernel: for what lies side by side.
#[derive(Default)]
pub(crate) struct Reader {
    from: u64,
    bytes: Vec<u8>,
}

impl Reader {
    /// What is at `address` and behind it, to the end of its page at most (the next may not be
    /// mapped).
    fn rest(&mut self, address: u64) -> Option<&[u8]> {
        let is_here = (self.from..self.from + self.bytes.len() as u64).contains(&address);
        if !is_here {
            self.from = address;
            self.bytes.resize(PAGE - (address % PAGE as u64) as usize, 0);
            let got = read_into(address, &mut self.bytes).unwrap_or(0);
            self.bytes.truncate(got);
        }
        self.bytes.get((address - self.from) as usize..).filter(|rest| !rest.is_empty())
    }

    /// The C string at `address`; `None` where it is not mapped or is longer than `longest` bytes.
    pub(crate) fn string(&mut self, address: u64, longest: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut at = address;
        while is_address(at) && text.len() <= longest {
            let rest = self.rest(at)?;
            let end = rest.iter().position(|&b| b == 0);
            text.extend_from_slice(rest.get(..end.unwrap_or(rest.len()))?);
            if end.is_some() {
                return Some(text).filter(|t| t.len() <= longest);
            }
            at += rest.len() as u64;
        }
        None
    }

    /// Fills all of `out` from `address`, or returns `false`.
    pub(crate) fn fill(&mut self, address: u64, out: &mut [u8]) -> bool {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(here) = self.rest(address.wrapping_add(done as u64)) else { return false };
            let length = rest.len().min(here.len());
            rest.iter_mut().zip(here).for_each(|(to, from)| *to = *from);
            done += length;
        }
        true
    }

    /// The word at `address`, which is a multiple of 8.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let bytes = self.rest(address).filter(|_| is_address(address))?.get(..8)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// Smallest page there is.
const PAGE: usize = 4096;

/// Copies our own memory at `address` into `out` and says how much of it there was.
pub(crate) fn read_into(address: u64, out: &mut [u8]) -> Option<usize> {
    let place = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: out.len() };
    let n = copy_from(own_id(), &[place], out);
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

/// Could this be an address of a program (page 0 and the kernel's half are not)?
pub(crate) fn is_address(address: u64) -> bool {
    (4096..1 << 56).contains(&address)
}

/// `length` bytes at `address`.
pub(crate) fn read(address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    (is_address(address) && read_into(address, &mut bytes)? == length).then_some(bytes)
}

/// The word at `address`.
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (is_address(address) && read_into(address, &mut bytes)? == bytes.len()).then(|| u64::from_le_bytes(bytes))
}

/// Eight bytes of `bytes`, little-endian; 0 beyond its end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(from) = bytes.get(at..at + 8) {
        word.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}

/// As [`u64_at`], four bytes.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut word = [0; 4];
    if let Some(from) = bytes.get(at..at + 4) {
        word.copy_from_slice(from);
    }
    i32::from_le_bytes(word)
}

/// As [`u64_at`], four bytes, unsigned.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_up_to_the_end_of_its_page_and_no_further() {
        let page = map(8192, true).unwrap().as_ptr();
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
}

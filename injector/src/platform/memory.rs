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

// SPDX-License-Identifier: Apache-2.0
// COLD
//! Anonymous memory for rings, buffers and the recording. Never freed: callbacks may run until the last instruction.

use std::ptr::NonNull;

/// `bytes` of zeroed, private, anonymous memory; with `populate` every page is faulted in now. `None` on failure.
/// Not inherited by fork children (they have no use for it).
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
    // The pages of a forked child are its parent's until one of them writes: each store of a program's thread into a ring
    // would be a page fault and a copy, after every worker it forks. A child finds zeroes (Linux 4.14; else as ever).
    // SAFETY: the mapping made above.
    unsafe { libc::madvise(p, bytes, libc::MADV_WIPEONFORK) };
    NonNull::new(p.cast())
}

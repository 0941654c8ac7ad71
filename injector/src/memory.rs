// SPDX-License-Identifier: Apache-2.0
// COLD
//! Anonymous memory for rings, buffers and the recording. Never freed: callbacks may run until the last instruction.

use std::ptr::NonNull;

/// `bytes` of zeroed, private, anonymous memory; with `populate` every page is faulted in now. `None` on failure.
/// Not inherited by fork children where the kernel can be told so (they have no use for it).
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
    NonNull::new(p.cast())
}

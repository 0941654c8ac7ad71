// SPDX-License-Identifier: Apache-2.0
//! Device and pinned memory. Both are anonymous host mappings, so that a copied value (a loss, say)
//! really arrives; untouched memory costs nothing. A copy moves at most its first bytes
//! (`SIM_MOVED`).

use crate::foreign::lock;
use crate::settings::settings;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// CUPTI's memory kinds.
pub(crate) const PAGEABLE: u8 = 1;
pub(crate) const PINNED: u8 = 2;
pub(crate) const DEVICE: u8 = 3;

struct Block {
    len: usize,
    kind: u8,
    device: u32,
    /// False for host memory that was only registered.
    ours: bool,
}

static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

/// Maps `bytes`; None when the address space is exhausted.
pub(crate) fn allocate(bytes: usize, kind: u8, device: u32) -> Option<usize> {
    let len = bytes.max(1).next_multiple_of(4096);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    lock(&BLOCKS).insert(at as usize, Block { len, kind, device, ours: true });
    Some(at as usize)
}

/// Frees a block; its device, or None when there is none at `at`.
pub(crate) fn free(at: usize) -> Option<u32> {
    let block = lock(&BLOCKS).remove(&at)?;
    if block.ours {
        // SAFETY: `allocate` mapped exactly this range and the table no longer has it.
        unsafe { libc::munmap(at as *mut libc::c_void, block.len) };
    }
    Some(block.device)
}

/// cudaHostRegister: this range counts as pinned from now on.
pub(crate) fn register(at: usize, len: usize) {
    lock(&BLOCKS).insert(at, Block { len, kind: PINNED, device: 0, ours: false });
}

/// Memory kind at an address, and the device for device memory.
pub(crate) fn kind_at(at: usize) -> (u8, u32) {
    let blocks = lock(&BLOCKS);
    match blocks.range(..=at).next_back() {
        Some((start, block)) if at < start + block.len => (block.kind, block.device),
        _ => (PAGEABLE, 0),
    }
}

/// Bytes allocated on a device.
pub(crate) fn used(device: u32) -> usize {
    let blocks = lock(&BLOCKS);
    blocks.values().filter(|b| b.kind == DEVICE && b.device == device).map(|b| b.len).sum()
}

/// Moves the data of a copy (its first `SIM_MOVED` bytes).
pub(crate) fn move_bytes(to: usize, from: usize, bytes: usize) {
    if to != 0 && from != 0 {
        // SAFETY: the client's contract: both ranges are `bytes` long; device ranges are host
        // mappings of ours.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes.min(settings().moved)) };
    }
}

/// Fills the data of a memset (its first `SIM_MOVED` bytes).
pub(crate) fn fill(to: usize, value: u8, bytes: usize) {
    if to != 0 {
        // SAFETY: the client's contract: the range is `bytes` long; device ranges are host mappings
        // of ours.
        unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes.min(settings().moved)) };
    }
}

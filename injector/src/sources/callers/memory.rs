// SPDX-License-Identifier: Apache-2.0
// WARM
//! Memory of modules that the program may unload meanwhile: copied by the kernel, so that what is
//! gone is an error.

use crate::sources::cupti::names::read_memory;

/// `length` bytes at `address`.
pub(super) fn read(address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    (read_memory(address, &mut bytes)? == length).then_some(bytes)
}

/// Four bytes of `bytes`, little-endian; 0 beyond its end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

// SPDX-License-Identifier: Apache-2.0
//! Files on disk: which are kept, whose process is still there, written as a whole or not at all.

pub mod elf;
pub mod fresh;
pub mod leftovers;
pub mod liveness;
pub mod procfs;
pub mod retention;
#[expect(unsafe_code, reason = "locks of an open file description need libc")]
pub mod writer_lock;

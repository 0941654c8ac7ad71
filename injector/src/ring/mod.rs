// SPDX-License-Identifier: Apache-2.0
// HOT
//! The rings: how events get from the program's threads to the drain thread without waiting.
//!
//! [`spsc::Ring`]: one thread's own ring. [`overflow::Ring`]: shared by the threads beyond the
//! pool. [`segment::Cells`]: the segments of the recording; one writer (the drain thread), readers
//! without locks.
//! [`latest::Latest`]: a few words the other way round, from the drain thread to all.
//! All four are plain atomics in zeroed memory, no `unsafe`, and are checked under loom
//! (`scripts/loom`).

pub mod latest;
pub mod overflow;
pub mod segment;
pub mod spsc;

/// loom's atomics under `--cfg loom`, the real ones otherwise.
pub(crate) mod sync {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{fence, AtomicU64, Ordering};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{fence, AtomicU64, Ordering};
}

/// Words of one slot: an encoded `trace::Event`. Two under loom: enough to be torn, few enough to
/// try every order.
pub const SLOT_WORDS: usize = if cfg!(loom) { 2 } else { 4 };

/// What a slot is that is no encoded event: stands in its kind byte, above every `trace::Kind`. One
/// list, so that the compiler refuses the same number twice.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Tag {
    /// Call sites (`python/walk.rs`).
    Stack = 0xd0,
    Frame = 0xd1,
    Site = 0xd2,
    /// Launches with their call site, or with their caller that is no Python (`launch.rs`).
    Launch = 0xd6,
    LaunchCaller = 0xd9,
    /// Nodes of PyTorch's autograd graph (`torch/`).
    ForwardNode = 0xd7,
    BackwardNode = 0xd8,
    /// Callers that are no Python (`callers/`).
    Caller = 0xd4,
    StackCopy = 0xd5,
    /// The way from a line to its kernel (`callers/launches.rs`).
    LaunchStack = 0xd3,
    /// Named ranges (`ranges.rs`).
    RangePush = 0xe0,
    RangePop = 0xe1,
    RangeName = 0xe2,
    RangeMark = 0xe3,
    RangeStart = 0xe4,
    RangeEnd = 0xe5,
    RangeGap = 0xe6,
    /// What the program says of itself (`program.rs`).
    Step = 0xf2,
    Capture = 0xf3,
}

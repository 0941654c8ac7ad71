// SPDX-License-Identifier: Apache-2.0
//! `libgapprobe.so`: the part that runs inside the training process.
//!
//! The folder's rules (ARCHITECTURE.md, "Rules inside the process"): no panic reaches the host,
//! every `extern "C"` body goes through [`guard`], nothing is printed but one line by [`say`]. The
//! first line after the licence of each file tells its heat:
//! * HOT: the trainer's thread or CUPTI's. Clock, stores into memory faulted in before,
//!   release-store; nothing else.
//! * WARM: our own background threads (`drain`, `flush`, `sampler`). Syscalls yes; no lock that a
//!   callback takes; bounded growth.
//! * COLD: attach, context creation, exit, fork. Anything, but it must never fail the host.
//!
//! One event's way: [`cupti::callbacks`] and [`cupti::buffers`] (HOT) -> [`ring`], the buffer pool
//! -> [`drain`] -> [`store`] (WARM) -> [`recording`] -> at exit [`shutdown`] (COLD), which hands
//! the store to the analyzer.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::exit,
        clippy::disallowed_methods
    )
)]

pub mod ring;

#[cfg(not(loom))]
mod attach;
#[cfg(not(any(loom, test)))]
mod build_note;
#[cfg(not(loom))]
mod callers;
#[cfg(not(loom))]
mod clock;
mod control;
#[cfg(not(loom))]
mod copies;
#[cfg(not(loom))]
mod crashes;
#[cfg(not(loom))]
mod cupti;
#[cfg(not(loom))]
mod descriptors;
#[cfg(not(loom))]
mod drain;
#[cfg(not(loom))]
mod environment;
#[cfg(not(loom))]
mod exports;
#[cfg(not(loom))]
mod flight;
#[cfg(not(loom))]
mod flush;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod hostpool;
#[cfg(not(loom))]
mod identity;
#[cfg(not(loom))]
mod imports;
#[cfg(not(loom))]
mod lifecycle;
#[cfg(not(loom))]
mod loader;
#[cfg(not(loom))]
mod losses;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod neighbours;
#[cfg(not(loom))]
mod nvtx;
#[cfg(not(loom))]
mod program;
#[cfg(not(loom))]
mod python;
#[cfg(not(loom))]
mod ranges;
#[cfg(not(loom))]
mod recording;
#[cfg(not(loom))]
mod sampler;
#[cfg(not(loom))]
mod say;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod shutdown;
#[cfg(not(loom))]
mod stopped;
#[cfg(not(loom))]
mod store;
#[cfg(not(loom))]
mod thread_block;
#[cfg(not(loom))]
mod threads;
#[cfg(not(loom))]
mod ticks;
#[cfg(not(loom))]
mod warm_up;
#[cfg(not(loom))]
mod windows;

#[cfg(not(loom))]
pub use exports::*;

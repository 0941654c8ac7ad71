// SPDX-License-Identifier: Apache-2.0
//! `libgapprobe.so`: the part that runs inside the training process.
//!
//! The folder's rules (ARCHITECTURE.md, "Rules inside the process"): no panic reaches the host,
//! every `extern "C"` body goes through [`platform::guard`], nothing is printed but one line by
//! [`platform::say`]. The first line after the licence of each file tells its heat:
//! * HOT: the trainer's thread or CUPTI's. Clock, stores into memory faulted in before,
//!   release-store; nothing else.
//! * WARM: our own background threads ([`collector`], [`sampler`]). Syscalls yes; no lock that a
//!   callback takes; bounded growth.
//! * COLD: attach, context creation, exit, fork. Anything, but it must never fail the host.
//!
//! One event's way: [`sources`] (HOT) -> [`ring`], the buffer pool -> [`collector`] -> [`store`]
//! (WARM) -> [`recording`] -> at exit [`shutdown`] (COLD), which hands the store to the analyzer.
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

mod boot;
mod collector;
mod duty_cycle;
mod flight;
mod hooks;
mod platform;
mod recording;
pub mod ring;
mod sampler;
mod shutdown;
mod sources;
mod store;

pub use boot::exports::*;

// SPDX-License-Identifier: Apache-2.0
//! What the command `gapprobe` shows of runs.
//!
//! ```text
//! tables/     tables of a run, as nsys stats has them, and our own
//! phases/     dataload, forward, backward, optimizer of a step
//! compare/    two runs against each other, and the gate of `check`
//! overview/   the screen of `analyze`; html/ the page
//! export/     CSV, Parquet, folded stacks
//! fleet/      what many ranks say together
//! live/       the newest seconds of a process that runs
//! ```
#![deny(unsafe_code)]

pub mod compare;
#[cfg(feature = "command")]
pub mod export;
pub mod fleet;
pub mod html;
mod kernel_class;
pub mod live;
pub mod lost;
pub mod overview;
pub mod phases;
pub mod roofline;
pub mod tables;
pub mod terminal_width;

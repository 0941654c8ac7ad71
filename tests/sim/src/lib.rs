// SPDX-License-Identifier: Apache-2.0
//! A simulated CUDA driver for tests: libcuda, and behind thin shims libcudart and libcupti, at
//! their C ABI.
//!
//! The engine is this crate, built as `libcuda.so.1`. `shim/` holds the two thin libraries that
//! forward to it: they find the engine at run time, as the real ones find the driver. README.md
//! says how to build and drive it; every file's own doc says which part of the real behaviour it
//! stands for. Nothing here is part of the product.
//!
//! The GPU is arithmetic, not a thread: start and end of an operation are known when it is issued
//! (`gpu`), records are handed out only once their time has come (`cupti::buffers`).
#![expect(clippy::match_overlapping_arm, reason = "tables by release read as `up to and including`")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a C ABI test double: out pointers and callbacks are touched in small groups, each group with its SAFETY line"
)]

mod api;
mod clock;
mod cupti;
mod driver;
mod driver_graphs;
mod driver_launch;
mod driver_memory;
mod driver_streams;
mod entry_points;
mod foreign;
mod gpu;
mod graphs;
mod injection;
mod issuing;
mod memory;
mod modules;
pub mod replay;
mod runtime;
mod runtime_memory;
mod settings;
mod stopwatch;
mod submit;
mod truth;

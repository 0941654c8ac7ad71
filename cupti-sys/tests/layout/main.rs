// SPDX-License-Identifier: Apache-2.0
//! What this crate says about NVIDIA's CUPTI, held against NVIDIA's own headers and libraries of
//! several releases.
//!
//! `scripts/cupti-wheels` fetches them; without it these tests fail and say so. They need gcc and
//! x86_64 Linux, no GPU and no driver: newer libraries refuse to work without a driver, so they get
//! a stand-in (`stand_in.rs`). Each library is used in a process of its own: a crash inside it is a
//! failed test here, not the end of the run.

mod calls;
mod compile;
mod fields;
mod symbols;
mod walk;
mod wheels;

// SPDX-License-Identifier: Apache-2.0
//! GP193 EFFICIENT: the GPU computes nearly all the time, and its units are well used.
//!
//! # What it means
//! There is no idle time to win back, and no cause of slow kernels that gapprobe knows. What is
//! left is less work (a smaller model, fewer tokens), lower precision (FP8), or a better kernel for
//! the largest one.
//!
//! # How it is recognised
//! As GP190 GPU-BOUND; and by the device's own counters (Hopper and newer) the tensor cores are at
//! work for six tenths of the time or more, or seven tenths of the memory bandwidth are used. No
//! other cause of kernels (GP103, GP131 to GP139) is found that wins 5%, of chains (GP137) 15%. One
//! GPU alone computes.
//!
//! # How sure
//! Time and counters are exact (within 1.5 points of FLOPs and bytes by the clock, H200,
//! 2026-11-30). They are of the whole device: where another process uses it, too, this is not said.
//! Work that nobody needs keeps a GPU busy as well.
//!
//! # Example
//! ```sh
//! # the kernel that is left: a command for Nsight Compute, at the end of the screen
//! gapprobe analyze trace.json.gz
//! # and which line it is for
//! gapprobe stats trace.json.gz -r gpu_lines
//! ```
//!
//! # What to change
//! In Nsight Compute look first at "GPU Speed Of Light": is it the tensor cores or memory? Of a
//! product: "Launch Statistics", is the last wave nearly empty (waves 1.1: wave quantization)? Of
//! memory: does "Memory Workload Analysis" move more bytes than the tensors have? FP8 (Transformer
//! Engine, torchao) doubles what tensor cores do. Under a power cap (the evidence says so) every
//! kernel is slower: less data moved is a higher clock.

use super::{is_of_kernels, Case, MINOR_WIN};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP193";
/// Name in the line.
pub const NAME: &str = "EFFICIENT";

/// Tensor cores are well used from this share of the time on: large products alone reach 0.7 to
/// 0.93 (H200), and a model is not products alone.
const TENSOR: f64 = 0.6;
/// Memory is from this share of its bandwidth on: a copy reaches 0.88 (H200).
const MEMORY: f64 = 0.7;

/// Is a GPU that computes all the time well used?
pub(super) fn is(case: &Case, findings: &[Finding]) -> bool {
    let counters = case.device.counters.as_ref().and_then(|c| c.own());
    let is_used = counters.is_some_and(|c| {
        c.tensor.is_some_and(|share| share >= TENSOR) || c.memory.is_some_and(|share| share >= MEMORY)
    });
    let is_alone = case.elsewhere.compute == 0.0;
    is_used && is_alone && !findings.iter().any(|f| is_of_kernels(f.code) && f.win.share() >= MINOR_WIN)
}

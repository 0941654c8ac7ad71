// SPDX-License-Identifier: Apache-2.0
//! GP193 EFFICIENT: the GPU computes nearly all the time, and its units are well used.
//!
//! # What it means
//! There is no idle time to win back, and no cause of slow kernels that gapprobe knows. What is
//! left is less work (a smaller model, fewer tokens), lower precision (FP8), or a better kernel for
//! the largest one.
//!
//! # How it is recognised
//! As GP190 GPU-BOUND; in addition, the device's own counters (Hopper and newer) show the tensor
//! cores at work for six tenths of the time or more, or seven tenths of the memory bandwidth used.
//! No other cause of slow kernels (GP103, GP131 to GP139) is found that wins 5% (chains, GP137:
//! 15%). Only one GPU computes.
//!
//! # How sure
//! Time and counters are exact (within 1.5 points of FLOPs and bytes by the clock, H200,
//! 2026-11-30). Counters are of the whole device: if another process uses it too, nothing is said.
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
//! In Nsight Compute, look first at "GPU Speed Of Light": is the limit the tensor cores or memory?
//! For a product, "Launch Statistics": is the last wave nearly empty (1.1 waves: wave
//! quantization)? For memory, "Memory Workload Analysis": are more bytes moved than the tensors
//! have? FP8 (Transformer Engine, torchao) doubles what tensor cores do. Under a power cap (the
//! evidence says so) every kernel is slower: moving less data raises the clock.

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

// SPDX-License-Identifier: Apache-2.0
//! GP190 GPU-BOUND: the GPU computes nearly all the time.
//!
//! # What it means
//! There is little idle time to win back. Faster steps need faster or fewer kernels.
//!
//! # How it is recognised
//! Computing kernels run in at least 85 % of the steady wall time (`GPU_BOUND_SHARE`), or would if the host were not slowed by being
//! recorded (docs/run-cost.md; the line says both figures then), and no single cause of idle time is worth 10 % of it. Where a recording holds several GPUs, no fix is worth more than what the one that computes most
//! leaves of a step: if that one computes 85 %, it is named, whatever the GPU with most idle time waits for.
//!
//! # How sure
//! Exact for what it says. That kernels run does not mean that they use the chip well: see GP103 SMALL-KERNELS, and a
//! kernel profiler for the largest ones. That one GPU's steps depend on another's is inferred, and what steps would be that nobody records is estimated: medium.
//!
//! # What to change
//! Look at the largest kernels in the trace: lower precision (bf16, fp8), fused attention, `torch.compile`, larger
//! matrix products, less work. Where another GPU computes and this one waits: equal work for both.

use crate::analysis::{Bucket, DeviceAnalysis};

/// Stable code.
pub const CODE: &str = "GP190";
/// Name in the line.
pub const NAME: &str = "GPU-BOUND";

/// What was seen, with small kernels where there are many.
pub(super) fn text(device: &DeviceAnalysis) -> String {
    let compute = device.buckets.share(Bucket::Compute) * 100.0;
    let small = device.small.share;
    if small >= super::SMALL_SHARE {
        format!(
            "kernels compute {compute:.0} % of the time, {:.0} % of it in small ones, see GP103",
            small * 100.0
        )
    } else {
        format!("kernels compute {compute:.0} % of the time")
    }
}

/// Another GPU than the one with most idle time computes.
pub(super) fn computes(elsewhere: super::Elsewhere) -> String {
    format!("GPU {} computes {:.0} % of the time", elsewhere.ordinal, elsewhere.compute * 100.0)
}

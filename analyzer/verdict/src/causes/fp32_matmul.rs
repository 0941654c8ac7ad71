// SPDX-License-Identifier: Apache-2.0
//! GP132 FP32-MATMUL: products and convolutions run in float32 beside the tensor cores.
//!
//! # What it means
//! The GPU computes, with the wrong part of it: matrix products in float32 run on the pipes for
//! single numbers, and the tensor cores, some seven times as fast in TF32 and fifteen in bfloat16
//! (H100), idle. PyTorch does so unless it is told that TF32 is precise enough.
//!
//! # How it is recognised
//! By the names of cuBLAS's, cuDNN's and CUTLASS's kernels, which say what computes: `ffma`,
//! `simt_sgemm`, `sgemm`, `scudnn`. Only those of 20 us and more count (a shorter one waits for
//! other things), on a GPU whose tensor cores are much faster in TF32 (A100, H100, H200, B200), and
//! where no other product (convolution) runs in TF32: it is allowed then.
//!
//! # How sure
//! That these kernels use no tensor core is exact. By how much faster they get is an estimate, not
//! measured yet: six tenths of what the data sheet says of TF32, 8 us at least, and no less than
//! their memory traffic asks for, where the GPU's counters tell that. Without them the confidence
//! is low, else medium: whether TF32 (10 bits of mantissa) is precise enough is for you to judge.
//! The replay tells what the step gains: the host may be the next limit.
//!
//! # Example
//! ```python
//! # slow: y = x @ w, both in float32
//! # fixed: once, at the start
//! torch.set_float32_matmul_precision("high")
//! ```
//!
//! # What to change
//! `torch.set_float32_matmul_precision("high")` for products, `torch.backends.cudnn.allow_tf32 =
//! True` for convolutions; or train under `torch.autocast("cuda", torch.bfloat16)`, which saves
//! memory traffic as well. cuBLAS: `CUBLAS_TF32_TENSOR_OP_MATH`; CuPy: `CUPY_TF32=1`.

use super::kernels::Kernels;
use super::Case;
use crate::analysis::{peaks, Advice, Bound, Bucket, Confidence, Fact, Figure, Finding};
use crate::replay::Kernel;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP132";
/// Name in the line.
pub const NAME: &str = "FP32-MATMUL";

/// A shorter one is bound by its launch, its memory or its few blocks, ns.
const LEAST_NS: u64 = 20_000;
/// None gets shorter than this, ns.
const FLOOR_NS: u64 = 8_000;
/// FLOP/s of the tensor cores in TF32 by those of the pipes for float32, by compute capability:
/// A100 156 and 19.5 TFLOP/s, H100 494.7 and 66.9, B200 1,125 and 75 (NVIDIA's data sheets). Others
/// have twice as many at most, GeForce as many.
const FASTER: [((u32, u32), f64); 3] = [((8, 0), 8.0), ((9, 0), 7.4), ((10, 0), 15.0)];
/// Of a device that is made slower (H20) this says nothing, FLOP/s in 16 bits.
const LEAST_PEAK: f64 = 300e12;
/// The part of that which is reached.
const REACHED: f64 = 0.6;
/// What is won may be off by this part of the kernels' time: four tenths to eight tenths reached.
const DOUBT: f64 = 0.1;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let info = case.run.devices.iter().find(|d| d.ordinal == case.device.ordinal)?.info;
    let capability = (info.compute_major, info.compute_minor);
    let name = case.run.definitions.string(info.name).unwrap_or("");
    if peaks::tensor_16_bit(name).is_some_and(|peak| peak < LEAST_PEAK) {
        return None;
    }
    let (_, faster) = FASTER.iter().find(|(known, _)| *known == capability)?;
    // where some run in TF32, it is allowed, and the others are the library's own choice
    let allowed = [false, true]
        .map(|conv| Kernels::named(case, 0, |name| is_tf32(name) && is_convolution(name) == conv).is_some());
    let is_one = |name: &str| is_fp32_product(name) && !allowed[usize::from(is_convolution(name))];
    let products = Kernels::named(case, LEAST_NS, is_one)?;
    let lost = products.share();
    if lost < NOTICED_SHARE {
        return None;
    }
    // no faster than its memory traffic
    let memory = case.device.counters.and_then(|c| c.own()?.memory);
    let rest = memory
        .map_or(0.0, |share| share / case.share(&[Bucket::Compute]).max(share))
        .max(1.0 / (faster * REACHED));
    let takes = |k: Kernel| match products.has(k) {
        true => ((k.ns as f64 * rest) as u64).max(FLOOR_NS).min(k.ns),
        false => k.ns,
    };
    let most = Bound::kernels(&case.device.buckets, lost * (1.0 - rest));
    let mut f = case.finding((CODE, NAME), lost, case.win_of_kernels(&takes, most));
    let (sure, doubt) = match memory {
        Some(_) => (Confidence::Medium, lost * DOUBT),
        None => (Confidence::Low, f.win.share() / 2.0),
    };
    f.confidence = f.confidence.min(sure);
    f.promise = f.promise.map(|p| p.give_or_take(p.error_ns() + case.step_ns() * doubt));
    f.advice = Advice::new(
        "allow TF32, or bf16 autocast",
        "allow TF32 (torch.set_float32_matmul_precision(\"high\"), torch.backends.cudnn.allow_tf32), or train under autocast in bfloat16",
    );
    f.count = products.count;
    f.facts.say(
        Fact::new("products in float32 without tensor cores run {often} and take {share} of the time")
            .with("often", case.rhythm(products.count))
            .with("share", Figure::Share(lost)),
    );
    if let Some(tensor) = case.device.counters.and_then(|c| c.own()?.tensor) {
        f.facts.say(Fact::new("tensor cores are {tensor} busy").with("tensor", Figure::Share(tensor)));
    }
    if let Some(site) = products.line() {
        f.place(site);
    }
    Some(f)
}

/// A matrix product or convolution on the pipes for float32, by its (mangled or plain) name. (Not
/// Winograd's, which spares multiplications, nor those of few rows, which wait for memory.)
fn is_fp32_product(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let products = ["_ffma_", "simt_sgemm", "simt_sfprop", "simt_sdgrad", "simt_swgrad", "_scudnn_"];
    let older = ["volta_sgemm", "ampere_sgemm", "maxwell_sgemm", "convolve_sgemm<float", "convolve_sgemmif"];
    (says(&products) || says(&older)) && !says(&["winograd"])
}

/// The same on tensor cores, in TF32.
fn is_tf32(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["tf32", "s1688", "s161616"].iter().any(|word| name.contains(word))
}

/// Of such: a convolution, and no matrix product.
fn is_convolution(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["fprop", "dgrad", "wgrad", "conv", "cudnn"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::is_fp32_product;

    /// As recordings of an H100 and a V100 have them (PyTorch 2.11, torch_tb_profiler's samples).
    #[test]
    fn products_in_float32_by_name() {
        for name in [
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_warpsize1x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
            "_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_128x64_8x5_nn_align1EEvNT_6ParamsE",
            "volta_sgemm_128x32_nt",
            "ampere_scudnn_128x64_relu_small_nn_v1",
            "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>",
        ] {
            assert!(is_fp32_product(name), "{name}");
        }
        for name in [
            "_ZN7cutlass7Kernel2I46cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4EEvNT_6ParamsE",
            "nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_bias_TNN",
            "nvjet_sm90_hsh_192x192_64x3_1x2_h_bz_coopB_NNN",
            "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage3_warpsize2x2x1_tensor16x8x8_kernel__5x_cublas",
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>",
            "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, float>",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
            "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>",
            "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
            "",
        ] {
            assert!(!is_fp32_product(name), "{name}");
        }
    }
}

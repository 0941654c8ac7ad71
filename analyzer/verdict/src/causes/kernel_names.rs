// SPDX-License-Identifier: Apache-2.0
//! What a kernel does, by its (mangled or plain) name, where a cause rests on that. Names are as
//! recordings of V100, H100 and H200 have them (PyTorch 1.13 to 2.11).

use std::borrow::Cow;

/// Does the name hold one of these, in small letters?
fn says(name: &str, words: &[&str]) -> bool {
    let name = without_file(name).to_ascii_lowercase();
    words.iter().any(|word| name.contains(word))
}

/// A mangled name without the file that stands in that of an anonymous namespace
/// (`53_GLOBAL__N__21739cd4_20_layer_norm_kernel_cu_9c5ada8a`): it holds other kernels, too.
fn without_file(name: &str) -> Cow<'_, str> {
    let cut = || {
        let (before, rest) = name.split_once("_GLOBAL__N_")?;
        let stem = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let length: usize = before.get(stem.len()..)?.parse().ok()?;
        let rest = rest.get(length.checked_sub("_GLOBAL__N_".len())?..)?;
        Some(format!("{stem}{rest}").into())
    };
    cut().unwrap_or(name.into())
}

/// A matrix product, or the end of one that was split.
pub(super) fn is_product(name: &str) -> bool {
    const WORDS: [&str; 9] = [
        "gemm",
        "nvjet",
        "cutlass",
        "wgmma",
        "triton_tem_",
        "triton_mm",
        "triton_bmm",
        "splitkreduce",
        "cijk_", // Tensile's, on ROCm
    ];
    // (so begins the name of all that is written in CuTe's DSL)
    let is_no_product = says(name, &["kernel_cutlass_"]) && !says(name, &["gemm"]);
    says(name, &WORDS) && !is_attention(name) && !is_no_product
}

/// Attention as one kernel.
pub(super) fn is_attention(name: &str) -> bool {
    says(name, &["flash", "fmha", "sdpa", "attention"])
}

/// A matrix product on tensor cores whose rows begin where only single numbers of 16 bits can be
/// read, `1`, or two of them, `2`. (Four of 32 bits are all that is read at once; one of float64 or
/// a complex number is what always is. An image has the channels that it has.)
pub(super) fn is_unaligned(name: &str) -> bool {
    let has =
        |end: &str| name.split(end).skip(1).any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()));
    let is_wide = says(name, &["d884", "z884", "c1688"]);
    name.contains("tensorop") && (has("_align1") || has("_align2")) && !is_wide && !is_convolution(name)
}

/// A convolution in float32 by transforms, which spares multiplications and takes no tensor core.
pub(super) fn is_transformed(name: &str) -> bool {
    const WORDS: [&str; 3] = ["fft2d_", "pointwise_mult_and_sum_complex", "winograd"];
    (says(name, &WORDS) || is_complex(name)) && !says(name, &NARROW) && !says(name, &["miopen"])
}

/// A product of complex numbers: the middle of such a convolution, or the program's own.
pub(super) fn is_complex(name: &str) -> bool {
    says(name, &["cf32cf32"])
}

/// The begin of such a convolution: Fourier's transform.
pub(super) fn is_fourier(name: &str) -> bool {
    says(name, &["fft2d_"])
}

/// Of 16 bits.
const NARROW: [&str; 4] = ["fp16", "half", "h884", "bf16"];

/// A matrix product or convolution on the pipes for float32. (Not those of few rows, which wait
/// for memory.)
pub fn is_fp32_product(name: &str) -> bool {
    let products = ["_ffma_", "simt_sgemm", "simt_sfprop", "simt_sdgrad", "simt_swgrad", "_scudnn_"];
    let older = ["volta_sgemm", "ampere_sgemm", "maxwell_sgemm", "convolve_sgemm<float", "convolve_sgemmif"];
    let is_one = says(name, &products) || says(name, &older);
    is_one && !is_transformed(name) && !says(name, &NARROW) && !is_grouped(name)
}

/// A convolution whose groups have few channels, for which there is no tensor core.
fn is_grouped(name: &str) -> bool {
    let groups = name.split("_g").skip(1).filter_map(|rest| rest.split('_').next()?.parse::<u32>().ok());
    says(name, &["grouped", "depthwise"]) || (is_convolution(name) && groups.max().is_some_and(|g| g > 1))
}

/// A product or convolution on tensor cores, in TF32. (cuBLAS's `nvjet` runs on nothing else; `sss`
/// takes and gives float32.)
pub fn is_tf32(name: &str) -> bool {
    let is_nvjet = says(name, &["nvjet"]) && says(name, &["_sss_"]);
    is_nvjet || says(name, &["tf32", "s1688", "s161616"]) && !says(name, &["bf16", "_f16", "fp16"])
}

/// Of such: a convolution, and no matrix product.
pub(super) fn is_convolution(name: &str) -> bool {
    says(name, &["fprop", "dgrad", "wgrad", "conv", "cudnn"]) || is_transformed(name)
}

/// PyTorch's operation on each element, or a reduction of some: it reads and writes memory, and
/// does little between. (Not those that torch.compile has fused, optimizers, random numbers, norms
/// over a batch, float64, which computes long.)
pub(super) fn is_pointwise(name: &str) -> bool {
    const NOT: [&str; 6] =
        ["multi_tensor", "distribution_", "triton_", "spatialsoftmax", "batch_norm", "double"];
    const WORDS: [&str; 3] = ["elementwise_kernel", "softmax", "layer_norm"];
    // (other libraries call theirs so, too)
    const PYTORCHS: [&str; 3] = ["reduce_kernel", "gather_kernel", "scatter_kernel"];
    let is_pytorchs = ["at::native", "2at6native"].iter().any(|of| name.contains(of));
    // (mangled: template arguments, and parameters of a lambda)
    let is_double = ["IdE", "Idd", "IdLi", "EUldE", "EUldd"].iter().any(|of| name.contains(of));
    let is_one = says(name, &WORDS) || (is_pytorchs && says(name, &PYTORCHS));
    is_one && !says(name, &NOT) && !is_double && !is_product(name) && !is_attention(name)
}

/// It is made for few blocks: a step of it waits for the one before, or for another GPU.
pub(super) fn is_of_few_blocks(name: &str) -> bool {
    const SERIAL: [&str; 17] = [
        "persist",
        "rnn",
        "lstm",
        "gru",
        "ctc_",
        "nms",
        "from_mask",
        "getrf",
        "potrf",
        "geqrf",
        "sampling_kernel",
        "selective_scan",
        "recurrent",
        "wkv",
        "scan_fwd",
        "fwd_kernel_h",
        "state_passing",
    ];
    const WAITING: [&str; 5] = ["allreduce", "all_reduce", "lamport", "barrier", "signal"];
    says(name, &SERIAL) || says(name, &WAITING)
}

/// It converts types and does nothing else.
pub(super) fn is_cast(name: &str) -> bool {
    let between = |types: &str| types.split_once('_').is_some_and(|(from, to)| from != to);
    name.contains("float16_copy_kernel_cuda")
        || (name.contains("direct_copy_kernel_cuda") && name.contains("LoadWithCast"))
        || name.strip_prefix("cupy_copy__").is_some_and(between)
}

/// It copies or fills, and computes nothing.
pub(super) fn is_copy_or_fill(name: &str) -> bool {
    says(name, &["copy_kernel", "fillfunctor"]) && !is_cast(name)
}

/// It sums up rows of a tensor, or makes a norm or a softmax of each: whole tensors, one by one.
pub(super) fn is_of_rows(name: &str) -> bool {
    is_reduction(name) || says(name, &["layer_norm", "softmax"])
}

/// It sums up rows of a tensor.
pub(super) fn is_reduction(name: &str) -> bool {
    says(name, &["reduce_kernel"])
}

/// It copies what does not lie in order, and does nothing else.
pub(super) fn is_strided_copy(name: &str) -> bool {
    let plain = name.trim_start_matches("void ");
    let is_strided = plain.starts_with("at::native::elementwise_kernel<")
        || plain.starts_with("_ZN2at6native18elementwise_kernelI");
    // (`gpu_kernel_impl` without that converts)
    is_strided && name.contains("gpu_kernel_impl_nocast") && name.contains("direct_copy_kernel_cuda")
}

/// Putting the channels of a pixel together, cuDNN's kernel that does nothing else.
pub(super) fn is_to_channels_last(name: &str) -> bool {
    says(name, &["nchwtonhwc"])
}

/// The opposite.
pub(super) fn is_from_channels_last(name: &str) -> bool {
    says(name, &["nhwctonchw"])
}

/// A batch norm of images that lie channel by channel.
pub(super) fn is_norm_by_channel(name: &str) -> bool {
    const WORDS: [&str; 3] = [
        "batch_norm_backward_kernel",
        "batch_norm_collect_statistics_kernel",
        "batch_norm_transform_input_kernel",
    ];
    says(name, &WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(is: fn(&str) -> bool, yes: &[&str], no: &[&str]) {
        yes.iter().for_each(|name| assert!(is(name), "{name}"));
        no.iter().chain(&[""]).for_each(|name| assert!(!is(name), "{name}"));
    }

    const FFMA: &str = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";
    const TF32: &str =
        "_ZN7cutlass7Kernel2I46cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4EEvNT_6ParamsE";
    const ODD: &str = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1::Params)";
    const COPY: &str = "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>";
    const CAST: &str = "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE10_clEvEUlN3c108BFloat16EE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjESD_NS0_6memory12LoadWithCastILi1EEENSE_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_";
    const NARROW_COPY: &str = "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_";
    const NVJET: &str = "nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN";
    const SOFTMAX: &str = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int)";
    const FLASH: &str = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0";
    const WINOGRAD: &str = "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1";

    #[test]
    fn products() {
        const DSL: &str = "kernel_cutlass_kernel_quack_rmsnorm_RMSNorm_object_at__tensorptrbf16gmem";
        all(is_product, &[FFMA, TF32, ODD, NVJET], &[COPY, SOFTMAX, FLASH, DSL]);
        all(
            is_unaligned,
            &[ODD],
            &[
                TF32,
                NVJET,
                "cutlass_80_tensorop_s16816gemm_bf16_nn_align16",
                "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nt_align1>(Params)",
                "void cutlass::Kernel2<cutlass_80_tensorop_z884gemm_64x64_8x3_nn_align1>(Params)",
                "void cutlass::Kernel2<cutlass_80_tensorop_c1688gemm_64x64_16x3_nn_align1>(Params)",
                "cutlass_80_tensorop_s16816wgrad_optimized_bf16_128x64_32x3_nhwc_align2",
            ],
        );
        all(
            is_fp32_product,
            &[
                FFMA,
                "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_warpsize1x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
                "_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_128x64_8x5_nn_align1EEvNT_6ParamsE",
                "volta_sgemm_128x32_nt",
                "ampere_scudnn_128x64_relu_small_nn_v1",
                "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>",
            ],
            &[
                TF32,
                NVJET,
                WINOGRAD,
                "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>",
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, float>",
                "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
                "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>",
                "volta_fp16_scudnn_fp16_128x64_relu_small_nn_v1",
                "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_warpsize1x2x1_g32_ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
            ],
        );
        all(
            is_transformed,
            &[
                WINOGRAD,
                "void fft2d_r2c_64x64<float>(float2*, float const*, int, int, int, int, int, int, int, int)",
                "void pointwise_mult_and_sum_complex<float2, 8, 4>(float2*, float2*, float2*, int, int, int, int, int, float2)",
                "sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize32x64x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel__5x_cublas",
            ],
            &[FFMA, "volta_fp16_scudnn_winograd_fp16_128x128_ldg1_ldg4_relu_tile148t_nt_v0"],
        );
        all(
            is_tf32,
            &[
                TF32,
                "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32",
                "nvjet_sm100_sss_128x128_32x6_2x1_2cta_v_bz_TNT",
            ],
            &[FFMA, ODD, "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn"],
        );
    }

    #[test]
    fn what_only_moves_data() {
        const DOUBLE: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIdEESt5arrayIPcLm3EEEEviT0_T1_";
        const OF_DOUBLES: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_16tanh_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE0_clEvENKUlvE_clEvEUldE_St5arrayIPcLm2EEEEviT0_T1_";
        all(
            is_pointwise,
            &[COPY, CAST, NARROW_COPY, SOFTMAX],
            &[
                NVJET,
                FLASH,
                DOUBLE,
                OF_DOUBLES,
                "triton_red_fused_softmax_3",
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, float>",
                "void vllm::paged_attention_v2_reduce_kernel<__nv_bfloat16, 128, 128, 512>",
                "void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8, false>",
            ],
        );
        all(
            is_cast,
            &[CAST, NARROW_COPY, "cupy_copy__float_float16"],
            &[COPY, NVJET, "cupy_copy__float_float"],
        );
        all(is_strided_copy, &[COPY], &[CAST, NARROW_COPY, SOFTMAX]);
    }

    /// cuDNN's, versions 8 and 9.
    /// A mangled name has the file of an anonymous namespace in it.
    #[test]
    fn the_file_in_a_name_is_not_what_the_kernel_does() {
        let norm = "_ZN2at6native53_GLOBAL__N__21739cd4_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_kernelIN3c108BFloat16EfLb0EEEv";
        let weights =
            norm.replace("28vectorized_layer_norm_kernelI", "35GammaBetaBackwardCUDAKernelTemplateI");
        all(is_pointwise, &[norm], &[&weights, "_ZN2at6native99_GLOBAL__N__short", "_GLOBAL__N_"]);
    }

    #[test]
    fn layouts() {
        const TO: &str =
            "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>";
        const FROM: &str = "_ZN5cudnn3ops16nhwcToNchwKernelI13__nv_bfloat16S2_fLb1ELb0EL21cudnnKernelDataType_t0EEEvNS0_19nhwc2nchw_params_tIT1_EEPKT_PT0_";
        let others = [
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_kernel__5x_cudnn",
        ];
        all(is_to_channels_last, &[TO], &[&others[..], &[FROM]].concat());
        all(is_from_channels_last, &[FROM], &[&others[..], &[TO]].concat());
        all(
            is_norm_by_channel,
            &["void at::native::batch_norm_backward_kernel<c10::BFloat16, c10::BFloat16, float, int>"],
            &["void at::native::batch_norm_backward_elemt_channels_last_kernel<4, c10::BFloat16, float, c10::BFloat16>"],
        );
    }
}

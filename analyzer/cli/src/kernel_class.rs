// SPDX-License-Identifier: Apache-2.0
//! What a kernel is for, by its name: for people who sum a table up by kind of work. No verdict
//! rests on it.

use verdict::timeline::kernels::classify;

/// Kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum KernelClass {
    /// Moves data between ranks ([`classify`]).
    Comm,
    /// Updates weights ([`classify`]).
    Optimizer,
    /// Fused attention.
    Attention,
    /// Convolution.
    Conv,
    /// Matrix product, and the reduction or epilogue that goes with it.
    Gemm,
    /// Normalization, softmax, sums, losses, scans.
    Reduce,
    /// Moves or converts data without computing.
    Cast,
    /// One output a thread, from inputs at the same place.
    Elementwise,
    /// None of these.
    Other,
}

impl KernelClass {
    /// As the tables show it.
    pub const fn label(self) -> &'static str {
        match self {
            KernelClass::Comm => "comm",
            KernelClass::Optimizer => "optimizer",
            KernelClass::Attention => "attention",
            KernelClass::Conv => "conv",
            KernelClass::Gemm => "GEMM",
            KernelClass::Reduce => "norm/reduce",
            KernelClass::Cast => "cast/copy",
            KernelClass::Elementwise => "elementwise",
            KernelClass::Other => "other",
        }
    }
}

use KernelClass::{Attention, Cast, Conv, Elementwise, Gemm, Reduce};

/// Substrings (lower case) of kernel names; the first row with one that occurs decides, after
/// collectives and optimizers. The order matters: `flash_fprop` is attention before `fprop` is a
/// convolution, an `elementwise_kernel` of a `copy_kernel` copies, and Triton's prefixes (inductor)
/// say more than the operators listed behind them.
const NAMES: &[(KernelClass, &[&str])] = &[
    (
        Attention,
        &[
            "flash",
            "fmha",
            "attention",
            "attn",
            "sdpa",
            "mha_",
            "batchprefill",
            "batchdecode",
            // what cuDNN runs around its fused attention's backward pass
            "compute_dot_do_o",
            "convert_dq_to",
        ],
    ),
    (Gemm, &["triton_tem_", "triton_mm", "triton_bmm"]),
    (Reduce, &["triton_red_", "triton_per_"]),
    (Elementwise, &["triton_poi_"]),
    // layouts, before the names of what they are for; XLA's loop_convert_fusion
    (Cast, &["nchwtonhwc", "nhwctonchw", "nchw_to_nhwc", "nhwc_to_nchw", "im2col", "col2im", "_convert"]),
    (
        Conv,
        &[
            "convolve",
            "convolution",
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_",
            "_conv",
            "fprop",
            "dgrad",
            "wgrad",
            "winograd",
            "fft2d_",
            "mult_and_sum_complex",
            "depthwise",
            "cudnn::cnn",
            // MIOpen's implicit matrix products
            "igemm_fwd",
            "igemm_bwd",
            "igemm_wrw",
            "sp3asmconv",
        ],
    ),
    (
        Gemm,
        &[
            "gemm",
            "gemv",
            "nvjet",
            "cutlass",
            "xmma",
            "wgmma",
            "cublas",
            "splitkreduce",
            "matmul",
            "marlin",
            "machete",
            "_mm_kernel",
            "_bmm_",
            // AMD's: Tensile (rocBLAS, hipBLASLt), thin products of vLLM and aiter
            "cijk_",
            "wvsplitk",
            "llgemm",
        ],
    ),
    (Elementwise, &["distribution_elementwise", "fused_dropout"]),
    (
        Cast,
        &[
            "copy_kernel",
            "copy_cuda",
            "memcpy",
            "catarray",
            "batchedcopy",
            "transpose",
            "permute",
            "gather",
            "scatter",
            "indexselect",
            "index_put",
            "index_elementwise",
            "convert",
            "cast_",
            // AMD's copies that are kernels, MIOpen's layouts, oneDNN's
            "copybuffer",
            "im2d2col",
            "reorder",
        ],
    ),
    (
        Reduce,
        &[
            "norm",
            "softmax",
            "reduce",
            "welford",
            "gammabeta",
            "argmax",
            "argmin",
            "logsumexp",
            "nll_loss",
            "cross_entropy",
            "scankernel",
            "devicescan",
            "cumsum",
            // oneDNN's
            "_lnorm_",
            "_bnorm_",
        ],
    ),
    (
        Elementwise,
        &[
            "elementwise",
            "pointwise",
            "dropout",
            "gelu",
            "silu",
            "relu",
            "swiglu",
            "sigmoid",
            "tanh",
            "rotary",
            "fill",
            "arange",
            "activation",
            "bias_act",
        ],
    ),
];

/// The class of a kernel by its name, mangled or not.
pub fn class_of(name: &str) -> KernelClass {
    // (a library of more than attention)
    let lower = name.to_ascii_lowercase().replace("flashinfer", "");
    let has = |list: &[&str]| list.iter().any(|n| lower.contains(n));
    let facts = classify(name);
    if facts.collective {
        return KernelClass::Comm;
    }
    if facts.optimizer {
        return KernelClass::Optimizer;
    }
    NAMES.iter().find(|(_, names)| has(names)).map_or(KernelClass::Other, |row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as PyTorch's traces and other tools' have them.
    const REAL: &[(KernelClass, &[&str])] = &[
        (
            KernelClass::Comm,
            &[
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "void deep_ep::intranode::cached_notify_combine<(int)2>(void **, int *, int)",
                "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals)",
                "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)",
                "oneccl_allreduce_small<sycl::half>",
            ],
        ),
        (
            KernelClass::Optimizer,
            &[
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>>",
                "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelIN",
            ],
        ),
        (
            KernelClass::Attention,
            &[
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
                "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
                "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*)",
                "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)",
                "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>",
                "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)",
                "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync<int>>>(int)",
            ],
        ),
        (
            KernelClass::Conv,
            &[
                "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_stage3",
                "void cudnn::cnn::wgrad2d_grouped_direct_kernel<__half, float, true>(cudnnTensorStruct)",
                "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)",
                "cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4>",
                "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>",
                "miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f3x2_stride1",
                "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x4x1_1x4x1x64",
                "void ck::kernel_grouped_conv_fwd_xdl_cshuffle<ck::GridwiseGemmMultiD_xdl_cshuffle<float>>(float)",
                "gen_conv_kernel",
            ],
        ),
        (
            KernelClass::Gemm,
            &[
                "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT",
                "sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
                "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(cutlass_80_simt_sgemm_64x64_8x5_nn_align1::Params)",
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false>",
                "void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float, true, true, 1>(int, int)",
                "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>(float*, float const*)",
                "void scal_kernel<float, float, 1, true, 6, 5, 5, 3>(cublasTransposeParams<float>, float const*)",
                "ampere_sgemm_128x64_tn",
                "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>",
                "triton_tem_fused_addmm_relu_0",
                "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1",
                "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<float>>(float)",
                "void wvSplitK_hf_sml_<__half, 64, 2, 16, 8, 2, 1>(int, int, int)",
                "gemm_kernel",
            ],
        ),
        (
            KernelClass::Cast,
            &[
                "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>",
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>",
                "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>",
                "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)",
                "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>",
                "__amd_rocclr_copyBuffer",
                "Im2d2Col",
                "simple_reorder",
            ],
        ),
        (
            KernelClass::Reduce,
            &[
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)",
                "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u, 256u>",
                "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>",
                "void at::native::(anonymous namespace)::cunn_SoftMaxForwardSmem<8, c10::BFloat16, float>",
                "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
                "void at_cuda_detail::cub::detail::scan::DeviceScanKernel<at_cuda_detail::cub::detail::scan::policy_hub<long>>",
                "triton_per_fused_native_layer_norm_3",
                "triton_red_fused__to_copy_mean_pow_0",
                "MIOpenBatchNormFwdTrainSpatial",
                "vectorized_lnorm_fwd",
            ],
        ),
        (
            KernelClass::Elementwise,
            &[
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >",
                "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>",
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >",
                "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, normal_and_transform>",
                "triton_poi_fused_native_layer_norm_gelu_2",
            ],
        ),
        (
            KernelClass::Other,
            &[
                "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::detail::radix::policy_hub<long>>",
                "void at::native::(anonymous namespace)::krn_partials_per_segment<long>(long*, long const*)",
                "vecAdd(float*, float*, float*, int)",
                "<unknown>",
            ],
        ),
    ];

    #[test]
    fn real_names_fall_into_the_class_of_their_work() {
        for (class, names) in REAL {
            for name in *names {
                assert_eq!(class_of(name), *class, "{name}");
            }
        }
    }
}

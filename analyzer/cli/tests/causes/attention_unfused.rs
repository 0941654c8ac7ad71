// SPDX-License-Identifier: Apache-2.0
//! GP135 ATTENTION-UNFUSED: attention written out, forward and backward, the same without what lies
//! between its products, and what is close by: the softmax in front of a loss, that of a router,
//! one that is fused.

use verdict::analysis::Confidence;

use super::{kept, run, time, verdict, Program};

const GEMM: &str = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN";
const SCALE: &str = "void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<BFloat16, MulFunctor<float> > >";
const MASK: &str = "void at::native::elementwise_kernel<128, 4, masked_fill_kernel>";
const SOFTMAX: &str =
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>";
const BACKWARD: &str =
    "void (anonymous namespace)::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 11, false, false>";
const LOSS: &str = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, c10::BFloat16, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>";
const TOP: &str = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>";
/// What XLA calls a norm.
const XLAS_NORM: &str = "triton_softmax_3";
const FLASH: &str =
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>, softmax>";

/// Ten layers of an attention in pieces, forward and backward; without the pieces between the
/// products if it is `fused`.
fn layers(p: &mut Program, fused: bool) {
    for names in [[SCALE, MASK, SOFTMAX], [MASK, BACKWARD, SCALE]] {
        for _ in 0..10 {
            p.launch(GEMM, 264, 190_000);
            p.launch("void cublasLt::splitKreduce_kernel<32, 16, int, float>", 264, 10_000);
            for name in names.into_iter().filter(|_| !fused) {
                p.launch(name, 264, 100_000);
            }
            p.launch(GEMM, 264, 200_000);
            p.launch("layer_norm_kernel", 264, 50_000);
        }
    }
    p.optimizer(25_000);
}

pub(super) fn in_pieces(p: &mut Program) {
    layers(p, false);
}

/// Softmax in front of a loss, in a router, in a fused attention.
pub(super) fn others(p: &mut Program) {
    for names in [[GEMM, LOSS, GEMM], [GEMM, SOFTMAX, TOP], [GEMM, FLASH, GEMM], [GEMM, XLAS_NORM, GEMM]] {
        for _ in 0..10 {
            names.into_iter().for_each(|name| p.launch(name, 264, 200_000));
        }
    }
    p.optimizer(25_000);
}

#[test]
fn attention_in_pieces() {
    let (run_, a) = run(|p| {
        p.launches_at = p.b.stack(&[("attention", "/job/net.py", 31), ("<module>", "/job/train.py", 9)]);
        in_pieces(p);
    });
    verdict(&a, "ATTENTION-UNFUSED");
    assert_eq!(a.verdict.confidence, Confidence::Medium);
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(
        line.contains("likely attention is not fused (job/net.py:31); scaled_dot_product_attention"),
        "{line}"
    );
    kept(&a, time(|p| layers(p, true)));
}

#[test]
fn other_softmaxes_are_none() {
    let (_, a) = run(others);
    verdict(&a, "GPU-BOUND");
    assert!(a.findings.iter().all(|f| f.cause != "ATTENTION-UNFUSED"), "{:?}", a.findings);
    verdict(&run(|p| layers(p, true)).1, "GPU-BOUND");
}

/// By their order alone that is no more than possible.
#[test]
fn without_lines_and_operators_it_is_a_maybe() {
    let (run_, a) = run(in_pieces);
    verdict(&a, "ATTENTION-UNFUSED");
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(line.contains("maybe attention is not fused"), "{line}");
}

/// Scores that are capped: the fused function has no cap. A mask that is made on the way.
#[test]
fn between_the_products_lies_more_than_a_scale() {
    const TANH: &str = "void at::native::vectorized_elementwise_kernel<8, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>";
    const TRIU: &str = "void at::native::triu_tril_kernel<bool, int, false, 1, false>";
    let of = |between: &'static str| {
        let (_, a) = run(|p| {
            p.launches_at = p.b.stack(&[("attention", "/job/net.py", 31), ("<module>", "/job/train.py", 9)]);
            for _ in 0..10 {
                p.launch(GEMM, 264, 190_000);
                [between, SOFTMAX].into_iter().for_each(|name| p.launch(name, 264, 100_000));
                p.launch(GEMM, 264, 200_000);
                p.launch("layer_norm_kernel", 264, 50_000);
            }
            p.optimizer(25_000);
        });
        verdict(&a, "ATTENTION-UNFUSED");
        (a.verdict.confidence, a.verdict.advice.long.contains("flex_attention"))
    };
    assert_eq!(of(TANH), (Confidence::Low, true));
    assert_eq!(of(TRIU), (Confidence::Medium, false));
}

/// A classifier's head and the next batch's first product; one model's and the next one's; a
/// convolution.
#[test]
fn what_does_not_belong_together_is_none() {
    let products = |between: fn(&mut Program), function: &'static str, product: &'static str| {
        let (_, a) = run(|p| {
            for _ in 0..20 {
                p.launches_at = p.b.stack(&[("head", "/job/net.py", 31), ("<module>", "/job/train.py", 9)]);
                p.launch(GEMM, 264, 200_000);
                p.launch(SOFTMAX, 264, 100_000);
                between(p);
                p.launches_at = p.b.stack(&[(function, "/job/net.py", 51), ("<module>", "/job/train.py", 9)]);
                p.launch(product, 264, 200_000);
                p.launch("layer_norm_kernel", 264, 50_000);
            }
            p.optimizer(25_000);
        });
        a.findings.iter().any(|f| f.cause == "ATTENTION-UNFUSED")
    };
    assert!(products(|_| {}, "head", GEMM), "one function's are");
    assert!(!products(|p| p.copy(7, false, 4_000, true), "head", GEMM), "a copy to the host between them");
    assert!(!products(|_| {}, "other", GEMM), "of two functions");
    let convolution = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_cudnn";
    assert!(!products(|_| {}, "head", convolution), "a convolution");
}

/// Attention over the channels of an image: a softmax of a few numbers; what it weighs is large.
#[test]
fn elementwise_kernels_on_more_than_the_softmax_are_none() {
    let (_, a) = run(|p| {
        for _ in 0..20 {
            p.launch(GEMM, 264, 200_000);
            p.launch(SOFTMAX, 264, 12_000);
            p.launch(SCALE, 264, 100_000);
            p.launch(GEMM, 264, 200_000);
        }
        p.optimizer(25_000);
    });
    assert!(a.findings.iter().all(|f| f.cause != "ATTENTION-UNFUSED"), "{:?}", a.findings);
}

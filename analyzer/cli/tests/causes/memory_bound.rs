// SPDX-License-Identifier: Apache-2.0
//! GP137 MEMORY-BOUND: a norm that is written out, the same as one kernel, and what is close by: a
//! loop over tensors, operations of several functions, torch.compile's kernels, no lines.

use verdict::analysis::Confidence;

use super::{kept, run, time, verdict, Program};

const GEMM: &str = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN";
const TO_FLOAT: &str = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&), LoadWithCast<1>, StoreWithCast<1>>";
const NARROW: &str =
    "void at::native::vectorized_elementwise_kernel<8, bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>";
const POW: &str =
    "void at::native::vectorized_elementwise_kernel<4, pow_tensor_scalar_kernel_impl<float, float>>";
const MEAN: &str = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>";
const STD: &str =
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, WelfordOps<float, float>>>";
const COPY: &str = "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>>";
const MUL: &str =
    "void at::native::elementwise_kernel<128, 2, BinaryFunctor<float, float, float, MulFunctor<float>>>";
const NORM: &str =
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>";
const COMPILED: &str = "triton_poi_fused_mul_pow_3";

/// Kernels, each with the function and line that launches it.
type Launches = &'static [(&'static str, &'static str, u32)];

/// Ten layers: these kernels of 100 us, and a product.
fn layers(p: &mut Program, launches: Launches) {
    for _ in 0..10 {
        for (name, function, line) in launches {
            p.launches_at = p.b.stack(&[(function, "/job/net.py", *line), ("<module>", "/job/train.py", 9)]);
            p.launch(name, 1320, 100_000);
        }
        p.launches_at = p.b.stack(&[("forward", "/job/net.py", 50), ("<module>", "/job/train.py", 9)]);
        p.launch(GEMM, 132, 300_000);
    }
    p.launches_at = 0;
    p.optimizer(25_000);
}

pub(super) fn written_out(p: &mut Program) {
    layers(p, &[(POW, "norm", 31), (MEAN, "norm", 31), (MUL, "norm", 32), (MUL, "norm", 33)]);
}

/// The moving average of each weight.
pub(super) fn loop_over_tensors(p: &mut Program) {
    layers(p, &[(MUL, "average", 31), (MUL, "average", 31), (MUL, "average", 31), (MUL, "average", 31)]);
}

#[test]
fn a_norm_that_is_written_out() {
    let (run_, a) = run(written_out);
    verdict(&a, "MEMORY-BOUND");
    assert_eq!(a.verdict.confidence, Confidence::Medium);
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(line.contains("likely elementwise operations are not fused (job/net.py:31)"), "{line}");
    kept(&a, time(|p| layers(p, &[(NORM, "norm", 31)])));
}

/// The line is of one function: what others have is said.
#[test]
fn chains_of_several_functions() {
    let (_, a) = run(|p| {
        layers(
            p,
            &[(POW, "norm", 31), (MEAN, "norm", 31), (MUL, "norm", 32), (POW, "act", 41), (MUL, "act", 41)],
        )
    });
    verdict(&a, "MEMORY-BOUND");
    let seen = a.verdict.text();
    assert!(seen.starts_with("job/net.py:31 in norm: elementwise kernels that could be fused"), "{seen}");
    assert!(seen.contains("of that time 60% is in that function, 40% in act at job/net.py:41"), "{seen}");
}

/// Operations on tensors of other sizes share nothing; on a tensor and the mean of its rows they
/// do.
#[test]
fn tensors_of_other_sizes_are_no_chain() {
    let of = |blocks: [u32; 4]| {
        let (_, a) = run(|p| {
            for _ in 0..10 {
                for (line, (name, blocks)) in (31..).zip([POW, MUL, NARROW, MUL].into_iter().zip(blocks)) {
                    p.launches_at =
                        p.b.stack(&[("all", "/job/net.py", line), ("<module>", "/job/train.py", 9)]);
                    p.launch(name, blocks, 100_000);
                }
                p.launches_at =
                    p.b.stack(&[("forward", "/job/net.py", 50), ("<module>", "/job/train.py", 9)]);
                p.launch(GEMM, 132, 300_000);
            }
            p.optimizer(25_000);
        });
        a.findings.iter().any(|f| f.cause == "MEMORY-BOUND")
    };
    assert!(!of([1320, 1172, 1073, 1500]));
    assert!(of([1320, 20, 660, 1320]), "a mean, and a narrow type");
}

/// What is converted is half as wide at the ends of the chain.
#[test]
fn a_chain_that_converts_types() {
    let (_, a) = run(|p| layers(p, &[(TO_FLOAT, "norm", 31), (POW, "norm", 31), (MUL, "norm", 32)]));
    verdict(&a, "MEMORY-BOUND");
    let promised = a.verdict.promise.map_or(0.0, |p| p.ns());
    assert!(
        (3_600_000.0..3_850_000.0).contains(&promised),
        "ten times 300 and 60 us, and a little: {promised}"
    );
}

#[test]
fn what_is_no_chain() {
    let others: [Launches; 5] = [
        // the same in one line: a loop, or two tensors
        &[(MUL, "average", 31), (MUL, "average", 31), (MUL, "average", 31)],
        // casts of weights, one by one
        &[(TO_FLOAT, "forward", 31), (NARROW, "forward", 32), (TO_FLOAT, "forward", 33)],
        &[(POW, "one", 31), (MUL, "other", 41), (POW, "one", 31), (MUL, "other", 41)],
        &[(POW, "norm", 31), (GEMM, "norm", 31), (MUL, "norm", 31)],
        &[(COMPILED, "norm", 31), (COMPILED, "norm", 32), (COMPILED, "norm", 33)],
    ];
    // one kernel each of several tensors: copies, sums, norms
    let each: [Launches; 3] = [
        &[(COPY, "heads", 31), (COPY, "heads", 32), (COPY, "heads", 33)],
        &[(MEAN, "metrics", 31), (NARROW, "metrics", 32), (STD, "metrics", 33)],
        &[(NORM, "forward", 31), (NORM, "forward", 32)],
    ];
    for launches in each {
        let (_, a) = run(|p| layers(p, launches));
        assert!(a.findings.iter().all(|f| f.cause != "MEMORY-BOUND"), "{launches:?}: {:?}", a.findings);
    }
    for launches in others {
        let (_, a) = run(|p| layers(p, launches));
        let of = a.findings.iter().find(|f| f.cause == "MEMORY-BOUND");
        assert!(of.is_none_or(|f| f.win.share() < 0.2), "{launches:?}: {of:?}");
    }
    let (_, a) = run(|p| {
        for _ in 0..40 {
            p.launch(POW, 1320, 100_000);
            p.launch(MUL, 1320, 100_000);
        }
    });
    assert!(a.findings.iter().all(|f| f.cause != "MEMORY-BOUND"), "without lines: {:?}", a.findings);
    let seen = a.verdict.text();
    let why = "100% of the GPU's work is elementwise operations, norms and softmaxes; which of them could be fused (GP137) cannot be told without lines of Python";
    assert!(seen.contains(why), "{seen}");
}

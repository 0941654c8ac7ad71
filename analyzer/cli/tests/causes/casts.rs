// SPDX-License-Identifier: Apache-2.0
//! GP131 CASTS: a step of which a third is casting, the same with half of the casts, and what is
//! close by.

use verdict::analysis::Confidence;

use super::{kept, run, time, verdict, Program};

pub(super) const TO_BF16: &str =
    "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_";
pub(super) const TO_FLOAT: &str =
    "at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda, LoadWithCast<1>, StoreWithCast<1>>";
pub(super) const PLAIN: &str =
    "at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda, LoadWithoutCast, StoreWithoutCast>";

/// Twenty layers, each between two kernels of these names, `casts` of 25 µs each in all of them.
pub(super) fn layers(p: &mut Program, casts: usize, names: [&str; 2]) {
    for layer in 0..20 {
        let casting = layer * casts / 20 != (layer + 1) * casts / 20;
        if casting {
            p.launch(names[0], 264, 25_000);
        }
        p.launch("gemm_kernel", 264, 100_000);
        if casting {
            p.launch(names[1], 264, 25_000);
        }
    }
    p.optimizer(25_000);
}

#[test]
fn a_third_of_the_step_in_casts() {
    let (_, a) = run(|p| layers(p, 20, [TO_BF16, TO_FLOAT]));
    verdict(&a, "CASTS");
    let v = &a.verdict;
    assert!(v.text().starts_with("kernels that only convert types run 40 times a step"), "{}", v.text());
    assert!((0.28..0.36).contains(&v.share), "{}", v.share);
    assert!(v.confidence <= Confidence::Medium);
    kept(&a, time(|p| layers(p, 10, [TO_BF16, TO_FLOAT])));
}

#[test]
fn few_casts_and_copies_of_one_type_are_no_cause() {
    verdict(&run(|p| layers(p, 5, [TO_BF16, TO_FLOAT])).1, "GPU-BOUND");
    let (_, a) = run(|p| layers(p, 20, [PLAIN, PLAIN]));
    verdict(&a, "GPU-BOUND");
    assert!(a.findings.iter().all(|f| f.cause != "CASTS"), "{:?}", a.findings);
}

/// One large cast a step is not repeated.
#[test]
fn one_cast_a_step_is_no_cause() {
    let (_, a) = run(|p| {
        layers(p, 0, [PLAIN, PLAIN]);
        p.launch(TO_BF16, 264, 2_000_000);
    });
    verdict(&a, "GPU-BOUND");
    assert!(a.findings.iter().all(|f| f.cause != "CASTS"), "{:?}", a.findings);
}

// SPDX-License-Identifier: Apache-2.0
//! GP136 ALIGNMENT: products whose rows are no multiple of 16 bytes, the same padded, and what is
//! close by: a small head of ten classes, a GPU that nobody measured.

use trace::DeviceInfo;
use verdict::analysis::Confidence;

use super::{kept, run, time, verdict, Program};

const ODD: &str = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1::Params)";
const PADDED: &str = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NTT";

fn layers(p: &mut Program, odd: bool) {
    for _ in 0..10 {
        match odd {
            true => p.launch(ODD, 264, 1_000_000),
            false => p.launch(PADDED, 132, 200_000),
        }
        p.launch("layer_norm_kernel", 264, 30_000);
    }
    p.optimizer(25_000);
}

pub(super) fn odd(p: &mut Program) {
    layers(p, true);
}

/// Ten classes behind large layers.
pub(super) fn small_head(p: &mut Program) {
    layers(p, false);
    p.launch(ODD, 132, 60_000);
}

#[test]
fn widths_that_are_a_multiple_of_nothing() {
    let (run_, a) = run(|p| {
        p.launches_at = p.b.stack(&[("forward", "/job/net.py", 31), ("<module>", "/job/train.py", 9)]);
        odd(p);
    });
    verdict(&a, "ALIGNMENT");
    assert_eq!(a.verdict.confidence, Confidence::Low, "how much memory they move is not known");
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(line.contains("maybe matrices are not aligned (job/net.py:31); pad to multiples of 8"), "{line}");
    kept(&a, time(|p| layers(p, false)));
}

#[test]
fn a_small_head_and_another_gpu() {
    verdict(&run(small_head).1, "GPU-BOUND");
    let (_, a) = run(|p| {
        let (compute_major, compute_minor) = (8, 0);
        p.b.device_info(0, DeviceInfo { compute_major, compute_minor, ..DeviceInfo::default() });
        odd(p);
    });
    assert!(a.findings.iter().all(|f| f.cause != "ALIGNMENT"), "{:?}", a.findings);
}

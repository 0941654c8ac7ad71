// SPDX-License-Identifier: Apache-2.0
//! GP134 LAYOUT: convolutions with images turned over around each, the same without, and an input
//! that is turned over once.

use verdict::analysis::Confidence;

use super::{kept, run, time, verdict, Program};

const TO: &str = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(Params)";
const FROM: &str = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>(Params)";
const CONV: &str = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_tensor16x8x16_kernel__5x_cudnn";

/// Twenty convolutions, around each of which the image is turned over if it is `turned`.
fn layers(p: &mut Program, turned: bool) {
    for _ in 0..20 {
        if turned {
            p.launch(TO, 264, 30_000);
            p.launch(TO, 264, 10_000);
        }
        p.launch(CONV, 264, 200_000);
        if turned {
            p.launch(FROM, 264, 40_000);
        }
    }
    p.optimizer(25_000);
}

pub(super) fn turned(p: &mut Program) {
    layers(p, true);
}

/// What comes in is turned over, and nothing else.
pub(super) fn once(p: &mut Program) {
    p.launch(TO, 264, 100_000);
    layers(p, false);
}

#[test]
fn images_that_are_turned_over_around_each_convolution() {
    let (run_, a) = run(|p| {
        p.launches_at = p.b.stack(&[("forward", "/job/net.py", 31), ("<module>", "/job/train.py", 9)]);
        turned(p);
    });
    verdict(&a, "LAYOUT");
    assert_eq!(a.verdict.confidence, Confidence::Medium);
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(
        line.contains("likely tensors are copied between layouts (job/net.py:31); use channels_last"),
        "{line}"
    );
    kept(&a, time(|p| layers(p, false)));
}

/// A layer without a kernel for channels_last in a program that is in that layout: the fix would be
/// the opposite one.
#[test]
fn the_other_way_round_it_is_another_matter() {
    let (_, a) = run(|p| {
        for _ in 0..20 {
            p.launch(FROM, 264, 40_000);
            p.launch(FROM, 264, 10_000);
            p.launch(CONV, 264, 200_000);
            p.launch(TO, 264, 40_000);
        }
        p.optimizer(25_000);
    });
    assert!(a.findings.iter().all(|f| f.cause != "LAYOUT"), "{:?}", a.findings);
}

#[test]
fn an_input_that_is_turned_over_is_no_cause() {
    verdict(&run(once).1, "GPU-BOUND");
}

// SPDX-License-Identifier: Apache-2.0
//! GP132 FP32-MATMUL: a step of products in float32, the same in TF32, and what is close by: few of
//! them, short ones, a host that is the next limit, a GPU whose tensor cores are hardly faster.

use trace::event::Gauge;
use trace::{DeviceInfo, Event, Kind};
use verdict::analysis::Confidence;
use verdict::Analysis;

use super::{kept, run, time, verdict, Program};

pub(super) const FFMA: &str =
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";
const TF32: &str = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4>(Params)";
const BF16: &str = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN";
/// What a product takes in float32, and in TF32 by what the prediction rests on, ns.
const SLOW: u64 = 900_000;
const FAST: u64 = 202_700;

/// Twenty layers of a product each, the first `slow` of them by such a kernel.
pub(super) fn layers(p: &mut Program, slow: usize, name: &str) {
    for layer in 0..20 {
        match layer < slow {
            true => p.launch(name, 528, SLOW),
            false => p.launch(TF32, 528, FAST),
        }
        p.launch("at::native::vectorized_elementwise_kernel<4, relu>", 264, 30_000);
    }
    p.optimizer(25_000);
}

/// Among products on the tensor cores a single one that is not.
pub(super) fn few(p: &mut Program) {
    p.launch(FFMA, 528, 300_000);
    (0..20).for_each(|_| p.launch(BF16, 528, FAST));
}

fn is_not_said(a: &Analysis) {
    assert!(a.findings.iter().all(|f| f.cause != "FP32-MATMUL"), "{:?}", a.findings);
}

#[test]
fn products_in_float32_leave_the_tensor_cores_idle() {
    let (run_, a) = run(|p| {
        p.launches_at = p.b.stack(&[("forward", "/job/net.py", 31), ("<module>", "/job/train.py", 9)]);
        layers(p, 20, FFMA);
    });
    verdict(&a, "FP32-MATMUL");
    let v = &a.verdict;
    assert_eq!(v.confidence, Confidence::Low, "how much memory they move is not known");
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(31));
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(line.contains("maybe FP32 products leave the tensor cores idle (job/net.py:31)"), "{line}");
    assert!(line.contains("allow TF32, or bf16 autocast"), "{line}");
    kept(&a, time(|p| layers(p, 0, FFMA)));
}

/// One program on two GPUs: the fix is of both, but what the other computes otherwise stays.
#[test]
fn another_gpu_has_the_same_products_or_does_not() {
    let on_both = |other: &'static str| {
        run(move |p| {
            p.b.device(1, "SIM H200", 132);
            let begin = p.t;
            layers(p, 20, FFMA);
            let end = std::mem::replace(&mut p.t, begin);
            (p.device, p.tid) = (1, 300);
            layers(p, 20, other);
            (p.device, p.tid, p.t) = (0, 100, p.t.max(end));
        })
        .1
    };
    verdict(&on_both(FFMA), "FP32-MATMUL");
    verdict(&on_both(BF16), "GPU-BOUND");
}

#[test]
fn few_and_short_ones_are_no_cause() {
    verdict(&run(few).1, "GPU-BOUND");
    let (_, a) = run(|p| {
        for _ in 0..100 {
            p.launch(FFMA, 528, 15_000);
        }
    });
    is_not_said(&a);
    is_not_said(&run(|p| layers(p, 20, TF32)).1);
}

/// One small product is in TF32 by the library's choice: most are not.
#[test]
fn a_small_product_in_tf32_acquits_no_others() {
    let (_, a) = run(|p| {
        p.launch(TF32, 528, 3_000);
        layers(p, 20, FFMA);
    });
    verdict(&a, "FP32-MATMUL");
}

/// Where products are allowed to run in TF32, convolutions are too: these the library chose.
#[test]
fn convolutions_beside_products_in_tf32_are_no_cause() {
    const CONVOLUTION: &str =
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>";
    is_not_said(&run(|p| layers(p, 10, CONVOLUTION)).1);
    let (_, a) = run(|p| {
        (0..20).for_each(|_| p.launch(CONVOLUTION, 528, SLOW));
        p.optimizer(25_000);
    });
    verdict(&a, "FP32-MATMUL");
}

/// Once the products are shorter the host is what the step waits for: no more is promised than
/// comes.
#[test]
fn what_the_host_leaves_is_promised() {
    let step = |p: &mut Program, slow: usize| {
        for layer in 0..20 {
            match layer < slow {
                true => p.launch(FFMA, 528, SLOW),
                false => p.launch(TF32, 528, FAST),
            }
            for _ in 0..50 {
                p.launch("tiny", 264, 2_000);
            }
        }
    };
    let (_, a) = run(|p| step(p, 20));
    verdict(&a, "FP32-MATMUL");
    kept(&a, time(|p| step(p, 0)));
}

/// Counters tell that memory is no limit, or that it is.
#[test]
fn products_that_wait_for_memory_get_no_faster_than_that() {
    let of = |memory| {
        let mut p = Program::new();
        for _ in 0..120 {
            layers(&mut p, 20, FFMA);
        }
        for (gauge, value) in
            [(Gauge::SmActive, 9_000), (Gauge::TensorActive, 0), (Gauge::DramActive, memory)]
        {
            let mut e = Event::new(Kind::Gauge, 1_100_000_000, 2_500_000_000);
            (e.a, e.b) = (gauge as u32, value);
            p.b.on_recorder(e);
        }
        p.analyze().1
    };
    let a = of(1_000);
    verdict(&a, "FP32-MATMUL");
    assert_eq!(a.verdict.confidence, Confidence::Medium);
    assert!(a.verdict.text().ends_with("tensor cores are 0% busy"), "{}", a.verdict.text());
    kept(&a, time(|p| layers(p, 0, FFMA)));
    verdict(&of(9_300), "GPU-BOUND");
}

/// As cuDNN has it: a transform on a stream of its own, which waits for an event of the other's and
/// then for a free multiprocessor. No more than the products hold the streams up. (Only 2% was
/// promised: the stream was taken to wait for so long whatever it waits for.)
#[test]
fn products_beside_a_stream_that_waits_for_an_event() {
    let step = |p: &mut Program, product: u64| {
        for _ in 0..10 {
            p.launch("flip_filter", 264, 40_000);
            p.wait_event(30, 7, 60_000);
            p.launch(BF16, 264, 100_000);
            p.launch_on(30, "fft2d_r2c_64x64<half>", 264, 80_000);
            p.wait_event(7, 30, 0);
            p.launch(FFMA, 528, product);
        }
        p.optimizer(25_000);
    };
    let (_, a) = run(|p| step(p, 2_000_000));
    verdict(&a, "FP32-MATMUL");
    kept(&a, time(|p| step(p, 360_000)));
}

/// Where some run in TF32 it is allowed: what does not is the library's own choice.
#[test]
fn beside_products_in_tf32_it_is_no_cause() {
    is_not_said(&run(|p| layers(p, 10, FFMA)).1);
}

/// An A10: twice as fast in TF32 at most, and of that little is reached.
#[test]
fn where_tensor_cores_are_hardly_faster_it_is_no_cause() {
    let (_, a) = run(|p| {
        let (compute_major, compute_minor) = (8, 6);
        p.b.device_info(0, DeviceInfo { compute_major, compute_minor, ..DeviceInfo::default() });
        layers(p, 20, FFMA);
    });
    is_not_said(&a);
    verdict(&a, "GPU-BOUND");
}

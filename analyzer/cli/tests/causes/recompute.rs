// SPDX-License-Identifier: Apache-2.0
//! GP133 RECOMPUTE: a step that computes its forward pass a second time, with either form of
//! PyTorch's checkpoint; the same without; and what is close by: the first pass under a checkpoint,
//! a backward pass within it, little that is computed again.

use trace::event::Gauge;
use trace::{DeviceInfo, Event, Kind};
use verdict::analysis::Confidence;
use verdict::Analysis;

use super::{kept, run, time, verdict, Program};

const CHECKPOINT: &str = "/venv/lib/python3.12/site-packages/torch/utils/checkpoint.py";
const ENGINE: &str = "/venv/lib/python3.12/site-packages/torch/autograd/graph.py";
const LINE: (&str, &str, u32) = ("Block.forward", "/job/net.py", 31);

/// From which functions, the innermost first, the kernels of a pass are launched.
type From<'a> = &'a [(&'a str, &'a str, u32)];

const FIRST: From<'_> = &[LINE, ("checkpoint", CHECKPOINT, 480), ("main", "/job/train.py", 9)];
const AGAIN: From<'_> = &[
    LINE,
    ("_checkpoint_without_reentrant_generator.<locals>.recompute_fn", CHECKPOINT, 1520),
    ("_checkpoint_hook.__init__.<locals>.unpack_hook", CHECKPOINT, 1130),
    ("_engine_run_backward", ENGINE, 820),
    ("main", "/job/train.py", 11),
];
const AGAIN_REENTRANT: From<'_> =
    &[LINE, ("CheckpointFunction.backward", CHECKPOINT, 310), ("_engine_run_backward", ENGINE, 820)];
const BACKWARD: From<'_> = &[
    ("_engine_run_backward", ENGINE, 820),
    ("backward", "/venv/lib/python3.12/site-packages/torch/autograd/__init__.py", 340),
    ("CheckpointFunction.backward", CHECKPOINT, 330),
];

fn pass(p: &mut Program, from: From<'_>, kernels: usize) {
    p.launches_at = p.b.stack(from);
    for _ in 0..kernels {
        p.launch("gemm_kernel", 264, 100_000);
    }
}

/// A step: forward, what is computed again, backward.
fn step(p: &mut Program, again: From<'_>, kernels: usize) {
    pass(p, FIRST, 20);
    pass(p, again, kernels);
    pass(p, BACKWARD, 40);
    p.launches_at = 0;
    p.optimizer(25_000);
}

/// The device's memory, GB in all, and in use.
fn memory(p: &mut Program, total: u64, used: u64) {
    let memory = total << 30;
    p.b.device_info(
        0,
        DeviceInfo { memory, compute_major: 9, multiprocessors: 132, ..DeviceInfo::default() },
    );
    let mut e = Event::new(Kind::Gauge, p.t, p.t);
    let bytes = used << 30;
    (e.a, e.b, e.c) = (Gauge::MemoryUsed as u32, bytes as u32, (bytes >> 32) as u32);
    p.b.on_recorder(e);
}

fn is_not_said(a: &Analysis) {
    assert!(a.findings.iter().all(|f| f.cause != "RECOMPUTE"), "{:?}", a.findings);
}

pub(super) fn quarter(p: &mut Program) {
    step(p, AGAIN, 20);
}

/// Kernels of the first pass, and of a backward pass within the checkpoint's.
pub(super) fn not_again(p: &mut Program) {
    step(p, BACKWARD, 20);
}

#[test]
fn a_quarter_of_the_step_is_computed_again() {
    for again in [AGAIN, AGAIN_REENTRANT] {
        let (run_, a) = run(|p| step(p, again, 20));
        verdict(&a, "RECOMPUTE");
        let v = &a.verdict;
        assert!((0.23..0.27).contains(&v.share), "{}", v.share);
        assert_eq!(v.confidence, Confidence::Low, "memory may ask for it");
        assert_eq!(v.site.as_ref().map(|s| s.line), Some(31));
        let line = ::verdict::output::sentence::line(&run_, &a, None);
        assert!(line.contains("maybe the forward pass is computed again (job/net.py:31)"), "{line}");
        kept(&a, time(|p| step(p, again, 0)));
    }
}

#[test]
fn where_memory_is_full_it_is_not_said() {
    let of = |used| {
        run(|p| {
            memory(p, 80, used);
            step(p, AGAIN, 20);
        })
        .1
    };
    let a = of(30);
    assert_eq!(a.verdict.confidence, Confidence::Low);
    assert!(a.verdict.text().ends_with("the GPU's memory is at most 38% full"), "{}", a.verdict.text());
    is_not_said(&of(76));
}

#[test]
fn the_first_pass_and_the_backward_one_are_not_computed_again() {
    let (_, a) = run(not_again);
    verdict(&a, "GPU-BOUND");
    is_not_said(&a);
    verdict(&run(|p| step(p, AGAIN, 2)).1, "GPU-BOUND");
}

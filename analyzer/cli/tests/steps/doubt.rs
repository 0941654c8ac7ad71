// SPDX-License-Identifier: Apache-2.0
//! Whether a period that was found is believed: where most of the time lies in few steps that hold
//! other work than the rest, it is not the program's (`causes/inconclusive.rs`, `LONG_STEP`,
//! `LONG_STEPS_SHARE`).

use verdict::analysis::{Confidence, StepSource};
use verdict::Analysis;

use super::program::Program;

const MS: u64 = 1_000_000;

/// Sixty steps of about 10 ms, GPU-bound; `between` after each.
fn run(mut between: impl FnMut(&mut Program, usize)) -> Analysis {
    let mut p = Program::new();
    for i in 0..60 {
        p.train_step(6, 180_000);
        p.sync();
        between(&mut p, i);
    }
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Period);
    assert!(a.steps.steps.len().abs_diff(60) <= 1, "{} steps", a.steps.steps.len());
    let median = a.steps.median_ns as f64 / MS as f64;
    assert!((8.0..12.0).contains(&median), "not the program that this is about: a step of {median:.1} ms");
    a
}

/// Small kernels of other kinds, launched one by one by a slow host.
fn other_work(p: &mut Program, ms: u64) {
    for i in 0..ms * 4 {
        p.launch(["decode", "tokenize", "resize", "crop", "score"][i as usize % 5], 8, 2_000);
        p.t += MS / 4 - 9_000;
    }
}

#[test]
fn one_long_stretch_of_other_work_leaves_the_period_in_doubt() {
    let a = run(|p, i| {
        if i == 30 {
            other_work(p, 900);
        }
    });
    let why = a.verdict.why_inconclusive().unwrap_or_default();
    // 910 ms of 1,500
    assert!(why.contains("step time is not stable: 61%"), "{:?}", a.verdict);
}

#[test]
fn a_stretch_of_other_work_that_is_less_than_half_does_not() {
    let a = run(|p, i| {
        if i == 30 {
            other_work(p, 500);
        }
    });
    assert_eq!(a.verdict.inconclusive, None);
}

/// Three fifths of the time, but in ten evaluations of fifteen steps' length each: they are part of
/// such a loop.
#[test]
fn evaluations_that_recur_do_not() {
    let a = run(|p, i| {
        if i % 10 == 5 {
            other_work(p, 150);
        }
    });
    assert_eq!(a.verdict.inconclusive, None);
}

/// One step is as long as ninety others and holds the same launches: a pause, which happened once.
#[test]
fn a_long_pause_in_one_step_does_not() {
    let a = run(|p, i| {
        if i == 30 {
            p.t += 900 * MS;
        }
    });
    assert_eq!((a.verdict.why_inconclusive(), a.once.len()), (None, 1), "{:?}", a.verdict);
}

/// A single training step whose layers each end in a wait for the device looks like a dozen steps
/// of one layer.
#[test]
fn a_few_steps_found_by_waits_for_the_device_may_be_a_steps_layers() {
    let of = |waits: usize| {
        let mut p = Program::new();
        for _ in 0..waits {
            for i in 0..24 {
                p.launch(["gemm_forward", "layer_norm", "gelu", "add"][i % 4], 100, 15_000);
            }
            p.sync();
        }
        let (_, a) = p.analyze();
        assert!(a.steps.steps.len().abs_diff(waits) <= 2, "{} of {waits}", a.steps.steps.len());
        a
    };
    let few = of(12);
    assert!(few.steps.may_be_parts);
    assert!(few.verdict.confidence <= Confidence::Low, "{:?}", few.verdict);
    assert!(!of(60).steps.may_be_parts);
}

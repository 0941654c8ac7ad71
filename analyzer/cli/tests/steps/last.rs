// SPDX-License-Identifier: Apache-2.0
//! Purpose: the last mark has no end of its own. What the program does behind its last step (it
//! saves a checkpoint, evaluates, sleeps) is no step of it, and no cause is named by it.

use verdict::analysis::StepSource;
use verdict::Analysis;

use super::program::Program;

const STEPS: u32 = 40;
const MS: u64 = 1_000_000;

fn training(p: &mut Program) {
    for n in 0..STEPS {
        let begin = p.t;
        p.mark(n, begin);
        (0..50).for_each(|_| p.launch("layer_gemm", 264, MS / 50));
        p.sync();
    }
}

fn followed_by(tail: impl Fn(&mut Program)) -> Analysis {
    let mut p = Program::new();
    training(&mut p);
    tail(&mut p);
    p.analyze().1
}

fn evaluate(p: &mut Program) {
    for _ in 0..80 {
        (0..10).for_each(|_| p.launch("evaluate_gemm", 264, 40_000));
        p.sync();
        p.think(2 * MS);
    }
}

#[track_caller]
fn of_the_training_alone(a: &Analysis, label: &str) {
    assert_eq!(a.steps.source, StepSource::Marks, "{label}");
    assert!(a.steps.steps.len() + 1 >= STEPS as usize, "{label}: {}", a.steps.steps.len());
    let (mean, longest) = (a.steps.mean_ns / 1e6, a.steps.steps.iter().map(|s| s.span.ns()).max());
    assert!((1.0..1.3).contains(&mean) && longest < Some(2 * MS), "{label}: {mean} ms, at most {longest:?}");
    assert_eq!(a.verdict.cause, "GPU-BOUND", "{label}: {}", a.verdict.text());
}

#[test]
fn what_comes_behind_the_steps_is_none() {
    type Tail = fn(&mut Program);
    let tails: [(&str, Tail); 4] = [
        ("nothing", |_| ()),
        ("a pause, and one kernel more", |p| {
            p.t += 200 * MS;
            p.launch("last_gemm", 264, 10_000);
            p.sync();
        }),
        ("a checkpoint", |p| {
            p.t += 300 * MS;
            p.copy(7, false, 1 << 20, true);
        }),
        ("an evaluation", evaluate),
    ];
    for (label, tail) in tails {
        of_the_training_alone(&followed_by(tail), label);
    }
}

#[test]
fn a_mark_that_closes_the_last_step_begins_none() {
    let a = followed_by(|p| {
        let end = p.t;
        p.mark(STEPS, end);
        p.t += 200 * MS;
        evaluate(p);
    });
    of_the_training_alone(&a, "closed");
    assert_eq!(a.steps.steps.len(), STEPS as usize);
}

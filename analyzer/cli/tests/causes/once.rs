// SPDX-License-Identifier: Apache-2.0
//! What happens once or twice is no cost of each step: it is told as what it is, with its line, and
//! is in no share. What comes evenly costs its mean and has its period named. What comes a few
//! times irregularly is a cost of the run, and nothing is predicted of a step.

use verdict::analysis::{Bucket, OncePlace};
use verdict::output::line;
use verdict::{Analysis, Run};

use super::program::{Pose, Program, TICK};
use super::samples::{stack, PREPARE};
use super::{kept, time, verdict};

const MS: u64 = 1_000_000;

/// Steps of some 11 ms, bound by the GPU; `between` after each.
fn steps(count: usize, mut between: impl FnMut(&mut Program, usize)) -> (Run, Analysis) {
    let mut p = Program::new();
    for i in 0..count {
        p.train_step(6, 180_000);
        p.sync();
        between(&mut p, i);
    }
    p.analyze()
}

/// Steps that the host limits: what it does between two of them nobody hides.
fn launched(count: usize, mut between: impl FnMut(&mut Program, usize)) -> (Run, Analysis) {
    let mut p = Program::new();
    for i in 0..count {
        p.train_step(6, 20_000);
        between(&mut p, i);
    }
    p.analyze()
}

/// Copies to the host below a line of the program, and the host stands there a while.
fn moved(p: &mut Program, bytes: u64, stands: u64) {
    p.site = stack(p, &[("_apply", "@/module.py", 900), PREPARE]);
    (0..20).for_each(|_| p.copy(7, false, bytes / 20, true));
    p.stand(stands, Pose::computing(p.site));
    p.site = 0;
}

fn charged(a: &Analysis, cause: &str) -> f64 {
    a.findings.iter().find(|f| f.cause == cause).map_or(0.0, |f| f.share)
}

#[test]
fn a_model_moved_after_the_last_step_is_no_copy_of_each_step() {
    let (run, a) = steps(30, |p, i| {
        if i == 29 {
            moved(p, 600_000_000, 0); // 120 ms
            p.launch("last", 264, 20_000);
        }
    });
    verdict(&a, "GPU-BOUND");
    assert!(charged(&a, "COPY") < 0.01, "{:?}", a.findings);
    let [once] = &a.once[..] else { panic!("{:?}", a.once) };
    assert_eq!((once.place, once.bucket.key()), (OncePlace::After, Bucket::Copy.key()), "{once:?}");
    assert!((110 * MS..140 * MS).contains(&once.ns), "{once:?}");
    assert_eq!(once.site.as_ref().map_or(0, |s| s.line), 41, "{once:?}");
    let said = line::evidence(&run, &a).join("; ");
    assert!(said.contains("; once 1") && said.contains(" ms after the last step: copying ("), "{said}");
    let wall: u64 = Bucket::ALL.iter().map(|&b| a.devices[0].buckets.get(b)).sum();
    assert_eq!(wall, a.devices[0].wall_ns);
}

#[test]
fn one_step_of_collectives_is_told_without_the_line_of_another_call() {
    let mut p = Program::new();
    let step = stack(&mut p, &[("train", "/home/u/train.py", 7)]);
    p.site = step;
    for i in 0..30 {
        p.train_step(6, 180_000);
        p.sync();
        if i == 14 {
            p.site = stack(&mut p, &[PREPARE]);
            p.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 264, 300 * MS);
            p.sync();
            p.site = step;
        }
    }
    let (_, a) = p.analyze();
    let [once] = &a.once[..] else { panic!("{:?}", a.once) };
    assert_eq!(once.bucket.key(), Bucket::Comm.key(), "{once:?}");
    assert!(once.site.as_ref().is_none_or(|s| s.line == 41), "{once:?}");
}

/// A first load in the midst of the run, and an evaluation: two pauses of different kinds.
#[test]
fn two_pauses_are_told_each_with_its_step_and_are_in_no_share() {
    let pause = |at: &'static [usize]| {
        steps(40, move |p, i| {
            if at.contains(&i) {
                let pose = Pose::computing(stack(p, &[PREPARE]));
                p.stand(400 * MS, pose);
            }
        })
    };
    let (_, a) = pause(&[12, 31]);
    verdict(&a, "GPU-BOUND");
    let told: Vec<_> = a.once.iter().map(|o| (o.place, o.bucket.key(), o.ns / (50 * MS) * 50)).collect();
    assert_eq!(told, [(OncePlace::In(12), "host", 350), (OncePlace::In(31), "host", 350)], "{:?}", a.once);
    assert_eq!(a.steps.steps.len() + 2, 40);
    assert_eq!(a.coverage.steps_seen, 40);
    assert!(a.once.iter().all(|o| o.site.as_ref().is_some_and(|s| s.line == 41)), "{:?}", a.once);
}

#[test]
fn what_comes_evenly_costs_its_mean_and_names_its_period() {
    let (_, a) = launched(100, |p, i| {
        if i % 20 == 19 {
            let pose = Pose::computing(stack(p, &[PREPARE]));
            p.stand(100 * MS, pose);
        }
    });
    verdict(&a, "HOST");
    assert!(a.once.is_empty(), "{:?}", a.once);
    assert!(a.verdict.text().contains(" every 20 steps"), "{}", a.verdict.text());
    kept(&a, time(|p| p.train_step(6, 20_000)));
}

#[test]
fn of_what_comes_a_few_times_irregularly_nothing_is_predicted_for_a_step() {
    let (_, a) = launched(100, |p, i| {
        if [7, 30, 38, 90].contains(&i) {
            let pose = Pose::computing(stack(p, &[PREPARE]));
            p.stand(20 * MS, pose);
        }
    });
    verdict(&a, "HOST");
    assert_eq!(a.verdict.promise, None, "{:?}", a.verdict);
    assert!(a.verdict.text().contains("irregularly"), "{}", a.verdict.text());
    assert!(a.verdict.share > 0.2 && a.verdict.step_ns > 0.0, "{:?}", a.verdict);
}

/// A checkpoint that takes 92 % of the time: sure is who takes it, and where.
#[test]
fn a_checkpoint_of_nearly_all_the_time_is_named_with_its_line() {
    let (_, a) = steps(100, |p, i| {
        if i % 20 == 19 {
            p.site = stack(p, &[("save", "@/serialization.py", 1004), PREPARE]);
            let from = p.t;
            (0..40).for_each(|_| p.copy(7, false, 20_000_000, true));
            let (mut tick, pose) = (from.next_multiple_of(TICK), Pose::computing(p.site));
            while tick < p.t {
                p.sample(p.tid, tick, pose);
                tick += TICK;
            }
            p.stand(2_400 * MS, pose);
            p.site = 0;
        }
    });
    verdict(&a, "FILE-IO");
    assert!(a.verdict.share > 0.9, "{:?}", a.verdict);
    assert!(a.verdict.text().contains(" every 20 steps"), "{}", a.verdict.text());
    assert_eq!(a.verdict.site.as_ref().map_or(0, |s| s.line), 41);
}

/// Most of the time in a few long steps: what a step takes is not said.
#[test]
fn where_a_few_uneven_steps_are_most_of_the_time_there_is_no_step_time() {
    let (run, a) = launched(60, |p, i| {
        if [7, 30, 38].contains(&i) {
            let pose = Pose::computing(stack(p, &[PREPARE]));
            p.stand(900 * MS, pose);
        }
    });
    verdict(&a, "HOST");
    assert_eq!((a.verdict.step_ns, a.verdict.promise), (0.0, None));
    assert!(
        !line::evidence(&run, &a).join("; ").contains(" a step:"),
        "{}",
        line::evidence(&run, &a).join("; ")
    );
}

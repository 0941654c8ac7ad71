// SPDX-License-Identifier: Apache-2.0
//! Host work H and a wait for the device in one step, with GPU work G: which of the two is it?
//! Derived by hand, held against the simulated program and against what the replay says of each fix
//! (L: launching the step's kernels, small):
//!
//! | wait              | step now          | without the wait | without the host work |
//! |-------------------|-------------------|------------------|-----------------------|
//! | none              | max(G, L + H)     | the same         | max(G, L)             |
//! | after H, H < G    | G                 | max(G, L + H)    | G                     |
//! | after H, H > G    | L + H             | L + H            | G                     |
//! | before H          | G + H             | max(G, L + H)    | G                     |
//!
//! A wait after H is no cause of anything: while the host worked, the GPU drained; without the wait
//! the host comes back to launching no sooner. A wait before H is one: without it H hides behind
//! the GPU's work of the same step.

use verdict::gaps::HostView;
use verdict::replay::{Fix, Fixes, Prepared};
use verdict::{Analysis, Run};

use super::{kept, verdict, Program};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Wait {
    None,
    /// cudaStreamSynchronize, then the host work.
    Before,
    /// The host work, then cudaStreamSynchronize.
    After,
    /// The host work, then `.item()`: a small blocking copy that is launched, then the synchronize.
    Item,
    /// Half of the host work, the synchronize, the other half.
    Between,
}

const KERNELS: u64 = 20;
const MS: u64 = 1_000_000;

/// Enough of them that the last step, which ends with the GPU's work, weighs nothing.
fn run(mut step: impl FnMut(&mut Program)) -> (Run, Analysis) {
    let mut p = Program::new();
    for _ in 0..200 {
        step(&mut p);
    }
    p.analyze()
}

fn time(step: impl FnMut(&mut Program)) -> f64 {
    let (_, a) = run(step);
    assert_eq!(a.steps.steps.len().abs_diff(200) / 2, 0, "{} steps", a.steps.steps.len());
    a.steps.mean_ns
}

fn step(p: &mut Program, host: u64, gpu: u64, wait: Wait) {
    for k in 0..KERNELS {
        p.launch(
            ["gemm_kernel", "gelu_kernel", "norm_kernel", "adam_kernel"][k as usize / 5],
            264,
            gpu / KERNELS,
        );
    }
    match wait {
        Wait::None => p.t += host,
        Wait::Before => {
            p.sync();
            p.t += host;
        }
        Wait::After => {
            p.t += host;
            p.sync();
        }
        Wait::Item => {
            p.t += host;
            p.item();
        }
        Wait::Between => {
            p.t += host / 2;
            p.sync();
            p.t += host - host / 2;
        }
    }
}

/// The table of the module doc: step time in ns now, without the wait, without the host work.
fn by_hand(h: u64, g: u64, wait: Wait) -> [u64; 3] {
    let l = KERNELS * (super::program::DISPATCH + super::program::LAUNCH_CALL);
    let free = g.max(l + h);
    match wait {
        Wait::None => [free, free, g.max(l)],
        Wait::After | Wait::Item => [free, free, g],
        Wait::Before => [g + h, free, g],
        // the first half overlaps with the GPU, the second does not
        Wait::Between => [g.max(l + h / 2) + h - h / 2, free, g],
    }
}

fn replayed(run: &Run, a: &Analysis, fix: Fix) -> f64 {
    let device = &run.devices[0];
    let prepared = Prepared::new(run, device, &HostView::new(run, device), &[], (a.steps.steady(), a.steady));
    let share = prepared.play(Fixes::of(&[fix])) as f64 / prepared.play(Fixes::default()) as f64;
    share * a.steps.mean_ns
}

/// What stands beside G and H in every step: latency, spacing of the kernels, the return of the
/// wait.
const ASIDE: f64 = 0.02;

#[track_caller]
fn near(what: &str, said: f64, truth: f64, step: f64) {
    assert!(
        (said - truth).abs() <= ASIDE * step,
        "{what}: {:.2} ms, in truth {:.2}, of a step of {:.2}",
        said / 1e6,
        truth / 1e6,
        step / 1e6
    );
}

#[test]
fn the_replay_knows_which_of_host_work_and_wait_costs_the_time() {
    for wait in [Wait::None, Wait::Before, Wait::After, Wait::Item, Wait::Between] {
        for (h, g) in [(MS, 4 * MS), (3 * MS, 4 * MS), (6 * MS, 4 * MS), (10 * MS, 4 * MS)] {
            let hand = by_hand(h, g, wait);
            let (run, a) = run(|p| step(p, h, g, wait));
            let now = a.steps.mean_ns;
            let name = format!("{wait:?}, host {} ms, GPU {} ms", h / MS, g / MS);
            near(&format!("{name}: simulated now"), now, hand[0] as f64, now);
            let awaited = time(|p| step(p, h, g, Wait::None));
            near(&format!("{name}: simulated without the wait"), awaited, hand[1] as f64, now);
            let idle = time(|p| step(p, 0, g, wait));
            near(&format!("{name}: simulated without host work"), idle, hand[2] as f64, now);
            near(&format!("{name}: replayed without the wait"), replayed(&run, &a, Fix::Sync), awaited, now);
            near(&format!("{name}: replayed without host work"), replayed(&run, &a, Fix::Host), idle, now);
        }
    }
}

#[test]
fn host_work_before_a_wait_is_host() {
    for wait in [Wait::After, Wait::Item] {
        let (_, a) = run(|p| step(p, 10 * MS, 4 * MS, wait));
        verdict(&a, "HOST");
        kept(&a, time(|p| step(p, 0, 4 * MS, wait)));
        assert!(a.findings.iter().all(|f| f.cause != "SYNC" || f.win.share() < 0.01), "{:?}", a.findings);
    }
}

#[test]
fn host_work_before_a_wait_that_the_gpu_outlasts_costs_nothing() {
    for wait in [Wait::None, Wait::After, Wait::Item] {
        let (_, a) = run(|p| step(p, 3 * MS, 4 * MS, wait));
        verdict(&a, "GPU-BOUND");
    }
}

#[test]
fn a_wait_before_short_host_work_is_sync() {
    // 4 ms of GPU work, wait, 3 ms of host work: without the wait they overlap
    let (_, a) = run(|p| step(p, 3 * MS, 4 * MS, Wait::Before));
    verdict(&a, "SYNC");
    kept(&a, time(|p| step(p, 3 * MS, 4 * MS, Wait::None)));
}

#[test]
fn long_host_work_behind_a_wait_is_host() {
    let (_, a) = run(|p| step(p, 10 * MS, 4 * MS, Wait::Before));
    verdict(&a, "HOST");
    let v = &a.verdict;
    kept(&a, time(|p| step(p, 0, 4 * MS, Wait::Before)));
    // "costs 44 %: 14.0 -> 4.0 ms" would be no sentence: what is won was lost
    assert!(v.share >= 1.0 - v.promise.unwrap().ns() / v.step_ns - 1e-9, "{v:?}");
}

/// `.item()`, a blocking copy, then host work: without the `.item()` the copy waits for the GPU in
/// its place, so that the host work behind both is what costs, though its gap lies behind a wait
/// that stood longer.
#[test]
fn host_work_behind_a_wait_and_a_blocking_copy_is_host() {
    let train = |p: &mut Program, host: u64, wait: Wait| {
        step(p, 0, 4 * MS, wait);
        p.copy(7, true, 100 * 1024, true);
        p.t += host;
    };
    let (_, a) = run(|p| train(p, 2 * MS, Wait::Before));
    let now = a.steps.mean_ns;
    near("simulated without the wait", time(|p| train(p, 2 * MS, Wait::None)), now, now);
    verdict(&a, "HOST");
    assert!(a.verdict.text().contains("every step, the GPU waits up to 2.0 ms"), "{}", a.verdict.text());
    kept(&a, time(|p| train(p, 0, Wait::Before)));
    assert!(a.findings.iter().all(|f| f.cause != "SYNC" || f.win.share() < 0.05), "{:?}", a.findings);
}

/// `loop 200 20 20 5000 0 g` of tests/victims: nothing but one graph launch and a sleep in every
/// step.
#[test]
fn a_sleep_before_one_graph_a_step_is_host() {
    let nodes: Vec<(&str, u64)> =
        (0..20).map(|k| (["forward", "gelu", "norm", "backward"][k % 4], 20_000)).collect();
    let sleeping = |p: &mut Program| {
        p.t += 5 * MS;
        p.graph(1, &nodes);
    };
    let (_, a) = run(sleeping);
    verdict(&a, "HOST");
    assert!(a.verdict.confidence > verdict::analysis::Confidence::Low);
    kept(&a, time(|p| p.graph(1, &nodes)));
}

/// A thread that only copies did so once, 20 s before the steps (loading weights), and again in the
/// midst of them: its pause is none of the steps' time.
#[test]
fn a_copying_threads_pause_before_the_steps_is_not_played() {
    let mut p = Program::new();
    let fetch = |p: &mut Program| {
        p.tid = 200;
        p.copy(20, false, 4, false);
        p.tid = 100;
    };
    fetch(&mut p);
    p.t += 20_000_000_000;
    for n in 0..30 {
        p.train_step(6, 60_000);
        if n > 10 {
            fetch(&mut p);
        }
    }
    let (_, a) = p.analyze();
    assert!(a.model.error() < 0.02, "{:?}", a.model);
}

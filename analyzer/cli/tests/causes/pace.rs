// SPDX-License-Identifier: Apache-2.0
//! Waits that end when something outside the program says so (a batch from another process, a loop
//! held to a rate): no fix but their own wins anything, for who comes earlier waits longer. And
//! waits that look the same and take as long as they take.

use verdict::analysis::Confidence;

use super::program::{Pose, Program};
use super::{kept, run, time, verdict};

/// More than a step takes.
const INTERVAL: u64 = 8_000_000;
/// recvfrom.
const RECEIVES: u32 = 45;

/// Kernels that take 3 to 5 ms, read at once.
fn step(p: &mut Program, waits: bool) {
    let more = p.random(2_000_000);
    p.launch("gemm_kernel", 264, 3_000_000 + more);
    p.optimizer(20_000);
    if waits {
        p.item();
    }
}

fn win(a: &verdict::Analysis, cause: &str) -> f64 {
    a.findings.iter().find(|f| f.cause == cause).map_or(0.0, |f| f.win.share())
}

#[test]
fn where_batches_come_at_their_own_pace_nothing_but_their_coming_wins() {
    let mut batch = 1_000_000_000;
    let (_, a) = run(|p| {
        batch += INTERVAL;
        p.t = p.t.max(batch);
        step(p, true);
    });
    assert!(win(&a, "SYNC") < 0.05, "{:#?}", a.findings);
    verdict(&a, "HOST");
    assert!(a.cost.share < 0.02, "a faster host waits longer: {:?}", a.cost);
}

/// Every third step has its batch in reserve and waits for nothing; a program that is done earlier
/// waits for the next one as long as it did.
#[test]
fn steps_that_had_their_batch_in_reserve_bring_the_next_no_sooner() {
    let mut p = Program::new();
    let mut batch = 1_000_000_000;
    for n in 0..120 {
        if n % 3 != 0 {
            batch += INTERVAL * 3 / 2;
            p.t = p.t.max(batch);
        }
        step(&mut p, true);
    }
    let (_, a) = p.analyze();
    assert!(win(&a, "SYNC") < 0.05, "{:#?}", a.findings);
}

#[test]
fn a_pause_of_its_own_length_is_no_pace() {
    let paused = |waits| {
        move |p: &mut Program| {
            p.t += 2_500_000;
            step(p, waits);
        }
    };
    let (_, a) = run(paused(true));
    verdict(&a, "SYNC");
    kept(&a, time(paused(false)));
}

/// Steps that are all alike cannot tell; samples of the thread can, where they show it waiting for
/// others.
#[test]
fn where_all_steps_are_alike_the_samples_tell() {
    let alike = |pose: fn(u32) -> Pose| {
        let (mut batch, mut stack) = (1_000_000_000, 0);
        run(|p| {
            if stack == 0 {
                p.noise = 0;
                stack = p.b.stack(&[("step", "/home/u/train.py", 17)]);
            }
            batch += INTERVAL + 300_000; // (another part of the step at each tick of the sampler)
            p.stand(batch.saturating_sub(p.t), pose(stack));
            p.launch("gemm_kernel", 264, 4_000_000);
            p.item();
        })
        .1
    };
    let receives = alike(|stack| Pose::blocked(stack, RECEIVES));
    assert!(win(&receives, "SYNC") < 0.05, "{:#?}", receives.findings);
    verdict(&receives, "NETWORK");
    let computes = alike(Pose::computing);
    assert!(win(&computes, "SYNC") > 0.2, "{:#?}", computes.findings);
}

/// A server: requests come in bursts, handed over by another thread. It may have nothing to do.
#[test]
fn a_thread_that_waits_for_another_at_odd_times_may_have_nothing_to_do() {
    let serve = |pause: fn(usize) -> u64| {
        let (mut n, mut stack) = (0, 0);
        run(|p| {
            if stack == 0 {
                stack = p.b.stack(&[("serve", "/home/u/server.py", 9)]);
            }
            n += 1;
            p.stand(pause(n), Pose::blocked(stack, 202));
            p.forward(2, 60_000);
            p.item();
        })
        .1
    };
    let bursts = serve(|n| if n % 10 == 0 { 200_000_000 } else { 1_500_000 });
    verdict(&bursts, "LOCK");
    assert_eq!(bursts.verdict.confidence, Confidence::Low, "{}", bursts.verdict.text());
    assert!(bursts.verdict.text().contains("the process may be idle"), "{}", bursts.verdict.text());
    let regular = serve(|_| 21_500_000);
    verdict(&regular, "LOCK");
    // nobody that is looked at makes what it waits for
    assert!(
        regular
            .verdict
            .text()
            .ends_with("; no other thread that calls CUDA and no child works meanwhile: nothing is promised"),
        "{}",
        regular.verdict.text()
    );
    assert_eq!(regular.verdict.promise, None);
    assert!(!regular.verdict.text().contains("perhaps"), "{}", regular.verdict.text());
    assert_eq!(regular.verdict.confidence, Confidence::Low, "{}", regular.verdict.text());
}

// SPDX-License-Identifier: Apache-2.0
//! GP101 SYNC: waits that let the GPU run dry, and waits that cost nothing.

use verdict::analysis::Confidence;

use super::{kept, run, time, verdict, Program, STEPS};

/// A GPT whose kernels are longer than their launches; `.item()` after every `every`th of 12
/// blocks.
fn blocks(p: &mut Program, every: usize, kernel: u64) {
    p.launch("embedding_kernel", 512, kernel);
    for block in 0..12 {
        for name in ["layer_norm_kernel", "gemm_a_kernel", "flash_kernel", "gemm_b_kernel"] {
            p.launch(name, 264, kernel);
        }
        if every > 0 && block % every == 0 {
            p.item();
        }
    }
    p.optimizer(kernel);
}

#[test]
fn an_item_after_every_block_is_sync() {
    let (run, a) = run(|p| blocks(p, 1, 14_000));
    verdict(&a, "SYNC");
    assert_eq!(a.verdict.code, "GP101");
    assert_eq!(a.verdict.confidence, Confidence::High, "{:?} {:?}", a.findings, a.model);
    assert!(
        a.verdict.text().contains("12 times a step") || a.verdict.text().contains("11 times"),
        "{}",
        a.verdict.text()
    );
    let (_, call) = run.call(a.verdict.call).expect("the call to blame");
    assert!(["cudaStreamSynchronize", "cudaMemcpyAsync"].contains(&call.name()), "{}", call.name());
    kept(&a, time(|p| blocks(p, 0, 14_000)));
}

/// Steps of a program that marks them, some of which evaluate: the waits are those steps' alone.
#[test]
fn waits_of_few_steps_are_told_with_how_many_have_them() {
    let step = |p: &mut Program, n: u32, evaluates: bool| {
        p.mark(n, 0);
        blocks(p, 0, 14_000);
        for _ in 0..if evaluates { 9 } else { 0 } {
            p.launch("fwd_eval_kernel", 264, 60_000);
            p.launch("fwd_eval_kernel", 264, 60_000);
            p.item();
            p.think(300_000);
        }
    };
    let mut p = Program::new();
    for n in 0..56 {
        step(&mut p, n, n % 7 == 3);
    }
    let (_, a) = p.analyze();
    let text = &a.findings.iter().find(|f| f.cause == "SYNC").expect("a finding").text();
    let steps = a.steps.steady().len();
    assert!(text.ends_with(&format!("drains the queue 72 times in 8 of {steps} steps")), "{text}");
}

#[test]
fn waits_known_from_records_alone_are_sync_too() {
    // the subscription was given up: synchronizes are CUPTI records without a thread
    let mut p = Program::new();
    p.syncs_are_records = true;
    for _ in 0..STEPS {
        blocks(&mut p, 1, 14_000);
    }
    let (run, a) = p.analyze();
    assert!(run.threads.iter().any(|t| t.tid == 0 && !t.calls.is_empty()));
    verdict(&a, "SYNC");
}

#[test]
fn an_item_in_a_launch_bound_step_costs_nothing() {
    let with = time(|p| blocks(p, 12, 2_000));
    let without = time(|p| blocks(p, 0, 2_000));
    assert!(with < without * 1.1, "the simulated program itself says so");
    let (_, a) = run(|p| blocks(p, 12, 2_000));
    verdict(&a, "LAUNCH");
    assert!(a.findings.iter().all(|f| f.cause != "SYNC" || f.win.share() < 0.05), "{:?}", a.findings);
}

#[test]
fn an_item_at_the_end_of_a_gpu_bound_step_is_not_the_verdict() {
    let (_, a) = run(|p| blocks(p, 12, 400_000));
    verdict(&a, "GPU-BOUND");
}

#[test]
fn a_synchronize_while_another_thread_launches_is_no_sync() {
    // a monitoring thread that waits for a stream while the trainer goes on
    let mut p = Program::new();
    for _ in 0..STEPS {
        let begin = p.t;
        blocks(&mut p, 0, 25_000);
        let (end, tid) = (p.t, p.tid);
        (p.t, p.tid) = (begin + 100_000, 777);
        p.sync();
        (p.t, p.tid) = (end, tid);
    }
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "GPU-BOUND", "{:?} {:?}", a.verdict, a.devices[0].buckets);
}

/// 100 light launches (0.9 ms of the host's, half as much again in every fifth step where it is
/// uneven), `heavy` of the GPU's behind them, and a wait.
fn stem(heavy: u64, is_uneven: bool, waits: bool) -> impl FnMut(&mut Program) {
    let mut steps = 0..;
    move |p| {
        let n = steps.next().expect("endless");
        p.slowed = if is_uneven && n % 5 == 2 { (3, 2) } else { (1, 1) };
        for _ in 0..100 {
            p.launch("light_kernel", 264, 2_000);
        }
        p.launch("gemm_kernel", 264, heavy);
        if waits {
            p.item();
        }
    }
}

/// Where the GPU takes about as long as the host, what is left once nothing waits is the longer of
/// the two: an uneven host may take more (H100: the fixed form of a program took 15.1 ms in one
/// process and 17.8 in the next, of 14.9 ±0.7 promised).
#[test]
fn a_promise_is_less_sure_where_a_host_that_is_uneven_may_be_the_limit() {
    let promise = |heavy, is_uneven| {
        let (_, a) = run(stem(heavy, is_uneven, true));
        verdict(&a, "SYNC");
        kept(&a, time(stem(heavy, is_uneven, false)));
        a.verdict.promise.unwrap().error_ns() / a.verdict.step_ns
    };
    let [even, uneven] = [false, true].map(|is| promise(750_000, is));
    assert!(even < 0.1, "{even}: a host that is even is as even as promised");
    assert!(uneven > 0.14, "{uneven}: of a step of 1.8 ms the host has 0.9, or 1.35");
    // the GPU is the limit in slow steps, too
    let [even, uneven] = [false, true].map(|is| promise(1_800_000, is));
    assert!((even - uneven).abs() < 0.02, "{even}, {uneven}");
}

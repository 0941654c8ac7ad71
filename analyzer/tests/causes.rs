// SPDX-License-Identifier: Apache-2.0
//! Each cause: a program that has it, and one close by that does not. Where there is a fix, the fixed program is
//! simulated too, and the promised step time is held against its true one.

mod program;

use analyzer::analysis::{Bucket, Confidence};
use analyzer::{Analysis, Run};
use program::Program;
use trace::Loss;

const STEPS: usize = 30;

/// Runs `step` 30 times.
fn run(mut step: impl FnMut(&mut Program)) -> (Run, Analysis) {
    let mut p = Program::new();
    for _ in 0..STEPS {
        step(&mut p);
    }
    p.analyze()
}

/// Step time of a program, ns.
fn time(step: impl FnMut(&mut Program)) -> f64 {
    let (_, a) = run(step);
    assert!(a.steps.mean_ns > 0.0, "no steps found");
    a.steps.mean_ns
}

#[track_caller]
fn verdict(a: &Analysis, cause: &str) {
    let shares: Vec<String> = Bucket::ALL
        .iter()
        .filter_map(|b| Some(format!("{} {:.1}", b.key(), a.devices.first()?.buckets.share(*b) * 100.0)))
        .collect();
    assert_eq!(a.verdict.cause, cause, "{:?}\n{shares:?}\n{:#?}", a.verdict, a.findings);
    assert!(a.model.error() < 0.05, "the replay is off: {:?}", a.model);
}

/// The promise is kept within its ± and a tenth of the step.
#[track_caller]
fn kept(a: &Analysis, truth: f64) {
    let v = &a.verdict;
    let off = (v.predicted_ns - truth).abs();
    assert!(
        off <= v.error_ns + 0.1 * v.step_ns,
        "step {:.0} us, promised {:.0} ±{:.0}, the real fix gives {:.0}",
        v.step_ns / 1e3,
        v.predicted_ns / 1e3,
        v.error_ns / 1e3,
        truth / 1e3
    );
}

// ---- SYNC --------------------------------------------------------------------------------------------------------

/// A GPT whose kernels are longer than their launches; `.item()` after every `every`th of 12 blocks.
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
        a.verdict.text.contains("12 times a step") || a.verdict.text.contains("11 times"),
        "{}",
        a.verdict.text
    );
    let (_, call) = run.call(a.verdict.call).expect("the call to blame");
    assert!(["cudaStreamSynchronize", "cudaMemcpyAsync"].contains(&call.name()), "{}", call.name());
    kept(&a, time(|p| blocks(p, 0, 14_000)));
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
    assert!(a.findings.iter().all(|f| f.cause != "SYNC" || f.win < 0.05), "{:?}", a.findings);
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

// ---- LAUNCH, SMALL-KERNELS, KERNEL-GAP ---------------------------------------------------------------------------

#[test]
fn tiny_kernels_launched_one_by_one_are_launch() {
    let (_, a) = run(|p| p.train_step(12, 2_000));
    verdict(&a, "LAUNCH");
    let mut nodes: Vec<(&str, u64)> = vec![("embedding", 1_000)];
    for _ in 0..12 {
        for k in [500, 2_000, 2_000, 500, 2_000, 2_000, 500, 4_000, 2_000, 500] {
            nodes.push(("node", k));
        }
    }
    nodes.extend([("n", 2_000); 7]);
    kept(&a, time(|p| p.graph(1, &nodes)));
}

#[test]
fn the_same_kernels_when_long_are_gpu_bound() {
    let (_, a) = run(|p| p.train_step(12, 200_000));
    verdict(&a, "GPU-BOUND");
    assert!(a.devices[0].buckets.share(Bucket::Launch) < 0.01);
}

#[test]
fn a_graph_of_tiny_kernels_waits_for_nothing() {
    let nodes: Vec<(&str, u64)> = (0..600).map(|i| (["a", "b", "c"][i % 3], 1_500)).collect();
    let (_, a) = run(|p| p.graph(1, &nodes));
    verdict(&a, "SMALL-KERNELS");
    let b = &a.devices[0].buckets;
    assert!(b.share(Bucket::KernelGap) > 0.3);
    for none in [Bucket::Sync, Bucket::Host, Bucket::DeviceWait, Bucket::Unexplained] {
        assert_eq!(b.get(none), 0, "{none:?}");
    }
    assert!(a.verdict.confidence < Confidence::High);
}

#[test]
fn a_graph_of_long_kernels_is_gpu_bound() {
    let nodes: Vec<(&str, u64)> = (0..100).map(|i| (["a", "b", "c"][i % 3], 90_000)).collect();
    let (_, a) = run(|p| p.graph(1, &nodes));
    verdict(&a, "GPU-BOUND");
}

// ---- HOST --------------------------------------------------------------------------------------------------------

#[test]
fn a_host_that_sleeps_between_steps_is_host() {
    let (_, a) = run(|p| {
        p.train_step(6, 20_000);
        p.t += 10_000_000;
    });
    verdict(&a, "HOST");
    assert!(a.verdict.text.contains("every step"), "{}", a.verdict.text);
    kept(&a, time(|p| p.train_step(6, 20_000)));
}

#[test]
fn a_host_that_sleeps_while_the_gpu_works_is_not() {
    let (_, a) = run(|p| {
        p.train_step(6, 300_000);
        p.t += 3_000_000;
    });
    verdict(&a, "GPU-BOUND");
}

#[test]
fn sleep_after_a_synchronize_is_shared_by_both() {
    // 5 ms of work, synchronize, 20 ms of sleep: removing the synchronize hides the work behind the sleep
    let step = |p: &mut Program| {
        for _ in 0..50 {
            p.launch("gemm_kernel", 264, 100_000);
        }
        p.launch("adam_kernel", 264, 10_000);
        p.sync();
        p.t += 20_000_000;
    };
    let (_, a) = run(step);
    verdict(&a, "HOST");
    let d = &a.devices[0];
    assert!(d.buckets.share(Bucket::Sync) > 0.1 && d.buckets.share(Bucket::Host) > 0.4, "{:?}", d.buckets);
}

// ---- COPY, ALLOC -------------------------------------------------------------------------------------------------

#[test]
fn pageable_copies_every_step_are_copy() {
    let step = |p: &mut Program| {
        p.copy(7, true, 30_000_000, true);
        p.train_step(6, 20_000);
    };
    let (_, a) = run(step);
    verdict(&a, "COPY");
    assert!(
        a.verdict.text.contains("pageable") && a.verdict.text.contains("MB a step"),
        "{}",
        a.verdict.text
    );
    kept(
        &a,
        time(|p| {
            p.copy(20, true, 30_000_000, false);
            p.train_step(6, 20_000);
        }),
    );
}

/// `x.to(device)` as PyTorch does it: the copy's call returns a little before the copy is done, then a synchronize.
fn to_device(p: &mut Program, bytes: u64) {
    p.copy(7, true, bytes, true);
    p.t -= program::RETURN + 40_000;
    let (tid, end) = (p.tid, p.t);
    p.shorten_last_call(tid, end);
    p.sync();
}

#[test]
fn the_synchronize_behind_a_pageable_copy_is_part_of_it() {
    let (_, a) = run(|p| {
        to_device(p, 30_000_000);
        p.train_step(6, 40_000);
    });
    verdict(&a, "COPY");
    kept(
        &a,
        time(|p| {
            p.copy(20, true, 30_000_000, false);
            p.train_step(6, 40_000);
        }),
    );
}

#[test]
fn pinned_copies_on_a_side_stream_are_not() {
    let (_, a) = run(|p| {
        p.copy(20, true, 30_000_000, false);
        p.train_step(6, 100_000);
    });
    verdict(&a, "GPU-BOUND");
}

#[test]
fn emptying_the_cache_every_step_is_alloc() {
    let (run_, a) = run(|p| {
        p.train_step(6, 30_000);
        for _ in 0..4 {
            p.free(400_000);
        }
    });
    verdict(&a, "ALLOC");
    assert_eq!(run_.call(a.verdict.call).map(|(_, c)| c.name()), Some("cudaFree"));
    kept(&a, time(|p| p.train_step(6, 30_000)));
}

#[test]
fn an_allocation_that_nobody_waits_for_is_not() {
    let (_, a) = run(|p| {
        p.train_step(6, 300_000);
        let begin = p.t;
        p.t += 50_000;
        let mut e = trace::Event::new(trace::Kind::Call, begin, p.t);
        e.a = trace::call::pack(trace::call::RUNTIME, 20);
        e.x = trace::call::Class::Alloc as u8;
        p.b.on_thread(p.tid, e);
    });
    verdict(&a, "GPU-BOUND");
}

// ---- COMM, DEVICE-WAIT -------------------------------------------------------------------------------------------

fn data_parallel(p: &mut Program, collective: u64) {
    p.forward(6, 60_000);
    p.backward(6, 60_000);
    p.wait(20, 7, 0);
    p.launch_on(20, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 24, collective);
    p.wait(7, 20, 0);
    p.optimizer(60_000);
}

#[test]
fn a_collective_that_everything_waits_for_is_comm() {
    let (_, a) = run(|p| data_parallel(p, 4_000_000));
    verdict(&a, "COMM");
    assert!(a.verdict.confidence < Confidence::High, "one rank cannot know");
}

#[test]
fn a_short_collective_is_not() {
    let (_, a) = run(|p| data_parallel(p, 60_000));
    verdict(&a, "GPU-BOUND");
}

#[test]
fn waiting_for_an_event_of_another_stream_is_device_wait() {
    let (_, a) = run(|p| {
        for _ in 0..20 {
            p.launch("gemm_kernel", 264, 60_000);
        }
        p.wait(7, 7, 1_500_000); // something outside the device signals late
        p.optimizer(60_000);
    });
    verdict(&a, "DEVICE-WAIT");
}

#[test]
fn an_unknown_wait_is_unexplained_and_no_cause() {
    let mut p = Program::new();
    for _ in 0..STEPS {
        for _ in 0..20 {
            p.launch("gemm_kernel", 264, 60_000);
        }
        p.optimizer(60_000);
    }
    let bytes = p.finish();
    let mut run = analyzer::load(bytes.as_slice()).expect("a recording");
    // everything from each step's first optimizer kernel on comes 1.5 ms later: work is queued, nothing runs, nothing
    // says why (another process on the GPU, say)
    let names = run.definitions.clone();
    for s in &mut run.devices[0].streams {
        let (mut late, mut before) = (0, false);
        for op in &mut s.ops {
            let adam = names.kernel_name(op.a).contains("Adam");
            late += if adam && !before { 1_500_000 } else { 0 };
            before = adam;
            op.start += late;
            op.end += late;
        }
    }
    run.header.gpu_complete_to += 1_000_000_000;
    let a = analyzer::analyze(&run);
    assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{:?} {:?}", a.verdict, a.devices[0].buckets);
    assert!(a.devices[0].buckets.share(Bucket::Unexplained) > 0.3);
    assert_eq!(a.devices[0].buckets.get(Bucket::DeviceWait), 0);
}

// ---- MIXED, INCONCLUSIVE -----------------------------------------------------------------------------------------

#[test]
fn many_small_reasons_are_mixed() {
    let (_, a) = run(|p| {
        for part in 0..8 {
            for _ in 0..9 {
                p.launch(["gemm_a", "gemm_b", "gemm_c"][part % 3], 264, 40_000);
            }
        }
        p.optimizer(40_000);
        p.free(200_000);
        p.launch("gemm_d", 264, 100_000);
        p.sync();
        p.t += 170_000;
        p.launch("gemm_e", 264, 100_000);
        p.copy(7, true, 1_000_000, true);
    });
    verdict(&a, "MIXED");
    assert!(a.verdict.text.contains(" + ") || a.verdict.text.contains(", "), "{}", a.verdict.text);
}

fn healthy() -> Program {
    let mut p = Program::new();
    for _ in 0..STEPS {
        p.train_step(6, 20_000);
        p.t += 10_000_000;
    }
    p
}

#[test]
fn losses_inside_the_valid_span_make_no_verdict_possible() {
    let events = healthy().launches * 2;
    for (lost, cause) in [(events / 2000, "HOST"), (events / 500, "INCONCLUSIVE")] {
        let mut p = healthy();
        p.b.header.losses[Loss::CuptiDropped.code() as usize] = lost;
        let (_, a) = p.analyze();
        assert_eq!(a.verdict.cause, cause, "{lost} of {events} lost");
        assert_eq!(a.data_losses, lost);
    }
    // before the valid span: overwritten, no matter
    let mut p = healthy();
    p.b.header.losses[Loss::CuptiDropped.code() as usize] = events;
    p.b.header.valid_from = p.t - 200_000_000;
    let mut mark = trace::Event::new(trace::Kind::LossMark, 1_000_000_000, 1_000_000_000);
    (mark.a, mark.b) = (u32::from(Loss::CuptiDropped.code()), events as u32);
    p.b.on_recorder(mark);
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "HOST");
    assert!(a.coverage.overwritten);
}

#[test]
fn graphs_without_their_nodes_make_no_verdict_possible() {
    let mut p = Program::new();
    for _ in 0..STEPS {
        p.train_step(2, 20_000);
        p.graph_without_nodes();
        p.t += 3_000_000;
    }
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    assert!(a.verdict.text.contains("graph launches"), "{}", a.verdict.text);
}

#[test]
fn nothing_and_almost_nothing_are_inconclusive() {
    let (_, a) = Program::new().analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    let mut p = Program::new();
    p.launch("only_kernel", 1, 5_000);
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    assert!(a.verdict.text.contains("too little"), "{}", a.verdict.text);
}

#[test]
fn the_time_after_the_last_flush_is_not_idle() {
    let mut p = healthy();
    // killed: the last flush was 50 ms before; a quiet second follows
    let end = p.t;
    p.b.header.gpu_complete_to = end - 50_000_000;
    p.b.header.host_complete_to = end + 1_000_000_000;
    p.b.header.last_write = end + 1_000_000_000;
    p.b.header.state = trace::header::state::RECORDING;
    let (_, a) = p.analyze();
    assert_eq!(a.valid.end, end - 50_000_000);
    assert!(a.devices[0].slices.iter().all(|s| s.end <= a.valid.end));
    assert!(a.steady.end <= a.valid.end);
    assert!(a.coverage.killed);
}

#[test]
fn unobserved_time_is_cut_out() {
    let mut p = Program::new();
    let mut dark = (0, 0);
    for i in 0..STEPS {
        p.train_step(6, 200_000);
        if i == 15 {
            p.sync();
            let mut e = trace::Event::new(trace::Kind::Unobserved, p.t, p.t + 500_000_000);
            e.a = 1;
            p.b.on_recorder(e);
            dark = (p.t, p.t + 500_000_000);
            p.t += 500_000_000;
        }
    }
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "GPU-BOUND", "{:?}", a.verdict);
    assert_eq!(a.devices[0].buckets.total(), a.devices[0].wall_ns);
    assert!(a.devices[0].slices.iter().all(|s| s.end <= dark.0 || s.start >= dark.1));
    assert_eq!(a.blind.len(), 1);
}

#[test]
fn of_two_devices_the_line_names_the_worst() {
    let mut p = Program::new();
    p.b.device(1, "SIM H200", 132);
    for _ in 0..STEPS {
        let begin = p.t;
        p.train_step(6, 200_000);
        p.device = 1;
        p.tid = 300;
        p.t = begin;
        p.train_step(6, 20_000);
        p.t += 10_000_000;
        (p.device, p.tid) = (0, 100);
    }
    let (run, a) = p.analyze();
    assert_eq!(a.worst, Some(1));
    let line = analyzer::line::line(&run, &a, None);
    assert!(line.contains("GPU 1 busy"), "{line}");
}

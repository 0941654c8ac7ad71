// SPDX-License-Identifier: Apache-2.0
//! GP107 COMM and GP109 DEVICE-WAIT: the device waits for a collective or for another stream.

use verdict::analysis::{Bucket, Confidence};

use super::{run, verdict, Program, STEPS};

pub(super) fn data_parallel(p: &mut Program, collective: u64) {
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

/// A rank that computes little and waits for a late one: there is nothing to hide the collective
/// behind (was MIXED).
#[test]
fn a_collective_that_is_nearly_all_of_the_step_is_comm_without_a_promise() {
    let (_, a) = run(|p| data_parallel(p, 60_000_000));
    verdict(&a, "COMM");
    assert_eq!(a.verdict.promise, None, "{}", a.verdict.text());
    assert!(a.verdict.share > 0.9 && a.verdict.confidence < Confidence::High, "{}", a.verdict.share);
}

/// They take as long as the step, and most of it is hidden.
#[test]
fn collectives_that_are_hidden_for_the_most_part_are_not() {
    let (_, a) = run(|p| {
        p.launch_on(20, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 24, 5_000_000);
        for _ in 0..6 {
            p.launch("gemm_kernel", 264, 500_000);
        }
        p.wait(7, 20, 0);
        p.optimizer(2_000);
    });
    verdict(&a, "MIXED");
}

#[test]
fn a_short_collective_is_not() {
    let (_, a) = run(|p| data_parallel(p, 60_000));
    verdict(&a, "GPU-BOUND");
}

/// Something outside the device signals so late what the optimizer waits for.
pub(super) fn signalled(p: &mut Program, late: u64) {
    for _ in 0..20 {
        p.launch("gemm_kernel", 264, 60_000);
    }
    p.wait(7, 7, late);
    p.optimizer(60_000);
}

#[test]
fn waiting_for_an_event_of_another_stream_is_device_wait() {
    verdict(&run(|p| signalled(p, 1_500_000)).1, "DEVICE-WAIT");
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
    let mut run = verdict::load(bytes.as_slice()).expect("a recording");
    // everything from each step's first optimizer kernel on comes 1.5 ms later: work is queued,
    // nothing runs, nothing says why (another process on the GPU, say)
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
    let a = verdict::analyze(&run);
    assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{:?} {:?}", a.verdict, a.devices[0].buckets);
    assert!(a.devices[0].buckets.share(Bucket::Unexplained) > 0.3);
    assert_eq!(a.devices[0].buckets.get(Bucket::DeviceWait), 0);
}

/// Streams that take turns, and not one wait between them: what holds the queued work up cannot be
/// told from their order.
#[test]
fn that_the_op_before_ran_on_another_stream_is_no_wait() {
    let mut p = Program::new();
    p.shared = 2_440_000; // another process's time slices
    for step in 0..STEPS as u32 {
        p.mark(step, 0);
        for k in 0..20 {
            p.launch_on(7 + k % 2, "gemm_kernel", 264, 300_000);
        }
    }
    let (_, a) = p.analyze();
    let buckets = &a.devices[0].buckets;
    assert_eq!(buckets.get(Bucket::DeviceWait), 0, "{buckets:?}");
    assert!(buckets.share(Bucket::Unexplained) > 0.3, "{buckets:?}");
    assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{:?}", a.verdict);
    assert!(a.verdict.text().contains("another process on the GPU"), "{}", a.verdict.text());
}

#[test]
fn a_gpu_that_another_process_has_half_of_the_time_is_not_the_hosts_fault() {
    // seen on the H200 with three small programs side by side: a kernel launched on an idle GPU
    // began 0.6 ms later, and the time counted as LAUNCH ("14 of 261 kernels a step wait for their
    // launch")
    let program = |shared| {
        let mut p = Program::new();
        p.shared = shared;
        for _ in 0..STEPS {
            for _ in 0..250 {
                p.launch("small_kernel", 264, 2_000);
            }
            p.optimizer(2_000);
        }
        p.analyze().1
    };
    let alone = program(0);
    assert_eq!(alone.verdict.cause, "LAUNCH", "{:?}", alone.verdict);
    assert_eq!(alone.devices[0].buckets.get(Bucket::Unexplained), 0);
    let shared = program(600_000);
    let buckets = &shared.devices[0].buckets;
    assert!(buckets.share(Bucket::Unexplained) > 0.4, "{buckets:?}");
    assert_eq!(shared.verdict.cause, "INCONCLUSIVE", "{:?}", shared.verdict);
    assert!(shared.verdict.text().contains("another process on the GPU"), "{}", shared.verdict.text());
}

/// One kernel hung for twenty seconds: true that the GPU computed, and no step is as the mean is.
#[test]
fn a_single_launch_that_is_most_of_the_time_is_said() {
    let mut step = 0;
    let (recorded, a) = run(|p| {
        step += 1;
        p.forward(20, 60_000);
        if step == 20 {
            p.launch("void user::spin_kernel(int)", 132, 20_000_000_000);
        }
    });
    let said = verdict::output::line::evidence(&recorded, &a).join("; ");
    assert!(said.contains("; once 21 s in step 19: computing"), "{said}");
    let (_, a) = run(|p| p.forward(1, 3_000_000));
    verdict(&a, "GPU-BOUND");
    assert!(!a.verdict.text().contains("single"), "{}", a.verdict.text());
}

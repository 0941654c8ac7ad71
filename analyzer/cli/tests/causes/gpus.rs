// SPDX-License-Identifier: Apache-2.0
//! Several GPUs in one recording: whose wait it is, and what a fix of one is worth while another
//! computes.

use verdict::analysis::Bucket;
use verdict::{Analysis, Run};

use super::program::{DISPATCH, LATENCY, LAUNCH_CALL};
use super::{Program, STEPS};

const MS: u64 = 1_000_000;

/// The second thread's way of standing still for its own GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    No,
    Sync,
    Free,
}

/// Thread 100 launches 3 ms to GPU 0, thinks and never waits. Thread 200 has GPU 1, and a host time
/// of its own. `sees`: a third thread stands in thread 200's place.
fn apart(think: u64, stands: Stands, watcher: bool) -> Analysis {
    let mut p = Program::new();
    p.b.device(1, "SIM H200", 132);
    let mut other = p.t;
    for step in 0..STEPS as u32 {
        let begin = p.t;
        p.mark(step, 0);
        for _ in 0..20 {
            p.launch("gemm_kernel", 264, 150_000);
        }
        let main = p.t;
        (p.tid, p.device, p.t) = (200, 1, other.max(begin + MS / 2));
        for _ in 0..16 {
            p.launch("draft_kernel", 264, 300_000);
        }
        if watcher {
            p.tid = 300;
        }
        match stands {
            Stands::No => {}
            Stands::Sync => p.sync(),
            Stands::Free => p.free(MS / 10),
        }
        other = p.t;
        (p.tid, p.device, p.t) = (100, 0, main + think);
    }
    p.analyze().1
}

#[test]
fn a_wait_of_another_thread_for_another_gpu_costs_this_one_nothing() {
    let truth = apart(0, Stands::No, false).steps.mean_ns;
    for stands in [Stands::No, Stands::Sync, Stands::Free] {
        for watcher in [false, true] {
            let a = apart(8 * MS, stands, watcher);
            let name = format!("{stands:?}, watcher {watcher}: {:?}", a.verdict);
            assert_eq!(a.devices[a.worst.unwrap()].ordinal, 0, "{name}");
            assert_eq!(a.verdict.cause, "HOST", "{name}");
            assert!(
                a.findings.iter().all(|f| !["SYNC", "ALLOC"].contains(&f.cause)),
                "{name}: {:?}",
                a.findings
            );
            assert!(
                a.verdict.promise.unwrap().ns() + a.verdict.promise.unwrap().error_ns() >= truth,
                "{name}: at least {truth}"
            );
        }
    }
}

/// One thread has two GPUs: it launches to both, waits for GPU 0 before it launches to GPU 1 (or
/// not), and takes a value from GPU 1.
fn one_after_the_other(first: u64, second: u64, waits: bool) -> Analysis {
    let mut p = Program::new();
    p.b.device(1, "SIM H200", 132);
    for step in 0..STEPS as u32 {
        p.mark(step, 0);
        p.device = 0;
        for _ in 0..20 {
            p.launch("gemm_kernel", 264, first / 20);
        }
        if waits {
            p.sync();
        }
        p.device = 1;
        for _ in 0..20 {
            p.launch("draft_kernel", 264, second / 20);
        }
        p.sync();
    }
    p.analyze().1
}

/// GPU 0 is the worst, and the replay plays it alone: with the waits gone a step still takes what
/// GPU 1 computes.
#[test]
fn no_step_is_promised_shorter_than_what_another_gpu_computes() {
    let truth = one_after_the_other(8 * MS, 24 * MS, false).steps.mean_ns;
    let a = one_after_the_other(8 * MS, 24 * MS, true);
    assert_eq!(a.devices[a.worst.unwrap()].ordinal, 0);
    let v = &a.verdict;
    assert_eq!(v.cause, "SYNC", "{v:?}");
    assert!((v.promise.unwrap().ns() - truth).abs() <= 0.05 * truth, "{v:?}, in truth {truth}");
    assert!(v.confidence < verdict::analysis::Confidence::High, "{v:?}");
    assert!(v.text().contains("GPU 1 computes 7"), "{}", v.text());
    for f in a.findings.iter().filter(|f| f.win.share() > 0.0) {
        assert!(f.promise.unwrap().ns() >= 23.0 * MS as f64, "{f:?}");
    }
}

/// Data parallel, GPU 1 twice as slow: GPU 0 waits in the collective for it, and nothing but GPU
/// 1's kernels can be mended.
#[test]
fn a_collective_that_waits_for_a_slower_gpu_is_not_promised_away() {
    let mut p = Program::new();
    p.noise = 0;
    p.b.device(1, "SIM H200", 132);
    let mut free = [p.t; 2];
    for step in 0..STEPS as u32 {
        p.t = free[0].max(free[1]);
        let begin = p.t;
        p.tid = 100;
        p.mark(step, 0);
        for (device, kernel) in [(0, 300_000), (1, 600_000)] {
            (p.tid, p.device, p.t) = (100 + 100 * device, device, begin);
            for _ in 0..40 {
                p.launch("gemm_kernel", 264, kernel);
            }
            let alone = 40 * (600_000 - kernel);
            p.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24, MS + alone);
            p.sync();
            free[device as usize] = p.t;
        }
    }
    let (_, a) = p.analyze();
    assert_eq!(a.devices[a.worst.unwrap()].ordinal, 0);
    let v = &a.verdict;
    assert_eq!(v.cause, "GPU-BOUND", "{v:?}");
    assert!(v.text().contains("GPU 1 computes 9") && v.text().contains("GPU 0 4"), "{}", v.text());
    assert!(v.confidence < verdict::analysis::Confidence::High, "{v:?}");
}

/// One thread drives two GPUs as a pipeline, and the host works for `think` before each step.
fn pipeline(think: u64, launches: [usize; 2], marked: bool, waits: bool) -> (Run, Analysis) {
    let mut p = Program::new();
    p.b.device(1, "SIM H200", 132);
    for step in 0..2 * STEPS as u32 {
        if marked {
            p.mark(step, 0);
        }
        for (device, name) in [(0, "first_kernel"), (1, "second_kernel")] {
            p.device = device;
            for _ in 0..launches[device as usize] {
                p.launch(name, 264, 50_000);
            }
            p.launch("last_kernel", 264, 30_000);
        }
        for device in [0, 1].into_iter().filter(|_| waits) {
            p.device = device;
            p.sync();
        }
        p.think(think);
    }
    p.analyze()
}

/// What stands between the host's work and the second GPU's launch is a launch to the first GPU:
/// the work keeps the second one waiting all the same.
#[test]
fn work_in_front_of_a_launch_to_another_gpu_is_the_hosts() {
    for (launches, marked, waits) in [
        ([20, 3], true, true),
        ([20, 3], true, false),
        ([10, 10], true, true),
        ([10, 10], true, false),
        ([10, 10], false, true),
        ([3, 20], true, true),
    ] {
        for think in [1_900_000, 5 * MS] {
            let (_, a) = pipeline(think, launches, marked, waits);
            let name = format!("{launches:?}, marked {marked}, waits {waits}, {think}: {:?}", a.verdict);
            let truth = pipeline(0, launches, marked, waits).1.steps.mean_ns;
            assert_eq!(a.verdict.cause, "HOST", "{name}");
            assert!(
                (a.verdict.promise.unwrap().ns() - truth).abs()
                    <= a.verdict.promise.unwrap().error_ns().max(truth * 0.1),
                "{name}: {truth}"
            );
            // (a wait in front of the work may claim its part)
            for d in &a.devices {
                let launching = d.buckets.share(Bucket::Launch) * a.steps.mean_ns;
                let most = (launches[0] + launches[1] + 2) as u64 * (DISPATCH + LAUNCH_CALL) + LATENCY;
                assert!(launching < 1.1 * most as f64, "{name}: GPU {} {:?}", d.ordinal, d.buckets);
            }
        }
    }
}

/// ... and what the launches to the first GPU take is launching.
#[test]
fn launching_to_another_gpu_stays_launching() {
    let mut p = Program::new();
    p.b.device(1, "SIM H200", 132);
    for step in 0..STEPS as u32 {
        p.mark(step, 0);
        for (device, kernels) in [(0, 400), (1, 3)] {
            p.device = device;
            for _ in 0..kernels {
                p.launch("quick_kernel", 264, 2_000);
            }
        }
    }
    let (_, a) = p.analyze();
    for d in &a.devices {
        assert!(d.buckets.share(Bucket::Launch) > 0.7, "GPU {} {:?}", d.ordinal, d.buckets);
        // (nothing is known of the time before the second GPU's first launch)
        assert!(d.buckets.share(Bucket::Host) < 1.1 / STEPS as f64, "GPU {} {:?}", d.ordinal, d.buckets);
    }
}

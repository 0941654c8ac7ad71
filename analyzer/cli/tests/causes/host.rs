// SPDX-License-Identifier: Apache-2.0
//! GP105 HOST: the host is elsewhere while the GPU has nothing to do, and while it has.

use verdict::analysis::{Bucket, Confidence};

use super::program::Pose;
use super::{kept, run, time, verdict, Program};

#[test]
fn a_host_that_sleeps_between_steps_is_host() {
    let (_, a) = run(|p| {
        p.train_step(6, 20_000);
        p.t += 10_000_000;
    });
    verdict(&a, "HOST");
    assert!(a.verdict.text().contains("every step"), "{}", a.verdict.text());
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
    // 5 ms of work, synchronize, 20 ms of sleep: removing the synchronize hides the work behind the
    // sleep
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

/// A call that takes long is no absence: the driver stages a pageable copy on the calling thread
/// while the GPU is idle.
#[test]
fn time_in_a_copys_call_is_the_copys() {
    use trace::call::{pack, Class, RUNTIME};
    use trace::event::Copy;
    use trace::{Event, Kind};
    use verdict::analysis::Bucket;
    let (_, a) = run(|p| {
        p.train_step(6, 20_000);
        p.sync();
        p.think(3_000_000);
        // 36 ms of staging, then 4 ms of transfer
        let (begin, start) = (p.t, p.t + 36_000_000);
        let mut copy = Event::new(Kind::Memcpy, start, start + 4_000_000);
        let facts = Copy { bytes: 40_000_000, direction: 1, source: 1, destination: 3, peer: false };
        (copy.a, copy.b) = facts.pack();
        copy.correlation = 1_000_000_000 + (begin / 1_000) as u32 % 1_000_000_000;
        p.b.on_stream(0, 1, 7, copy);
        let mut call = Event::new(Kind::Call, begin, start + 4_010_000);
        (call.a, call.x, call.correlation) = (pack(RUNTIME, 41), Class::Copy as u8, copy.correlation);
        p.b.on_thread(p.tid, call);
        p.t = start + 4_010_000;
    });
    verdict(&a, "COPY");
    let b = &a.devices[0].buckets;
    assert!(b.share(Bucket::Host) < 0.15, "3 ms of 45 are the host's: {}", b.share(Bucket::Host));
    assert!(b.share(Bucket::CopyWait) > 0.7, "36 ms of 45 are staging: {}", b.share(Bucket::CopyWait));
}

/// Requests that arrive at random, and none is waiting: an idle server has nothing to be accused
/// of.
#[test]
fn a_host_that_may_be_waiting_for_requests_is_host_with_low_confidence_at_most() {
    let away = |ns: fn(&mut Program) -> u64| {
        let (_, a) = run(|p| {
            p.t += ns(p);
            for _ in 0..20 {
                p.launch("gemm_kernel", 264, 150_000);
            }
            p.sync();
        });
        verdict(&a, "HOST");
        a.verdict.confidence
    };
    // exponential, 8 ms on average: -ln(1 - u), u in thousandths
    let requests = |p: &mut Program| (-(1.0 - p.random(1_000) as f64 / 1_000.0).ln() * 8e6) as u64;
    assert_eq!(away(requests), Confidence::Low);
    // a program's own work, from 6 to 10 ms
    assert!(away(|p| 6_000_000 + p.random(4_000_000)) > Confidence::Low);
    // a checkpoint of 60 ms in every sixth step
    let checkpoint = |p: &mut Program| if p.launches % 120 == 0 { 60_000_000 } else { 200_000 };
    assert!(away(checkpoint) > Confidence::Low);
}

/// A host that computes 4 ms between its steps; beside it a thread that wakes up every millisecond,
/// launches a kernel of 2 us into a stream of its own and sleeps again.
#[test]
fn a_thread_that_does_something_small_beside_is_not_what_the_gpu_waits_for() {
    let (_, a) = run(|p| {
        let computes = p.b.stack(&[("crunch", "/job/busy.py", 7), ("<module>", "/job/train.py", 60)]);
        let sleeps = p.b.stack(&[("beat", "/job/monitor.py", 3), ("run", "/job/monitor.py", 9)]);
        for _ in 0..20 {
            p.launch("gemm_kernel", 264, 100_000);
        }
        let from = p.t;
        p.stand(4_000_000, Pose::computing(computes));
        let until = p.t;
        (p.tid, p.t) = (200, from + 300_000);
        while p.t + 1_000_000 < until {
            p.launch_on(9, "beat_kernel", 1, 2_000);
            p.stand(1_000_000, Pose::blocked(sleeps, 230));
        }
        (p.tid, p.t) = (100, until);
    });
    verdict(&a, "HOST");
    assert!(a.devices[0].buckets.share(Bucket::Host) > 0.5, "{:?}", a.devices[0].buckets);
    assert!(a.verdict.text().contains("busy.py:7"), "{}", a.verdict.text());
}

/// A thread that computes 4 ms and launches one small kernel, behind which another thread launches
/// the step's work into the same stream: it is part of the step.
#[test]
fn a_thread_that_begins_the_step_is_what_the_gpu_waits_for_however_little_it_launches() {
    let (_, a) = run(|p| {
        let computes = p.b.stack(&[("crunch", "/job/busy.py", 7), ("<module>", "/job/train.py", 60)]);
        p.tid = 200;
        p.stand(4_000_000, Pose::computing(computes));
        p.launch("first_kernel", 1, 2_000);
        p.tid = 100;
        for _ in 0..20 {
            p.launch("gemm_kernel", 264, 100_000);
        }
    });
    verdict(&a, "HOST");
    assert!(a.verdict.text().contains("busy.py:7"), "{}", a.verdict.text());
}

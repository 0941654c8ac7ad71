// SPDX-License-Identifier: Apache-2.0
//! GP105 HOST: the host is elsewhere while the GPU has nothing to do, and while it has.

use analyzer::analysis::Bucket;

use super::{kept, run, time, verdict, Program};

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

// SPDX-License-Identifier: Apache-2.0
//! GP108 ALLOC: allocating and freeing inside the loop.

use super::{kept, run, time, verdict, Program};

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

/// The wait had drained the queue, so the allocation waited for nothing: all it took is still its
/// own. Taking the wait out wins nothing, the first cudaFree waits instead.
#[test]
fn an_allocation_behind_a_wait_is_alloc() {
    let step = |p: &mut Program, frees: u64| {
        for _ in 0..12 {
            p.launch("gemm_kernel", 264, 100_000);
        }
        p.launch("adam_kernel", 264, 50_000);
        p.item();
        for _ in 0..frees {
            p.free(300_000);
        }
    };
    let (run_, a) = run(|p| step(p, 3));
    verdict(&a, "ALLOC");
    assert_eq!(run_.call(a.verdict.call).map(|(_, c)| c.name()), Some("cudaFree"));
    assert!(a.verdict.text().contains("3 times a step"), "{}", a.verdict.text());
    kept(&a, time(|p| step(p, 0)));
    assert!(a.findings.iter().all(|f| f.cause != "SYNC" || f.win.share() < 0.02), "{:?}", a.findings);
}

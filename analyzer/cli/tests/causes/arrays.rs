// SPDX-License-Identifier: Apache-2.0
//! SYNC without a call: a thread that reads an array (JAX) is blocked until a thread of the runtime
//! has copied it.

use verdict::{Analysis, Run};

use super::program::Pose;
use super::samples::{names_with, stack, LIBRARY};
use super::{run, time, Program};

/// `float(x)` in JAX: no call, only a thread that is blocked until the copy has ended.
fn reads_an_array(p: &mut Program, copies: bool, frame: (&str, &str, u32)) {
    p.train_step(6, 20_000);
    p.launch("loss_kernel", 264, 30_000_000);
    let from = p.t;
    let launched = p.t;
    let end = from + 31_000_000;
    if copies {
        let tid = std::mem::replace(&mut p.tid, 900); // a thread of the runtime copies
        p.copy(7, false, 4, false);
        p.tid = tid;
    }
    p.t = launched;
    let pose = Pose::blocked(stack(p, &[frame, ("step", "/job/gpt/train.py", 88)]), 202);
    p.stand(end - from, pose);
    p.t += 2_500_000; // the program's own work on the value
}

#[test]
fn an_array_that_is_read_without_a_call_is_sync() {
    let array = ("_value", "/venv/lib/python3.11/site-packages/jax/_src/array.py", 600);
    let found = run(|p| reads_an_array(p, true, array));
    let f = found.1.findings.iter().find(|f| f.code == "GP101").expect("SYNC");
    assert_eq!(f.site.as_ref().map(|s| s.line), Some(88), "{}", f.text());
    assert!(f.text().contains("reading an array (no CUDA call) drains the queue"), "{}", f.text());
    // what the program does with the value is its own: none of the wait is
    let other = |f: &&verdict::analysis::Finding| f.cause == "LOCK" || (f.cause == "HOST" && f.charged > 0.0);
    assert!(!found.1.findings.iter().any(|f| other(&f)), "{:?}", found.1.findings);
    // without a copy it waits for somebody else, and so it does in a lock of Python's
    let lock = |found: (Run, Analysis)| {
        assert!(found.1.findings.iter().all(|f| f.code != "GP101"), "{:?}", found.1.findings);
        assert!(found.1.findings.iter().any(|f| f.cause == "LOCK"), "{:?}", found.1.findings);
    };
    lock(run(|p| reads_an_array(p, false, array)));
    lock(run(|p| reads_an_array(p, true, ("Condition.wait", &format!("{LIBRARY}/threading.py"), 355))));
}

/// `float(loss)` behind a heavy step, in front of many calls of compiled functions, as JAX makes
/// them on an H200: 24 of 40 us, the copy made by a thread of a pool while the one that waits makes
/// no call. `reads`: blocked below JAX's array, else at work.
fn fetches_the_loss(p: &mut Program, fetches: bool, reads: bool) {
    for _ in 0..24 {
        p.think(35_000);
        p.launch("loop_fusion", 64, 6_000);
    }
    p.think(50_000);
    p.launch("gemm_fusion_dot", 264, 2_000_000);
    if !fetches {
        return;
    }
    let launched = p.t;
    let tid = std::mem::replace(&mut p.tid, 900);
    p.t = launched + 2_250_000; // the kernel has ended
    p.copy(26, false, 4, false);
    p.tid = tid;
    p.t = launched;
    let array = ("_value", "/venv/lib/python3.11/site-packages/jax/_src/array.py", 600);
    let pose = match reads {
        // what it did since the sample before is as much dispatching as waiting
        true => {
            Pose { on_cpu: 600, ..Pose::blocked(stack(p, &[array, ("step", "/job/gpt/train.py", 88)]), 202) }
        }
        false => Pose::computing(stack(p, &[("step", "/job/gpt/train.py", 90)])),
    };
    p.stand(2_450_000, pose);
}

#[test]
fn an_array_that_is_read_in_front_of_many_launches_is_sync_and_hides_them_all() {
    let four = |p: &mut Program, fetches, reads| (0..4).for_each(|_| fetches_the_loss(p, fetches, reads)); // samples enough
    let found = run(|p| four(p, true, true));
    names_with(&found, "SYNC", 88, time(|p| four(p, false, true)));
    assert_eq!(found.1.verdict.then.map_or("", |t| t.0), "", "{:?}", found.1.verdict.then);
    // somebody else's copy, beside a thread that works: no wait
    let works = run(|p| four(p, true, false)).1;
    assert!(works.findings.iter().all(|f| f.code != "GP101"), "{:?}", works.findings);
}

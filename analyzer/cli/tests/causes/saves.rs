// SPDX-License-Identifier: Apache-2.0
//! GP122 FILE-IO of checkpoints that copy from the GPU: the copy, the wait in front of it and the
//! writing are one cause; and programs close by that save nothing, or save beside the steps.

use verdict::analysis::Bucket;
use verdict::{Analysis, Run};

use super::program::{Pose, TICK};
use super::samples::{stack, PREPARE};
use super::{kept, run, time, verdict, Program};

/// Every tenth step saves: a copy to the host behind ten steps of work, then the writing. The copy,
/// the wait in front of it and the writing are one call of the program, and none of them is a cause
/// of its own.
fn saves(p: &mut Program, step: u32, inner: &[(&str, &str, u32)]) {
    p.train_step(6, 100_000);
    if step % 10 == 9 {
        p.site = stack(p, inner);
        let from = p.t;
        p.copy(7, false, 200_000_000, true); // 40 ms
        let (mut tick, pose) = (from.next_multiple_of(TICK), Pose::computing(p.site));
        while tick < p.t {
            p.sample(p.tid, tick, pose);
            tick += TICK;
        }
        p.stand(60_000_000, pose);
        p.site = 0;
    }
}

#[test]
fn a_checkpoint_with_its_copy_is_one_cause() {
    let call = [("_StorageBase.cpu", "@/storage.py", 264), ("save", "@/serialization.py", 1004), PREPARE];
    let mut step = 0;
    let mut steps = |inner: &[(&str, &str, u32)]| {
        run(|p| {
            step += 1;
            saves(p, step, inner);
        })
    };
    let found = steps(&call);
    names_saving(&found);
    let only = |cause: &str| found.1.findings.iter().filter(|f| f.cause == cause && f.share > 0.1).count();
    assert_eq!(
        (only("FILE-IO"), only("COPY"), only("SYNC"), only("HOST")),
        (1, 0, 0, 0),
        "{:?}",
        found.1.findings
    );
    // the same copies and the same work, and nothing is saved: no FILE-IO
    let (_, a) = steps(&[PREPARE]);
    assert!(a.findings.iter().all(|f| f.cause != "FILE-IO"), "{:?}", a.findings);
    assert!(a.findings.iter().any(|f| f.cause == "COPY" && f.share > 0.1), "{:?}", a.findings);
}

#[track_caller]
fn names_saving(found: &(Run, Analysis)) {
    let a = &found.1;
    verdict(a, "FILE-IO");
    assert_eq!(a.verdict.site.as_ref().map_or(0, |s| s.line), 41, "{}", a.verdict.text());
    assert!(
        a.verdict.text().contains("writes a checkpoint")
            && a.verdict.text().contains("in copies to the host")
    );
    kept(a, time(|p| p.train_step(6, 100_000)));
    let idle: u64 = Bucket::ALL.iter().map(|&b| a.devices[0].buckets.get(b)).sum();
    assert_eq!(idle, a.devices[0].wall_ns, "the buckets are as they were");
}

/// A thread that only saves, beside the one that launches, holds nobody up.
#[test]
fn a_checkpoint_written_beside_the_steps_is_no_cause() {
    let mut step = 0;
    let (_, a) = run(|p| {
        step += 1;
        p.train_step(6, 300_000);
        if step % 10 == 0 {
            let (now, tid) = (p.t, std::mem::replace(&mut p.tid, 700));
            p.site = stack(p, &[("_save", "@/serialization.py", 900), PREPARE]);
            p.copy(9, false, 50_000_000, true);
            let pose = Pose::computing(p.site);
            p.stand(40_000_000, pose);
            (p.t, p.tid, p.site) = (now, tid, 0);
        }
    });
    verdict(&a, "GPU-BOUND");
    assert!(a.findings.iter().all(|f| f.cause != "FILE-IO"), "{:?}", a.findings);
}

// SPDX-License-Identifier: Apache-2.0
//! Work between launches, each piece as short as dispatching: no graph takes it away, so it is HOST
//! and no LAUNCH, where samples show that it never launches.

use verdict::analysis::Bucket;

use super::program::Pose;
use super::{kept, run, time, verdict, Program};

const STEP: (&str, &str, u32) = ("step", "/job/env/train.py", 13);
/// The program's own pure Python, and where it launches.
const SIMULATES: (&str, &str, u32) = ("env_step", "/job/env/rules.py", 7);
const LAUNCHES: (&str, &str, u32) = ("launch", "/job/env/train.py", 21);
/// Between two samples here.
const TICK: u64 = 450_000;
const WORK: u64 = 90_000;

/// 40 launches, in front of each `work` ns below `inside`, every so often sampled there; and in the
/// calls, below `calls`.
fn loop_of(p: &mut Program, work: u64, inside: (&str, &str, u32), calls: (&str, &str, u32)) {
    let [inside, calls] = [inside, calls].map(|f| p.b.stack(&[f, STEP]));
    for _ in 0..40 {
        let from = p.t;
        p.think(work);
        let mut at = from.next_multiple_of(TICK);
        while at < p.t {
            p.sample(p.tid, at, Pose::computing(inside));
            at += TICK;
        }
        p.launch("tiny_kernel", 264, 5_000);
        // the call ends now
        p.sample(p.tid, p.t - 1_000, Pose::computing(calls));
    }
    p.sync();
}

#[test]
fn a_simulation_in_front_of_every_launch_is_host_at_its_line() {
    let (_, a) = run(|p| loop_of(p, WORK, SIMULATES, LAUNCHES));
    verdict(&a, "HOST");
    let site = a.verdict.site.as_ref().expect("a line");
    assert_eq!((&*site.function, site.line), ("env_step", 7), "{}", a.verdict.text());
    assert!(a.verdict.text().contains("computes on the CPU 40 times a step"), "{}", a.verdict.text());
    assert!(a.devices[0].buckets.share(Bucket::Launch) < 0.1, "{:?}", a.devices[0].buckets);
    kept(&a, time(|p| loop_of(p, 0, SIMULATES, LAUNCHES)));
}

/// The same, but the function is seen inside of its launches as well: what it takes between them is
/// dispatching.
#[test]
fn a_function_that_launches_itself_dispatches() {
    let (_, a) = run(|p| loop_of(p, WORK, LAUNCHES, LAUNCHES));
    verdict(&a, "LAUNCH");
    assert!(a.devices[0].buckets.share(Bucket::Host) < 0.1, "{:?}", a.devices[0].buckets);
}

/// Frames of a package between launches are its dispatching.
#[test]
fn a_package_between_launches_dispatches() {
    let module = ("Module._call_impl", "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1790);
    let (_, a) = run(|p| loop_of(p, WORK, module, LAUNCHES));
    verdict(&a, "LAUNCH");
}

/// A launch of a second thread that does not return (its queue is full) ends no stretch of the
/// first one's: what that works is HOST all the same.
#[test]
fn a_launch_of_another_thread_that_stands_hides_no_work() {
    let host = |stands: bool| {
        let mut p = Program::new();
        for n in 0..60 {
            if n == 5 {
                let (main, began) = (p.tid, p.t);
                p.tid = main + 1;
                p.launch_on(9, "behind_kernel", 264, 900_000); // (not too little for its thread to count)
                if stands {
                    p.shorten_last_call(main + 1, began + 400_000_000);
                }
                p.tid = main;
            }
            for _ in 0..20 {
                p.launch("tiny_kernel", 264, 5_000);
            }
            p.sync();
            p.think(10_000_000);
        }
        let (_, a) = p.analyze();
        verdict(&a, "HOST");
        a.devices[0].buckets.share(Bucket::Host)
    };
    let [stands, returns] = [true, false].map(host);
    assert!((stands - returns).abs() < 0.02 && returns > 0.9, "{stands}, {returns}");
}

/// A bit of a launch's end is another one than was written (a recording's events have no checksum):
/// it seems to stand over thousands of later calls of its own thread, which cannot be. It is cut
/// and told; the verdict is what it was.
#[test]
fn a_launch_whose_end_cannot_be_is_cut_and_counted() {
    let stalls = |is_damaged: bool| {
        let mut p = Program::new();
        for n in 0..60 {
            for k in 0..20 {
                p.launch("tiny_kernel", 264, 5_000);
                if is_damaged && (n, k) == (7, 3) {
                    p.shorten_last_call(p.tid, p.t + (1 << 33));
                }
            }
            p.sync();
            p.think(10_000_000);
        }
        let run = verdict::load(p.finish().as_slice()).expect("a recording");
        let a = verdict::analyze(&run);
        verdict(&a, "HOST");
        (run.problems.bad_events, a.devices[0].buckets.share(Bucket::Host))
    };
    let [damaged, whole] = [true, false].map(stalls);
    assert_eq!((damaged.0, whole.0), (1, 0));
    assert!((damaged.1 - whole.1).abs() < 0.02, "{damaged:?}, {whole:?}");
}

// SPDX-License-Identifier: Apache-2.0
//! How much of the recorded time the steps are: "GPU busy 98 %" is of them, and a reader must see
//! where they are little.

use trace::{Event, Kind};
use verdict::analysis::StepSource;
use verdict::output::line::evidence;
use verdict::output::summary::{summary, Around};
use verdict::{Analysis, Run};

use super::program::Program;

const MS: u64 = 1_000_000;

/// Busy steps, 600 ms in all, after `before` and followed by `after` in which the GPU does nothing.
fn run(before: u64, after: u64) -> (Run, Analysis) {
    let mut p = Program::new();
    let first = p.t;
    p.launch("init_kernel", 100, 5_000);
    p.t += before;
    let begin = p.t;
    while p.t < begin + 600 * MS {
        p.train_step(6, 180_000);
        p.sync();
    }
    let end = p.t;
    (p.b.header.start_monotonic, p.b.header.first_use) = (first, first);
    (p.b.header.gpu_complete_to, p.b.header.host_complete_to) = (end + after, end + after);
    let (run, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Period);
    (run, a)
}

#[test]
fn idle_time_around_the_steps_is_told() {
    for (before, after) in [(1_300 * MS, 100 * MS), (100 * MS, 1_300 * MS)] {
        let (run, a) = run(before, after);
        let line = evidence(&run, &a).join("; ");
        assert!(line.contains(" steps seen, steady steps are 30% of the recorded 2.0 s; cost"), "{line}");
        assert!(a.devices[0].busy_share() > 0.9, "the steps themselves are busy");
        let s = summary(&run, &a, &Around::default());
        let (ns, share) = (s["steps"]["steady_ns"].as_u64(), s["steps"]["steady_share"].as_f64());
        assert!(ns.is_some_and(|ns| ns.abs_diff(600 * MS) < 15 * MS), "{ns:?}");
        assert!(share.is_some_and(|s| (s - 0.3).abs() < 0.01), "{share:?}");
    }
}

#[test]
fn steps_that_are_most_of_the_recorded_time_are_not_remarked_upon() {
    let (run, a) = run(50 * MS, 50 * MS);
    let line = evidence(&run, &a).join("; ");
    assert!(!line.contains("of the recorded"), "{line}");
}

/// What was not observed is not recorded time.
#[test]
fn time_outside_the_capture_windows_does_not_count() {
    let mut p = Program::new();
    for i in 0..40 {
        p.train_step(6, 180_000);
        p.sync();
        if i % 10 == 9 && i < 39 {
            let mut e = Event::new(Kind::Unobserved, p.t, p.t + 500 * MS);
            e.a = 2;
            p.b.on_recorder(e);
            p.t += 500 * MS;
        }
    }
    let (run, a) = p.analyze();
    let line = evidence(&run, &a).join("; ");
    assert!(!line.contains("of the recorded"), "{line}");
    assert!(line.contains("(seen: "), "{line}");
}

#[test]
fn without_steps_there_is_no_share() {
    let mut p = Program::new();
    for _ in 0..500 {
        p.launch("stencil_kernel", 100, 20_000);
    }
    let (run, a) = p.analyze();
    let line = evidence(&run, &a).join("; ");
    assert!(!line.contains("of the recorded"), "{line}");
    assert!(summary(&run, &a, &Around::default())["steps"]["steady_share"].is_null());
}

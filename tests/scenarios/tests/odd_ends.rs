// SPDX-License-Identifier: Apache-2.0
//! Purpose: a process that ends in a way that leaves little room still ends as it would without us: in a signal handler
//! that interrupted malloc, when it may make no more threads, and in a child that no fork handler was run for, whose
//! recording is its parent's.

use std::time::Duration;

use gapprobe_scenarios::Victim;

#[test]
fn exit_in_a_signal_handler_that_interrupted_malloc() {
    for attempt in 0..6 {
        let mut running = Victim::ours("13.0", &["adverse", "handler"]).start();
        assert!(running.wait_for(|f| std::fs::read(f.join("stdout")).is_ok_and(|t| t.ends_with(b"ready\n"))));
        std::thread::sleep(Duration::from_millis(20 + 7 * attempt));
        running.signal(libc::SIGTERM);
        // where the report needs the very lock, it is given up after 2 s; nothing waits longer
        let run = running.finish();
        assert_eq!(run.ending(), 0, "attempt {attempt}: {}", run.stderr);
        assert!(run.lines().len() == 1 && run.others().is_empty(), "{}", run.stderr);
    }
}

#[test]
fn a_process_that_may_make_no_more_threads_still_reports() {
    let run = Victim::ours("13.0", &["adverse", "threads"]).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 800\n"), "{}", run.stderr);
    let lines = run.lines();
    assert!(lines.len() == 1 && lines[0].starts_with("gapprobe["), "a verdict: {lines:?}");
}

#[test]
fn children_without_fork_handlers_leave_the_parents_recording_alone() {
    // (the simulated driver's own exit handler, in the child, would cut its parent's truth off)
    let run = Victim::ours("13.0", &["adverse", "clone"]).env("SIM_TRUTH", "").run();
    let wanted = "child 7\nchild 7\nchild 7\nchild 7\nlaunched 800\n";
    assert_eq!((run.ending(), run.stdout.as_str()), (0, wanted), "{}", run.stderr);
    assert_eq!(run.lines().len(), 1, "the parent's line only: {}", run.stderr);
    assert_eq!(run.left().len(), 2, "the parent's trace and summary: {:?}", run.left());
    let recorded = run.recorded();
    assert_eq!(recorded.kernels().len(), 800, "{:?}", recorded.losses());
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: a process that ends in a way that leaves little room still ends as it would without us:
//! in a signal handler that interrupted malloc, when it may make no more threads or open no more
//! files, when its main thread is gone, and in a child that no fork handler was run for, whose
//! recording is its parent's.

use std::process::Command;
use std::time::Duration;

use gapprobe_scenarios::built::built;
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
    assert!(lines.len() == 1 && lines[0].contains(" [GP"), "a verdict: {lines:?}");
}

/// What it recorded is written by `recover`, which the line names.
#[test]
fn a_process_that_may_open_no_more_files_says_so_and_is_recovered() {
    let run = Victim::ours("13.0", &["adverse", "files"]).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 800\n"), "{}", run.stderr);
    let lines = run.lines();
    assert!(lines.len() == 1 && lines[0].contains(" [GP"), "a verdict: {lines:?}");
    assert!(lines[0].contains("Too many open files") && lines[0].contains("gapprobe recover "), "{lines:?}");
    assert_eq!(run.recorded().kernels().len(), 800, "{:?}", run.recorded().losses());
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

#[test]
fn a_process_whose_main_thread_has_ended_is_recorded_and_taken_for_alive() {
    let mut running = Victim::ours("13.0", &["adverse", "last"]).start();
    let stat = format!("/proc/{}/stat", running.pid());
    assert!(running.wait_for(|_| std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") Z "))));
    std::thread::sleep(Duration::from_millis(200));
    assert!(running.wait_for(|f| std::fs::read_dir(f.join("kept")).is_ok_and(|mut d| d.next().is_some())));
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    let listed = Command::new(&built().command)
        .args(["recover", "--list"])
        .arg(running.folder.join("tmp").join(format!("gapprobe-{uid}")))
        .output()
        .expect("gapprobe recover");
    let list = String::from_utf8_lossy(&listed.stdout).into_owned();
    let run = running.finish();
    assert!(list.starts_with("running "), "its other threads go on: {list:?} {listed:?}");
    assert_eq!(run.ending(), 6, "{}", run.stderr);
    assert!(run.lines().len() == 1 && run.others().is_empty(), "{}", run.stderr);
    let recorded = run.recorded();
    let named = recorded.kernels().iter().filter(|(_, k)| recorded.name(k) == "after_main").count();
    assert_eq!((recorded.kernels().len(), named), (1600, 1200), "{:?}", recorded.losses());
}

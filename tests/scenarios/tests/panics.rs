// SPDX-License-Identifier: Apache-2.0
//! Purpose: a panic inside the library, as it is shipped, never reaches the program, on whichever thread it happens. The
//! panics are real: the victim lets the clock or a sleep fail under the library, and Rust's own `Instant::now` and
//! `thread::sleep` panic. (Nothing that CUPTI hands out can do it: decoding has no panic to reach, `faults` and
//! `tests/fuzz` look for one. The drain thread calls nothing that panics; its guard is the one of the other two threads.)

use std::time::Duration;

use gapprobe_scenarios::{Run, Victim};
use trace::Loss;

/// Longest the exit may be held up, ms.
const EXIT_MS: u64 = 1000;
/// A run: 40 steps of 10 ms, each with up to 5 ms of waiting before its module is unloaded, the exit, a busy machine.
const MOST: Duration = Duration::from_millis(600 + EXIT_MS + 900);

/// Runs the victim; returns how many calls failed.
fn run(release: &str, words: [&str; 3]) -> (Run, u64) {
    let victim = Victim::ours(release, &[&["panics"][..], &words].concat());
    let run = victim.env("GAPPROBE_EXIT_MS", EXIT_MS.to_string()).run();
    let label = format!("{release} {words:?}: {}", run.stderr);
    assert_eq!(run.ending(), 0, "{label}");
    let (launched, failed) = run.stdout.split_once('\n').unwrap_or_default();
    assert_eq!(launched, "launched 400", "{label}");
    let failed = failed.trim().strip_prefix("failed ").and_then(|n| n.parse().ok());
    assert!(run.others().is_empty() && run.lines().len() <= 1, "{label}");
    (run, failed.unwrap_or_else(|| panic!("{label} and its last words are missing")))
}

#[test]
fn without_a_failure_there_is_a_report() {
    for words in [["now", "start", "none"], ["sleep", "middle", "none"]] {
        let (run, failed) = run("13.0", words);
        assert_eq!(failed, 0);
        assert!(run.summary().is_some() && run.lines().len() == 1, "{}", run.stderr);
        assert!(run.left_recordings().is_empty());
    }
}

#[test]
fn a_panic_ends_gapprobe_and_not_the_program() {
    let places = [
        ["now", "start", "main"],        // in the callback for the first context or buffer
        ["sleep", "middle", "main"],     // in the callback before a module is unloaded
        ["now", "end", "main"],          // in the exit handler
        ["sleep", "end", "main"],        // in the exit handler, while the last flush is under way
        ["now", "end", "gapprobe-exit"], // on the thread that makes the report
    ];
    for release in ["11.8", "13.0"] {
        for words in places {
            let (run, failed) = run(release, words);
            let label = format!("{release} {words:?}: {:?} {}", run.wall, run.stderr);
            assert!(failed > 0, "{label}: nothing failed");
            assert!(run.summary().is_none(), "{label}: gapprobe went on");
            assert!(run.left().is_empty(), "{label}: half a report: {:?}", run.left());
            assert!(run.wall < MOST, "{label}");
        }
    }
}

#[test]
fn a_panic_on_the_thread_that_flushes_is_counted_in_the_report() {
    let (run, failed) = run("13.0", ["sleep", "end", "gapprobe-flush"]);
    assert!(failed > 0 && run.wall < MOST, "{failed} {:?}", run.wall);
    let recorded = run.recorded();
    assert_eq!(recorded.loss(Loss::CaughtPanic), 1, "{:?}", recorded.losses());
    assert_eq!(run.summary().expect("a summary")["losses"]["caught_panic"].as_u64(), Some(1));
    assert!(run.stderr.contains("INCONCLUSIVE"), "no verdict after a fault of ours: {}", run.stderr);
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: a panic inside the library, as it is shipped, never reaches the program, on whichever
//! thread it happens. The panics are real: the victim lets the clock or a sleep fail under the
//! library, and Rust's own `Instant::now` and `thread::sleep` panic. (The drain thread calls
//! nothing that panics; its guard is the one of the other two threads.) And records that no CUPTI
//! writes raise none.

use std::process::Command;
use std::time::Duration;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{Run, Victim};
use trace::Loss;

/// Longest the exit may be held up, ms.
const EXIT_MS: u64 = 1000;
/// A run: 40 steps of 10 ms, each with up to 5 ms of waiting before its module is unloaded, the
/// exit, a busy machine.
const MOST: Duration = Duration::from_millis(600 + EXIT_MS + 900);

/// Runs the victim; returns how many calls failed.
fn run(release: &str, words: [&str; 3]) -> (Run, u64) {
    let victim = Victim::ours(release, &[&["panics"][..], &words].concat());
    let run = victim.env("GAPPROBE_EXIT_MS", EXIT_MS.to_string()).env("GAPPROBE_TEST_CLOCK", "1").run();
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
            if words[2] == "gapprobe-exit" {
                // the program does not wait for a thread that is gone, and is told where its
                // recording is
                let said =
                    run.stderr.contains("the report failed") && run.stderr.contains("gapprobe recover /");
                assert!(said, "{label}");
            }
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
    assert!(run.stderr.contains("[GP199]"), "no verdict after a fault of ours: {}", run.stderr);
}

/// Records of real hardware, a byte in every few hundred of their buffers changed.
#[test]
fn records_that_no_cupti_writes() {
    const HEADER: usize = 56; // `tests/sim/src/replay.rs`
    let file = root().join("tests/recordings/raw/cupti-13.0.raw.gz");
    let unzip = Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip");
    assert!(unzip.status.success() && unzip.stdout.len() > 100_000, "{}", file.display());
    let mut state = 1u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    for apart in [2000, 700, 200] {
        let mut bytes = unzip.stdout.clone();
        let mut chunk = HEADER;
        while let Some(head) = bytes.get(chunk..chunk + 8) {
            let word =
                |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
            let (kind, length) = (word(0), word(4));
            let from = chunk + 16;
            chunk = from + length;
            for _ in 0..if kind == 1 { length / apart } else { 0 } {
                if let Some(byte) = bytes.get_mut(from + below(length)) {
                    *byte = [0, 0x7f, 0x80, 0xff][below(4)];
                }
            }
        }
        let raw = built().scratch.join(format!("impossible-{apart}.raw"));
        std::fs::write(&raw, &bytes).expect("raw file");
        let run = Victim::sim("13.0", &["replay", "0"]).env("SIM_REPLAY", &raw).run();
        assert_eq!(run.ending(), 0, "{apart}: {}", run.stderr);
        assert!(run.others().is_empty() && run.lines().len() == 1, "{apart}: {}", run.stderr);
        let recorded = run.recorded();
        assert_eq!(recorded.loss(Loss::CaughtPanic), 0, "{apart}: {:?}", recorded.losses());
        assert_eq!(recorded.problems, Default::default(), "{apart}: what is recorded can be read");
        // the replay takes its clock from the records: an impossible time among them can move all
        // of them out of the run
        let left_out = recorded.loss(Loss::ForeignClock);
        assert!(!recorded.kernels().is_empty() || left_out > 100, "{apart}: it was replayed: {left_out}");
        assert!(!recorded.losses().is_empty(), "{apart}: and it was noticed");
    }
}

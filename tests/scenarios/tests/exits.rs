// SPDX-License-Identifier: Apache-2.0
//! Purpose: however a program ends, it ends as it would without us: same status, same output, not
//! later by more than 2 s, with work queued on the device too. And what it did is in the recording.

use std::time::Duration;

use gapprobe_scenarios::{Run, Victim};
use trace::header::state;
use trace::Loss;

/// Way of `ways_out`, and the status it ends with (1000 + signal).
const WAYS: [(&str, i32); 9] = [
    ("return", 0),
    ("exit3", 3),
    ("_exit4", 4),
    ("thread", 5),
    ("two", 5),
    ("abort", 1006),
    ("segv", 1011),
    ("sigterm", 1015),
    ("sigkill", 1009),
];

fn both(way: &str, queued_ms: &str) -> (Run, Run) {
    let victim = || Victim::sim("13.0", &["ways_out", way, "2000", queued_ms]);
    (victim().alone().run(), victim().run())
}

/// Every kernel that ended more than a second before `at` is in the recording, and nothing is
/// claimed beyond it.
fn is_complete_but_for_the_last_second(run: &Run, at: u64) {
    let (truth, recorded) = (run.truth(), run.recorded());
    assert_eq!(recorded.problems.damaged(), 0, "{:?}", recorded.problems);
    let have: std::collections::HashSet<u32> =
        recorded.kernels().iter().map(|(_, k)| k.correlation).collect();
    let missing = truth.kernels().filter(|k| k.end + 1_000_000_000 < at && !have.contains(&k.correlation));
    assert_eq!(missing.count(), 0, "{:?}", recorded.losses());
    let claimed = recorded.header.gpu_complete_to;
    let in_claim =
        truth.kernels().filter(|k| k.end < claimed && k.end < at && !have.contains(&k.correlation));
    assert_eq!(
        in_claim.count(),
        0,
        "complete to {claimed}, which is {} ns before the end",
        at as i64 - claimed as i64
    );
    assert!(claimed <= at, "nothing is known of the time after the end");
}

#[test]
fn every_way_out_is_the_programs_own() {
    for (way, status) in WAYS {
        let (alone, with) = both(way, "0");
        assert_eq!((alone.ending(), with.ending()), (status, status), "{way}: {}", with.stderr);
        assert_eq!(alone.stdout, with.stdout, "{way}");
        assert_eq!(with.others(), alone.others(), "{way}");
        assert!(with.wall < alone.wall + Duration::from_secs(2), "{way}: {:?} {:?}", alone.wall, with.wall);
        is_complete_but_for_the_last_second(&with, gapprobe_scenarios::now());
        if status < 1000 && status != 4 {
            assert_eq!(with.recorded().kernels().len(), 2000, "{way}");
            assert!(with.recorded().header.state >= state::CLOSED, "{way}");
            assert!(with.recorded().header.exit_monotonic > 0, "{way}");
        } else {
            assert_eq!(with.recorded().header.state, state::RECORDING, "{way}: nobody told us");
            assert_eq!(with.left_recordings().len(), 1, "{way}: it is there for `gapprobe recover`");
            assert!(with.lines().is_empty(), "{way}: {:?}", with.lines());
        }
    }
}

#[test]
fn with_work_queued_the_program_ends_in_time_and_what_did_not_run_is_not_drawn() {
    for (way, status) in WAYS {
        let (alone, with) = both(way, "900");
        assert_eq!((alone.ending(), with.ending()), (status, status), "{way}: {}", with.stderr);
        assert_eq!(alone.stdout, with.stdout, "{way}");
        assert!(with.wall < alone.wall + Duration::from_secs(2), "{way}: {:?} {:?}", alone.wall, with.wall);
        is_complete_but_for_the_last_second(&with, gapprobe_scenarios::now());
        let recorded = with.recorded();
        if recorded.header.state != state::RECORDING {
            // flushing gave up after about half a second: the rest of the 900 is unfinished
            assert!(recorded.loss(Loss::Unfinished) > 100, "{way}: {:?}", recorded.losses());
            let end = recorded.header.exit_monotonic;
            assert!(recorded.kernels().iter().all(|(_, k)| k.end <= end), "{way}: nothing of the future");
            assert!(recorded.header.gpu_complete_to <= end, "{way}");
        }
    }
}

#[test]
fn a_program_that_runs_for_seconds_is_complete_up_to_a_second_before_it_is_killed() {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT] {
        let mut running = Victim::sim("13.0", &["ways_out", "hang", "1000"]).start();
        std::thread::sleep(Duration::from_millis(2500));
        assert!(running.wait_for(|_| true));
        running.signal(signal);
        let at = gapprobe_scenarios::now();
        let run = running.finish();
        assert_eq!(run.ending(), 1000 + signal);
        is_complete_but_for_the_last_second(&run, at);
        assert!(run.recorded().kernels().len() > 1000);
    }
}

#[test]
fn python_ends_as_it_says() {
    for (way, status) in [("return", 0), ("exception", 1), ("exit3", 3), ("_exit4", 4), ("sigterm", 1015)] {
        let script = gapprobe_scenarios::built::root().join("tests/victims/train.py");
        let script = script.to_string_lossy();
        let victim = || Victim::of("python3", &[&script, "--steps", "20", "--leave", way], "13.0");
        let (alone, with) = (victim().alone().run(), victim().run());
        assert_eq!((alone.ending(), with.ending()), (status, status), "{way}: {}", with.stderr);
        assert_eq!(alone.stdout, with.stdout, "{way}: losses are the same");
        assert_eq!(alone.others(), with.others(), "{way}");
        assert!(with.wall < alone.wall + Duration::from_secs(2), "{way}");
    }
}

/// Freed memory is overwritten (`MALLOC_PERTURB_`), so a thread that comes back to a freed block of
/// handlers crashes.
#[test]
fn two_threads_that_exit_at_once_do_not_take_the_handlers_from_under_each_other() {
    let run = Victim::sim("13.0", &["ways_out", "two_slow", "2000"]).env("MALLOC_PERTURB_", "165").run();
    assert_eq!(run.ending(), 5, "{}", run.stderr);
    assert_eq!(run.lines().len(), 1, "{:?}", run.lines());
    assert!(run.wall < Duration::from_secs(5), "nobody waits for anybody's end: {:?}", run.wall);
}

/// From 2.41 on glibc lets one thread through `exit`, and any other wait for the end: a program
/// whose handler waits for another that exits hangs there without us, too.
fn several_threads_go_through_exit() -> bool {
    // SAFETY: takes nothing, cannot fail.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: a static C string.
    let version = unsafe { std::ffi::CStr::from_ptr(version) }.to_string_lossy();
    let several =
        version.strip_prefix("2.").and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor < 41);
    if !several {
        eprintln!("not shown here: glibc {version} lets one thread through exit");
    }
    several
}

/// The second comes while the report is made (its flush is slow here), and is let go once the
/// report is made: the first may be waiting for it, or be busy for long.
#[test]
fn a_second_exiting_thread_ends_the_process_where_the_first_waits_for_it_or_takes_long() {
    if !several_threads_go_through_exit() {
        return;
    }
    for way in ["joins", "uploads"] {
        let victim = || Victim::sim("13.0", &["ways_out", way, "2000"]).env("MALLOC_PERTURB_", "165");
        let (alone, with) = (victim().alone().run(), victim().env("SIM_FAULT", "flush=slow:200ms").run());
        assert_eq!((alone.ending(), with.ending()), (5, 5), "{way}: {}", with.stderr);
        assert_eq!(alone.stdout, with.stdout, "{way}");
        assert!(with.wall < alone.wall + Duration::from_secs(2), "{way}: {:?} {:?}", alone.wall, with.wall);
        assert_eq!(with.lines().len(), 1, "{way}: {:?}", with.lines());
        assert_eq!(with.recorded().kernels().len(), 2000, "{way}");
    }
}

#[test]
fn nine_threads_that_exit_at_once_wait_for_the_report() {
    let run = Victim::sim("13.0", &["ways_out", "nine", "20000"]).env("MALLOC_PERTURB_", "165").run();
    assert_eq!(run.ending(), 5, "{}", run.stderr);
    assert_eq!(run.lines().len(), 1, "{:?}", run.lines());
    assert_eq!(run.recorded().kernels().len(), 20000);
}

/// The flush hangs for some 660 ms here: the signal comes in the middle of it.
#[test]
fn a_signal_whose_handler_exits_while_the_report_is_made_does_not_cost_the_report() {
    let run = Victim::sim("13.0", &["ways_out", "interrupted", "2000"]).env("SIM_FAULT", "flush=hang").run();
    assert_eq!(run.ending(), 6, "{}", run.stderr);
    assert_eq!(run.lines().len(), 1, "{:?}", run.lines());
    assert!(run.summary().is_some(), "{:?}", run.left());
    assert!(run.wall < Duration::from_secs(4), "{:?}", run.wall);
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: a host runs far ahead of a busy GPU while recording goes off and on. What the GPU still
//! does unrecorded is never called idle, and steps have their true length.

use gapprobe_scenarios::recorded::Recorded;
use gapprobe_scenarios::{Run, Victim};

/// A step of the victim: 12 kernels of 100 us, one of 200, each 1 us behind the other.
const STEP_MS: f64 = 1.413;

fn steps(letter: &str) -> Victim {
    Victim::ours("13.0", &["steps", "1500", "6", "0", letter]).env("GAPPROBE_TEST_FREE_MS", "0")
}

/// Nearly nothing of what was seen was idle, no kernel is missing there, and the steps are as long
/// as they were.
fn is_true(run: &Run) -> Recorded {
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let recorded = run.recorded();
    let have: std::collections::HashSet<u32> =
        recorded.kernels().iter().map(|(_, k)| k.correlation).collect();
    let unseen = recorded.unobserved();
    let seen = |start: u64, end: u64| unseen.iter().all(|s| end <= s.start || start >= s.end);
    let missing =
        run.truth().kernels().filter(|k| seen(k.start, k.end) && !have.contains(&k.correlation)).count();
    assert_eq!(missing, 0, "kernels that ran where all was seen: {}", run.stderr);
    let summary = run.summary().expect("a summary");
    let buckets = summary["devices"][0]["buckets_ns"].as_object().expect("buckets");
    let all: u64 = buckets.values().filter_map(|b| b.as_u64()).sum();
    let busy = buckets["compute"].as_u64().expect("a number");
    assert!(all > 100_000_000, "{} ns seen: {}", all, run.stderr);
    assert!(busy as f64 > 0.985 * all as f64, "{busy} of {all} ns busy, in truth 99%: {}", run.stderr);
    let [mean, median] =
        ["mean_ns", "median_ns"].map(|k| summary["steps"][k].as_f64().expect("a number") / 1e6);
    for said in [mean, median] {
        assert!((said / STEP_MS - 1.0).abs() < 0.02, "{said} ms, in truth {STEP_MS}: {}", run.stderr);
    }
    recorded
}

#[test]
fn a_window_begins_with_what_was_launched_in_it() {
    // (copies that wait for nothing begin at once, beside kernels of before)
    for letter in ["a", "p"] {
        let run = steps(letter).env("GAPPROBE_WINDOW", "60/120").run();
        let recorded = is_true(&run);
        assert!(recorded.total(trace::Total::Windows) >= 2, "{}", run.stderr);
    }
}

#[test]
fn what_the_program_has_recorded_begins_with_what_runs_already() {
    is_true(&steps("c").run());
}

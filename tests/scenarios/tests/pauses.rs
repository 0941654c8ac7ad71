// SPDX-License-Identifier: Apache-2.0
//! Purpose: what comes every so often is found although recording was off by then: the sampler
//! looks while a step does not come, and line, summary and trace say how often, how long, and which
//! line; where nothing stands still nothing is said.

use std::time::Duration;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{Run, Victim};
use serde_json::Value;
use trace::Total;

use super::sampled::pythons;

/// A loop of this many seconds that stands still every so often, for so long; each launch costs
/// enough that it is not recorded on.
fn run(words: [&str; 3], free_ms: Option<&str>) -> Run {
    let python = pythons().pop().expect("a Python");
    let library = built().victims.join("13.0/libsteps.so");
    let script = root().join("tests/scenarios/victims/pauses.py");
    let [seconds, every, lasts] = words;
    let words = [&*script.to_string_lossy(), &*library.to_string_lossy(), seconds, every, lasts];
    let victim = Victim::of(python, &words, "13.0").env("SIM_CUPTI_NS", "20000");
    let victim = victim.limit(Duration::from_secs(300));
    free_ms.into_iter().fold(victim, |v, ms| v.env("GAPPROBE_TEST_FREE_MS", ms)).run()
}

/// What the summary says of pauses.
fn pauses(run: &Run) -> Value {
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let recorded = run.recorded();
    assert!(recorded.total(Total::LaunchesBetween) > 0, "recorded whole: {}", run.stderr);
    run.summary().expect("a summary")["pauses"].clone()
}

/// About so many seconds.
#[track_caller]
fn about(ns: &Value, seconds: f64) {
    let said = ns.as_f64().unwrap_or(f64::NAN) / 1e9;
    assert!((said - seconds).abs() < 0.2 * seconds, "{said} s, expected about {seconds}");
}

fn is_told(run: &Run, (least, every, lasts): (u64, f64, f64)) {
    let said = pauses(run);
    assert!(said["count"].as_u64().is_some_and(|n| n >= least), "{said}, {}", run.stderr);
    about(&said["usual_ns"], lasts);
    about(&said["every_ns"], every);
    let text = std::fs::read_to_string(root().join("tests/scenarios/victims/pauses.py")).expect("source");
    let marked = text.lines().position(|l| l.ends_with("# PAUSE")).expect("the mark") as u64 + 1;
    let site = &said["site"];
    assert!(site["file"].as_str().is_some_and(|f| f.ends_with("pauses.py")), "{said}");
    assert!(site["line"].as_u64().is_some_and(|line| line.abs_diff(marked) <= 1), "{said}");
    let said = run.evidence();
    assert!(said.contains("; between windows ") && said.contains(" pauses of "), "{said}");
}

#[test]
fn a_pause_that_comes_again_is_told_with_its_line_although_nothing_was_recorded() {
    is_told(&run(["16", "1.6", "0.6"], Some("100")), (4, 1.6, 0.6));
}

#[test]
fn where_nothing_stands_still_nothing_is_said() {
    assert_eq!(pauses(&run(["10", "100", "0"], Some("100"))), Value::Null);
}

#[test]
#[ignore = "scripts/test thorough: three minutes"]
fn what_comes_every_thirty_seconds_is_found_in_three_minutes() {
    is_told(&run(["180", "30", "2"], None), (4, 30.0, 2.0));
}

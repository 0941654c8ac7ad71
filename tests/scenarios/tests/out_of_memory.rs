// SPDX-License-Identifier: Apache-2.0
//! Purpose: a program that ends because the device has no more memory ends as it would without us:
//! same status, same output. Its verdict comes nevertheless, and says which allocation failed and
//! whose it was. One that catches the error and goes on has not ended by it. (What ends by a
//! signal, as an exception of C++ that nobody catches does, takes the last call along: the rings
//! were not emptied any more.)

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::{releases, Run, Victim};

/// The finding, where there is one.
fn finding(run: &Run) -> Option<serde_json::Value> {
    let summary = run.summary().expect("a summary");
    summary["findings"].as_array().expect("findings").iter().find(|f| f["code"] == "GP130").cloned()
}

/// The line and the summary say that `call` failed, at the line `site` of the program.
fn says_so(run: &Run, call: &str, site: &str) {
    let lines = run.lines();
    let said = format!("ended out of memory: {call} failed");
    assert!(lines.len() == 1 && lines[0].contains(", ended out of memory"), "{}", run.stderr);
    assert!(run.evidence().contains(&said) && run.evidence().contains(site), "{}", run.evidence());
    let finding = finding(run).expect("GP130");
    assert_eq!((&finding["call"], &finding["count"]), (&call.into(), &1.into()), "{finding}");
    // what the steps waited for is still the verdict
    let summary = run.summary().expect("a summary");
    assert_ne!(summary["verdict"]["code"], "GP199", "{}", lines[0]);
    assert_ne!(summary["verdict"]["code"], "GP130", "{}", lines[0]);
    assert!(summary["verdict"]["text"].as_str().is_some_and(|t| t.contains(&said)), "{summary}");
}

#[test]
fn who_runs_out_of_memory_ends_as_without_us_and_the_line_says_it() {
    for release in releases() {
        for way in ["exit", "retry"] {
            let victim = || Victim::ours(release, &["runs_out", way]);
            let (alone, with) = (victim().alone().run(), victim().run());
            assert_eq!((alone.ending(), with.ending()), (1, 1), "{release} {way}: {}", with.stderr);
            assert_eq!((&with.stdout, with.others()), (&alone.stdout, alone.others()), "{release} {way}");
            assert_eq!(with.others(), ["runs_out: out of memory (2)"]);
            says_so(&with, "cudaMalloc", "keep_activations");
            assert_eq!(with.recorded().kernels().len() as u64, with.launched(), "{release} {way}");
        }
    }
}

#[test]
fn the_line_of_an_exception_that_nobody_catches_is_named() {
    let script = root().join("tests/scenarios/victims/runs_out.py");
    let text = std::fs::read_to_string(&script).expect("the victim");
    let number = 1 + text.lines().position(|l| l.ends_with("# allocates")).expect("a line that allocates");
    let script = script.to_string_lossy();
    let victim = || Victim::of("python3", &[&script], "13.0");
    let (alone, with) = (victim().alone().run(), victim().run());
    assert_eq!((alone.ending(), with.ending()), (1, 1), "{}", with.stderr);
    assert_eq!((&with.stdout, with.others()), (&alone.stdout, alone.others()));
    assert!(with.others().iter().any(|l| l.contains("OutOfMemoryError: tried")), "{}", with.stderr);
    says_so(&with, "cudaMalloc", &format!("runs_out.py:{number} in allocate"));
}

#[test]
fn who_catches_it_and_goes_on_is_not_said_to_have_ended_by_it() {
    let victim = || Victim::ours("13.0", &["runs_out", "goes_on"]);
    let (alone, with) = (victim().alone().run(), victim().run());
    assert_eq!((alone.ending(), with.ending()), (0, 0), "{}", with.stderr);
    assert_eq!((&with.stdout, with.others()), (&alone.stdout, alone.others()));
    assert!(with.lines().len() == 1 && !with.stderr.contains("out of memory"), "{}", with.stderr);
    assert!(finding(&with).is_none(), "{:?}", finding(&with));
}

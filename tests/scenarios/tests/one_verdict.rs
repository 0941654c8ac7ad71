// SPDX-License-Identifier: Apache-2.0
//! Purpose: one run has one verdict, wherever it is asked for: at the program's exit, by `recover`
//! and by `analyze` of its recording, by `analyze` of its trace and of what `export` makes of the
//! recording. Code, advice, promise and what was found out of the ordinary are the same; a site may
//! only gain file and line (the command reads what the process has no time for).

use std::path::Path;
use std::process::Command;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Run, Victim};
use serde_json::Value;

use crate::sampled;

/// What `gapprobe` prints with these words.
fn said(words: &[&str]) -> Value {
    let output = Command::new(&built().command).args(words).output().expect("gapprobe");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What must not differ, and the codes of all findings.
fn kept(summary: &Value) -> Value {
    let v = &summary["verdict"];
    let microseconds = |key: &str| v[key].as_f64().map(|ns| (ns / 1e3).round());
    let codes: Vec<&Value> =
        summary["findings"].as_array().expect("findings").iter().map(|f| &f["code"]).collect();
    serde_json::json!({
        "code": v["code"], "cause": v["cause"], "fix": v["fix"], "confidence": v["confidence"],
        "step_us": microseconds("step_ns"), "predicted_us": microseconds("predicted_ns"), "codes": codes,
    })
}

/// The site of one place against that at the exit.
fn only_gains(exit: &Value, other: &Value, label: &str) {
    for key in ["file", "line", "function"] {
        let (before, after) = (&exit[key], &other[key]);
        // (of native code the process knows the library and the function's offset)
        let may_gain = before.is_null() || exit["line"].is_null();
        assert!(before == after || may_gain, "{label}: {exit} and then {other}");
    }
}

fn is_said_everywhere(run: &Run, label: &str) {
    let exit = run.summary().expect("a summary");
    let recording = run.recordings()[0].to_string_lossy().into_owned();
    let trace = run.folder.join("out").join(exit["trace"].as_str().expect("a trace"));
    let again = run.folder.join("again");
    std::fs::create_dir_all(&again).expect("a folder");
    let path = |p: &Path| p.to_string_lossy().into_owned();
    let exported = path(&again.join("exported.json.gz"));
    let export = Command::new(&built().command).args(["export", &recording, "-o", &exported]).output();
    assert!(export.expect("gapprobe").status.success(), "{label}");
    let others = [
        ("recover", said(&["recover", &recording, "--keep", "--json", "--dir", &path(&again)])),
        ("the recording", said(&["analyze", "--json", &recording])),
        ("the trace", said(&["analyze", "--json", &path(&trace)])),
        ("the export", said(&["analyze", "--json", &exported])),
    ];
    for (which, other) in &others {
        assert_eq!(kept(other), kept(&exit), "{label}: {which}");
        only_gains(&exit["verdict"]["site"], &other["verdict"]["site"], &format!("{label}: {which}"));
    }
}

#[test]
fn a_run_has_one_verdict_wherever_it_is_asked_for() {
    for (label, victim) in [
        ("a loop", Victim::sim("13.0", &["loop", "100", "20", "10", "200"])),
        ("callers without Python", Victim::ours("13.0", &["callers", "waits", "200"])),
        ("an allocation that fails", Victim::ours("13.0", &["runs_out", "exit"])),
    ] {
        let run = victim.run();
        assert!(run.summary().is_some(), "{label}: {}", run.stderr);
        is_said_everywhere(&run, label);
    }
    let python = sampled::pythons().pop().expect("a python");
    is_said_everywhere(&sampled::victim(&python, "compute", "1.5").run(), "Python");
}

// SPDX-License-Identifier: Apache-2.0
//! `recover`: one recording, and which one.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use trace::build::Builder;
use trace::Event;

use crate::place::{code, err, out, recording, Place};

#[test]
fn recover_makes_trace_and_line_and_removes_the_recording() {
    let place = Place::new("recover");
    let file = place.private().join("gapprobe-testhost-1-1-1.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let line = out(&output);
    assert!(line.contains(" [GP101]") && line.ends_with('\n') && line.lines().count() == 1, "{line}");
    assert!(!file.exists());
    let results = place.results();
    assert_eq!(results.len(), 2, "{results:?}");
    let (trace, summary) = (&results[0], &results[1]);
    assert!(line.contains(trace), "{line}");
    assert!(
        trace.starts_with("gapprobe-testhost-2147483647-20261118-110640-") && trace.ends_with(".json.gz")
    );
    assert_eq!(summary, &trace.replace(".json.gz", ".summary.json"));
    for name in &results {
        assert_eq!(fs::metadata(place.out().join(name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let s: serde_json::Value = serde_json::from_slice(&fs::read(place.out().join(summary)).unwrap()).unwrap();
    assert_eq!(s["line"].as_str(), Some(line.trim_end()));
    assert_eq!(s["verdict"]["code"], "GP101");
    assert_eq!(s["trace"].as_str(), Some(trace.as_str()));
    assert_eq!(s["steps"]["source"], "marks");
    assert_eq!(s["steps"]["median_ns"], 1_000_000);
    assert_eq!(s["versions"]["cupti"], 130_001);
    assert_eq!(s["rank"], serde_json::Value::Null);
    let d = &s["devices"][0];
    assert_eq!(
        d["busy_ns"].as_u64().unwrap() + d["idle_ns"].as_u64().unwrap(),
        d["span_ns"].as_u64().unwrap()
    );
    let buckets: u64 = d["buckets_ns"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(Some(buckets), d["steady_wall_ns"].as_u64());
    let mut json = String::new();
    let gz = fs::File::open(place.out().join(trace)).unwrap();
    flate2::read::GzDecoder::new(gz).read_to_string(&mut json).unwrap();
    let t: serde_json::Value = serde_json::from_str(&json).unwrap();
    let kernels = t["traceEvents"].as_array().unwrap().iter().filter(|e| e["cat"] == "kernel").count();
    assert_eq!(kernels, 3000);
    assert_eq!(code(&place.run(&["recover"])), 3, "a second time there is nothing");
}

#[test]
fn recover_keeps_lists_and_chooses() {
    let place = Place::new("choose");
    let names = ["a.gpr", "b.gpr", "running.gpr", "reported.gpr"];
    for name in names {
        let bytes = recording(|b| match name {
            "running.gpr" => b.header.pid = std::process::id(),
            "reported.gpr" => b.header.state = trace::header::state::REPORTED,
            _ => b.header.command = format!("python {name}"),
        });
        fs::write(place.private().join(name), bytes).unwrap();
        std::thread::sleep(Duration::from_millis(20)); // distinct times of change
    }
    fs::write(place.private().join("junk.gpr"), "junk").unwrap();
    fs::write(place.private().join("notes.txt"), "not ours").unwrap();
    let list = out(&place.run(&["recover", "--list"]));
    let lives: Vec<(&str, bool)> =
        list.lines().map(|l| (l.split_whitespace().next().unwrap(), l.contains("a.gpr"))).collect();
    assert_eq!(lives, [("reported", false), ("running", false), ("ended", false), ("ended", true)], "{list}");
    let output = place.run(&["recover", "--keep", "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let summary: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(summary["command"], "python b.gpr", "the newest of an ended process");
    assert!(err(&output).contains("also there: ") && err(&output).contains("a.gpr"), "{}", err(&output));
    assert_eq!(fs::read_dir(place.private()).unwrap().count(), 6, "--keep");
    assert_eq!(out(&place.run(&["recover", "--all"])).lines().count(), 2);
    assert!(!place.private().join("a.gpr").exists() && place.private().join("running.gpr").exists());
}

/// What is noted of a recording that stays, because its trace holds less, leaves in it that its
/// process was killed.
#[test]
fn a_recording_that_was_reported_still_says_that_its_process_was_killed() {
    use trace::header::state::{RECORDING, REPORTED, REPORTED_UNFINISHED};
    let place = Place::new("reported");
    let file = place.private().join("run.gpr");
    for (state, is_killed) in [(RECORDING, true), (REPORTED, false), (REPORTED_UNFINISHED, true)] {
        fs::write(&file, recording(|b| b.header.state = state)).unwrap();
        let list = out(&place.run(&["recover", "--list"]));
        assert_eq!(list.starts_with("reported"), state != RECORDING, "{list}");
        let output = place.run(&["analyze", "--line", file.to_str().unwrap()]);
        let says = out(&output).contains("ended without exit handlers");
        assert_eq!(says, is_killed, "{state}: {}{}", out(&output), err(&output));
    }
}

#[test]
fn strict_ends_with_5_where_nothing_can_be_said() {
    let place = Place::new("strict");
    let file = place.0.join("nothing.gpr");
    let mut b = Builder::new();
    b.header.pid = i32::MAX as u32;
    b.on_recorder(Event::clock_pair(1, 2));
    fs::write(&file, b.finish()).unwrap();
    let path = file.to_str().unwrap();
    let output = place.run(&["recover", "--keep", path]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).contains("no verdict"), "{}", out(&output));
    assert_eq!(code(&place.run(&["recover", "--keep", "--strict", path])), 5);
}

/// stdout is data: what asks for JSON gets JSON, an empty list too.
#[test]
fn the_list_is_json_where_that_is_asked_for() {
    let place = Place::new("list-json");
    let list = |args: &[&str], status: i32| -> serde_json::Value {
        let output = place.run(&[&["recover", "--list", "--json"], args].concat());
        assert_eq!(code(&output), status, "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap_or_else(|e| panic!("{e}: {}", out(&output)))
    };
    assert_eq!(list(&[], 3), serde_json::json!({"recordings_version": 1, "recordings": []}));
    let bytes = recording(|b| b.header.rank = 5);
    for name in ["a.gpr", "b.gpr"] {
        fs::write(place.private().join(name), &bytes).unwrap();
    }
    let all = &list(&[], 0)["recordings"];
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
    let file = place.private().join("a.gpr");
    let one = list(&[file.to_str().unwrap()], 0);
    let entry = &one["recordings"][0];
    assert_eq!(entry["file"], file.to_str().unwrap());
    assert_eq!((&entry["state"], &entry["host"]), (&"ended".into(), &"testhost".into()));
    assert_eq!((&entry["pid"], &entry["rank"]), (&i32::MAX.into(), &4.into()));
    assert_eq!(entry["bytes"], bytes.len());
    assert!(entry["start_unix_ns"].as_u64().is_some_and(|ns| ns > 0), "{entry}");
    assert!(all.as_array().unwrap().contains(entry));
}

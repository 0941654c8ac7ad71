// SPDX-License-Identifier: Apache-2.0
//! `gapprobe analyze`: the screen, the object, the line, of traces of every kind.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::place::{code, err, out, recording, same_as_file, Place};

fn trace(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).display().to_string()
}

#[test]
fn the_screen_of_real_traces_is_as_in_the_files_beside() {
    let place = Place::new("analyze");
    for (name, file) in [
        ("analyze-gpt", "traces/h200_gpt.json.gz"),
        ("analyze-graphs", "traces/h200_graphs.json.gz"),
        ("analyze-gpu-bound", "recordings/own_gpt_bound.gprec.gz"),
    ] {
        let path = trace(file);
        let output = place.run(&["analyze", &path]);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{name}");
        let text = out(&output).replace(&path, file);
        // commands to copy stay whole
        let fits = |l: &str| l.starts_with("Next: ") || l.chars().count() <= 100;
        assert!(text.lines().all(fits), "{text}");
        assert!(text.lines().count() <= 48, "one screen: {text}");
        same_as_file(name, &text);
    }
}

#[test]
fn the_object_holds_what_programs_ask_for() {
    let place = Place::new("analyze-json");
    let output = place.run(&["analyze", "--json", &trace("traces/h200_gpt.json.gz")]);
    let all: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(
        (all["verdict"]["code"].as_str(), all["verdict"]["cause"].as_str()),
        (Some("GP102"), Some("LAUNCH"))
    );
    for key in ["text", "confidence", "without_profiler"] {
        assert!(!all["verdict"][key].is_null(), "{key}");
    }
    let device = &all["devices"][0];
    // ../shared/H200.md: 98.184 of 179.030 ms idle
    assert_eq!((device["id"].as_u64(), device["idle_ns"].as_u64()), (Some(0), Some(98_183_979)));
    assert_eq!(device["span_ns"].as_u64(), Some(179_030_092));
    assert_eq!(device["busy_ns"].as_u64().unwrap() + 98_183_979, 179_030_092);
    assert!(device["gaps"].as_u64().unwrap() > 1000 && device["max_gap_ns"].as_u64().unwrap() > 100_000);
    assert_eq!(all["steps"]["count"], 4);
    assert!(all["steps"]["median_ns"].as_u64() <= all["steps"]["p95_ns"].as_u64());
    let buckets: u64 = all["buckets_ns"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(Some(buckets), device["steady_wall_ns"].as_u64(), "buckets sum to the steady time");
    assert!(all["losses"].is_object());
    assert_eq!(
        (all["input"]["format"].as_str(), all["input"]["events"].as_u64()),
        (Some("torch.profiler trace"), Some(38_138))
    );
}

#[test]
fn several_files_and_one_that_cannot_be_read() {
    let place = Place::new("analyze-several");
    fs::write(place.out().join("bad.json"), "{").unwrap();
    fs::write(place.out().join("run.gpr"), recording(|_| {})).unwrap();
    let good = trace("traces/h200_graphs.json.gz");
    let output = place.run(&["analyze", "--line", "bad.json", &good, "run.gpr"]);
    assert_eq!(code(&output), 4);
    assert_eq!(out(&output).lines().count(), 2, "{}", out(&output));
    assert!(out(&output).lines().all(|l| l.starts_with("gapprobe[GP1")), "{}", out(&output));
    assert!(err(&output).contains("bad.json: ") && err(&output).contains("hint: "), "{}", err(&output));
}

#[test]
fn strict_ends_with_5_where_there_is_no_verdict() {
    let place = Place::new("analyze-strict");
    let whole = fs::read(trace("traces/h200_graphs.json.gz")).unwrap();
    fs::write(place.out().join("cut.json.gz"), &whole[..whole.len() / 2]).unwrap();
    let output = place.run(&["analyze", "--strict", "cut.json.gz"]);
    assert_eq!(code(&output), 5);
    assert!(out(&output).contains("INCONCLUSIVE: the file ends in the middle"), "{}", out(&output));
    assert_eq!(code(&place.run(&["analyze", "cut.json.gz"])), 0);
}

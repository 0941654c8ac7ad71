// SPDX-License-Identifier: Apache-2.0
//! A little that was lost leaves the verdict: `analyze`, `report`, `check` and `diff` all say it
//! beside.

use std::fs;
use std::io::Read;

use serde_json::{json, Value};

use crate::place::{code, err, out, Place};
use crate::training::{put, Shape};

/// A trace of torch.profiler in which the calls of every 30th kernel are missing; how many.
fn without_calls(place: &Place, name: &str) -> usize {
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/h200_gptsync.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(packed).unwrap()).read_to_string(&mut text).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    let events = all["traceEvents"].as_array_mut().unwrap();
    let kernels = events.iter().filter(|e| e["cat"] == "kernel");
    let lost: Vec<u64> =
        kernels.filter_map(|e| e["args"]["correlation"].as_u64()).skip(10).step_by(30).collect();
    events.retain(|e| {
        let is_call = e["cat"] == "cuda_runtime" || e["cat"] == "cuda_driver";
        !is_call || !e["args"]["correlation"].as_u64().is_some_and(|id| lost.contains(&id))
    });
    fs::write(place.out().join(name), json!({ "traceEvents": events }).to_string()).unwrap();
    lost.len()
}

#[test]
fn every_verb_says_what_little_was_lost() {
    let place = Place::new("lossy");
    let lost = without_calls(&place, "some.json");
    let said = format!("losses {lost} (launching calls missing)");
    let run = |args: &[&str], exit| {
        let output = place.run(args);
        assert_eq!(code(&output), exit, "{args:?}: {}", out(&output));
        out(&output)
    };
    for args in [&["analyze", "some.json"][..], &["check", "some.json"]] {
        let text = run(args, 0);
        assert!(text.contains(&said) && text.contains("LAUNCH"), "{args:?}: {text}");
    }
    assert!(run(&["analyze", "--line", "some.json"], 0).contains(&format!(", {lost} records lost")));
    assert!(run(&["diff", "some.json", "some.json"], 0).contains(&format!("A lost something: {said}")));
    let page = run(&["report", "some.json", "-o", "-"], 0);
    assert!(page.contains(&format!("{lost} calls that launched {lost} operations are not in the trace.")));
    let all: Value = serde_json::from_str(&run(&["analyze", "--json", "some.json"], 0)).unwrap();
    assert_eq!((&all["losses"]["calls_missing"], &all["coverage"]["data_losses"]), (&json!(lost), &json!(0)));
}

#[test]
fn a_recording_of_ours_too_and_nothing_where_nothing_was_lost() {
    let place = Place::new("lossy-own");
    for (lost, name) in [(1, "lossy"), (0, "whole")] {
        put(&place, name, Shape { lost, steps: 300, ..Shape::default() });
    }
    let says = |args: &[&str]| out(&place.run(args));
    let check = says(&["check", "lossy"]);
    assert!(check.starts_with("ok ") && check.contains("; losses 1 ("), "{check}");
    assert!(!says(&["check", "whole"]).contains("losses"));
    let diff = says(&["diff", "whole", "lossy"]);
    assert!(diff.contains("!  B lost something: losses 1 (") && !diff.contains("A lost"), "{diff}");
}

/// Tables and exports are data: what was lost stands on stderr, one line, in the words of
/// `analyze`.
#[test]
fn tables_and_exports_too() {
    let place = Place::new("lossy-tables");
    let lost = without_calls(&place, "some.json");
    put(&place, "lossy", Shape { lost: 7, steps: 300, ..Shape::default() });
    put(&place, "whole", Shape { steps: 300, ..Shape::default() });
    for (file, said) in [
        ("some.json", format!("gapprobe: some.json: losses {lost} (launching calls missing)")),
        ("lossy", "gapprobe: lossy: losses 7 (cupti_dropped)".to_owned()),
    ] {
        for args in [
            &["stats", file][..],
            &["steps", file],
            &["gaps", file],
            &["steps", file, "-f", "csv"],
            &["export", file, "--to", "csv", "-o", "-"],
            &["export", file, "--force", "-o", "x.parquet"],
        ] {
            let output = place.run(args);
            assert_eq!(code(&output), 0, "{args:?}: {}", err(&output));
            assert_eq!(err(&output).lines().filter(|l| *l == said).count(), 1, "{args:?}: {}", err(&output));
            assert!(!out(&output).contains("losses"), "{args:?}: data is data");
        }
    }
    for args in [["stats", "whole"], ["steps", "whole"], ["gaps", "whole"], ["export", "whole"]] {
        assert!(!err(&place.run(&args)).contains("losses"), "{args:?}");
    }
    let both = place.run(&["stats", "lossy", "-r", "steps", "-r", "gaps", "-f", "json"]);
    let both: Value = serde_json::from_str(&out(&both)).unwrap();
    assert_eq!((&both["losses"]["cupti_dropped"], both["steps"].is_array()), (&json!(7), true));
}

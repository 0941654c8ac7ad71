// SPDX-License-Identifier: Apache-2.0
//! A run on gapprobe's simulated driver is taken for a real one nowhere: each verb that shows its
//! figures says SIMULATED, in what it prints or beside it. One of a real GPU never does.

use std::fs;

use serde_json::Value;

use crate::place::{code, err, out, recording, Place};
use crate::training::{put, Shape};

/// As the driver of tests/sim names it.
const GPU: &str = "Simulated GPU (gapprobe tests)";

#[test]
fn every_verb_says_that_a_run_is_simulated() {
    let place = Place::new("simulated");
    put(&place, "sim", Shape { gpu: GPU, ..Shape::default() });
    put(&place, "real", Shape::default());
    let said = |words: &[&str]| {
        let output = place.run(words);
        assert!(matches!(code(&output), 0 | 5 | 8), "{words:?}: {}", err(&output));
        (out(&output), err(&output))
    };
    for words in [&["analyze"][..], &["check"], &["stats"], &["steps"], &["gaps"], &["diff", "real"]] {
        let (_, beside) = said(&[words, &["sim"]].concat());
        let remark = "gapprobe: sim: SIMULATED: recorded on gapprobe's simulated driver, not on a GPU\n";
        assert_eq!(beside.matches(remark).count(), 1, "{words:?}: {beside}");
        let (text, beside) = said(&[words, &["real"]].concat());
        assert!(!(text + &beside).contains("SIMULATED"), "{words:?}");
    }
    // and where the sentence stands alone, in a file that goes elsewhere
    for words in [&["analyze", "--line"][..], &["analyze", "--json"], &["check", "--json"]] {
        assert!(said(&[words, &["sim"]].concat()).0.contains("], SIMULATED"), "{words:?}");
    }
    for format in ["github", "sarif", "markdown"] {
        let (text, _) = said(&["check", "sim", "--format", format, "--max-idle", "10%"]);
        assert!(text.contains(", SIMULATED"), "{format}: {text}");
    }
    let (suites, _) = said(&["check", "sim", "--format", "junit", "--max-idle", "10%"]);
    assert!(suites.contains("], SIMULATED\n") || suites.contains("], SIMULATED<"), "{suites}");
}

#[test]
fn a_job_says_how_many_of_its_ranks_are_simulated() {
    let place = Place::new("simulated-job");
    for (rank, gpu) in [(1, GPU), (2, "SIM H200")] {
        let bytes = recording(|b| {
            b.device(0, gpu, 132);
            (b.header.rank, b.header.world_size) = (rank, 2);
            b.header.start_realtime += u64::from(rank);
        });
        fs::write(place.out().join("run.gpr"), bytes).unwrap();
        assert_eq!(code(&place.run(&["recover", "run.gpr"])), 0);
    }
    let line = out(&place.run(&["summary", "--line", "."]));
    assert!(line.contains(" 1 SIMULATED."), "{line}");
    let job: Value = serde_json::from_str(&out(&place.run(&["summary", "--json", "."]))).unwrap();
    let which: Vec<bool> =
        job["ranks"].as_array().unwrap().iter().map(|r| r["simulated"].as_bool().unwrap()).collect();
    assert_eq!(which, [true, false]);
}

// SPDX-License-Identifier: Apache-2.0
//! The labelled programs of tests/gpu/programs/causes, recorded on an H200 and judged again: what a program's label says is
//! what its fix proved beside it (`proven` in labelled/causes.json: won 15 % and more, or under 10 % for a harmless habit),
//! not what the code looks like. `scripts/gpu-check --only causes` makes new ones, `examples/trim.rs` cuts them down.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use analyzer::{Analysis, Run};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/labelled")
}

/// What is true of each recording, by its name.
fn truths() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(folder().join("causes.json")).expect("causes.json");
    serde_json::from_str(&text).expect("JSON")
}

fn load(name: &str) -> (Run, Analysis) {
    let raw = std::fs::read(folder().join(format!("{name}.gprec.gz"))).expect("the recording");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&raw[..]).read_to_end(&mut bytes).expect("gzip");
    let run = analyzer::load(bytes.as_slice()).expect("a recording");
    assert_eq!(run.problems.damaged(), 0, "{name}");
    let a = analyzer::analyze(&run);
    (run, a)
}

fn names(of: &Value) -> Vec<&str> {
    of.as_array().map(|a| a.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Was the host sampled? Fetching data looks like any other absence of the host without.
fn is_sampled(run: &Run) -> bool {
    run.threads.iter().any(|t| !t.samples.is_empty())
}

#[test]
fn each_verdict_is_the_programs_label_and_accuses_no_harmless_habit() {
    let mut wrong = Vec::new();
    let all = truths();
    assert!(all.len() >= 30, "{} recordings", all.len());
    for (name, truth) in &all {
        assert_eq!(truth["proven"], true, "{name}: a label that its fix did not prove is none");
        let (run, a) = load(name);
        let mut right = names(&truth["causes"]);
        if !is_sampled(&run) && right.contains(&"INPUT") {
            right.push("HOST");
        }
        let v = &a.verdict;
        let then = v.then.map_or("", |t| t.0);
        let accused = names(&truth["forbidden"]).into_iter().find(|f| *f == v.cause || *f == then);
        if !right.contains(&v.cause) || accused.is_some() {
            wrong.push(format!(
                "{name}: {} ({}), then {then:?}; right: {right:?}, accused: {accused:?}",
                v.cause, v.text
            ));
        }
        assert_eq!(a.devices[0].buckets.total(), a.devices[0].wall_ns, "{name}");
        assert!(
            a.model.error() < 0.03,
            "{name}: replay with nothing changed is off by {:.3}",
            a.model.error()
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// SPDX-License-Identifier: Apache-2.0
//! What a verdict knows stands wherever it is shown: the line, the screen, the object, the page and the trace. Of recordings
//! from an H200 with call sites; the label (`causes.json` beside them) says which line it is.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::html_page::looked_at;
use crate::place::{code, err, out, Place};

/// Recording, its file and function, the bucket of its slices, a frame on the way there.
const KNOWN: [(&str, &str, &str, &str); 4] = [
    (
        "loader_two_workers.slow",
        "loader_two_workers.py",
        "INPUT",
        "_MultiProcessingDataLoaderIter._try_get_data",
    ),
    ("sync_item_layers.slow", "sync_item_layers.py", "SYNC", "loop (frame.py"),
    ("alloc_empty_cache.slow", "alloc_empty_cache.py", "ALLOC", "empty_cache (memory.py"),
    ("host_log_flush.slow", "host_log_flush.py", "HOST", "Logger.info"),
];

fn path(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/gpu/recordings");
    folder.join(format!("{name}.gprec.gz")).display().to_string()
}

/// Words with single spaces between: lines are broken anywhere.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn object(place: &Place, path: &str) -> Value {
    let output = place.run(&["analyze", "--json", path]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

/// The trace that `export` writes.
fn exported(place: &Place, path: &str) -> Value {
    let output = place.run(&["export", path, "-o", "everywhere.json.gz", "--force"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let file = fs::File::open(place.out().join("everywhere.json.gz")).unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn texts(list: &Value) -> String {
    list.as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn site_stack_workers_and_promise_stand_in_every_place() {
    let place = Place::new("everywhere");
    for (name, file, bucket, frame) in KNOWN {
        let path = path(name);
        let object = object(&place, &path);
        let verdict = &object["verdict"];
        let site = format!("{file}:{} in ", verdict["site"]["line"]);
        assert!(verdict["site"]["file"].as_str().unwrap().ends_with(file), "{name}: {verdict}");
        let promise = verdict["predicted_ns"].as_f64().unwrap() / 1e6;
        let promise = format!("-> about {promise:.1} ms a step");
        let mut wanted = vec![site.as_str(), promise.as_str(), verdict["fix"].as_str().unwrap()];
        if bucket == "INPUT" {
            wanted.extend(["2 child processes, ", "whether that is the workers is not known"]);
        }
        let stack = texts(&verdict["stack"]);
        assert!(stack.contains(frame) && stack.contains(file), "{name}: {stack}");

        let screen = flat(&out(&place.run(&["analyze", &path])));
        let seen = looked_at(&place, &[&path]);
        let page = flat(&texts(&seen["seen"]));
        for text in &wanted {
            assert!(screen.contains(text), "{name}: {text} on the screen\n{screen}");
            assert!(page.contains(text), "{name}: {text} on the page\n{page}");
        }
        assert!(page.contains(frame), "{name}: the stack on the page");

        let trace = exported(&place, &path);
        let line = trace["otherData"]["line"].as_str().unwrap();
        assert_eq!(line, object["line"].as_str().unwrap());
        for text in wanted.iter().filter(|t| **t != verdict["fix"].as_str().unwrap()) {
            assert!(line.contains(text), "{name}: {text} in the line\n{line}");
        }
        let is_cause = |e: &&Value| e["cat"] == "idle" && e["name"] == bucket;
        let slices = || trace["traceEvents"].as_array().unwrap().iter().filter(is_cause);
        let says =
            |e: &Value, key: &str, text: &str| e["args"][key].as_str().is_some_and(|t| t.contains(text));
        let of_line: Vec<&Value> = slices().filter(|e| says(e, "site", &site)).collect();
        assert!(of_line.len() * 2 > slices().count(), "{name}: {} slices of the line", of_line.len());
        for slice in of_line {
            assert!(says(slice, "stack", file), "{name}: {slice}");
            assert_eq!(slice["args"]["to change"], verdict["fix"], "{name}: {slice}");
        }
    }
}

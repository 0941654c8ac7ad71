// SPDX-License-Identifier: Apache-2.0
//! What a verdict knows stands wherever it is shown: the line, the screen, the object, the page and
//! the trace. Of a program whose truth is known, and of recordings from an H200 with call sites;
//! the label (`causes.json` beside them) says which line it is.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::html_page::{looked_at, node_is_here};
use crate::place::{code, err, out, Place};
use crate::program::{Pose, Program};

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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gpu/recordings");
    folder.join(format!("{name}.gprec.gz")).display().to_string()
}

const STEPS: usize = 30;
/// Longer than from sample to sample: each wait has one.
const FETCHING: u64 = 12_000_000;
const LOOP_LINE: u32 = 60;

/// A loader whose two workers compute all the time: a training step, then the launching thread
/// waits for a batch. Written to `path`; a step without the wait, ns, and the CPU time of the
/// workers in each step.
fn starved_by_workers(path: &Path) -> (f64, f64) {
    const TORCH: &str = "/venv/lib/python3.11/site-packages/torch/utils/data";
    const WORKERS: u32 = 2;
    let step = |p: &mut Program| p.train_step(6, 20_000);
    let mut p = Program::new();
    p.b.header.cpus = 64;
    let begin = p.t;
    for _ in 0..STEPS {
        let from = p.t;
        step(&mut p);
        let waits = p.b.stack(&[
            ("_MultiProcessingDataLoaderIter._try_get_data", &format!("{TORCH}/dataloader.py"), 1251),
            ("_BaseDataLoaderIter.__next__", &format!("{TORCH}/dataloader.py"), 733),
            ("train", "/job/gpt/train.py", LOOP_LINE),
        ]);
        p.stand(FETCHING, Pose::blocked(waits, 7));
        let works = p.b.stack(&[("_worker_loop", &format!("{TORCH}/_utils/worker.py"), 349)]);
        for pid in 1000..1000 + WORKERS {
            p.child(pid, from, 1000, 0, 0);
            p.child_stands(pid, from, works);
        }
    }
    let cpu = (p.t - begin) as f64 / STEPS as f64 * f64::from(WORKERS);
    fs::write(path, p.finish()).unwrap();
    let mut without = Program::new();
    (0..STEPS).for_each(|_| step(&mut without));
    (without.analyze().1.steps.mean_ns, cpu)
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
    if !node_is_here() {
        return;
    }
    let place = Place::new("everywhere");
    for (name, file, bucket, frame) in KNOWN {
        let path = path(name);
        let object = object(&place, &path);
        let verdict = &object["verdict"];
        let site = format!("{file}:{} in ", verdict["site"]["line"]);
        assert!(verdict["site"]["file"].as_str().unwrap().ends_with(file), "{name}: {verdict}");
        let promise = verdict["predicted_ns"].as_f64().unwrap() / 1e6;
        let promised = format!("-> ~{promise:.1} ms/step");
        let promise = format!("-> about {promise:.1} ms a step");
        let mut wanted = vec![site.as_str(), promise.as_str(), verdict["fix"].as_str().unwrap()];
        if bucket == "INPUT" {
            wanted.extend([" 2 workers, ", " would keep up"]);
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
        for text in [site.split(" in ").next().unwrap(), &promised] {
            assert!(line.contains(text), "{name}: {text} in the line\n{line}");
        }
        let is_cause = |e: &&Value| e["cat"] == "idle" && e["name"] == bucket;
        let slices = || trace["traceEvents"].as_array().unwrap().iter().filter(is_cause);
        let says =
            |e: &Value, key: &str, text: &str| e["args"][key].as_str().is_some_and(|t| t.contains(text));
        let of_line: Vec<&Value> = slices().filter(|e| says(e, "site", &site)).collect();
        // (one in front of the first step can be longer than all of them, and another line's many
        // be shorter)
        assert!(of_line.len() >= 10, "{name}: {} slices of the line", of_line.len());
        for slice in of_line {
            assert!(says(slice, "stack", file), "{name}: {slice}");
            assert_eq!(slice["args"]["to change"], verdict["fix"], "{name}: {slice}");
        }
    }
}

/// The three figures of INPUT-WORKERS, each held against the program: how many workers would keep
/// up, the line of the loop, and the step without the wait.
#[test]
fn the_count_of_workers_the_line_and_the_promise_of_input_workers_stand_in_every_place() {
    if !node_is_here() {
        return;
    }
    let place = Place::new("everywhere-workers");
    let file = place.out().join("workers.gprec");
    let (without, cpu) = starved_by_workers(&file);
    let path = file.display().to_string();
    let object = object(&place, &path);
    let verdict = &object["verdict"];
    assert_eq!(verdict["cause"], "INPUT-WORKERS", "{verdict}");
    let promise = verdict["predicted_ns"].as_f64().unwrap();
    assert!((promise - without).abs() < 0.1 * without, "{promise} promised, {without} in truth");
    // what the workers compute for a step, in the time of one that does not wait
    let count = (cpu / promise).ceil();
    let wanted = [
        format!(" 2 workers, 100% on a CPU, {count} would keep up"),
        format!("train.py:{LOOP_LINE} in train"),
        format!("-> about {:.1} ms a step", promise / 1e6),
    ];
    assert!(count > 2.0 && (count - cpu / without).abs() <= 1.0, "{count}, {cpu} of {without}");

    let screen = flat(&out(&place.run(&["analyze", &path])));
    let seen = looked_at(&place, &[&path]);
    let page = flat(&texts(&seen["seen"]));
    let trace = exported(&place, &path);
    let line = object["line"].as_str().unwrap();
    for text in &wanted {
        for (place, shown) in [("screen", &screen), ("page", &page)] {
            assert!(shown.contains(text), "{text} in the {place}\n{shown}");
        }
    }
    for text in [format!("train.py:{LOOP_LINE})"), format!("-> ~{:.1} ms/step", promise / 1e6)] {
        for (place, shown) in [("line", line), ("trace", trace["otherData"]["line"].as_str().unwrap())] {
            assert!(shown.contains(&text), "{text} in the {place}\n{shown}");
        }
    }
    let slices = trace["traceEvents"].as_array().unwrap().iter();
    let slices: Vec<&Value> = slices.filter(|e| e["cat"] == "idle" && e["name"] == "INPUT").collect();
    assert!(slices.len() >= STEPS - 2, "{} slices", slices.len());
    let of_the_loop = |e: &&&Value| e["args"]["site"].as_str().is_some_and(|s| s.contains(&wanted[1]));
    let told = slices.iter().filter(of_the_loop).count();
    assert!(told * 10 > slices.len() * 9, "{told} of {}: {:?}", slices.len(), slices.first());
    for slice in slices.iter().filter(of_the_loop) {
        let stack = slice["args"]["stack"].as_str().unwrap();
        assert!(stack.contains("_try_get_data") && stack.contains("train.py"), "{slice}");
        assert_eq!(slice["args"]["to change"], verdict["fix"], "{slice}");
    }
}

/// By how much the replay with nothing changed is off the measured steps stands beside what it
/// promises, and only there.
#[test]
fn the_error_of_the_replay_stands_beside_what_it_promises() {
    if !node_is_here() {
        return;
    }
    const WORDS: &str = "replay with nothing changed: ";
    let place = Place::new("everywhere-replay");
    let (mut longer, mut shorter) = (0, 0);
    for name in
        ["alloc_empty_cache.slow", "host_gc.slow", "jax_host.slow", "sync_timing.slow", "ok_gemm.slow"]
    {
        let path = path(name);
        let object = object(&place, &path);
        let screen = flat(&out(&place.run(&["analyze", &path])));
        let page = flat(&texts(&looked_at(&place, &[&path])["seen"]));
        if object["verdict"]["predicted_ns"].is_null() {
            assert!(!screen.contains(WORDS) && !page.contains(WORDS), "{name}: {screen}\n{page}");
            continue;
        }
        let of = |key: &str| object["model"][key].as_f64().unwrap();
        let off = (of("replayed_ns") / of("measured_ns") - 1.0) * 100.0;
        longer += u32::from(off > 0.05);
        shorter += u32::from(off < -0.05);
        for shown in [&screen, &page] {
            let said = shown.split_once(WORDS).unwrap_or_else(|| panic!("{name}: {shown}")).1;
            let (number, _) = said.split_once('%').unwrap();
            let number: f64 = number.parse().unwrap();
            assert!((number - off).abs() <= 0.05 + 1e-9, "{name}: {number} said, {off}");
        }
        // ± is that and more
        let least = (off / 100.0).abs() * object["verdict"]["step_ns"].as_f64().unwrap();
        assert!(object["verdict"]["error_ns"].as_f64().unwrap() >= least, "{name}: {}", object["verdict"]);
    }
    assert!(longer > 0 && shorter > 0, "{longer} and {shorter}: the sign is not held");
}

// SPDX-License-Identifier: Apache-2.0
//! `gapprobe analyze`: the screen, the object, the line, of traces of every kind.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::place::{code, err, out, recording, same_as_file, Place};
use crate::program::Program;

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
        // commands to copy stay whole, and nobody looks on: names do, too
        let fits = |l: &str| l.starts_with("Next: ") || l.starts_with("  ") || l.chars().count() <= 100;
        assert!(text.lines().all(fits), "{text}");
        assert!(text.lines().count() <= 52, "one screen: {text}");
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
    // by a plain union of its operations: 98.184 of 179.030 ms idle
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

/// What a reader could not use of another tool's trace is a loss like any other: programs find it
/// where they look for losses.
#[test]
fn the_losses_of_a_foreign_trace_stand_among_the_losses() {
    let place = Place::new("analyze-losses");
    let event = |n: u32, more: &str| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"k{}","pid":0,"tid":7,"ts":{}.5,"dur":5.25,"args":{{"device":0,"stream":7,"correlation":{n}}}{more}}}"#,
            n % 7,
            n * 10
        )
    };
    let good: Vec<String> = (1..=80).map(|n| event(n, "")).collect();
    let bad = [
        event(81, "").replace(r#""ts":810.5,"#, ""),
        event(82, "").replace("5.25", "-4"),
        event(83, "").replace("5.25", "-4"),
        event(84, "").replace(r#""device":0"#, r#""device":99999999999"#),
        "{\"ph\":\"X\" \"cat\":\"kernel\"}".to_owned(),
    ];
    // cut: no end of the list
    let text = format!(
        "{{\"traceEvents\":[{},{}",
        [&good[..40], &bad[..], &good[40..]].concat().join(","),
        "{\"ph\":"
    );
    fs::write(place.out().join("trace.json"), text).unwrap();
    let output = place.run(&["analyze", "--json", "trace.json"]);
    let all: Value = serde_json::from_str(&out(&output)).unwrap();
    let losses = &all["losses"];
    let of = |key: &str| losses[key].as_u64().unwrap_or_else(|| panic!("{key}: {losses}"));
    assert_eq!(
        (of("no_time"), of("negative_time"), of("unplaced"), of("broken_places")),
        (1, 2, 1, 1),
        "{losses}"
    );
    assert_eq!((of("file_cut"), of("file_damaged"), of("left_out"), of("kernels_missing")), (1, 0, 0, 0));
    assert_eq!(all["input"]["refused"]["unplaced"], 1);
    assert_eq!(all["input"]["refused"]["damaged"], false);
    // the line, the object, and who merges objects count the same
    let total = losses.as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(all["input"]["lost"], total);
    assert!(all["line"].as_str().unwrap().contains(&format!(" {total} records lost")), "{}", all["line"]);
    fs::write(place.out().join("0.summary.json"), out(&output)).unwrap();
    let merged = out(&place.run(&["summary", "0.summary.json", "--json"]));
    let merged: Value = serde_json::from_str(&merged).unwrap();
    assert_eq!(merged["ranks"][0]["losses"], total, "{merged}");
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
    assert!(out(&output).lines().all(|l| l.contains(" [GP1")), "{}", out(&output));
    assert!(err(&output).contains("bad.json: ") && err(&output).contains("hint: "), "{}", err(&output));
}

#[test]
fn strict_ends_with_5_where_there_is_no_verdict() {
    let place = Place::new("analyze-strict");
    let whole = fs::read(trace("traces/h200_graphs.json.gz")).unwrap();
    fs::write(place.out().join("cut.json.gz"), &whole[..whole.len() / 2]).unwrap();
    let output = place.run(&["analyze", "--strict", "cut.json.gz"]);
    assert_eq!(code(&output), 5);
    assert!(out(&output).contains("no verdict: the file is truncated"), "{}", out(&output));
    assert_eq!(code(&place.run(&["analyze", "cut.json.gz"])), 0);
}

/// One definition: of an even number of steps the mean of the middle two, on the screen, in the
/// object and in `diff`.
#[test]
fn the_median_step_is_the_same_everywhere() {
    let place = Place::new("analyze-median");
    let mut even = 0;
    for name in
        ["own_gpt_bound", "own_gpt_item", "own_host_sleep", "own_compiled", "own_empty_cache", "h200_gpt"]
    {
        let path = trace(&format!("recordings/{name}.gprec.gz"));
        let table: Value =
            serde_json::from_str(&out(&place.run(&["steps", "--format", "json", &path]))).unwrap();
        let counts = |r: &&Value| !r["flags"].as_str().unwrap_or("").contains("warm-up");
        let rows = table["steps"].as_array().unwrap().iter().filter(counts);
        let mut times: Vec<u64> = rows.map(|r| r["step_ns"].as_u64().unwrap()).collect();
        times.sort_unstable();
        let middle = times.len() / 2;
        even += u32::from(times.len() % 2 == 0);
        let median = match times.len() % 2 {
            0 => (times[middle - 1] + times[middle]).div_ceil(2),
            _ => times[middle],
        };
        let all: Value = serde_json::from_str(&out(&place.run(&["analyze", "--json", &path]))).unwrap();
        assert_eq!(all["steps"]["median_ns"].as_u64(), Some(median), "{name}: {times:?}");
        let ms = median as f64 / 1e6;
        let shown = if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") };
        let screen = out(&place.run(&["analyze", &path]));
        assert!(screen.contains(&format!("median {shown}")), "{name}: {shown}\n{screen}");
    }
    assert!(even > 0, "no recording with an even number of steps");
}

/// Calls that cost no idle time do so for different reasons: not every one had the GPU at work.
/// What wins is called a line only where one is known: else the place in the code, the function, or
/// no more than the module.
#[test]
fn what_wins_alone_is_a_line_only_where_a_line_is_known() {
    use trace::Language::{Caller, Native};
    let place = Place::new("analyze-alone");
    for (language, function, file, line, shown) in [
        (Caller, "train_step", "/job/train.cpp", 88, "job/train.cpp:88 in train_step): "),
        (Caller, "_Z5stepai+0x1c", "/job/libtrain.so", 0, "stepa(int)+0x1c in libtrain.so): "),
        (Caller, "0x1f40", "/job/libtrain.so", 0, "0x1f40 in libtrain.so): "),
        (Native, "main_loop", "/job/train", 0, "main_loop in job/train): "),
        (Caller, "", "/job/libtrain.so", 0, "libtrain.so): "),
    ] {
        let mut p = Program::new();
        p.site = p.b.frames(&[(language, function, file, line)]);
        for _ in 0..30 {
            (0..12).for_each(|_| {
                p.launch("gemm_kernel", 264, 14_000);
                p.item();
            });
            p.optimizer(14_000);
        }
        fs::write(place.out().join("run.gpr"), p.finish()).unwrap();
        let text = out(&place.run(&["analyze", "--width", "0", "run.gpr"]));
        let wins: Vec<&str> = text.lines().filter(|l| l.contains(" alone wins ")).collect();
        assert!(!wins.is_empty(), "{shown}: {text}");
        let word = match (line, function) {
            (0, "") => "module",
            (0, "main_loop") => "function",
            (0, _) => "place",
            _ => "line",
        };
        let says = |row: &&str| row.contains(shown) && row.contains(&format!("; this {word} alone wins "));
        assert!(wins.iter().all(says), "{wins:?}");
    }
}

#[test]
fn calls_that_cost_nothing_say_why() {
    use trace::call::{pack, Class, RUNTIME};
    use trace::{Event, Kind};
    let call = |b: &mut trace::build::Builder, id: u32, class: Class, start: u64, end: u64| {
        let mut e = Event::new(Kind::Call, start, end);
        (e.a, e.x) = (pack(RUNTIME, id), class as u8);
        b.on_thread(101, e);
    };
    let (host_register, first, last) = (152, 1_000_010_000, 1_299_610_000);
    let place = Place::new("analyze-free");
    for (from, to, words) in [
        (500_000_000, 800_000_000, "costs 0: before the first GPU operation"),
        (last + 1_000_000, last + 9_000_000, "costs 0: after the last GPU operation"),
        // the first kernels of a step run from 10 to 610 us in it
        (first + 50_000, first + 250_000, "costs 0: the GPU had work meanwhile"),
    ] {
        let bytes = recording(|b| {
            b.header.start_monotonic = 400_000_000;
            call(b, host_register, Class::Alloc, from, to);
        });
        fs::write(place.out().join("run.gpr"), bytes).unwrap();
        let text = out(&place.run(&["analyze", "run.gpr"]));
        let line = text.lines().find(|l| l.contains("cudaHostRegister: ")).unwrap_or(&text);
        assert!(line.ends_with(words), "{line}\n{words}");
    }
}

/// A part cannot be larger than the whole: where one kind of idle time grew by more than the step,
/// the rest shrank.
#[test]
fn the_slowest_step_takes_no_more_than_it_takes() {
    let place = Place::new("analyze-slowest");
    let mut shrank = 0;
    for name in ["own_empty_cache", "h200_graphs", "own_generate", "own_gpt_bound", "own_pageable_copies"] {
        let text =
            out(&place.run(&["analyze", "--width", "0", &trace(&format!("recordings/{name}.gprec.gz"))]));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((_, rest)) = text.split_once("; the slowest, step ") else { continue };
        let ns = |words: &str| {
            let (number, unit) = words.split_once(' ').unwrap();
            number.parse::<f64>().unwrap() * if unit.starts_with('m') { 1e6 } else { 1e3 }
        };
        let more = ns(rest.split_once(" takes ").unwrap().1.split_once(" more").unwrap().0);
        match rest.split_once(" more, ") {
            Some((_, part)) if part.contains(" of it ") => {
                assert!(ns(part.split_once(" of it ").unwrap().0) <= more, "{rest}");
            }
            _ => {
                assert!(rest.contains("less of the rest"), "{rest}");
                shrank += 1;
            }
        }
    }
    assert!(shrank > 0, "no recording in which the rest shrank");
}

/// Of a GPU-bound program the next question is for Nsight Compute: on the screen, in the object and
/// on the page.
#[test]
fn the_next_command_of_a_gpu_bound_program_is_everywhere() {
    let place = Place::new("analyze-next");
    let path = trace("recordings/own_gpt_bound.gprec.gz");
    let screen = out(&place.run(&["analyze", &path]));
    let command = screen.lines().find_map(|l| l.strip_prefix("Next: ncu ")).unwrap();
    let all: Value = serde_json::from_str(&out(&place.run(&["analyze", "--json", &path]))).unwrap();
    assert_eq!(all["verdict"]["next"].as_str(), Some(format!("ncu {command}").as_str()));
    let page = place.run(&["report", &path, "-o", "page.html"]);
    assert_eq!(code(&page), 0, "{}", err(&page));
    let page = fs::read_to_string(place.out().join("page.html")).unwrap();
    assert!(page.contains(&format!("\"next\":\"ncu {command}")), "{command}");
    // our own trace of it knows the program's command, too
    let exported = place.run(&["export", &path, "-o", "trace.json.gz"]);
    assert_eq!(code(&exported), 0, "{}", err(&exported));
    let again = out(&place.run(&["analyze", "trace.json.gz"]));
    assert_eq!(again.lines().find_map(|l| l.strip_prefix("Next: ncu ")), Some(command));
    assert!(!command.ends_with("--launch-count 1 python train.py"), "{command}");
    let other: Value =
        serde_json::from_str(&out(&place.run(&["analyze", "--json", &trace("traces/h200_gpt.json.gz")])))
            .unwrap();
    assert!(other["verdict"]["next"].is_null());
    // what another tool's trace does not tell is not 0
    assert!(other["totals"].is_null() && other["cpus"].is_null() && all["steps"]["count"].is_u64());
}

/// MFU of a trace of torch.profiler's; where there can be none, why.
#[test]
fn mfu_by_what_a_step_does() {
    let place = Place::new("analyze-mfu");
    let analyze = |file: &str, tflop: &str| place.run(&["analyze", "--step-tflop", tflop, &trace(file)]);
    let output = analyze("traces/h200_gpt.json.gz", "2.5");
    assert!(out(&output).contains("MFU "), "{}", out(&output));
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let output = analyze("tables/three_steps.json", "2.5");
    assert!(!out(&output).contains("MFU "), "{}", out(&output));
    assert!(
        err(&output).contains("no MFU: it takes steps, and a GPU whose peak is known"),
        "{}",
        err(&output)
    );
    assert_eq!(code(&analyze("tables/three_steps.json", "-1")), 2);
}

// SPDX-License-Identifier: Apache-2.0
//! `gapprobe export`, and `gaps` and `steps` as verbs of their own.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::place::{code, err, out, Place};

fn trace(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces")
        .join(format!("{name}.json.gz"))
        .display()
        .to_string()
}

/// What is exported as a Chrome trace is the same run: read again, it has the same busy and idle
/// time and every operation.
#[test]
fn a_foreign_trace_as_chrome_json_keeps_every_operation_and_says_why_idle() {
    let place = Place::new("export");
    let output = place.run(&["export", &trace("h200_graphs")]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let path = place.out().join(out(&output).trim());
    assert_eq!(path.file_name().unwrap(), "h200_graphs.gapprobe.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |cat: &str| events.iter().filter(|e| e["cat"] == cat && e["ph"] == "X").count();
    // PyTorch's trace has 2,576 kernels, 160 memsets and 4 copies
    assert_eq!((of("kernel"), of("gpu_memset"), of("gpu_memcpy")), (2576, 160, 4));
    assert!(of("idle") > 100);
    // never over another file
    let again = place.run(&["export", &trace("h200_graphs")]);
    assert_eq!(code(&again), 1);
    assert!(err(&again).contains("is there already") && err(&again).contains("--force"), "{}", err(&again));
    assert_eq!(code(&place.run(&["export", "--force", &trace("h200_graphs")])), 0);
}

/// Our own trace is a trace like any other: what it says is what the recording said.
#[test]
fn a_trace_of_ours_reads_as_the_recording_it_was_made_of() {
    let place = Place::new("export-again");
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    for name in ["own_gpt_item", "own_host_sleep", "own_mlp_graph"] {
        let file = recordings.join(format!("{name}.gprec.gz")).display().to_string();
        let trace = format!("{name}.json.gz");
        assert_eq!(code(&place.run(&["export", &file, "-o", &trace])), 0);
        let object = |file: &str| -> Value {
            serde_json::from_str(&out(&place.run(&["analyze", "--json", file]))).unwrap()
        };
        let (recording, trace) = (object(&file), object(&trace));
        for key in ["span_ns", "busy_ns", "idle_ns", "gaps", "max_gap_ns", "steady_kernels"] {
            assert_eq!(trace["devices"][0][key], recording["devices"][0][key], "{name} {key}");
        }
        assert_eq!(trace["verdict"]["cause"], recording["verdict"]["cause"], "{name}");
        assert_eq!(trace["steps"]["count"], recording["steps"]["count"], "{name}");
        assert_eq!(
            trace["devices"][0]["small_kernels"], recording["devices"][0]["small_kernels"],
            "{name}: grids"
        );
    }
}

#[test]
fn csv_has_a_row_an_event_and_the_idle_time_of_the_table() {
    let place = Place::new("export-csv");
    let output = place.run(&["export", "--to", "csv", "-o", "-", &trace("h200_graphs")]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let text = out(&output);
    let rows: Vec<&str> = text.split("\r\n").filter(|l| !l.is_empty()).collect();
    let of = |kind: &str| rows.iter().filter(|r| r.starts_with(kind)).count();
    assert_eq!((of("kernel,"), of("memset,"), of("copy,"), of("call,")), (2576, 160, 4, 11));
    let columns = rows[0].split(',').count();
    // names of kernels hold commas, and are quoted
    let plain = rows.iter().filter(|r| !r.contains('"'));
    assert!(plain.into_iter().all(|r| r.split(',').count() == columns));
    let idle: u64 = rows.iter().filter(|r| r.starts_with("idle,")).map(|r| ns(r)).sum();
    // by a plain union: idle 23.7 % of the trace's device time
    assert_eq!(idle, 1_751_267);
}

/// A file holds what its name says; where no format has such a name, none is written (compressed
/// JSON stood in files called .csv).
#[test]
fn the_ending_of_the_output_chooses_the_format_and_one_of_no_format_is_refused() {
    let place = Place::new("export-endings");
    let file = trace("h200_gptsync");
    let exported = |name: &str, args: &[&str]| {
        let output = place.run(&[&["export", &file, "-o", name], args].concat());
        assert_eq!((code(&output), out(&output).trim()), (0, name), "{}", err(&output));
        fs::read(place.out().join(name)).unwrap()
    };
    for (name, begins) in [
        ("x.csv", &b"kind,name,"[..]),
        ("X.CSV", b"kind,name,"),
        ("x.parquet", b"PAR1"),
        ("x.folded", b"GPU 0;"),
        ("x.gpu.folded", b"GPU 0;"),
        ("x.json.gz", &[0x1f, 0x8b]),
        ("x.gz", &[0x1f, 0x8b]),
        ("no_ending", &[0x1f, 0x8b]),
        ("x.json", b"{"),
    ] {
        assert!(exported(name, &[]).starts_with(begins), "{name}");
    }
    assert_eq!(exported("x.json", &["--force"]), {
        let mut plain = Vec::new();
        let packed = exported("x.json.gz", &["--force"]);
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut plain).unwrap();
        plain
    });
    // who names the format has it, whatever the file is called
    assert!(exported("events.txt", &["--to", "csv"]).starts_with(b"kind,name,"));
    for name in ["x.svg", "x.html", "x.csv.gz", "x.sqlite", "x.txt"] {
        let output = place.run(&["export", &file, "-o", name]);
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{name}");
        let said = err(&output);
        assert!(said.contains(name) && said.contains("hint: --to "), "{said}");
        assert!(!place.out().join(name).exists());
    }
}

fn ns(row: &str) -> u64 {
    row.rsplit(',').nth(3).unwrap().parse().unwrap()
}

#[test]
fn stacks_sum_to_the_idle_time_of_the_steady_state() {
    let place = Place::new("export-folded");
    let text = out(&place.run(&["export", "--to", "folded", "-o", "-", &trace("h200_gpt")]));
    let sum: f64 = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    let all: Value =
        serde_json::from_str(&out(&place.run(&["analyze", "--json", &trace("h200_gpt")]))).unwrap();
    let buckets = all["buckets_ns"].as_object().unwrap();
    let busy = ["compute", "copy_only", "collective_only"];
    let idle: u64 =
        buckets.iter().filter(|b| !busy.contains(&b.0.as_str())).filter_map(|b| b.1.as_u64()).sum();
    // each line is rounded to a microsecond
    let most = text.lines().count() as f64 * 0.5 + 1.0;
    assert!((sum - idle as f64 / 1e3).abs() <= most, "{sum} us of {idle} ns");
    assert!(
        text.lines().any(|l| l.starts_with("GPU 0;LAUNCH;") && l.contains("aten::")),
        "operators are frames"
    );
}

#[test]
fn gaps_and_steps_are_tables_of_stats() {
    let place = Place::new("export-tables");
    let file = trace("h200_graphs");
    for (verb, words) in [("gaps", "KERNEL-GAP"), ("steps", "Step Time (ns)")] {
        let own = place.run(&[verb, &file, "--limit", "3"]);
        let stats = place.run(&["stats", &file, "-r", verb, "--limit", "3", "--names", "short"]);
        assert_eq!((code(&own), out(&own)), (0, out(&stats)));
        let all = out(&place.run(&[verb, &file, "--format", "csv"]));
        assert!(all.contains(words) || out(&own).contains(words), "{all}");
    }
}

/// One row of each kind, by hand from what the recording holds (`place::recording`).
#[test]
fn a_row_has_its_figures_under_their_headings() {
    let place = Place::new("export-row");
    let bytes = crate::place::recording(|b| {
        let name = b.string("forward");
        let mut range = trace::Event::new(trace::Kind::Range, 1_000_000_500, 1_000_000_900);
        range.a = name;
        b.on_thread(100, range);
        let mut copy = trace::Event::new(trace::Kind::Memset, 1_000_700_000, 1_000_700_250);
        (copy.a, copy.correlation) = (4096, 77);
        b.on_stream(0, 1, 9, copy);
    });
    fs::write(place.out().join("run.gpr"), bytes).unwrap();
    let text = out(&place.run(&["export", "--to", "csv", "-o", "-", "run.gpr"]));
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(lines[0], "kind,name,device,stream,thread,start_ns,duration_ns,correlation,bytes,cause");
    for row in [
        "kernel,\"gemm(float*, float*, float*)\",0,7,,10000,60000,1,,",
        "memset,,0,9,,700000,250,77,4096,",
        "call,cudaLaunchKernel,,,100,0,4000,1,,",
        "range,forward,,,100,500,400,,,",
    ] {
        assert!(lines.contains(&row), "{row} in {:#?}", &lines[..20]);
    }
    // the synchronize of each step stands while the GPU has no more work
    assert!(lines.iter().any(|l| l.starts_with("idle,cudaStreamSynchronize,0,,,") && l.ends_with(",,,SYNC")));
}

/// One time zero for all that is exported: the earliest event, wherever the recording began.
#[test]
fn csv_and_chrome_json_have_the_same_times() {
    let place = Place::new("export-times");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/own_generate.gprec.gz");
    let file = file.display().to_string();
    let csv = out(&place.run(&["export", "--to", "csv", "-o", "-", &file]));
    assert_eq!(code(&place.run(&["export", &file, "-o", "trace.json.gz"])), 0);
    let mut text = String::new();
    let packed = fs::File::open(place.out().join("trace.json.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let mut drawn: Vec<i64> = json["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["ph"] == "X" && matches!(e["cat"].as_str(), Some("cuda_runtime" | "cuda_driver")))
        .map(|e| (e["ts"].as_f64().unwrap() * 1e3).round() as i64)
        .collect();
    // columns from behind: cause, bytes, correlation, duration, start
    let start = |row: &str| row.rsplit(',').nth(4).unwrap().parse::<i64>().unwrap();
    let mut rows: Vec<i64> = csv.split("\r\n").filter(|r| r.starts_with("call,")).map(start).collect();
    drawn.sort_unstable();
    rows.sort_unstable();
    assert!(drawn.len() > 1000);
    assert_eq!(rows, drawn);
    assert!(rows.iter().filter(|t| **t == 0).count() <= 1);
}

/// Times of one recorder can be compared, whatever they were written in.
#[test]
fn a_recording_and_its_trace_are_of_one_recorder() {
    let place = Place::new("export-recorder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/own_gpt_item.gprec.gz");
    let file = file.display().to_string();
    assert_eq!(code(&place.run(&["export", &file, "-o", "own.json.gz"])), 0);
    let said = out(&place.run(&["diff", &file, "own.json.gz"]));
    assert!(!said.contains("other formats"), "{said}");
    let said = out(&place.run(&["analyze", "own.json.gz"]));
    assert!(said.contains("gapprobe trace") && !said.contains("torch.profiler"), "{said}");
    // a thread's name that has its number in it has it once
    assert_eq!(code(&place.run(&["export", &trace("h200_graphs"), "-o", "torch.json.gz"])), 0);
    let mut text = String::new();
    let packed = fs::File::open(place.out().join("torch.json.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    assert!(text.contains(r#""name":"thread 616 (python3) CUDA API""#), "the name of the launching thread");
}

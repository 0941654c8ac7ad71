// SPDX-License-Identifier: Apache-2.0
//! gapprobe's own Chrome JSON is the run it was made of: whatever is read, written as a trace and read again has the same
//! verdict and the same figures.
//!
//! Not kept, and so not compared: remarks about the input *file* (whole microseconds, places that cannot be parsed), calls
//! into the operating system (no Chrome event has them), the processes of a trace of several (one process is written).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use analyzer::analysis::Bucket;
use analyzer::chrome::{self, ChromeOptions};
use analyzer::formats::{self, Input, Progress};
use analyzer::tables::{self, NameStyle, Source};
use analyzer::{line, Analysis, Run};

/// What is said of a run, one line each, so that a difference shows where it is.
fn said(run: &Run, a: &Analysis) -> Vec<String> {
    let v = &a.verdict;
    let mut said = vec![
        format!("verdict {} {} {:?} call {}", v.code, v.cause, v.confidence, v.call),
        format!("inconclusive {:?}", v.inconclusive),
        format!("text {}", v.text),
        format!("then {:?}", v.then),
        format!("slowed host {} {:?}", run.slowed_host, v.profiled.map(|p| p.cause)),
        format!("line {}", line::line(run, a, None)),
        format!("steps {:?} {} median {}", a.steps.source, a.steps.steps.len(), a.steps.median_ns),
        format!("micro {} warm-up {}", a.steps.micro, a.steps.warm_up),
        format!("steady {} valid {}", a.steady.ns(), a.valid.ns()),
        format!("losses {:?} data {}", a.losses, a.data_losses),
        format!("blind {:?}", a.blind.iter().map(|b| (b.span.ns(), b.reason)).collect::<Vec<_>>()),
        format!("events {}", a.events),
        format!("coverage {:?}", a.coverage),
    ];
    for f in &a.findings {
        said.push(format!("finding {} {:?} {}", f.code, f.confidence, f.text));
    }
    for (d, facts) in a.devices.iter().zip(&run.devices) {
        said.push(format!(
            "device {} {:?} {:?}",
            d.ordinal,
            run.definitions.string(facts.info.name),
            facts.info.memory
        ));
        said.push(format!(
            "device {} span {} busy {} gaps {} small {:?} streams {}",
            d.ordinal,
            d.span.ns(),
            d.busy_ns,
            d.gaps,
            d.small,
            facts.streams.len()
        ));
        said.push(format!("device {} buckets {:?}", d.ordinal, d.buckets.0));
        assert_eq!(d.buckets.0.len(), Bucket::COUNT);
    }
    for t in &run.threads {
        let name = run.definitions.string(t.name);
        said.push(format!("thread {} {name:?} {} calls {} ranges", t.tid, t.calls.len(), t.ranges.len()));
    }
    // kernels by name and class, calls, ranges and what they launched
    for report in ["cuda_gpu_kern_sum", "cuda_api_sum", "syncs", "nvtx_sum", "nvtx_kern_sum", "phases"] {
        let report = tables::find(report).expect("a report");
        let mut csv = Vec::new();
        tables::write(
            &report.table(&Source::new(run, NameStyle::Whole)),
            0,
            tables::Format::Csv,
            &mut csv,
        )
        .unwrap();
        let text = String::from_utf8(csv).unwrap();
        // rows of equal times may change places
        let mut rows: Vec<String> = text.lines().map(|l| format!("{} {l}", report.name)).collect();
        rows.sort();
        said.extend(rows);
    }
    said
}

fn read(path: &Path) -> Input {
    formats::read(path, &Progress::default()).unwrap_or_else(|e| panic!("{e} ({})", e.hint))
}

/// Writes the run as a trace and reads that; gives back what differs.
fn differences(path: &Path) -> String {
    let input = read(path);
    let a = analyzer::analyze(&input.run);
    let said_line = line::line(&input.run, &a, None);
    let options = ChromeOptions { line: &said_line, ..ChromeOptions::default() };
    let (bytes, written) = chrome::write(&input.run, &a, Vec::new(), &options).unwrap();
    assert_eq!(written.ops_left_out + written.calls_left_out + written.ranges_left_out, 0);
    let name = path.file_name().unwrap().to_str().unwrap();
    let copy = std::env::temp_dir().join(format!("gapprobe-round-trip-{}-{name}", std::process::id()));
    std::fs::write(&copy, bytes).unwrap();
    let again = read(&copy);
    std::fs::remove_file(&copy).unwrap();
    let b = analyzer::analyze(&again.run);
    let mut out = String::new();
    assert_eq!(again.format.recorder(), input.format.recorder(), "{name}");
    assert!(again.format.name().starts_with("gapprobe trace"), "{name}: {}", again.format.name());
    let (before, after) = (a.verdict.predicted_ns, b.verdict.predicted_ns);
    if (before - after).abs() > before * 0.001 {
        let _ = writeln!(out, "{name}: predicted {before} -> {after}");
    }
    let (before, after) = (said(&input.run, &a), said(&again.run, &b));
    let only = |a: &[String], b: &[String]| a.iter().filter(|l| !b.contains(l)).cloned().collect::<Vec<_>>();
    for (mark, lines) in [('-', only(&before, &after)), ('+', only(&after, &before))] {
        for l in lines.iter().take(12) {
            let _ = writeln!(out, "{name}: {mark} {}", l.chars().take(300).collect::<String>());
        }
    }
    let order = |said: &[String]| said.iter().filter(|l| l.starts_with("finding")).cloned().collect::<Vec<_>>();
    if order(&before) != order(&after) && out.is_empty() {
        let _ = writeln!(out, "{name}: the findings stand in another order");
    }
    out
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.ends_with(ending)))
        .collect();
    found.sort();
    found
}

fn all_the_same(files: &[PathBuf]) {
    let differing: String = files.iter().map(|f| differences(f)).collect();
    assert!(differing.is_empty(), "\n{differing}");
}

#[test]
fn a_recording_and_its_trace_say_the_same() {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings"), ".gprec.gz");
    assert!(files.len() >= 20, "{files:?}");
    all_the_same(&files);
}

#[test]
fn a_trace_of_the_profiler_and_its_export_say_the_same() {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces"), ".json.gz");
    assert!(files.len() >= 5, "{files:?}");
    all_the_same(&files);
}

/// Traces of others are not part of the repository; where they lie beside it they are held to the same.
#[test]
fn traces_of_other_people_and_their_exports_say_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/others");
    let mut all = files(&folder, ".json.gz");
    all.extend(files(&folder, ".sqlite.gz"));
    all_the_same(&all);
}

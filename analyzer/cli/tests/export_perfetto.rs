// SPDX-License-Identifier: Apache-2.0
//! `gapprobe export` against `gapprobe analyze`: Perfetto's own SQL over the trace that the one
//! writes gives the busy and idle time that the other says, for each device, to the nanosecond.
//! Needs node and `scripts/perfetto install`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[path = "chrome/perfetto.rs"]
mod perfetto;

#[path = "nsys/fixture.rs"]
#[allow(dead_code, reason = "one workload of it is used here")]
mod fixture;

use perfetto::{ask, is_here, number, scratch, Scratch, WRONG};

/// Work of each device in islands of intervals that touch or overlap; an operation of no length is
/// one of its own.
const BY_DEVICE: &str = "with work as (
      select extract_arg(arg_set_id, 'args.device') device, ts, ts + dur as te from slice
      where category in ('kernel', 'gpu_memcpy', 'gpu_memset')),
    reached as (
      select *, max(te) over (partition by device order by ts, te rows between unbounded preceding and 1 preceding) reach
      from work),
    numbered as (
      select *, sum(reach is null or ts > reach) over (partition by device order by ts, te rows unbounded preceding) island
      from reached),
    islands as (select device, island, min(ts) ts, max(te) te, count(*) ops from numbered group by 1, 2),
    apart as (select *, lead(ts) over (partition by device order by ts) - te as gap from islands)
    select device, sum(ops) ops, sum(te - ts) busy_ns, max(te) - min(ts) span_ns, count(gap) gaps,
      coalesce(max(gap), 0) max_gap_ns from apart group by device order by device";

/// The standard output of the command, which must succeed.
fn gapprobe(folder: &Scratch, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gapprobe"));
    let output = command.args(args).current_dir(&folder.0).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Holds Perfetto's figures of the exported file against those of the analysis; returns how many
/// devices there are.
fn check(file: &Path) -> usize {
    let name = file.file_name().unwrap().to_str().unwrap();
    let (folder, path) = (scratch(&format!("export-{name}")), file.to_str().unwrap());
    gapprobe(&folder, &["export", path, "-o", "trace.json.gz"]);
    let analysis: Value = serde_json::from_str(&gapprobe(&folder, &["analyze", "--json", path])).unwrap();
    let answers = ask(&folder.0.join("trace.json.gz"), &[WRONG, BY_DEVICE]);
    assert_eq!(answers[0], Value::from(Vec::<Value>::new()), "{name}: errors of the import");
    let devices = analysis["devices"].as_array().unwrap();
    let found = answers[1].as_array().unwrap();
    assert_eq!(found.len(), devices.len(), "{name}");
    for (d, sql) in devices.iter().zip(found) {
        assert_eq!(d["ordinal"], sql["device"], "{name}");
        assert!(number(sql, "ops") > 0);
        let idle = number(sql, "span_ns") - number(sql, "busy_ns");
        assert_eq!(
            (number(d, "busy_ns"), number(d, "idle_ns")),
            (number(sql, "busy_ns"), idle),
            "{name} {sql}"
        );
        for key in ["span_ns", "gaps", "max_gap_ns"] {
            assert_eq!(d[key], sql[key], "{name} {key}: {sql}");
        }
    }
    devices.len()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn of_one_device(paths: &[&str]) {
    if !is_here() {
        return;
    }
    for path in paths {
        assert_eq!(check(&here(path)), 1, "{path}");
    }
}

#[test]
fn a_trace_of_torch_profiler_and_a_recording_of_the_h200() {
    of_one_device(&["traces/h200_tiny.json.gz", "recordings/own_mlp_graph.gprec.gz"]);
}

#[test]
#[ignore = "scripts/test thorough: six more of the same, half a minute"]
fn other_traces_of_torch_profiler_and_recordings_of_the_h200() {
    let traces =
        ["h200_gpt", "h200_gptsmall", "h200_gptsync", "h200_graphs"].map(|n| format!("traces/{n}.json.gz"));
    let recordings = ["own_gpt_item", "own_pageable_copies"].map(|n| format!("recordings/{n}.gprec.gz"));
    of_one_device(&traces.iter().chain(&recordings).map(String::as_str).collect::<Vec<_>>());
}

/// Three devices of two processes, one of them used by both.
#[test]
fn an_nsys_export_of_several_devices() {
    if !is_here() {
        return;
    }
    let mut w = fixture::training(30, &[(1001, &[0, 1]), (2002, &[2, 1])], 5);
    w.gpus = vec![(1001, 0, 0), (1001, 1, 1), (2002, 2, 2), (2002, 1, 1)];
    let file = fixture::export(&w, fixture::Schema::New, |_| ());
    assert_eq!(check(&file.0), 3);
}

/// Operations that overlap, touch and lie inside each other on one stream and across streams, some
/// of no length: Perfetto drops a slice that overlaps another on its track without a word but in
/// its counters.
#[test]
fn random_overlapping_streams() {
    if !is_here() {
        return;
    }
    let mut dice = fixture::Dice::new(2026);
    let mut w = fixture::Workload::default();
    for correlation in 1..6_000 {
        let start = 1_000_000 + dice.roll(300_000_000) as i64;
        let most = [1, 2_000, 30_000, 400_000][dice.roll(4) as usize];
        let end = start + dice.roll(most) as i64;
        let what = match dice.roll(4) {
            0 => fixture::What::Copy(4096, 1, 0, 2),
            1 => fixture::What::Memset(64),
            _ => fixture::What::Kernel("void k(int)", 4, 32),
        };
        let (device, stream) = (dice.roll(3) as u32, dice.roll(4) as u32);
        w.ops.push(fixture::Op {
            pid: 100,
            device,
            stream,
            start,
            end,
            correlation,
            graph: 0,
            node: 0,
            what,
        });
    }
    let file = fixture::export(&w, fixture::Schema::New, |_| ());
    assert_eq!(check(&file.0), 3);
}

/// Traces from public repositories: never in ours; where they are absent the test says so.
#[test]
#[ignore = "scripts/test thorough: four large files"]
fn other_peoples_traces() {
    if !is_here() {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("GAPPROBE_OTHER_TRACES").unwrap_or_default());
    for (name, devices) in [
        ("kineto_resnet50_num_workers_0.json.gz", 1),
        ("kineto_resnet50_num_workers_4.json.gz", 1),
        ("nsys_h100_2gpu_1s.sqlite.gz", 2),
        ("nsys_saxpy_mpi_a100.sqlite.gz", 1),
    ] {
        let file = folder.join(name);
        match file.is_file() {
            true => assert_eq!(check(&file), devices, "{name}"),
            false => println!("skipped: {} is not there (GAPPROBE_OTHER_TRACES)", file.display()),
        }
    }
}

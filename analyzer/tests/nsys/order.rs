// SPDX-License-Identifier: Apache-2.0
//! Rows in no order (nsys 2025.6 and later do not sort what they export), and pages of Unified
//! Memory.

use std::io::Read;

use analyzer::chrome::{write, ChromeOptions};
use rusqlite::Connection;
use trace::Kind;

use super::fixture::{export, training, Op, Schema, What, Workload, BOTH};
use super::read;

/// Tables of events; the others are small, and looked up.
const EVENTS: [&str; 6] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "OSRT_API",
];

/// Puts the rows of all tables of events into another order.
fn shuffle(c: &Connection, seed: u32) {
    for table in EVENTS {
        let order = format!("(rowid * {} + {seed}) % 10007", 7919 + 2 * seed);
        c.execute_batch(&format!(
            "CREATE TEMP TABLE rows AS SELECT * FROM {table} ORDER BY {order};
             DELETE FROM {table}; INSERT INTO {table} SELECT * FROM rows; DROP TABLE rows"
        ))
        .expect("another order");
    }
}

/// All that is said of the export, in words, a line each.
fn said(w: &Workload, schema: Schema, seed: Option<u32>) -> Vec<String> {
    let file = export(w, schema, |c| seed.into_iter().for_each(|seed| shuffle(c, seed)));
    let input = read(&file).expect("a run");
    let run = &input.run;
    let a = analyzer::analyze(run);
    let mut said = vec![analyzer::line::line(run, &a, None), format!("{:?}", input.refused)];
    said.extend(a.steps.steps.iter().map(|s| format!("{s:?}")));
    for (d, found) in run.devices.iter().zip(&a.devices) {
        said.push(format!("GPU {} {:?}", d.ordinal, found.buckets));
        said.extend(found.slices.iter().map(|s| format!("{}..{} {:?}", s.start, s.end, s.bucket)));
        // (which number a stream has is by the row that it is met in first)
        let mut streams: Vec<_> = d.streams.iter().collect();
        streams.sort_by_key(|s| s.stream);
        for (s, op) in streams.iter().flat_map(|s| s.ops.iter().map(move |op| (s, op))) {
            let name = if op.kind == Kind::Kernel { run.definitions.kernel_name(op.a) } else { "" };
            said.push(format!("{} {}..{} {} {name}", s.stream, op.start, op.end, op.correlation));
        }
    }
    for t in &run.threads {
        said.extend(t.calls.iter().map(|c| format!("{} {:?} {}", t.tid, c.span(), run.call_name(c))));
        let of =
            |r: &analyzer::run::Range| format!("{} {:?} {} {}", t.tid, r.span, r.depth, run.plain_name(r));
        said.extend(t.ranges.iter().map(of));
    }
    said
}

#[test]
fn rows_in_any_order_are_read_the_same() {
    for schema in BOTH {
        // (GPUs of several processes, where no table tells which they are, are numbered as they
        // come)
        for processes in [&[(100, &[0][..])], &[(100, &[0, 1][..])]] {
            let w = training(12, processes, 3);
            let sorted = said(&w, schema, None);
            for seed in [1, 2, 3] {
                let other = said(&w, schema, Some(seed));
                let differs = sorted.iter().zip(&other).find(|(a, b)| a != b);
                assert_eq!((differs, other.len()), (None, sorted.len()), "{schema:?}, seed {seed}");
            }
        }
    }
}

/// Copies that nobody called for: named as nsys names them, in each report.
#[test]
fn pages_of_unified_memory_are_named_as_such() {
    let mut w = training(12, &[(100, &[0])], 3);
    let (first, last) = (w.ops.iter().map(|o| o.start).min(), w.ops.iter().map(|o| o.end).max());
    let (Some(mut at), Some(last)) = (first, last) else { panic!("no operations") };
    while at < last {
        for kind in [11, 12] {
            let what = What::Copy(65_536, kind, 4, 2);
            let (correlation, graph, node) = (0, 0, 0);
            w.ops.push(Op {
                pid: 100,
                device: 0,
                stream: 99,
                start: at,
                end: at + 3_000,
                correlation,
                graph,
                node,
                what,
            });
            at += 4_000;
        }
    }
    for schema in BOTH {
        let file = export(&w, schema, |_| {});
        let input = read(&file).expect("a run");
        let a = analyzer::analyze(&input.run);
        let table = |name: &str| {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_gapprobe"))
                .args(["stats", "-r", name, "--format", "csv"])
                .arg(&file.0)
                .output()
                .expect("the command");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for name in ["cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"] {
            let text = table(name);
            for operation in ["[CUDA memcpy Unified Host-to-Device]", "[CUDA memcpy Unified Device-to-Host]"]
            {
                assert!(text.contains(operation), "{name}: {text}");
            }
        }
        // that no call launched them is their nature, and no fault of the trace
        assert_eq!(input.run.uncalled.unidentified, 0);
        // our own trace of it says the same
        let (packed, _) = write(&input.run, &a, Vec::new(), &ChromeOptions::default()).expect("a trace");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("gzip");
        assert!(
            text.contains("Memcpy Unified HtoD (Managed -> Device)"),
            "{}",
            &text[..2000.min(text.len())]
        );
        let again = analyzer::formats::kineto::read_in_blocks(text.as_bytes(), 1 << 20, &Default::default());
        let again = again.expect("our own trace").run;
        let unified = |run: &analyzer::Run| {
            let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
            ops.filter(|o| o.is_unified()).map(|o| o.copy()).collect::<Vec<_>>()
        };
        assert!(!unified(&again).is_empty() && unified(&again) == unified(&input.run));
    }
}

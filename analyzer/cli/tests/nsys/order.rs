// SPDX-License-Identifier: Apache-2.0
//! Rows in no order (nsys 2025.6 and later do not sort what they export), and pages of Unified
//! Memory.

use std::io::Read;

use rusqlite::Connection;
use trace::Kind;
use verdict::output::chrome::{write, ChromeOptions};

use super::fixture::{export, training, Op, Schema, What, Workload, BOTH};
use super::read;

/// Tables without a key: the others are looked up in.
const TABLES: [&str; 8] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "OSRT_API",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_GPU",
];

/// Puts the rows of all these tables into another order.
fn shuffle(c: &Connection, seed: u32) {
    let there = |table: &str| {
        let sql = "SELECT count(*) FROM sqlite_master WHERE name = ?1";
        c.query_row(sql, [table], |r| r.get::<_, u32>(0)).expect("the list of tables") > 0
    };
    for table in TABLES.into_iter().filter(|t| there(t)) {
        let order = format!("(rowid * {} + {seed}) % 10007", 7919 + 2 * seed);
        c.execute_batch(&format!(
            "CREATE TEMP TABLE rows AS SELECT * FROM {table} ORDER BY {order};
             DELETE FROM {table}; INSERT INTO {table} SELECT * FROM rows; DROP TABLE rows"
        ))
        .expect("another order");
    }
}

/// All that is said of the export, in words, a line each. `change`: made to it first.
fn said(w: &Workload, schema: Schema, change: &str, seed: Option<u32>) -> Vec<String> {
    let file = export(w, schema, |c| {
        c.execute_batch(change).expect("a change");
        seed.into_iter().for_each(|seed| shuffle(c, seed));
    });
    let input = read(&file).expect("a run");
    let run = &input.run;
    let a = verdict::analyze(run);
    let mut said = vec![
        verdict::output::line::evidence(run, &a).join("; "),
        format!("{:?} {:?}", input.refused, input.notes),
    ];
    said.extend(a.steps.steps.iter().map(|s| format!("{s:?}")));
    for (d, found) in run.devices.iter().zip(&a.devices) {
        said.push(format!("GPU {} {:?}", d.ordinal, found.buckets));
        said.extend(found.slices.iter().map(|s| format!("{}..{} {:?}", s.start, s.end, s.bucket)));
        for (s, op) in d.streams.iter().flat_map(|s| s.ops.iter().map(move |op| (s, op))) {
            let name = if op.kind == Kind::Kernel { run.definitions.kernel_name(op.a) } else { "" };
            said.push(format!("{} {}..{} {} {name}", s.stream, op.start, op.end, op.correlation));
        }
    }
    for t in &run.threads {
        said.extend(t.calls.iter().map(|c| format!("{} {:?} {}", t.tid, c.span(), run.call_name(c))));
        let of =
            |r: &verdict::run::Range| format!("{} {:?} {} {}", t.tid, r.span, r.depth, run.plain_name(r));
        said.extend(t.ranges.iter().map(of));
    }
    said
}

#[test]
fn rows_in_any_order_are_read_the_same() {
    let small: &[(u32, &[u32])] = &[(100, &[0])];
    let alone: &[(u32, &[u32])] = &[(100, &[0, 1])];
    let both: &[(u32, &[u32])] = &[(300, &[0, 1]), (100, &[0])];
    let three: &[(u32, &[u32])] = &[(300, &[0]), (100, &[0]), (200, &[0])];
    // by process and number: nsys's id of the GPU; two processes call one GPU by two numbers, of
    // which one has each for another GPU
    let crossed: &[(u32, u32, u32)] = &[(100, 0, 5), (300, 0, 3), (300, 1, 5)];
    let untold: &[(u32, u32, u32)] = &[];
    let uuids = "UPDATE TARGET_INFO_CUDA_DEVICE SET uuid = 'GPU-' || gpuId, gpuId = NULL";
    let nameless = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL WHERE correlationId % 3 = 0";
    for schema in BOTH {
        for (processes, gpus, change) in [
            (small, untold, ""),
            (alone, untold, ""),
            (both, untold, ""),
            (three, untold, ""),
            (both, crossed, ""),
            (both, crossed, uuids),
            (both, untold, nameless),
        ] {
            if schema == Schema::Old && !gpus.is_empty() {
                continue; // it has no table of them
            }
            let mut w = training(12, processes, 3);
            w.gpus = gpus.to_vec();
            let sorted = said(&w, schema, change, None);
            for seed in [1, 2, 3] {
                let other = said(&w, schema, change, Some(seed));
                let differs = sorted.iter().zip(&other).find(|(a, b)| a != b);
                assert_eq!(
                    (differs, other.len()),
                    (None, sorted.len()),
                    "{schema:?}, {processes:?}, seed {seed}"
                );
            }
        }
    }
}

/// What process 100 calls 0 is 0, whichever row comes first.
#[test]
fn the_process_with_the_lowest_id_gives_the_numbers() {
    let w = training(12, &[(300, &[0]), (100, &[0])], 3);
    for seed in [None, Some(1), Some(2), Some(3)] {
        let file = export(&w, Schema::New, |c| seed.into_iter().for_each(|seed| shuffle(c, seed)));
        let run = read(&file).expect("a run").run;
        let of = |pid: u32| w.ops.iter().filter(|o| o.pid == pid).count();
        let devices: Vec<_> = run.devices.iter().map(|d| (d.ordinal, d.ops())).collect();
        assert_eq!(devices, [(0, of(100)), (1, of(300))], "{seed:?}");
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
        let a = verdict::analyze(&input.run);
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
        let again = formats::kineto::read_in_blocks(text.as_bytes(), 1 << 20, &Default::default());
        let again = again.expect("our own trace").run;
        let unified = |run: &verdict::Run| {
            let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
            ops.filter(|o| o.is_unified()).map(|o| o.copy()).collect::<Vec<_>>()
        };
        assert!(!unified(&again).is_empty() && unified(&again) == unified(&input.run));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Tables that are missing, empty, renamed, older or newer; and what single columns mean.

use trace::call::Class;
use trace::event::OPEN_ENDED;
use trace::header::sources;
use trace::Kind;
use verdict::run::RangeKind;

use super::fixture::{export, global, training, Op, Schema, What, Workload, BOTH};
use super::{measured, read, union};

const HOST: [&str; 6] = [
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
    "OSRT_API",
    "ThreadNames",
    "TARGET_INFO_GPU",
];

fn truth(w: &Workload, keep: impl Fn(&Op) -> bool) -> (u64, u64) {
    union(w.ops.iter().filter(|o| keep(o)).map(|o| (o.start, o.end)).collect())
}

#[test]
fn what_the_gpu_did_does_not_depend_on_the_other_tables() {
    let w = training(10, &[(100, &[0])], 1);
    let whole = [(0, truth(&w, |_| true))];
    for schema in BOTH {
        for table in HOST {
            for sql in [format!("DROP TABLE {table}"), format!("DELETE FROM {table}")] {
                let input = read(&export(&w, schema, |c| c.execute_batch(&sql).unwrap())).unwrap();
                assert_eq!(measured(&input), whole, "{sql}");
                let dropped = sql.starts_with("DROP") && table == HOST[0];
                assert_eq!(input.notes.iter().any(|n| n.contains(table)), dropped, "{:?}", input.notes);
            }
        }
        let all: String = HOST.iter().map(|t| format!("DROP TABLE {t};")).collect();
        let input = read(&export(&w, schema, |c| c.execute_batch(&all).unwrap())).unwrap();
        assert_eq!(measured(&input), whole);
        assert_eq!((input.run.threads.len(), input.run.unjoined), (0, w.ops.len() as u64));
        assert_ne!(input.run.header.sources & sources::NO_LAUNCHES, 0);
    }
}

#[test]
fn one_kind_of_work_is_enough() {
    let w = training(10, &[(100, &[0])], 1);
    for schema in BOTH {
        for kept in ["KERNEL", "MEMCPY", "MEMSET"] {
            let others = ["KERNEL", "MEMCPY", "MEMSET"].into_iter().filter(|k| *k != kept);
            let sql: String = others.map(|k| format!("DROP TABLE CUPTI_ACTIVITY_KIND_{k};")).collect();
            let input = read(&export(&w, schema, |c| c.execute_batch(&sql).unwrap())).unwrap();
            let own = truth(&w, |o| match o.what {
                What::Kernel(..) => kept == "KERNEL",
                What::Copy(..) => kept == "MEMCPY",
                What::Memset(_) => kept == "MEMSET",
                What::Graph => false,
            });
            assert_eq!(measured(&input), [(0, own)]);
        }
    }
}

#[test]
fn names_of_tables_and_columns_may_differ() {
    let w = training(10, &[(100, &[0])], 1);
    let whole = [(0, truth(&w, |_| true))];
    for sql in [
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO temporary; ALTER TABLE temporary RENAME TO cupti_activity_kind_kernel",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN deviceId TO DEVICEID",
        "CREATE TABLE copy AS SELECT * FROM StringIds; DROP TABLE StringIds; ALTER TABLE copy RENAME TO StringIds",
        "CREATE TABLE copy (value TEXT, id INT PRIMARY KEY) WITHOUT ROWID; INSERT INTO copy SELECT value, id FROM StringIds;
         DROP TABLE StringIds; ALTER TABLE copy RENAME TO StringIds",
    ] {
        let input = read(&export(&w, Schema::New, |c| c.execute_batch(sql).unwrap())).unwrap();
        assert_eq!((measured(&input), input.refused), (whole.to_vec(), Default::default()), "{sql}");
        assert_eq!(input.run.unjoined, 0, "{sql}");
        let run = &input.run;
        let first = run.devices[0].streams.iter().flat_map(|s| &s.ops).find(|o| o.kind == Kind::Kernel).unwrap();
        assert_ne!(run.definitions.kernel_name(first.a), "<unknown>", "{sql}");
    }
}

#[test]
fn columns_that_nobody_needs_may_be_missing() {
    let w = training(10, &[(100, &[0])], 1);
    let drop = |columns: &[&str]| -> String {
        columns.iter().map(|c| format!("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {c};")).collect()
    };
    let most = [
        "contextId",
        "streamId",
        "globalPid",
        "graphNodeId",
        "graphId",
        "demangledName",
        "mangledName",
        "gridX",
    ];
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(&drop(&most)).unwrap())).unwrap();
    assert_eq!(measured(&input), [(0, truth(&w, |_| true))]);
    let ops = input.run.devices[0].streams.iter().flat_map(|s| &s.ops);
    let kernel = ops.clone().find(|o| o.kind == Kind::Kernel).unwrap();
    assert_eq!(input.run.definitions.kernel_name(kernel.a), "short");
    assert_eq!(kernel.b, 1);
    // without an id of the graph, the launching call tells; copies still have theirs, which is
    // another number
    let named = ops.clone().find(|o| o.kind == Kind::Memcpy && o.graph != 0).unwrap().graph;
    let found =
        ops.filter(|o| o.kind == Kind::Kernel && o.is_graph_node()).map(|o| o.graph).collect::<Vec<_>>();
    assert!(!found.is_empty() && !found.contains(&named), "{named}");
    for column in ["start", "end", "deviceId"] {
        let error =
            read(&export(&w, Schema::New, |c| c.execute_batch(&drop(&[column])).unwrap())).unwrap_err();
        let words = format!("CUPTI_ACTIVITY_KIND_KERNEL has no column {column}");
        assert!(error.to_string().contains(&words), "{error}");
    }
    let sql = "ALTER TABLE NVTX_EVENTS DROP COLUMN eventType";
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(sql).unwrap())).unwrap();
    assert_eq!(measured(&input), [(0, truth(&w, |_| true))]);
    assert!(input.notes[0].contains("NVTX_EVENTS has no column eventType"), "{:?}", input.notes);
}

#[test]
fn what_is_no_export_says_what_it_lacks() {
    let w = training(2, &[(100, &[0])], 1);
    let gone = "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY;
        DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET; ";
    let cases = [
        (gone.to_owned(), "without any work of a GPU (none of the tables CUPTI_ACTIVITY_KIND_KERNEL"),
        (
            gone.to_owned() + "ALTER TABLE StringIds RENAME TO a; ALTER TABLE EXPORT_META_DATA RENAME TO b",
            "no nsys export",
        ),
        (
            "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY;
             DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET"
                .to_owned(),
            "no operation of a GPU among its",
        ),
        ("ALTER TABLE StringIds RENAME TO StringTable".to_owned(), "nvprof"),
        // what the file itself defines is not run, not even to be a table
        (
            gone.to_owned()
                + "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end, 0 AS deviceId",
            "without any work of a GPU",
        ),
    ];
    for (sql, words) in cases {
        let error = read(&export(&w, Schema::Old, |c| c.execute_batch(&sql).unwrap())).unwrap_err();
        assert!(error.to_string().contains(words) && !error.hint.is_empty(), "{error}");
    }
}

#[test]
fn calls_with_a_backtrace_are_there_once() {
    let w = training(10, &[(100, &[0])], 1);
    let (pid, calls) = (global(100, 107), w.calls.len());
    // around each call a record of class 67, as --cudabacktrace makes it; one call has only that
    let sql = format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue)
           SELECT start - 90, end + 90, 67, globalTid, correlationId, nameId, 0 FROM CUPTI_ACTIVITY_KIND_RUNTIME;
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue)
           VALUES (100, 200, 67, {pid}, 999999, 1, 0)"
    );
    let input = read(&export(&w, Schema::Old, |c| c.execute_batch(&sql).unwrap())).unwrap();
    assert_eq!(input.run.threads[0].calls.len(), calls + 1);
    assert_eq!(input.refused, Default::default());
}

#[test]
fn calls_of_the_threads_own_default_stream_launch_too() {
    let w = training(10, &[(100, &[0])], 1);
    let sql =
        "UPDATE StringIds SET value = 'cudaLaunchKernel_ptsz_v7000' WHERE value LIKE 'cudaLaunchKernel%';
        UPDATE StringIds SET value = 'cudaMemcpyAsync_ptsz_v7000' WHERE value LIKE 'cudaMemcpyAsync%';
        UPDATE StringIds SET value = 'cuMemsetD8Async_ptsz' WHERE value LIKE 'cudaMemset%'";
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(sql).unwrap())).unwrap();
    assert_eq!(input.run.unjoined, 0);
    let calls = &input.run.threads[0].calls;
    let launch = calls.iter().find(|c| c.class == Some(Class::Launch)).unwrap();
    assert_eq!(input.run.call_name(launch), "cudaLaunchKernel_ptsz");
}

#[test]
fn ranges_of_domains_open_ones_and_marks() {
    let w = training(4, &[(100, &[0])], 1);
    let tid = global(100, 107);
    let sql = format!(
        "INSERT INTO StringIds VALUES (900, 'MPI_Send'), (901, 'NCCL');
         DELETE FROM NVTX_EVENTS;
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId) VALUES
           (1000, 5000, 59, NULL, 900, {tid}, 1), (6000, 7000, 59, NULL, 900, {tid}, 1),
           (10, NULL, 75, 'MPI', NULL, {tid}, 1), (11, NULL, 75, NULL, 901, {tid}, 2),
           (2000, 3000, 60, 'ncclAllReduce', NULL, {tid}, 2),
           (2100, NULL, 34, 'a mark', NULL, {tid}, 0), (2200, NULL, 33, 'a category', NULL, {tid}, 0),
           (2300, NULL, 39, 'a thread', NULL, {tid}, 0),
           (8000, NULL, 59, 'open', NULL, {tid}, 0), (8500, 8600, 70, 'of a text file', NULL, {tid}, 0),
           (8700, 8800, 71, 'of a text file', NULL, {tid}, 0),
           (9000, 9100, 59, 'of a nameless domain', NULL, {tid}, 77)"
    );
    for schema in BOTH {
        let input = read(&export(&w, schema, |c| c.execute_batch(&sql).unwrap())).unwrap();
        let run = &input.run;
        let thread = run.threads.iter().find(|t| t.tid == 107).unwrap();
        let found: Vec<_> = thread
            .ranges
            .iter()
            .map(|r| {
                let open = r.flags & OPEN_ENDED != 0;
                (run.definitions.string(r.name).unwrap(), r.depth, open, r.is_start_end())
            })
            .collect();
        assert_eq!(
            found,
            [
                ("MPI:MPI_Send", 0, false, false),
                ("NCCL:ncclAllReduce", 1, false, true),
                ("MPI:MPI_Send", 0, false, false),
                ("open", 0, true, false),
                ("of a text file", 1, false, false),
                ("of a text file", 1, false, true),
                ("of a nameless domain", 1, false, false),
            ]
        );
        assert!(thread.ranges.iter().all(|r| r.kind == RangeKind::User));
        // until the last event of all
        let open = thread.ranges.iter().find(|r| r.flags & OPEN_ENDED != 0).unwrap();
        assert_eq!(open.span.end, run.header.last_write);
        assert_eq!(input.refused, Default::default());
    }
}

#[test]
fn whole_graph_launches_are_work() {
    let mut w = training(8, &[(100, &[0])], 1);
    w.ops.retain(|o| o.graph == 0);
    let launches: Vec<_> = w.calls.iter().filter(|c| c.name.starts_with("cudaGraph")).cloned().collect();
    for c in &launches {
        let (start, end, correlation) = (c.end + 5_000, c.end + 95_000, c.correlation);
        let (graph, what) = (12, What::Graph);
        w.ops.push(Op { pid: 100, device: 0, stream: 7, start, end, correlation, graph, node: 0, what });
    }
    let input = read(&export(&w, Schema::New, |_| ())).unwrap();
    let graphs: Vec<_> = input.run.devices[0]
        .streams
        .iter()
        .flat_map(|s| &s.ops)
        .filter(|o| o.kind == Kind::GraphTrace)
        .map(|o| (o.graph, o.is_graph_node(), input.run.call(o.call).unwrap().1.class))
        .collect();
    assert_eq!(graphs, vec![(12, false, Some(Class::GraphLaunch)); launches.len()]);
    assert_eq!(measured(&input), [(0, truth(&w, |_| true))]);
    assert_ne!(input.run.header.sources & sources::GRAPH_LEVEL, 0);
}

#[test]
fn kinds_of_memory_are_cuptis() {
    let mut w = training(1, &[(100, &[0])], 1);
    w.ops.clear();
    // nsys: direction, from, to; CUPTI's direction, from, to; pageable
    let cases = [
        ((1, 0, 2), (1, 1, 3), true),
        ((2, 2, 1), (2, 3, 2), false),
        ((8, 2, 2), (8, 3, 3), false),
        ((11, 4, 4), (1, 5, 5), false),
        ((12, 7, 4), (2, 0, 5), false),
        ((13, 4, 4), (8, 5, 5), false),
        ((99, 99, 7), (0, 0, 0), false),
    ];
    for (i, ((kind, from, to), ..)) in cases.iter().enumerate() {
        let (start, what) = (6_000_000 + 1000 * i as i64, What::Copy(5 << 32, *kind, *from, *to));
        let (pid, device, stream, end) = (100, 0, 7, start + 900);
        w.ops.push(Op { pid, device, stream, start, end, correlation: 1, graph: 0, node: 0, what });
    }
    let input = read(&export(&w, Schema::New, |_| ())).unwrap();
    for (op, (_, wanted, pageable)) in input.run.devices[0].streams[0].ops.iter().zip(cases) {
        let c = op.copy();
        assert_eq!(((c.direction, c.source, c.destination), c.is_pageable()), (wanted, pageable));
        assert_eq!(c.bytes, 5 << 32);
    }
}

#[test]
fn a_newer_schema_and_lost_events_are_remarked() {
    let w = training(4, &[(100, &[0])], 1);
    let sql = "UPDATE META_DATA_EXPORT SET value = '4.1.0' WHERE name = 'EXPORT_SCHEMA_VERSION';
        UPDATE META_DATA_EXPORT SET value = '4' WHERE name = 'EXPORT_SCHEMA_VERSION_MAJOR';
        CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT);
        INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 'Number of CUDA events collected: 5'),
          (1, 2, 'Not all CUDA events might have been collected.'), (2, 2, 'Not all CUDA events might have been collected.')";
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(sql).unwrap())).unwrap();
    assert_eq!(input.notes.len(), 2, "{:?}", input.notes);
    assert!(input.notes[0].contains("schema 4.1.0") && input.notes[1].contains("Not all CUDA events"));
}

/// What nsys says is missing of the GPU's events no verdict can do without, however little it may
/// be.
#[test]
fn a_verdict_is_not_given_where_nsys_says_that_events_are_missing() {
    let w = training(60, &[(100, &[0])], 1);
    let with = |message: &str| {
        let sql = format!(
            "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT);
            INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 2, '{message}')"
        );
        read(&export(&w, Schema::New, |c| c.execute_batch(&sql).unwrap())).unwrap().run
    };
    for (message, missing) in [
        ("Not all CUDA events might have been collected.", true),
        ("Event buffers were full: some events were lost.", true),
        ("Not all NVTX events might have been collected.", true),
        ("Not all OS runtime libraries events might have been collected.", false),
        ("12 sampling events were dropped", false),
        ("Number of CUDA events collected: 5", false),
    ] {
        let run = with(message);
        let verdict = verdict::analyze(&run).verdict;
        let said = verdict.why_inconclusive().unwrap_or_default();
        assert_eq!(said.contains(message.trim_end_matches('.')), missing, "{message}: {verdict:?}");
    }
}

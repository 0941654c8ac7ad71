// SPDX-License-Identifier: Apache-2.0
//! The trace file as Perfetto's own trace processor sees it: loads without an error, loses no
//! slice, and its SQL gives the same busy and idle time as the analysis, to the nanosecond. Needs
//! node and `scripts/perfetto install`.

use std::collections::HashSet;

use serde_json::Value;
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::event::GRAPH_NODE;
use trace::{Event, Kind};
use verdict::output::chrome::ChromeOptions;

#[path = "chrome/million.rs"]
mod million;
#[path = "chrome/perfetto.rs"]
mod perfetto;

use perfetto::{ask, assert_same_times, count, is_here, make, number, scratch, ARROWS, COUNTS, UNION, WRONG};

/// Two streams and a collective stream, overlapping kernels, a graph, copies, memsets, blocking
/// calls, nested and crossing ranges, an unobserved span, names with everything JSON forbids, ops
/// of no length.
fn everything() -> Vec<u8> {
    let mut b = Builder::new();
    b.header.pid = 7; // as in a container: track numbers pass it
    b.header.rank = 3; // stored + 1
    b.header.world_size = 8;
    b.header.host = "node\"1".into();
    b.header.command = "python \u{1}train.py \\".into();
    b.header.start_realtime = 1_795_000_000_000_000_000;
    b.device(0, "SIM \"GPU\"", 132);
    let names = [
        "_ZN2at6native6kernelIfEEvPf",
        "quote\" back\\slash \n\t\u{1}\u{7f}\u{2028} ä",
        "",
        "x::y<(a)>::z(int)",
    ];
    let kernels = names.map(|n| b.kernel(n, 128, 40));
    let nccl = b.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 512, 96);
    let range_names = ["forward", "a\"b\u{0}c", ""].map(|n| b.string(n));
    let base = 77_000_000_000_000u64;
    let mut correlation = 0;
    let call = |b: &mut Builder, tid, start, end, id, class: Class, correlation| {
        let mut e = Event::new(Kind::Call, start, end);
        (e.a, e.x, e.correlation) = (pack(RUNTIME, id), class as u8, correlation);
        b.on_thread(tid, e);
    };
    for i in 0..400u64 {
        let t = base + i * 50_000;
        correlation += 1;
        call(&mut b, 7, t, t + 4_001, 211, Class::Launch, correlation);
        let mut k = Event::new(Kind::Kernel, t + 9_003, t + 9_003 + ((i + 1) % 5) * 7_001);
        (k.a, k.b, k.correlation) = (kernels[i as usize % 4], 64, correlation);
        b.on_stream(0, 1, 7, k);
        // a dependent launch: begins before the one above ends
        k.start = t + 12_000;
        k.end = t + 20_000;
        k.correlation = correlation + 1;
        b.on_stream(0, 1, 7, k);
        correlation += 1;
        call(&mut b, 7, t + 4_500, t + 8_000, 211, Class::Launch, correlation);
        if i % 3 == 0 {
            correlation += 1;
            call(&mut b, 8, t + 10_000, t + 30_000, 31, Class::Copy, correlation);
            let (a, packed) =
                trace::event::Copy { bytes: 1 << 33, direction: 2, source: 3, destination: 1, peer: false }
                    .pack();
            let mut m = Event::new(Kind::Memcpy, t + 18_000, t + 26_000);
            (m.a, m.b, m.correlation) = (a, packed, correlation);
            b.on_stream(0, 1, 13, m);
            let mut s = Event::new(Kind::Memset, t + 26_000, t + 26_500);
            s.a = 4096;
            b.on_stream(0, 1, 13, s);
        }
        if i % 4 == 0 {
            let mut c = Event::new(Kind::Kernel, t + 19_000, t + 34_000);
            (c.a, c.b) = (nccl, 24);
            b.on_stream(0, 1, 20, c);
        }
        if i % 10 == 0 {
            correlation += 1;
            call(&mut b, 7, t + 20_500, t + 22_000, 311, Class::GraphLaunch, correlation);
            for n in 0..5 {
                let mut g = Event::new(Kind::Kernel, t + 35_000 + n * 1_100, t + 36_000 + n * 1_100);
                (g.a, g.correlation, g.flags, g.c) = (kernels[0], correlation, GRAPH_NODE, 9);
                b.on_stream(0, 1, 7, g);
            }
        }
        call(&mut b, 7, t + 22_500, t + 41_000, 131, Class::Sync, 0);
        let mut range = Event::new(Kind::Range, t, t + 30_000);
        range.a = range_names[i as usize % 3];
        b.on_thread(7, range);
        (range.start, range.end, range.x) = (t + 5_000, t + 25_000, 1);
        b.on_thread(7, range);
        (range.start, range.end, range.x) = (t + 20_000, t + 45_000, 1); // crosses both
        b.on_thread(7, range);
        let mut mark = Event::new(Kind::Step, t, t + 50_000);
        mark.a = i as u32;
        b.on_thread(7, mark);
    }
    let mut blind = Event::new(Kind::Unobserved, base + 400 * 50_000, base + 500 * 50_000);
    blind.a = 1;
    b.on_recorder(blind);
    let mut late = Event::new(Kind::Kernel, base + 500 * 50_000, base + 500 * 50_000 + 77);
    late.a = kernels[0];
    b.on_stream(0, 1, 7, late);
    b.on_recorder(Event::clock_pair(base, 1_795_000_000_000_000_000));
    b.finish()
}

#[test]
fn a_trace_of_everything_loads_without_a_lost_slice() {
    if !is_here() {
        return;
    }
    let folder = scratch("everything");
    let file = folder.0.join("trace.json.gz");
    let (run, analysis, written) =
        make(&everything(), &file, &ChromeOptions { line: "the line", ..Default::default() });
    let rows = ask(
        &file,
        &[
            WRONG,
            ARROWS,
            UNION,
            COUNTS,
            "select count(*) n from flow",
            "select count(*) n from slice s left join thread_track t on s.track_id = t.id where t.id is null",
            "select distinct t.name from slice s join thread_track k on s.track_id = k.id join thread t using (utid) order by 1",
            "select name, pid from process where pid is not null and pid > 0",
            "select distinct name from slice where category = 'kernel' order by 1",
            "select count(distinct name) n from track where name like 'GPU 0%' or name like '%queue depth%'",
        ],
    );
    assert_eq!(rows[0], Value::from(Vec::<Value>::new()), "errors");
    assert_eq!(rows[1], Value::from(Vec::<Value>::new()), "arrows without an end");
    assert_same_times(&analysis, &rows[2][0]);
    let ops: u64 = run.devices.iter().map(|d| d.ops() as u64).sum();
    let calls: u64 = run.threads.iter().map(|t| t.calls.len() as u64).sum();
    assert_eq!((written.ops, written.calls), (ops, calls));
    let c = &rows[3];
    assert_eq!(count(c, "kernel") + count(c, "gpu_memcpy") + count(c, "gpu_memset"), ops);
    assert_eq!(count(c, "cuda_runtime"), calls);
    assert_eq!(count(c, "user_annotation"), 3 * 400);
    assert_eq!(count(c, "idle"), analysis.devices[0].slices.len() as u64);
    assert_eq!(count(c, "unobserved"), analysis.blind.len() as u64);
    assert_eq!(count(c, "step"), analysis.steps.steps.len() as u64);
    // one arrow an op that has a call (of a graph's nodes the first), one an idle slice with a
    // blocking call
    let joined = 400 * 2 + 134 + 40;
    assert!(number(&rows[4][0], "n") >= joined, "{} arrows", rows[4]);
    let tracks: Vec<&str> =
        rows[6].as_array().expect("rows").iter().filter_map(|r| r["name"].as_str()).collect();
    for expected in [
        "stream 7",
        "stream 7 (2)",
        "stream 13",
        "stream 20 collectives",
        "why idle",
        "steps",
        "thread 7 CUDA API",
        "thread 8 CUDA API",
        "thread 7 ranges",
        "thread 7 ranges (2)",
    ] {
        assert!(tracks.contains(&expected), "{expected} in {tracks:?}");
    }
    assert_eq!(rows[7][0]["name"], "rank 2: python \u{1}train.py \\");
    let names: Vec<&str> =
        rows[8].as_array().expect("rows").iter().filter_map(|r| r["name"].as_str()).collect();
    assert!(names.contains(&"kernel<float>"), "{names:?}");
    assert!(
        names.contains(&"quote\" back\\slash \n\t\u{1}\u{7f}\u{2028} ä")
            || names.iter().any(|n| n.contains("slash")),
        "{names:?}"
    );
}

#[test]
fn at_the_size_limit_gaps_and_their_neighbours_stay_and_the_rest_is_counted() {
    if !is_here() {
        return;
    }
    let folder = scratch("limit");
    let file = folder.0.join("trace.json.gz");
    let options = ChromeOptions { max_bytes: 2_000_000, ..Default::default() };
    let (run, analysis, written) = make(&million::recording(150_000), &file, &options);
    assert!(written.bytes <= 2_000_000, "{}", written.bytes);
    assert!(written.ops_left_out + written.calls_left_out > 0, "{written:?}");
    assert_eq!(written.ops + written.ops_left_out, run.devices[0].ops() as u64);
    assert_eq!(written.calls + written.calls_left_out, run.threads[0].calls.len() as u64);
    let rows =
        ask(&file, &[WRONG, COUNTS, "select ts, dur from slice where category = 'kernel' order by ts"]);
    assert_eq!(rows[0], Value::from(Vec::<Value>::new()), "errors");
    assert_eq!(count(&rows[1], "idle"), analysis.devices[0].slices.len() as u64 - written.gaps_left_out);
    // the longest gaps have the kernels beside them (a slice may be one of several parts of its
    // gap)
    let kernels: HashSet<(u64, u64)> =
        rows[2].as_array().expect("rows").iter().map(|r| (number(r, "ts"), number(r, "dur"))).collect();
    let base = run.threads[0].calls[0].start;
    let mut slices = analysis.devices[0].slices.clone();
    slices.sort_by_key(|s| std::cmp::Reverse(s.span().ns()));
    for slice in &slices[..500] {
        for (stream, op) in [(slice.before_stream, slice.before), (slice.after_stream, slice.after)] {
            if let Some(op) = run.op(0, stream, op) {
                assert!(kernels.contains(&(op.start - base, op.end - op.start)), "no neighbour of {slice:?}");
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Every event of a known workload is in the run, as it was.

use formats::{Format, Input};
use trace::call::Class;
use trace::Kind;
use verdict::run::RangeKind;

use super::fixture::{export, training, What, Workload, BOTH};
use super::{measured, read, union};

/// The export's time of the run's time 0.
fn zero(w: &Workload, input: &Input) -> i64 {
    let starts = w.ops.iter().map(|o| o.start).chain(w.calls.iter().map(|c| c.start));
    let first = starts.chain(w.ranges.iter().map(|r| r.start)).min().unwrap();
    first - input.run.header.start_monotonic as i64
}

/// Device, stream, start, end, correlation, graph, and what it was, in words.
fn true_ops(w: &Workload) -> Vec<String> {
    let mut out: Vec<String> = w
        .ops
        .iter()
        .map(|o| {
            let head =
                format!("{} {} {} {} {} {}", o.device, o.stream, o.start, o.end, o.correlation, o.graph);
            match &o.what {
                What::Kernel(name, blocks, registers) => format!("{head} {name} {blocks} {registers}"),
                What::Copy(bytes, kind, from, to) => {
                    format!("{head} copy {bytes} {kind} {} {}", from + 1, to + 1)
                }
                What::Memset(bytes) => format!("{head} memset {bytes}"),
                What::Graph => format!("{head} graph"),
            }
        })
        .collect();
    out.sort();
    out
}

fn read_ops(input: &Input, zero: i64) -> Vec<String> {
    let run = &input.run;
    let mut out = Vec::new();
    for d in &run.devices {
        for s in &d.streams {
            for o in &s.ops {
                let (start, end) = (o.start as i64 + zero, o.end as i64 + zero);
                let head = format!("{} {} {start} {end} {} {}", d.ordinal, s.stream, o.correlation, o.graph);
                out.push(match o.kind {
                    Kind::Kernel => {
                        let k = run.definitions.kernel(o.a).unwrap();
                        assert_eq!((k.block, k.static_shared, k.dynamic_shared), ([256, 2, 1], 48, 1024));
                        format!("{head} {} {} {}", run.definitions.kernel_name(o.a), o.b, k.registers)
                    }
                    Kind::Memcpy => {
                        let c = o.copy();
                        format!("{head} copy {} {} {} {}", c.bytes, c.direction, c.source, c.destination)
                    }
                    Kind::Memset => format!("{head} memset {}", o.bytes()),
                    _ => format!("{head} graph"),
                });
                assert_eq!(o.is_graph_node(), o.graph != 0 && o.kind != Kind::GraphTrace);
            }
        }
    }
    out.sort();
    out
}

#[test]
fn every_operation_call_and_range_is_there_as_it_was() {
    for schema in BOTH {
        let w = training(40, &[(1001, &[0, 1])], 7);
        let input = read(&export(&w, schema, |_| ())).unwrap();
        assert_eq!(input.format, Format::Nsys);
        assert_eq!((input.refused, input.notes.as_slice()), (Default::default(), &[][..]), "{schema:?}");
        assert_eq!(input.events as usize, w.ops.len() + w.calls.len() + w.ranges.len() + w.os_calls.len());
        let zero = zero(&w, &input);
        assert_eq!(read_ops(&input, zero), true_ops(&w), "{schema:?}");
        let run = &input.run;
        assert_eq!((run.unjoined, run.header.pid), (0, 1001));
        // the launching call of each operation
        for o in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
            let (thread, call) = run.call(o.call).unwrap();
            let truth = w.calls.iter().find(|c| c.correlation == o.correlation).unwrap();
            assert_eq!((call.start as i64 + zero, run.threads[thread].tid), (truth.start, truth.tid));
        }
        let main = run.threads.iter().find(|t| t.tid == 1008).unwrap();
        assert_eq!(run.definitions.string(main.name), Some("main of 1001"));
        let calls: Vec<_> = main
            .calls
            .iter()
            .map(|c| (c.start as i64 + zero, c.end as i64 + zero, c.correlation, run.call_name(c).to_owned()))
            .collect();
        let mut truth: Vec<_> = w
            .calls
            .iter()
            .map(|c| (c.start, c.end, c.correlation, c.name.rsplit_once("_v").unwrap().0.to_owned()))
            .collect();
        truth.sort();
        assert_eq!(calls, truth);
        assert!(main.calls.iter().any(|c| c.class == Some(Class::GraphLaunch)));
        assert!(main.calls.iter().any(|c| c.class == Some(Class::Sync)));
        let mut ranges: Vec<_> = main
            .ranges
            .iter()
            .map(|r| {
                assert_eq!(r.kind, RangeKind::User);
                let name = run.definitions.string(r.name).unwrap().to_owned();
                (r.span.start as i64 + zero, Some(r.span.end as i64 + zero), name, r.depth)
            })
            .collect();
        ranges.sort();
        let mut truth: Vec<_> = w.ranges.iter().map(|r| (r.start, r.end, r.name.clone(), r.depth)).collect();
        truth.sort();
        assert_eq!(ranges, truth);
        let os: Vec<_> = input
            .os_calls
            .iter()
            .map(|c| {
                let name = run.definitions.string(c.name).unwrap();
                (1001, c.tid, c.span.start as i64 + zero, c.span.end as i64 + zero, name)
            })
            .collect();
        assert_eq!(os, w.os_calls);
    }
}

#[test]
fn busy_and_idle_of_each_device_equal_a_brute_force_union() {
    for schema in BOTH {
        for seed in 0..20 {
            let w = training(12, &[(1001, &[0, 1])], seed);
            let input = read(&export(&w, schema, |_| ())).unwrap();
            let of = |device: u32| {
                let own = w.ops.iter().filter(|o| o.device == device);
                (device, union(own.map(|o| (o.start, o.end)).collect()))
            };
            assert_eq!(measured(&input), [of(0), of(1)], "{schema:?} {seed}");
        }
    }
}

#[test]
fn the_capture_began_at_the_told_time() {
    for (schema, zero) in BOTH.into_iter().zip([0, 5_000_000]) {
        let w = training(3, &[(9, &[0])], 1);
        let input = read(&export(&w, schema, |_| ())).unwrap();
        let first = w.ranges.iter().map(|r| r.start).min().unwrap();
        let h = &input.run.header;
        assert_eq!(input.run.realtime(h.start_monotonic) as i64, 1_700_000_000_000_000_000 + first - zero);
        assert_eq!(h.driver_version, if zero == 0 { 0 } else { 13_000 });
    }
}

/// NCCL's ranges from before `cudaProfilerStart` have negative times.
#[test]
fn times_before_zero_are_times() {
    let mut w = training(5, &[(9, &[0])], 1);
    let shift = 2_000_000_000_000;
    w.ops.iter_mut().for_each(|o| (o.start, o.end) = (o.start - shift, o.end - shift));
    w.calls.iter_mut().for_each(|o| (o.start, o.end) = (o.start - shift, o.end - shift));
    w.ranges.iter_mut().for_each(|o| (o.start, o.end) = (o.start - shift, o.end.map(|e| e - shift)));
    w.os_calls.clear();
    for schema in BOTH {
        let input = read(&export(&w, schema, |_| ())).unwrap();
        assert_eq!(read_ops(&input, zero(&w, &input)), true_ops(&w));
        assert_eq!(measured(&input), [(0, union(w.ops.iter().map(|o| (o.start, o.end)).collect()))]);
    }
}

/// `nsys profile --capture-range=nvtx`: the range around all of it began long before anything was
/// recorded.
#[test]
fn a_range_from_long_before_the_capture_makes_no_recorded_time() {
    let mut w = training(30, &[(9, &[0])], 1);
    let recorded = |w: &Workload| {
        let input = read(&export(w, super::fixture::Schema::New, |_| ())).unwrap();
        let a = verdict::analyze(&input.run);
        (a.coverage.run_ns, a.coverage.seen_ns, a.steady, measured(&input))
    };
    // up to the last call's end in both
    w.ranges.clear();
    let (run, seen, steady, busy) = recorded(&w);
    let name = "all".to_owned();
    w.ranges.push(super::fixture::Range {
        pid: 9,
        tid: 16,
        start: -600_000_000_000,
        end: Some(6_000_000),
        name,
        domain: 0,
        depth: 0,
    });
    let with = recorded(&w);
    assert_eq!((with.0, with.1, with.2.ns(), with.3), (run, seen, steady.ns(), busy));
}

/// A program is started long before it uses a GPU: what its threads did then is kept, and moves
/// nothing else.
#[test]
fn os_calls_from_before_the_first_event_keep_their_distance() {
    let mut w = training(5, &[(9, &[0])], 1);
    let first = w.ranges.iter().map(|r| r.start).min().unwrap();
    w.os_calls.push((9, 99, first - 40_000_000_000, first - 39_000_000_000, "open64"));
    let input = read(&export(&w, super::fixture::Schema::New, |_| ())).unwrap();
    let call = input.os_calls.last().unwrap();
    let start = input.run.header.start_monotonic;
    assert_eq!((call.span.ns(), start - call.span.start), (1_000_000_000, 40_000_000_000));
    assert_eq!(measured(&input), [(0, union(w.ops.iter().map(|o| (o.start, o.end)).collect()))]);
}

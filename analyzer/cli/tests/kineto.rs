// SPDX-License-Identifier: Apache-2.0
//! Purpose: torch.profiler's traces are read exactly, whatever their form, and what cannot be read
//! is counted.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use formats::{Format, Input, ReadError};
use serde_json::Value;
use verdict::run::{RangeKind, Run};

const OWN: [&str; 5] = ["h200_gpt", "h200_gptsmall", "h200_gptsync", "h200_graphs", "h200_tiny"];

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.json.gz"))
}

fn text(name: &str) -> Vec<u8> {
    unpacked(&trace(name))
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut out).unwrap();
    out
}

/// A file of these bytes, removed at the end of the test.
struct Kept(PathBuf);

impl Kept {
    fn new(bytes: &[u8]) -> Kept {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gapprobe-kineto-{}-{n}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        Kept(path)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read_bytes(bytes: &[u8]) -> Result<Input, ReadError> {
    let file = Kept::new(bytes);
    formats::read(&file.0, &Default::default())
}

/// Microseconds as serde_json read them (arbitrary precision is off: exact only for texts of up to
/// 15 digits, so the brute force takes the text itself).
fn ns_of(text: &str) -> i128 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.parse::<i128>().unwrap() * 1000 + part.parse::<i128>().unwrap()
}

/// (device, start, end) of all GPU operations, by lines: independent of the reader under test.
fn brute(text: &str) -> Vec<(u64, i128, i128)> {
    let mut found = Vec::new();
    for event in text.split("\n  },") {
        let gpu = ["kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"]
            .iter()
            .any(|c| event.contains(&format!("\"cat\": \"{c}\"")));
        if !gpu {
            continue;
        }
        let after = |key: &str| {
            let rest = &event[event.find(key).unwrap() + key.len()..];
            rest[..rest.find([',', '\n', ' ', '}']).unwrap()].to_owned()
        };
        let start = ns_of(&after("\"ts\": "));
        found.push((after("\"device\": ").parse().unwrap(), start, start + ns_of(&after("\"dur\": "))));
    }
    found
}

/// Busy and idle ns by the union of intervals.
fn union(mut spans: Vec<(i128, i128)>) -> (u64, u64) {
    spans.sort_unstable();
    let (first, mut reach) = (spans[0].0, spans[0].0);
    let mut busy = 0;
    for (start, end) in spans {
        busy += (end - start.max(reach)).max(0);
        reach = reach.max(end);
    }
    (busy as u64, (reach - first - busy) as u64)
}

#[test]
fn busy_and_idle_equal_a_brute_force_union_to_the_ns() {
    // traces from public repositories: never in ours
    let others = PathBuf::from(std::env::var_os("GAPPROBE_OTHER_TRACES").unwrap_or_default());
    let others = ["kineto_resnet50_num_workers_0", "kineto_resnet50_num_workers_4"]
        .map(|name| others.join(format!("{name}.json.gz")));
    for path in OWN.iter().map(|name| trace(name)).chain(others) {
        let name = path.display();
        if !path.is_file() {
            println!("skipped: {name} is not there (GAPPROBE_OTHER_TRACES)");
            continue;
        }
        let text = String::from_utf8(unpacked(&path)).unwrap();
        let spans = brute(&text);
        assert!(spans.len() > 500, "{name}");
        let input = formats::read(&path, &Default::default()).unwrap();
        assert_eq!(input.format, Format::Kineto);
        assert_eq!(input.run.devices.iter().map(|d| d.ops()).sum::<usize>(), spans.len(), "{name}");
        let a = verdict::analyze(&input.run);
        for d in &a.devices {
            let own = spans.iter().filter(|s| s.0 == u64::from(d.ordinal)).map(|s| (s.1, s.2)).collect();
            assert_eq!((d.busy_ns, d.idle_ns), union(own), "{name}");
        }
        assert_eq!(input.refused, Default::default(), "{name}");
    }
}

/// Everything of a run that a reader decides.
fn facts(run: &Run) -> Vec<String> {
    let mut out = Vec::new();
    for d in &run.devices {
        for s in &d.streams {
            for o in &s.ops {
                let name = run.definitions.kernel_name(o.a);
                out.push(format!(
                    "{} {} {} {:?} {} {} {name}",
                    s.stream, o.start, o.end, o.kind, o.b, o.correlation
                ));
            }
        }
    }
    for t in &run.threads {
        out.extend(t.calls.iter().map(|c| format!("{} {} {} {}", t.tid, c.start, c.end, run.call_name(c))));
        out.extend(t.ranges.iter().map(|r| {
            format!("{} {:?} {:?} {:?} {}", t.tid, r.span, r.kind, run.definitions.string(r.name), r.depth)
        }));
    }
    out
}

#[test]
fn plain_compressed_and_array_form_read_the_same() {
    let plain = text("h200_tiny");
    let whole = facts(&read_bytes(&plain).unwrap().run);
    assert!(whole.len() > 30_000);
    assert_eq!(facts(&formats::read(&trace("h200_tiny"), &Default::default()).unwrap().run), whole);
    // two members, as `cat a.gz b.gz` makes them
    let half = plain.len() / 2;
    let mut members = Vec::new();
    for piece in [&plain[..half], &plain[half..]] {
        let mut to = flate2::write::GzEncoder::new(&mut members, flate2::Compression::fast());
        to.write_all(piece).unwrap();
        to.finish().unwrap();
    }
    assert_eq!(facts(&read_bytes(&members).unwrap().run), whole);
    let begin = plain.windows(14).position(|w| w == b"\"traceEvents\":").unwrap() + 14;
    let end = plain.iter().rposition(|&b| b == b']').unwrap();
    let array = facts(&read_bytes(&plain[begin..=end]).unwrap().run);
    assert_eq!(array, whole);
}

/// Blocks end where an event seems to begin; an object inside an event that looks like one costs
/// time, not truth.
#[test]
fn the_size_of_blocks_changes_nothing() {
    let plain = text("h200_graphs");
    let nested = br#"{"ph":"X","cat":"cpu_op","name":"[{\"ph\":","pid":1,"tid":1,"ts":4337637179400.000,"dur":1,"args":{"inner":{"ph":"Y"},"list":[{"ph":1},{"ph":2}]}},"#;
    let begin = plain.windows(16).position(|w| w == b"\"traceEvents\": [").unwrap() + 16;
    let first = begin + plain[begin..].iter().position(|&b| b == b'{').unwrap();
    let odd = [&plain[..first], &nested.repeat(50)[..], &plain[first..]].concat();
    for bytes in [&plain, &odd] {
        let whole = formats::kineto::read_in_blocks(bytes, usize::MAX, &Default::default()).unwrap();
        assert_eq!(whole.refused, Default::default());
        let facts_of_whole = facts(&whole.run);
        for size in [1, 37, 1_000, 64 << 10] {
            let blocks = formats::kineto::read_in_blocks(bytes, size, &Default::default()).unwrap();
            assert_eq!((blocks.events, blocks.refused), (whole.events, whole.refused), "{size}");
            assert_eq!(facts(&blocks.run), facts_of_whole, "{size}");
        }
    }
}

/// What json writers do to a trace on its way: other white space, keys in another order.
#[test]
fn other_writers_of_the_same_json_read_the_same() {
    let plain = text("h200_graphs");
    let whole = facts(&read_bytes(&plain).unwrap().run);
    // keys sorted, no white space; times as texts that f64 has not rounded: all have at most 16
    // digits
    let value: Value = serde_json::from_slice(&plain).unwrap();
    let compact = read_bytes(serde_json::to_string(&value).unwrap().as_bytes()).unwrap();
    let pretty = read_bytes(serde_json::to_string_pretty(&value).unwrap().as_bytes()).unwrap();
    assert_eq!(facts(&pretty.run), facts(&compact.run));
    assert_eq!(compact.run.devices[0].ops(), 2740);
    assert_eq!(facts(&compact.run).len(), whole.len());
}

#[test]
fn the_old_schema_reads_as_the_new_one() {
    let old = br#"{"schemaVersion": 1, "traceEvents": [
      {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": "7", "ts": 100, "dur": 5, "args": {"cbid": 211, "correlation": 3, "external id": 1}},
      {"ph": "X", "cat": "Kernel", "name": "k<a, \"b\">", "pid": 0, "tid": "stream 9", "ts": 110, "dur": 20, "args": {"device": 0, "context": 1, "stream": 9, "correlation": 3, "registers per thread": 12, "shared memory": 4, "grid": [2, 3, 4], "block": [64, 1, 1]}},
      {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": "stream 9", "ts": 140, "dur": 2, "args": {"device": 0, "context": 1, "stream": 9, "correlation": 4, "bytes": 19267584}},
      {"ph": "X", "cat": "Operator", "name": "ProfilerStep#5", "pid": 7, "tid": "7", "ts": 90, "dur": 80, "args": {}},
      {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 7, "tid": "7", "ts": 95, "dur": 30, "args": {}},
      {"ph": "M", "name": "thread_name", "pid": 7, "tid": 7, "args": {"name": "main"}},
      {"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": 96, "args": {"Bytes": 4}}
    ]}"#;
    let input = read_bytes(old).unwrap();
    let run = &input.run;
    let ops = &run.devices[0].streams[0].ops;
    assert_eq!((ops.len(), run.devices[0].streams[0].stream), (2, 9));
    assert_eq!(
        (ops[0].end - ops[0].start, ops[0].b, run.definitions.kernel_name(ops[0].a)),
        (20_000, 24, "k<a, \"b\">")
    );
    let copy = ops[1].copy();
    assert_eq!((copy.bytes, copy.direction, copy.is_pageable()), (19_267_584, 1, true));
    assert_eq!(run.call(ops[0].call).map(|(_, c)| run.call_name(c)), Some("cudaLaunchKernel"));
    let main = run.threads.iter().find(|t| t.tid == 7).unwrap();
    assert_eq!(run.definitions.string(main.name), Some("main"));
    let ranges: Vec<_> =
        main.ranges.iter().map(|r| (run.definitions.string(r.name).unwrap(), r.kind, r.depth)).collect();
    assert_eq!(ranges, [("ProfilerStep#5", RangeKind::User, 0), ("aten::add", RangeKind::Operator, 1)]);
    assert!(run.slowed_host);
    // stamps count from 1970 where no base is told: the first event is at 90 us
    assert_eq!(run.realtime(run.header.start_monotonic), 90_000);
    assert_eq!(input.notes.len(), 1, "whole microseconds are remarked: {:?}", input.notes);
}

#[test]
fn a_trace_cut_anywhere_is_read_to_the_cut_and_says_so() {
    let plain = text("h200_graphs");
    for part in [30, 60, 90, 99] {
        let cut = &plain[..plain.len() * part / 100];
        let input = read_bytes(cut).unwrap();
        assert!(input.refused.cut && input.refused.lost() == 1, "{part}%: {:?}", input.refused);
        assert!(input.run.devices[0].ops() < 2740, "{part}%");
        assert!(input.notes.iter().any(|n| n.contains("is truncated")));
    }
    // a compressed one
    let packed = std::fs::read(trace("h200_graphs")).unwrap();
    let input = read_bytes(&packed[..packed.len() * 9 / 10]).unwrap();
    assert!(input.refused.cut);
}

#[test]
fn damage_inside_costs_only_what_it_hit() {
    let mut plain = text("h200_graphs");
    let whole = read_bytes(&plain).unwrap().run.devices[0].ops();
    // an opening brace of an event in the middle becomes a letter
    let at = plain.len() / 2;
    let brace = at + plain[at..].windows(8).position(|w| w == b"{\n    \"p").unwrap();
    plain[brace] = b'x';
    let input = read_bytes(&plain).unwrap();
    assert!(input.refused.broken >= 1 && !input.refused.cut, "{:?}", input.refused);
    assert!(input.run.devices[0].ops() + 2 >= whole);
}

fn one_kernel(ts: &str, dur: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{"device":0,"stream":7,"correlation":1}}}}"#
    )
}

#[test]
fn impossible_times_are_counted_and_left_out() {
    let events: Vec<String> = [
        ("1000.001", "5"),
        ("1010", "-3"),
        ("1e400", "5"),
        ("\"soon\"", "5"),
        ("1020", "9e17"),
        ("-8000000000000000", "5"),
        ("1030", "5.5"),
        ("1030", "5.5"),
    ]
    .iter()
    .map(|(ts, dur)| one_kernel(ts, dur))
    .collect();
    let input = read_bytes(format!("[{}]", events.join(",")).as_bytes()).unwrap();
    let ops: Vec<u64> = input.run.devices[0].streams[0].ops.iter().map(|o| o.end - o.start).collect();
    assert_eq!(ops, [5_000, 5_500]);
    let r = input.refused;
    assert_eq!((r.no_time, r.negative, r.duplicates, r.broken, r.cut), (4, 1, 1, 0, false));
}

/// A complete event without its length is not whole: nobody knows how long the kernel ran. A moment
/// has none.
#[test]
fn a_length_that_is_not_there_is_a_loss() {
    let whole = one_kernel("1000", "5");
    let bare = one_kernel("1010", "5").replace(r#","dur":5"#, "");
    let call = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1001,"args":{"correlation":1}}"#;
    let moment = r#"{"ph":"i","cat":"user_annotation","name":"here","pid":1,"tid":1,"ts":1002}"#;
    assert!(!bare.contains("dur"));
    let input = read_bytes(format!("[{whole},{bare},{call},{moment}]").as_bytes()).unwrap();
    assert_eq!((input.refused.no_time, input.refused.lost(), input.run.problems.damaged()), (2, 2, 2));
    assert_eq!(input.run.devices[0].ops(), 1);
}

#[test]
fn what_is_no_trace_says_what_it_is() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "empty"),
        (b"hello", "no JSON"),
        (b"{}", "without a list of traceEvents"),
        (b"{\"traceEvents\": 3}", "without a list of traceEvents"),
        (b"{\"traceEvents\": []}", "no GPU operation"),
        (b"[]", "no GPU operation"),
        (b"PK\x03\x04....", "zip"),
        (b"SQLite format 3\0....", "SQLite"),
        (b"\x1f\x8bxx", "unpacked"),
    ];
    for (bytes, words) in cases {
        let error = read_bytes(bytes).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.hint.is_empty() && error.to_string().contains("gapprobe-kineto-"), "{error}");
    }
    let folder = formats::read(Path::new("/"), &Default::default()).unwrap_err();
    assert!(folder.to_string().contains("not a regular file"));
}

/// Two ranks' traces put into one file, each with a GPU 0 and calls counted from 1: no GPU that is
/// never idle.
#[test]
fn ranks_merged_into_one_file_are_not_taken_for_one_gpu() {
    let one: Value = serde_json::from_slice(&text("h200_gpt")).unwrap();
    let merged = |ids: u64| {
        let mut all = one.clone();
        let events = all["traceEvents"].as_array_mut().unwrap();
        let mut other = events.clone();
        for e in &mut other {
            if let Some(ts) = e["ts"].as_f64() {
                e["ts"] = (ts + 20_000.0).into();
            }
            let gpu = e["cat"].as_str().is_some_and(|c| c == "kernel" || c.starts_with("gpu_"));
            if let Some(pid) = e["pid"].as_u64().filter(|_| !gpu) {
                e["pid"] = (pid + 1).into();
            }
            if let Some(id) = e["args"]["correlation"].as_u64() {
                e["args"]["correlation"] = (id + ids).into();
            }
        }
        events.append(&mut other);
        read_bytes(all.to_string().as_bytes()).unwrap().run
    };
    let run = merged(0);
    let a = verdict::analyze(&run);
    assert_eq!((run.merged, a.verdict.cause), (2, "INCONCLUSIVE"));
    assert!(a.verdict.text().contains("2 processes"), "{}", a.verdict.text());
    // with ids of their own they are told apart
    assert_eq!(merged(1_000_000).merged, 0);
}

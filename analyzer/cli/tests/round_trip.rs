// SPDX-License-Identifier: Apache-2.0
//! gapprobe's own Chrome JSON is the run it was made of: whatever is read, written as a trace and
//! read again has the same verdict and the same figures.
//!
//! Not kept, and so not compared: remarks about the input *file* (whole microseconds, places that
//! cannot be parsed), calls into the operating system (no Chrome event has them), the processes of
//! a trace of several (one process is written).

mod kept;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cli::tables;
use cli::tables::{NameStyle, Source};
use formats::{Input, Progress};
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::define::gpu_uuid;
use trace::event::{MARK, OPEN_ENDED, PAYLOAD, PAYLOAD_REAL, PAYLOAD_SIGNED, START_END};
use trace::{Event, Kind, Loss, Total};
use verdict::analysis::Bucket;
use verdict::output::chrome;
use verdict::output::chrome::ChromeOptions;
use verdict::output::{line, sentence};
use verdict::run::{Range, Recorder};
use verdict::{Analysis, Run};

/// What is said of a run, one line each, so that a difference shows where it is.
fn said(run: &Run, a: &Analysis) -> Vec<String> {
    let v = &a.verdict;
    let mut said = vec![
        format!("verdict {} {} {:?} call {}", v.code, v.cause, v.confidence, v.call),
        format!("inconclusive {:?}", v.inconclusive),
        format!("text {}", v.text()),
        format!("tied {:?}", v.tied.map(|t| (t.code, t.more_work))),
        format!("then {:?}", v.then),
        format!("site {:?}", v.site),
        format!("slowed host {} {:?}", run.slowed_host, v.profiled.map(|p| p.cause)),
        format!("line {}", sentence::line(run, a, None)),
        format!("evidence {}", line::evidence(run, a).join("; ")),
        format!("steps {:?} {} median {}", a.steps.source, a.steps.steps.len(), a.steps.median_ns),
        format!("micro {} warm-up {}", a.steps.micro, a.steps.warm_up),
        format!("steady {} valid {}", a.steady.ns(), a.valid.ns()),
        format!("losses {:?} data {}", a.losses, a.data_losses),
        format!("blind {:?}", a.blind.iter().map(|b| (b.span.ns(), b.reason)).collect::<Vec<_>>()),
        format!("events {}", a.events),
        format!("coverage {:?}", a.coverage),
    ];
    for f in &a.findings {
        said.push(format!("finding {} {:?} {}", f.code, f.confidence, f.text()));
    }
    for (d, facts) in a.devices.iter().zip(&run.devices) {
        said.push(format!(
            "device {} {:?} {:?} {:?}",
            d.ordinal,
            run.definitions.string(facts.info.name),
            run.definitions.attribute(&gpu_uuid(d.ordinal)),
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
        tables::write(&report.table(&Source::new(run, NameStyle::Whole)), 0, tables::Format::Csv, &mut csv)
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

/// Reads what lies in a file for a moment.
fn read_bytes(name: &str, bytes: &[u8]) -> Input {
    let path = std::env::temp_dir().join(format!("gapprobe-round-trip-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let input = read(&path);
    std::fs::remove_file(&path).unwrap();
    input
}

/// The run as a trace, of any size.
fn written(run: &Run, a: &Analysis) -> Vec<u8> {
    let line = sentence::line(run, a, None);
    let options = ChromeOptions { line: &line, ..ChromeOptions::default() };
    let (bytes, written) = chrome::write(run, a, Vec::new(), &options).unwrap();
    assert_eq!(written.ops_left_out + written.calls_left_out + written.ranges_left_out, 0);
    bytes
}

/// Writes the run as a trace and reads that; gives back what differs.
fn differences(path: &Path) -> String {
    let input = read(path);
    let a = verdict::analyze(&input.run);
    let name = path.file_name().unwrap().to_str().unwrap();
    let again = read_bytes(name, &written(&input.run, &a));
    let b = verdict::analyze(&again.run);
    let mut out = String::new();
    assert_eq!(again.format.recorder(), input.format.recorder(), "{name}");
    assert!(again.format.name().starts_with("gapprobe trace"), "{name}: {}", again.format.name());
    let promised = |a: &Analysis| a.verdict.promise.map_or(0.0, |p| p.ns());
    let (before, after) = (promised(&a), promised(&b));
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
    let order =
        |said: &[String]| said.iter().filter(|l| l.starts_with("finding")).cloned().collect::<Vec<_>>();
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

fn recordings() -> Vec<PathBuf> {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings"), ".gprec.gz");
    assert!(files.len() >= 20, "{files:?}");
    files
}

#[test]
fn a_recording_and_its_trace_say_the_same() {
    all_the_same(&recordings().into_iter().step_by(3).collect::<Vec<_>>());
}

#[test]
#[ignore = "scripts/test thorough: 20 s, three times as many as beside it"]
fn every_recording_and_its_trace_say_the_same() {
    all_the_same(&recordings());
}

/// One run, one verdict: code, advice, promise and site of the run that a file holds, and of the
/// trace that is made of it. Of what cannot be read, nothing.
fn has_the_verdict_of_its_trace(path: &Path) {
    let Ok(input) = formats::read(path, &Progress::default()) else { return };
    let name = path.display();
    let a = verdict::analyze(&input.run);
    let again = read_bytes(&path.file_name().unwrap().to_string_lossy(), &written(&input.run, &a));
    let b = verdict::analyze(&again.run);
    let said = |a: &Analysis| {
        let v = &a.verdict;
        (v.code, v.advice, v.confidence, v.site.clone(), v.promise.map(|p| (p.ns() / 1e3).round()))
    };
    assert_eq!(said(&b), said(&a), "{name}");
}

/// Operators without lines are in the export, too: without them an attention would be told by the
/// order of its kernels alone.
#[test]
fn a_trace_with_operators_has_the_verdict_of_its_export() {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/roofline"), ".json.gz");
    assert!(files.len() >= 4, "{files:?}");
    files.iter().for_each(|f| has_the_verdict_of_its_trace(f));
}

#[test]
fn a_kept_recording_has_the_verdict_of_its_trace() {
    kept::all().iter().skip(4).step_by(12).for_each(|f| has_the_verdict_of_its_trace(f));
}

#[test]
#[ignore = "scripts/test thorough: twelve times as many as beside it"]
fn every_kept_recording_has_the_verdict_of_its_trace() {
    let files = kept::all();
    assert!(files.len() > 100, "{}", files.len());
    files.iter().for_each(|f| has_the_verdict_of_its_trace(f));
}

#[test]
fn a_trace_of_the_profiler_and_its_export_say_the_same() {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces"), ".json.gz");
    assert!(files.len() >= 5, "{files:?}");
    all_the_same(&files);
}

/// Traces of others are not part of the repository; those of GAPPROBE_OTHER_TRACES are held to the
/// same.
#[test]
fn traces_of_other_people_and_their_exports_say_the_same() {
    let folder = PathBuf::from(std::env::var_os("GAPPROBE_OTHER_TRACES").unwrap_or_default());
    let mut all = files(&folder, ".json.gz");
    all.extend(files(&folder, ".sqlite.gz"));
    all_the_same(&all);
}

/// A recording with something of everything that only recordings have; `steps` of ten kernels.
fn recording(steps: u64) -> Vec<u8> {
    let mut b = Builder::new();
    let origin = 20_000_000_000;
    b.header.pid = 77;
    b.header.start_monotonic = origin - 12_000_000_000; // recording began long before the first event
    b.header.start_realtime = 1_795_000_000_000_000_000;
    b.header.launch_cost_ns = 300;
    b.header.losses[Loss::HostRingFull.code() as usize] = 2;
    b.header.totals[Total::Steps as usize] = steps + 5;
    b.header.totals[Total::CallbackNs as usize] = 1_000_000;
    b.device(0, "SIM", 132);
    b.attribute(&gpu_uuid(0), "GPU-53494d55-4c41-5445-442d-4750552d3030");
    let long = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_";
    let kernels = [b.kernel(long, 256, 64), b.kernel("same", 128, 16), b.kernel("same", 64, 16)];
    let data = b.string("data");
    let mut correlation = 0;
    for step in 0..steps {
        let begin = origin + step * 1_000_000;
        let mut mark = Event::new(Kind::Step, begin, begin + 1_000_000);
        mark.a = step as u32;
        b.on_thread(100, mark);
        let mut range = Event::new(Kind::Range, begin + 1, begin + 500_000);
        range.a = data;
        b.on_thread(100, range);
        for i in 0..10 {
            correlation += 1;
            let at = begin + i * 10_000;
            let mut launch = Event::new(Kind::Call, at, at + 4_000);
            (launch.a, launch.x, launch.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
            b.on_thread(100, launch);
            let mut op = Event::new(Kind::Kernel, at + 10_000 + i * 50_000, at + 60_000 + i * 50_000);
            (op.a, op.b, op.correlation) = (kernels[(i % 3) as usize], 1024, correlation);
            b.on_stream(0, 1, 7, op);
        }
        let mut wait = Event::new(Kind::SyncRecord, begin + 700_000, begin + 702_000);
        (wait.a, wait.c, wait.correlation) = (2, 9, correlation);
        b.on_stream(0, 1, 9, wait);
    }
    let end = origin + steps * 1_000_000;
    let mut graph = Event::new(Kind::GraphTrace, end, end + 50_000);
    (graph.c, graph.correlation) = (5, 0);
    b.on_stream(0, 1, 7, graph);
    b.attribute("cwd", "/job");
    let stack = b.stack(&[("step", "/job/train.py", 88), ("<module>", "/job/train.py", 200)]);
    let mut wait = Event::new(Kind::Call, end, end + 40_000);
    (wait.a, wait.x, wait.correlation, wait.c) =
        (pack(RUNTIME, 131), Class::Sync as u8, correlation + 1, stack);
    b.on_thread(100, wait);
    for tid in [100, 55] {
        let mut sample = Event::new(Kind::Sample, end, end + 10_000);
        (sample.a, sample.b, sample.c, sample.x) = (stack, 203, 990 | 7 << 16, 2);
        b.on_thread(tid, sample);
    }
    let mut child = Event::new(Kind::Process, end, end + 10_000);
    (child.a, child.b, child.c) = (4321, 1_950 | 40 << 16, 77);
    b.on_recorder(child);
    let own = b.stack(&[("Images.__getitem__", "/job/data.py", 12)]);
    let mut stands = Event::new(Kind::ChildSample, end, end + 10_000);
    (stands.a, stands.b, stands.c) = (own, 4321, 970);
    b.on_recorder(stands);
    (stands.c, stands.x) = (10 | 46 << 16, trace::event::sample::PIPE);
    b.on_recorder(stands);
    let mut power = Event::new(Kind::Gauge, end, end);
    (power.a, power.b) = (trace::event::Gauge::PowerMw as u32, 123_000);
    b.on_recorder(power);
    let mut blind = Event::new(Kind::Unobserved, end + 100_000, end + 900_000);
    blind.a = 2;
    b.on_recorder(blind);
    b.finish()
}

/// Marks, unobserved time, losses, what recording cost, waits of streams: nothing of them is an
/// event of Chrome's.
#[test]
fn what_a_recording_alone_can_say_goes_through() {
    let bytes = recording(50);
    let run = verdict::load(bytes.as_slice()).unwrap();
    let a = verdict::analyze(&run);
    assert!(!a.losses.is_empty() && a.blind.len() == 1 && a.cost.share > 0.0);
    assert_eq!(run.waits.iter().filter(|w| w.what == 2).count(), 50);
    let again = read_bytes("alone", &written(&run, &a));
    let b = verdict::analyze(&again.run);
    assert_eq!(said(&again.run, &b), said(&run, &a));
    assert_eq!(again.run.recorder, Recorder::Gapprobe);
    assert_eq!((&again.run.waits, &again.run.blind), (&run.waits, &run.blind));
    assert_eq!(again.run.threads[0].marks, run.threads[0].marks);
    let ops =
        |r: &Run| r.devices[0].streams[0].ops.iter().map(|o| (o.start, o.kind, o.graph)).collect::<Vec<_>>();
    assert_eq!(ops(&again.run), ops(&run));
    assert_eq!(again.run.clocks, run.clocks);
    let at = |r: &Run| {
        let frames = |id: u32| {
            r.definitions
                .stack(id)
                .map(|f| (r.definitions.string(f.function).map(str::to_owned), f.line))
                .collect::<Vec<_>>()
        };
        let calls = r.threads.iter().flat_map(|t| &t.calls).filter(|c| c.site != 0).map(|c| frames(c.site));
        calls.collect::<Vec<_>>()
    };
    assert_eq!(at(&run).len(), 1);
    assert_eq!(at(&again.run), at(&run));
    let samples = |r: &Run| {
        let mut all: Vec<_> = r.threads.iter().map(|t| (t.tid, t.samples.clone())).collect();
        all.sort_by_key(|t| t.0);
        all
    };
    assert!(samples(&run).iter().all(|t| t.1.len() == 1) && samples(&run).len() == 2);
    assert_eq!(samples(&again.run), samples(&run));
    assert_eq!((run.children.len(), run.child_samples.len(), run.readings.len()), (1, 2, 1));
    assert_eq!(again.run.child_samples, run.child_samples);
    assert_eq!(again.run.definitions.stack(run.child_samples[0].stack).count(), 1);
    assert_eq!((&again.run.children, &again.run.readings), (&run.children, &run.readings));
}

/// Domains and numbers of NVTX ranges, whatever numbers they are, and the moments that the program
/// marked.
#[test]
fn ranges_of_nvtx_go_through() {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1_795_000_000_000_000_000));
    let (signed, real) = (PAYLOAD | PAYLOAD_SIGNED, PAYLOAD | PAYLOAD_REAL);
    let numbers = [
        (0, 0),
        (PAYLOAD, 0),
        (PAYLOAD, 3 << 20),
        (PAYLOAD, u64::MAX),
        (PAYLOAD, (1 << 53) + 1),
        (signed, -1i64 as u64),
        (signed, i64::MIN as u64),
        (real, 2.5f64.to_bits()),
        (real, (-3.0f64).to_bits()),
        (real, 1e300f64.to_bits()),
        (real, f64::INFINITY.to_bits()),
    ];
    let domains = ["", "NCCL", "with: colon", "quotes \" and \u{e4}", "NCCL"];
    let mut at = 1_000_000;
    let last = at + numbers.len() as u64 * 40_000 + 100_000; // the end of the kernel below
    for (i, &(flags, bits)) in numbers.iter().enumerate() {
        for kind in [0, START_END, MARK, START_END | OPEN_ENDED] {
            let length = [5_000, 0][usize::from(kind == MARK)];
            let end = if kind & OPEN_ENDED != 0 { last } else { at + length };
            let mut e = Event::new(Kind::Range, at, end);
            (e.a, e.b) = (b.string(["ncclAllReduce", "a:b"][i % 2]), b.string(domains[i % domains.len()]));
            (e.flags, e.correlation, e.c) = (flags | kind, bits as u32, (bits >> 32) as u32);
            b.on_thread(100, e);
            at += 10_000;
        }
    }
    let kernel = b.kernel("k", 32, 16);
    let mut op = Event::new(Kind::Kernel, at, at + 100_000);
    op.a = kernel;
    b.on_stream(0, 1, 7, op);
    let run = verdict::load(b.finish().as_slice()).unwrap();
    let a = verdict::analyze(&run);
    let again = read_bytes("nvtx", &written(&run, &a)).run;
    let told = |run: &Run, ranges: &[Range]| -> Vec<_> {
        let text = |id| run.definitions.string(id).unwrap_or("").to_owned();
        let of = |r: &Range| {
            let plain = run.plain_name(r).to_owned();
            (r.span, text(r.name), plain, text(r.domain), format!("{:?}", r.number()), r.is_start_end())
        };
        ranges.iter().map(of).collect()
    };
    let (before, after) = (&run.threads[0], &again.threads[0]);
    assert_eq!((before.ranges.len(), before.moments.len()), (3 * numbers.len(), numbers.len()));
    assert_eq!(told(&again, &after.ranges), told(&run, &before.ranges));
    assert_eq!(told(&again, &after.moments), told(&run, &before.moments));
    // shown as nsys shows them, and taken apart again
    let third = &told(&run, &before.ranges)[2 * 3];
    assert_eq!((third.1.as_str(), third.2.as_str()), ("with: colon:ncclAllReduce", "ncclAllReduce"));
    assert_eq!(third.4, "Some(Whole(3145728))");
}

/// In large traces only the first slice of a kernel has its whole name, its threads and its
/// registers.
#[test]
#[ignore = "scripts/test thorough: 10 s"]
fn kernels_of_a_large_trace_keep_their_names_apart() {
    let bytes = recording(20_001);
    let run = verdict::load(bytes.as_slice()).unwrap();
    assert!(run.devices[0].ops() > 200_000);
    let a = verdict::analyze(&run);
    let again = read_bytes("large", &written(&run, &a));
    let b = verdict::analyze(&again.run);
    assert_eq!(said(&again.run, &b), said(&run, &a));
}

/// Whose a track is and what a kernel is called may stand in another block than what refers to it.
#[test]
fn the_size_of_blocks_changes_nothing() {
    let bytes = recording(50);
    let run = verdict::load(bytes.as_slice()).unwrap();
    let a = verdict::analyze(&run);
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(written(&run, &a).as_slice()).read_to_end(&mut text).unwrap();
    for size in [300, 5_000, 1 << 20] {
        let again = formats::kineto::read_in_blocks(&text, size, &Progress::default()).unwrap().run;
        assert_eq!(said(&again, &verdict::analyze(&again)), said(&run, &a), "blocks of {size} bytes");
    }
}

/// A trace kept small has the newest part of the run whole: that part is judged, as of a recording
/// whose older events were overwritten.
#[test]
fn what_was_left_out_of_a_trace_is_no_loss_of_it() {
    let bytes = recording(20_001);
    let run = verdict::load(bytes.as_slice()).unwrap();
    let a = verdict::analyze(&run);
    let line = sentence::line(&run, &a, None);
    let options = ChromeOptions { max_bytes: 3_000_000, line: &line, ..ChromeOptions::default() };
    let (bytes, written) = chrome::write(&run, &a, Vec::new(), &options).unwrap();
    let left = written.left_out();
    assert!(left > 1000 && written.bytes <= 3_000_000, "{written:?}");
    let again = read_bytes("small", &bytes);
    assert_eq!((again.refused.left_out, again.refused.older, again.refused.lost()), (0, left, 0));
    assert_eq!(again.run.problems.damaged(), 0);
    assert!(
        again.notes.iter().any(|n| n.contains(&format!("{left} older events were left out"))),
        "{:?}",
        again.notes
    );
    assert!(again.notes.contains(&format!("of the whole run was said: {line}")), "{:?}", again.notes);
    // nothing is missing in what it says it has whole
    let from = again.run.header.valid_from;
    assert!(from > run.header.valid_from);
    let kept = |run: &Run| -> (usize, usize) {
        let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
        let calls = run.threads.iter().flat_map(|t| &t.calls);
        (ops.filter(|o| o.end >= from).count(), calls.filter(|c| c.end >= from).count())
    };
    assert_eq!(kept(&again.run), kept(&run));
    assert!(kept(&run).0 * 20 > run.devices[0].ops(), "{} of {}", kept(&run).0, run.devices[0].ops());
    let b = verdict::analyze(&again.run);
    assert_eq!((b.verdict.code, b.verdict.cause), (a.verdict.code, a.verdict.cause));
    let said = line::evidence(&again.run, &b).join("; ");
    assert!(said.contains(" (seen: last ") && !said.contains("damaged"), "{said}");
}

/// Cut anywhere: never a verdict, for the head speaks of the whole.
#[test]
fn half_a_trace_has_no_verdict() {
    let bytes = recording(300);
    let run = verdict::load(bytes.as_slice()).unwrap();
    let a = verdict::analyze(&run);
    assert_ne!(a.verdict.cause, "INCONCLUSIVE");
    let packed = written(&run, &a);
    for part in [2, 3] {
        let again = read_bytes("half", &packed[..packed.len() / 4 * part]);
        let b = verdict::analyze(&again.run);
        assert_eq!(b.verdict.cause, "INCONCLUSIVE", "{part} quarters");
        // nor is what is missing said to have been seen
        let (seen, all) = (b.coverage.seen_ns as f64, a.coverage.seen_ns as f64);
        let has = again.run.devices[0].ops() as f64 / run.devices[0].ops() as f64;
        assert!((seen / all - has).abs() < 0.1, "{seen} of {all} ns seen, {has} of the operations there");
        assert_eq!(b.coverage.run_ns, a.coverage.run_ns);
    }
}

/// Traces written before the names of memories were torch.profiler's.
#[test]
fn memories_in_small_letters_are_read_too() {
    let text = |memories: &str| {
        format!(
            r#"{{"traceEvents":[{{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD ({memories})","pid":0,"tid":7,"ts":1.0,"dur":2.0,"args":{{"bytes":64,"device":0,"stream":7}}}}]}}"#
        )
    };
    for (memories, kinds) in [
        ("pageable -> device", (1, 3)),
        ("Pageable -> Device", (1, 3)),
        ("Pinned -> Managed Static", (2, 7)),
        ("Device Static -> Array", (6, 4)),
        ("Unknown -> Device", (0, 3)),
        ("", (0, 0)),
    ] {
        let input = read_bytes("memories", text(memories).as_bytes());
        let copy = input.run.devices[0].streams[0].ops[0].copy();
        assert_eq!((copy.direction, copy.source, copy.destination), (1, kinds.0, kinds.1), "{memories}");
    }
}

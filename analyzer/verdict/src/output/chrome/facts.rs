// SPDX-License-Identifier: Apache-2.0
//! What a recording knows beside its events, as an object in front of them (`"gapprobe"`): who
//! reads the trace again (`formats/kineto/own.rs`) then judges the same run. Names of the fields
//! stand here, for both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{json, Map, Value};
use trace::define::{CPUS, CPU_QUOTA, DIRECTORY, FLIGHT, STEP_TFLOP, WINDOWS};
use trace::event::Gauge;
use trace::{Header, Loss, Total};

use crate::run::autograd::Captured;
use crate::run::operators::Operator;
use crate::run::{Run, Sample, Thread, Uncalled};
use crate::sites::activity::PYTHON_VERSION;
use crate::text::kernel_name::demangled;

/// Key of the object.
pub const KEY: &str = "gapprobe";
/// Key of the program's command line.
pub const COMMAND: &str = "command";
/// The attributes that a run is judged by.
pub const JUDGED_BY: [&str; 7] = [DIRECTORY, CPUS, CPU_QUOTA, PYTHON_VERSION, WINDOWS, FLIGHT, STEP_TFLOP];
/// Marks of losses written at most; the losses of others are in the totals, and taken to lie in the
/// observed time.
pub const MOST_MARKS: usize = 10_000;

/// Samples of a thread, and readings of children, written at most; the newest.
pub const MOST_SAMPLES: usize = 50_000;
/// Readings of gauges written at most; the newest: three hours of one GPU, which has some 17 a
/// second.
pub const MOST_READINGS: usize = 200_000;

/// Calls of a thread's backward passes written at most; the newest.
pub const MOST_BACKWARD: usize = 200_000;

/// Ways of operators written at most.
pub const MOST_OPERATORS: usize = 50_000;

/// The newest of a list.
fn newest<T>(list: &[T]) -> &[T] {
    list.get(list.len().saturating_sub(MOST_SAMPLES)..).unwrap_or(&[])
}

/// Those of a thread, in windows and between them.
fn samples(t: &Thread) -> Vec<Sample> {
    let mut all = [newest(&t.samples), newest(&t.between)].concat();
    all.sort_by_key(|s| s.span);
    newest(&all).to_vec()
}

/// The calls of a thread's backward passes, by what they are of: thread, stack, type of node, and
/// their begins, each less the one before.
fn backward<'a>(t: &Thread, text: &impl Fn(u32) -> &'a str) -> Vec<Value> {
    let first = t.backward.len().saturating_sub(MOST_BACKWARD);
    let mut by_work: BTreeMap<(u32, u32), (u64, Vec<u64>)> = BTreeMap::new();
    for call in t.backward.get(first..).unwrap_or(&[]) {
        let (last, begins) = by_work.entry((call.stack, call.node)).or_default();
        begins.push(call.start.saturating_sub(*last));
        *last = call.start;
    }
    by_work
        .into_iter()
        .map(|((stack, node), (_, begins))| json!([t.tid, stack, text(node), begins]))
        .collect()
}

/// What the host side knows (1.2 of the recording's format): stacks of calls and samples, calls of
/// backward passes, operators, samples, children and where they stood, gauges. Nothing of it where
/// the recording has nothing of it.
fn host(run: &Run, out: &mut Map<String, Value>) {
    let mut used: BTreeSet<u32> = BTreeSet::new();
    for t in &run.threads {
        used.extend(t.calls.iter().map(|c| c.site));
        used.extend(samples(t).iter().map(|s| s.stack));
        used.extend(t.backward.iter().map(|c| c.stack));
    }
    used.extend(run.captured.values().flat_map(|launch| [launch.work.stack, launch.site]));
    used.extend(newest(&run.child_samples).iter().map(|s| s.stack));
    used.remove(&0);
    let text = |id| run.definitions.string(id).unwrap_or("");
    let frames = |id| -> Value {
        let frame = |f: &trace::FrameInfo| json!([f.language as u32, text(f.function), text(f.file), f.line]);
        run.definitions.stack(id).map(frame).collect()
    };
    let mut put = |key: &str, list: Vec<Value>| {
        if !list.is_empty() {
            out.insert(key.into(), list.into());
        }
    };
    let stack = |id| match run.definitions.in_module(id) {
        Some(m) => json!([id, frames(id), [text(m.path), text(m.class)]]),
        None => json!([id, frames(id)]),
    };
    put("stacks", used.iter().map(|id| stack(*id)).collect());
    // a stack that is not written itself may stand for one that is
    let standing: BTreeSet<u32> = used.iter().map(|id| run.operators.stands_for(*id)).collect();
    let mut operators: Vec<_> =
        run.operators.each().filter(|way| way.0 == 0 || standing.contains(&way.0)).collect();
    operators.sort_unstable();
    let way = |(stack, node, kernel, o): (u32, &str, &str, Operator<'_>)| {
        json!([stack, node, demangled(kernel), o.name, o.nodes])
    };
    let alike = used.iter().map(|id| (*id, run.operators.stands_for(*id))).filter(|(id, other)| id != other);
    put("stacks_alike", alike.map(|(id, other)| json!([id, other])).collect());
    put("operators", operators.into_iter().take(MOST_OPERATORS).map(way).collect());
    put("backward", run.threads.iter().flat_map(|t| backward(t, &text)).collect());
    let mut captured: Vec<_> = run.captured.iter().collect();
    captured.sort_unstable_by_key(|(id, _)| **id);
    let launch = |(id, Captured { work, site }): (&u32, &Captured)| match work.node {
        Some(node) => json!([id, site, work.stack, text(node)]),
        None => json!([id, site, work.stack]),
    };
    put("captured", captured.into_iter().map(launch).collect());
    let of = |t: &Thread| -> Option<Value> {
        let sample = |s: &crate::run::Sample| {
            let call = s.syscall.map_or(0, |n| u64::from(n) + 1);
            json!([s.span.start, s.span.end, s.stack, call, s.on_cpu, s.run_queue, s.bits])
        };
        let list: Vec<Value> = samples(t).iter().map(sample).collect();
        (!list.is_empty()).then(|| json!([t.tid, text(t.name), list]))
    };
    put("samples", run.threads.iter().filter_map(of).collect());
    let child = |c: &crate::run::Child| {
        json!([c.span.start, c.span.end, c.pid, c.on_cpu, c.on_disk, c.read_kib, c.run_queue])
    };
    put("children", newest(&run.children).iter().map(child).collect());
    let stood = |s: &crate::run::ChildSample| {
        json!([s.span.start, s.span.end, s.pid, s.stack, s.waits.map_or(0, |n| n + 1), s.bits])
    };
    put("child_samples", newest(&run.child_samples).iter().map(stood).collect());
    let from = run.readings.len().saturating_sub(MOST_READINGS);
    let known = run.readings.iter().skip(from).filter(|r| Gauge::from_u32(r.gauge).is_some());
    put("readings", known.map(|r| json!([r.span.start, r.span.end, r.gauge, r.device, r.value])).collect());
    for (key, value) in run.definitions.attributes().filter(|a| JUDGED_BY.contains(&a.0)) {
        out.insert(key.into(), value.into());
    }
    if run.header.cpus > 0 && out.contains_key("samples") {
        out.insert("cpus".into(), run.header.cpus.into());
    }
}

/// Times of a header, ns of CLOCK_MONOTONIC, by the names they have in the trace.
pub fn times(h: &mut Header) -> [(&'static str, &mut u64); 7] {
    [
        ("start_monotonic_ns", &mut h.start_monotonic),
        ("first_use_ns", &mut h.first_use),
        ("valid_from_ns", &mut h.valid_from),
        ("gpu_complete_to_ns", &mut h.gpu_complete_to),
        ("host_complete_to_ns", &mut h.host_complete_to),
        ("exit_monotonic_ns", &mut h.exit_monotonic),
        ("last_write_ns", &mut h.last_write),
    ]
}

/// Small numbers of a header, likewise.
pub fn numbers(h: &mut Header) -> [(&'static str, &mut u32); 6] {
    [
        ("state", &mut h.state),
        ("sources", &mut h.sources),
        ("pid", &mut h.pid),
        ("cupti_version", &mut h.cupti_version),
        ("driver_version", &mut h.driver_version),
        ("launch_cost_ns", &mut h.launch_cost_ns),
    ]
}

/// The object. `base`: CLOCK_MONOTONIC ns of the trace's time zero.
pub(super) fn of(run: &Run, base: u64) -> Value {
    let mut header = run.header.clone();
    let mut out = Map::new();
    out.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    out.insert("recorder".into(), run.recorder.key().into());
    out.insert("base_monotonic_ns".into(), base.into());
    out.insert("slowed_host".into(), run.slowed_host.into());
    if !run.missing.is_empty() {
        out.insert("missing".into(), run.missing.as_str().into());
    }
    if run.uncalled != Uncalled::default() {
        let Uncalled { calls, ops, copies, early, unidentified, unidentified_kernels } = run.uncalled;
        let all = json!({
            "calls": calls, "operations": ops, "copies": copies, "early": early,
            "unidentified": unidentified, "unidentified_kernels": unidentified_kernels,
        });
        out.insert("uncalled".into(), all);
    }
    if !run.header.command.is_empty() {
        out.insert(COMMAND.into(), run.header.command.as_str().into());
    }
    out.extend(times(&mut header).map(|(key, n)| (key.to_owned(), json!(*n))));
    out.extend(numbers(&mut header).map(|(key, n)| (key.to_owned(), json!(*n))));
    let h = &run.header;
    let losses = Loss::ALL.iter().map(|l| (l.key().to_owned(), h.loss(*l))).filter(|l| l.1 > 0);
    out.insert("losses".into(), losses.map(|(k, n)| (k, n.into())).collect::<Map<_, _>>().into());
    let totals = Total::ALL.iter().map(|t| (t.key().to_owned(), h.total(*t))).filter(|t| t.1 > 0);
    out.insert("totals".into(), totals.map(|(k, n)| (k, n.into())).collect::<Map<_, _>>().into());
    let marks = run
        .loss_marks
        .iter()
        .take(MOST_MARKS)
        .map(|m| json!([m.span.end, m.code, m.count, m.span.start, m.before]));
    out.insert("loss_marks".into(), marks.collect());
    host(run, &mut out);
    let p = &run.problems;
    out.insert("cut_segments".into(), p.cut_segments.into());
    out.insert("bad_segments".into(), p.bad_segments.into());
    out.insert("bad_events".into(), (p.bad_events + p.bad_definitions + p.unknown_tracks).into());
    out.into()
}

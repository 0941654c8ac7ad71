// SPDX-License-Identifier: Apache-2.0
//! GP199 INCONCLUSIVE: the recording does not carry a verdict.
//!
//! # What it means
//! Any verdict would be a guess: something is missing. A wrong accusation is worse than none.
//!
//! # How it is recognised
//! One of these reasons, which the line names:
//! - Too little: no GPU operation (recording was off, or another profiler held the records), fewer
//!   than 50 operations, or less than 1 ms.
//! - Completeness of the GPU record is unknown: no flush of CUPTI's buffers ended, the file is
//!   truncated (of another tool: or damaged), or the recorder reports that events are missing.
//! - Losses: more than 0.1% of the events are lost or broken, or that many kernels are missing.
//! - Timestamps: more than 5% of the operations start before their launch, or operations of another
//!   tool's trace outlast what is queued after them.
//! - Launches: another tool's trace lacks, or cannot tell apart, the calls that launched more than
//!   5% of the operations or copies, and the GPU computes less than 85% of the time.
//! - CUDA graphs: the nodes of more than 10% of the graph launches were not recorded.
//! - Ranks: traces of several ranks were merged into one file. Analyze each rank's own trace.
//! - Steps: most of the time is other work than the steps found, or the steps recorded in windows
//!   take more than twice or less than half of what the run's steps take.
//! - Unexplained idle time: more than 15% of the time, or 5% and more than the largest cause.
//!
//! # How sure
//! Where the steps recorded in windows differ from the run's by 15% to a factor of two, the verdict
//! stays with low confidence, and the line has both step times.
//!
//! # Example
//! ```sh
//! # is everything there, and what do the names of losses mean?
//! gapprobe doctor
//! gapprobe explain losses
//! # more room for the recording
//! gapprobe run --max-mb 1024 python train.py
//! ```
//!
//! # What to change
//! What the line names: a longer run, no other profiler, a larger `GAPPROBE_MAX_MB`, no other
//! process on the GPU. The trace and `gapprobe report` still show what was seen.

use trace::call::Class;
use trace::event::Unobserved;
use trace::header::sources;
use trace::Kind;

use super::LOSS_SHARE;
use crate::analysis::{share, Analysis, Bucket, DeviceAnalysis, Fact, Figure, Step, StepSource};
use crate::run::{Op, Run, Span, Uncalled, CLOCK_SLACK_NS};
use crate::stats::median;

/// Stable code.
pub const CODE: &str = "GP199";
/// Name in the line.
pub const NAME: &str = "INCONCLUSIVE";
/// Without the calls that launched more than this share of the operations, or of the copies, there
/// is no verdict. Measured on four eager traces of ours and two of others, with calls taken out at
/// random, in one piece and at the end. Up to here verdicts stay, and promises move by 3.5% of a
/// step at most. A tenth taken out moves them by up to 10%; seven tenths named a wrong cause.
pub const UNCALLED_SHARE: f64 = 0.05;
/// Fewer copies without their calls than this are no share.
const A_FEW: u64 = 3;
/// Fewer operations than this are too little for a verdict.
pub const MIN_OPS: u64 = 50;
/// More than this share of the operations starting before their launch call: host and device
/// timestamps are inconsistent (the H200 has none in a million; traces in whole microseconds have a
/// few by rounding).
pub const EARLY_SHARE: f64 = 0.05;
/// Less observed time than this is too little for a verdict, ns.
pub const MIN_NS: u64 = 1_000_000;

/// A step found from a period that holds other launches than the rest is doubted when it is longer
/// than this many median steps. One that holds the same launches is a step, however long the host
/// paused in it.
pub const LONG_STEP: u64 = 20;
/// ... and more than so many times the kernels of a usual step.
const MORE_KERNELS: u64 = 2;
/// More than this share of the steps' time in such steps: the period found is not the program's.
pub const LONG_STEPS_SHARE: f64 = 0.5;

/// Share of the steps' time in stretches of other work, where it is too much (seen on the H200:
/// eager warm-up steps, then a hundred graph launches, taken for the last of them). A long step
/// with hardly more kernels than the others is a pause, however much of the time it takes: a
/// checkpoint. Marked steps are the user's word and not doubted.
fn unlike_steps(run: &Run, a: &Analysis) -> Option<f64> {
    let steps = &a.steps;
    if steps.source != StepSource::Period {
        return None;
    }
    let limit = steps.median_ns.saturating_mul(LONG_STEP);
    let all = || steps.steady().iter().chain(&steps.once);
    let is_long = |s: &&Step| s.odd && s.span.ns() > limit;
    let mut long = all().filter(is_long).peekable();
    long.peek()?;
    let mut usual: Vec<u64> = steps.steady().iter().map(|s| kernels(run, s.span)).collect();
    let most = median(&mut usual).saturating_mul(MORE_KERNELS);
    let ns = |s: &Step| s.span.ns();
    let part = share(long.filter(|s| kernels(run, s.span) > most).map(ns).sum(), all().map(ns).sum());
    (part > LONG_STEPS_SHARE).then_some(part)
}

/// Kernels that begin in a span.
fn kernels(run: &Run, span: Span) -> u64 {
    let streams = run.devices.iter().flat_map(|d| &d.streams);
    let inside = streams.flat_map(|s| {
        let from = s.ops.partition_point(|o| o.start < span.start);
        s.ops.iter().skip(from).take_while(|o| o.start < span.end)
    });
    inside.filter(|o| matches!(o.kind, Kind::Kernel | Kind::GraphTrace)).count() as u64
}

/// No operation, and why where it is known.
fn nothing_recorded(a: &Analysis) -> Fact {
    let why = match a.blind.first() {
        None => return Fact::new("no GPU operation was recorded"),
        Some(b) if b.reason == Unobserved::CaptureOff as u32 => {
            "capture was off: switched off by the program, or under GAPPROBE_CAPTURE=profiler never on, which takes cudaProfilerStart"
        }
        Some(b) => b.text(),
    };
    Fact::new("no GPU operation was recorded ({why})").with("why", Figure::Word(why))
}

/// Why there can be no verdict, before any cause is looked at. In another tool's trace, kernel
/// records missing count as losses. Operations without sound timestamps count only where a step may
/// lack one (`analyze/`).
pub(super) fn before(run: &Run, a: &Analysis) -> Option<Fact> {
    if run.problems.cut_segments > 0 {
        // how much is missing is not known, nor of what: neither other writers' events nor our
        // segments lie in order of time
        return Some(Fact::new("the file is truncated"));
    }
    if run.merged > 0 {
        return Some(
            Fact::new("{processes} processes launch under the same ids: analyze each rank's own trace")
                .with("processes", run.merged),
        );
    }
    if !run.missing.is_empty() {
        return Some(Fact::new("{missing}").with("missing", &*run.missing));
    }
    let Some(device) = a.worst.and_then(|w| a.devices.get(w)) else {
        return Some(match run.header.gpu_complete_to {
            _ if run.unproven().is_some() => unproven(run),
            0 => Fact::new("nothing of the GPU was recorded before the end"),
            _ => nothing_recorded(a),
        });
    };
    let reason = a.blind.first().map_or("no GPU operation in it", |b| b.text());
    if device.wall_ns == 0 {
        return Some(Fact::new("no time of the GPU was observed ({why})").with("why", Figure::Word(reason)));
    }
    if run.foreign && run.problems.bad_segments > 0 {
        return Some(Fact::new("the file is damaged"));
    }
    if let Some(why) = stamps(run, a, device) {
        return Some(why);
    }
    let lost = share(a.data_losses, a.data_losses.saturating_add(a.events));
    if share(a.unanswered, a.unanswered.saturating_add(a.events)) > LOSS_SHARE {
        return Some(missing_kernels(a.unanswered));
    }
    if lost > LOSS_SHARE {
        let are_lost = match run.problems.bad_segments {
            0 => Fact::new("{events} lost, {lost} of all events"),
            _ => Fact::new("up to {events} lost, {lost} of all events"),
        };
        let events = Figure::Of(a.data_losses, "event", "events");
        return Some(are_lost.with("events", events).with("lost", Figure::SmallShare(lost)));
    }
    if let Some(why) =
        uncalled(run).filter(|_| device.buckets.share(Bucket::Compute) < super::GPU_BOUND_SHARE)
    {
        return Some(why);
    }
    let early = share(device.start_before_launch, device.launched);
    if early > EARLY_SHARE {
        return Some(
            Fact::new("host and device timestamps are inconsistent: {early} of the operations start before their launch, by up to {most}")
                .with("early", Figure::Share(early))
                .with("most", Figure::Time(device.most_before_launch_ns as f64)),
        );
    }
    if device.ops < MIN_OPS || device.wall_ns < MIN_NS {
        return Some(
            Fact::new("too little seen ({operations} in {time})")
                .with("operations", Figure::Of(device.ops, "GPU operation", "GPU operations"))
                .with("time", Figure::Time(device.wall_ns as f64)),
        );
    }
    if run.header.sources & sources::NO_LAUNCHES != 0
        && device.buckets.share(Bucket::Compute) < super::GPU_BOUND_SHARE
    {
        return Some(without_launches(run));
    }
    if let Some(odd) = unlike_steps(run, a) {
        return Some(
            Fact::new("step time is not stable: {odd} of it is other work, over {steps} steps long each")
                .with("odd", Figure::Share(odd))
                .with("steps", LONG_STEP),
        );
    }
    let missing = graphs_without_nodes(run, a.steady);
    if missing > 0 {
        return Some(
            Fact::new("{launches} graph launches without records of their nodes").with("launches", missing),
        );
    }
    None
}

/// What launches without kernels say.
pub fn missing_kernels(n: u64) -> Fact {
    let missing = match n {
        1 => Fact::new("{kernels} kernel that was launched is not in the trace"),
        _ => Fact::new("{kernels} kernels that were launched are not in the trace"),
    };
    missing.with("kernels", n)
}

/// Operations are there, and no flush that ended says until when they are all of them.
fn unproven(run: &Run) -> Fact {
    let why = match run.flush_failed() {
        true => "CUPTI did not return its buffers (a flush hung or failed)",
        false => "no flush of CUPTI's buffers ended",
    };
    Fact::new("completeness of the GPU record is unknown: {why}").with("why", Figure::Word(why))
}

/// Operations of a stream that end while one before them runs, which another call launched: it has
/// this many only where its end is wrong. One or two may be dependent launches.
const INSIDE: usize = 20;

/// What of another tool's stamps contradicts itself.
fn stamps(run: &Run, a: &Analysis, device: &DeviceAnalysis) -> Option<Fact> {
    if !run.foreign {
        return None;
    }
    let all = run.devices.iter().flat_map(|d| &d.streams).map(|s| s.ops.len() as u64).sum();
    let early = share(run.uncalled.early, all);
    if early > EARLY_SHARE {
        return Some(
            Fact::new("host and device timestamps are inconsistent: {early} of the operations start more than {slack} ms before their launch")
                .with("early", Figure::Share(early))
                .with("slack", CLOCK_SLACK_NS / 1_000_000),
        );
    }
    let streams = &run.devices.iter().find(|d| d.ordinal == device.ordinal)?.streams;
    let overlong: Vec<Span> = streams.iter().flat_map(|s| overlong(&s.ops)).collect();
    let ns = overlong.iter().fold(0u64, |ns, span| ns.saturating_add(a.counts.measure(*span)));
    let count = overlong.len() as u64;
    (share(ns, device.wall_ns) > EARLY_SHARE).then(|| {
        let operations = Figure::Of(count, "operation lasts", "operations last");
        let it = Figure::Word(if count == 1 { "it" } else { "them" });
        Fact::new("timestamps are wrong: {operations} past what is queued after {it}")
            .with("operations", operations)
            .with("it", it)
    })
}

/// Operations inside which too many lie that came after them on their stream (and are no branches
/// of the same graph).
fn overlong(ops: &[Op]) -> Vec<Span> {
    let mut found = Vec::new();
    let mut latest: Option<(&Op, usize)> = None;
    for o in ops {
        match &mut latest {
            Some((l, inside)) if o.end < l.end => {
                *inside += usize::from(o.correlation != l.correlation);
                if *inside == INSIDE {
                    found.push(l.span());
                }
            }
            _ => latest = Some((o, 0)),
        }
    }
    found
}

/// No call is known to launch: there are none, or they are of a runtime whose names are not known.
fn without_launches(run: &Run) -> Fact {
    let mut calls = run.threads.iter().flat_map(|t| &t.calls).peekable();
    let unknown = calls.peek().copied().filter(|_| calls.all(|c| c.class.is_none()));
    match unknown.and_then(|c| run.known_call_name(c.packed)) {
        Some(name) => {
            Fact::new("which of the runtime's calls launch is not known ({function} is one of them)")
                .with("function", name)
        }
        None => Fact::new("launch times were not recorded"),
    }
}

/// Whose launching calls are missing, where these are too many: what the host did before an
/// operation is not known then.
fn uncalled(run: &Run) -> Option<Fact> {
    let Uncalled { calls, ops, copies, unidentified, .. } = run.uncalled;
    let all = || run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    if run.header.sources & sources::NO_LAUNCHES == 0 && unidentified > 0 {
        let many = all().count() as u64;
        if share(unidentified, many) > UNCALLED_SHARE {
            return Some(
                Fact::new("which calls launched {some} of its {operations} operations is not told: their correlation ids are 0 or shared")
                    .with("some", unidentified)
                    .with("operations", many),
            );
        }
    }
    if calls == 0 {
        return None;
    }
    let (many, many_copies) = (all().count() as u64, all().filter(|o| o.kind == Kind::Memcpy).count() as u64);
    let (lost, of, what) = match () {
        () if share(ops, many) > UNCALLED_SHARE => (ops, many, "operations"),
        () if copies >= A_FEW && share(copies, many_copies) > UNCALLED_SHARE => {
            (copies, many_copies, "copies")
        }
        () => return None,
    };
    Some(
        Fact::new("the calls that launched {lost} of its {all} {what} are not in the trace")
            .with("lost", lost)
            .with("all", of)
            .with("what", Figure::Word(what)),
    )
}

/// Graph launches in the steady span that no op came from. A tenth may be (empty graphs, launches
/// at the span's end).
fn graphs_without_nodes(run: &Run, steady: Span) -> usize {
    let mut launches: Vec<u32> = Vec::new();
    for (t, thread) in run.threads.iter().enumerate() {
        for (i, c) in thread.calls.iter().enumerate() {
            if c.class == Some(Class::GraphLaunch) && c.start >= steady.start && c.end <= steady.end {
                launches.push(run.flat(t, i));
            }
        }
    }
    if launches.is_empty() {
        return 0;
    }
    launches.sort_unstable();
    let mut seen = vec![false; launches.len()];
    for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
        if let Ok(at) = launches.binary_search(&op.call) {
            if let Some(s) = seen.get_mut(at) {
                *s = true;
            }
        }
    }
    let missing = seen.iter().filter(|s| !**s).count();
    if missing * 10 > launches.len() {
        missing
    } else {
        0
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A device's time by phase: what runs belongs to the phase that launched it (of several operations
//! at once the first to begin), idle time to the phase the host was in, or to that of the next
//! operation where that was queued already.

use verdict::analysis::{Analysis, Bucket, Counters, DeviceAnalysis, IdleSlice, Step, StepSource};
use verdict::gaps::input;
use verdict::run::{Device, Run, Span};
use verdict::timeline::ops;

use super::calls::Calls;
use super::spans::Part;
use super::{By, Kind, Other, Phase, Phases, MOST_STEPS};

/// A stretch of a device's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// From and to.
    pub span: Span,
    /// Its phase; `None`: in none that is known.
    pub kind: Option<Kind>,
    /// Something runs on the device.
    pub busy: bool,
}

/// The pieces of a device's time (by index), disjoint and by time; empty where no phase is known.
pub fn pieces(run: &Run, analysis: &Analysis, device: usize) -> Vec<Piece> {
    match (run.devices.get(device), analysis.devices.get(device)) {
        (Some(d), Some(found)) => {
            let calls = Calls::new(run, d);
            let phases = sums(run, analysis, d, found, &calls);
            let mut pieces = if phases.parts.is_empty() { Vec::new() } else { cut(d, found, &calls) };
            for p in &mut pieces {
                p.kind = p.kind.filter(|&k| phases.get(k).is_some());
            }
            pieces
        }
        _ => Vec::new(),
    }
}

/// One stretch of the host that is a phase by inference, and what was launched in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Which.
    pub kind: Kind,
    /// How it is known.
    pub by: By,
    /// On the host.
    pub host: Span,
    /// Lengths of its operations, summed up, ns.
    pub gpu_ns: u64,
    /// First begin to last end of them; `None` of none.
    pub gpu: Option<Span>,
}

/// The phases of the device the line is about that no range names, by begin.
pub fn inferred(run: &Run, analysis: &Analysis) -> Vec<Instance> {
    let index = analysis.worst.unwrap_or(usize::MAX);
    let (Some(device), Some(found)) = (run.devices.get(index), analysis.devices.get(index)) else {
        return Vec::new();
    };
    let calls = Calls::new(run, device);
    let phases = sums(run, analysis, device, found, &calls);
    let known = |&(host, kind): &Part| {
        let by = phases.get(kind)?.by;
        Some(Instance { kind, by, host, gpu_ns: 0, gpu: None })
    };
    let mut all: Vec<Instance> = calls.inferred.iter().filter_map(known).collect();
    all.sort_by_key(|i| i.host.start);
    for op in device.streams.iter().flat_map(|s| &s.ops) {
        let (Some(kind), Some((_, call))) = (calls.of(op), run.call(op.call)) else { continue };
        let before = all.partition_point(|i| i.host.start <= call.start);
        let around = |i: &&mut Instance| i.kind == kind && call.start < i.host.end;
        // phases lie side by side or one in the other: the next ones before are enough
        let near = all.get_mut(before.saturating_sub(Kind::COUNT)..before).unwrap_or(&mut []);
        if let Some(instance) = near.iter_mut().rev().find(around) {
            instance.gpu_ns += op.span().ns();
            let gpu = instance.gpu.unwrap_or(op.span());
            instance.gpu = Some(Span::new(gpu.start.min(op.start), gpu.end.max(op.end)));
        }
    }
    all
}

fn cut(device: &Device, found: &DeviceAnalysis, calls: &Calls) -> Vec<Piece> {
    let mut pieces = busy(device, calls);
    for slice in &found.slices {
        idle(device, slice, calls, &mut pieces);
    }
    pieces.sort_unstable_by_key(|p| (p.span.start, p.span.end));
    pieces
}

fn busy(device: &Device, calls: &Calls) -> Vec<Piece> {
    let (mut pieces, mut until) = (Vec::<Piece>::new(), 0);
    for op in ops(device).map(|p| p.op) {
        let span = Span::new(op.start.max(until), op.end);
        if span.ns() == 0 {
            continue;
        }
        until = span.end;
        let kind = calls.of(op);
        match pieces.last_mut() {
            Some(last) if last.kind == kind && last.span.end == span.start => last.span.end = span.end,
            _ => pieces.push(Piece { span, kind, busy: true }),
        }
    }
    pieces
}

fn idle(device: &Device, slice: &IdleSlice, calls: &Calls, pieces: &mut Vec<Piece>) {
    let mut put = |span: Span, kind| {
        if span.ns() > 0 {
            pieces.push(Piece { span, kind, busy: false });
        }
    };
    match slice.bucket {
        Bucket::Input => put(slice.span(), Some(Kind::Dataload)),
        // the host had gone on: whose work is it that waits?
        Bucket::KernelGap | Bucket::DeviceWait | Bucket::Unexplained => {
            let stream = device.streams.get(usize::from(slice.after_stream));
            let next = stream.and_then(|s| s.ops.get(slice.after as usize));
            put(slice.span(), next.and_then(|op| calls.of(op)));
        }
        _ => {
            let from = calls.spans.partition_point(|p| p.0.end <= slice.start);
            let mut at = slice.start;
            for &(span, kind) in calls.spans.get(from..).unwrap_or(&[]) {
                if span.start >= slice.end {
                    break;
                }
                let inside = span.clip(slice.span());
                put(Span::new(at, inside.start), None);
                put(inside, Some(kind));
                at = inside.end;
            }
            put(Span::new(at, slice.end), None);
        }
    }
}

/// The phases of the steps that count, without remarks.
pub(super) fn sums(
    run: &Run,
    analysis: &Analysis,
    device: &Device,
    found: &DeviceAnalysis,
    calls: &Calls,
) -> Phases {
    let steps = analysis.steps.steady();
    let (mut busy, mut idle) = ([0u64; Kind::COUNT], [0u64; Kind::COUNT]);
    let mut in_steps: [Vec<bool>; Kind::COUNT] = std::array::from_fn(|_| vec![false; steps.len()]);
    let mut stretches = Vec::<Piece>::new();
    for piece in cut(device, found, calls) {
        let ns = analysis.counts.measure(piece.span);
        if let Some(kind) = piece.kind {
            let sum = if piece.busy { &mut busy } else { &mut idle };
            sum[kind as usize] += ns;
            see(&mut in_steps[kind as usize], steps, piece.span);
        }
        match stretches.last_mut() {
            _ if ns == 0 => {} // (of no step that counts)
            Some(last) if (last.kind, last.span.end) == (piece.kind, piece.span.start) => {
                last.span.end = piece.span.end;
            }
            _ => stretches.push(piece),
        }
    }
    let counters = |is: &dyn Fn(Option<Kind>) -> bool| {
        let spans: Vec<Span> = stretches.iter().filter(|p| is(p.kind)).map(|p| p.span).collect();
        Counters::of(run, device.ordinal, &spans)
    };
    let host = host(run, analysis, found, calls, &mut in_steps);
    let least = (steps.len() as f64 * MOST_STEPS).ceil() as usize;
    let part = |kind: Kind| {
        let i = kind as usize;
        let by = calls.by[i].or((kind == Kind::Dataload && idle[i] > 0).then_some(By::Gaps))?;
        let seen = in_steps[i].iter().filter(|s| **s).count();
        // a fetch that costs no time is one all the same; a gap of it may be rare
        let usual = seen >= least.max(1) || kind == Kind::Dataload;
        let (busy_ns, idle_ns) = (busy[i], idle[i]);
        usual.then(|| Phase {
            kind,
            by,
            steps: seen,
            busy_ns,
            idle_ns,
            host_ns: host[i],
            counters: counters(&|k| k == Some(kind)),
        })
    };
    let mut parts: Vec<Phase> = Kind::ALL.into_iter().filter_map(part).collect();
    // that the GPU waits for input says its bucket already
    if parts.iter().all(|p| p.by == By::Gaps) {
        parts.clear();
    }
    let sum = |of: fn(&Phase) -> u64| parts.iter().map(of).sum::<u64>();
    let other = Other {
        busy_ns: found.steady_busy_ns().saturating_sub(sum(|p| p.busy_ns)),
        idle_ns: found.buckets.idle().saturating_sub(sum(|p| p.idle_ns)),
        counters: counters(&|kind| parts.iter().all(|p| Some(p.kind) != kind)),
    };
    Phases { parts, other, wall_ns: found.wall_ns, steps: steps.len(), remarks: Vec::new() }
}

/// Marks the steps that a span of the device touches.
fn see(seen: &mut [bool], steps: &[Step], span: Span) {
    let from = steps.partition_point(|s| s.span.end <= span.start);
    let touched = steps.iter().zip(seen).skip(from).take_while(|(s, _)| s.span.start < span.end);
    touched.for_each(|(_, seen)| *seen = true);
}

/// Time on the host of what is known to lie there, ns. Where steps lie on the device, the host's
/// spans of the steady time.
fn host(
    run: &Run,
    analysis: &Analysis,
    found: &DeviceAnalysis,
    calls: &Calls,
    in_steps: &mut [Vec<bool>; Kind::COUNT],
) -> [Option<u64>; Kind::COUNT] {
    let steps = analysis.steps.steady();
    let whole = match (steps.first(), steps.last()) {
        (Some(first), Some(last)) => Span::new(first.host.start, last.host.end),
        _ => return [None; Kind::COUNT],
    };
    let mut sums = [None; Kind::COUNT];
    for &(span, kind) in &calls.spans {
        let inside: Part = (span.clip(whole), kind);
        if inside.0.ns() > 0 {
            *sums[kind as usize].get_or_insert(0) += inside.0.ns();
            if analysis.steps.source != StepSource::Period {
                let at = spans_step(steps, inside.0);
                at.and_then(|i| in_steps[kind as usize].get_mut(i)).into_iter().for_each(|s| *s = true);
            }
        }
    }
    let fetched = input::all(run, analysis.steady, &found.slices);
    if fetched.complete && fetched.ns > 0 {
        sums[Kind::Dataload as usize] = Some(fetched.ns);
    }
    sums
}

fn spans_step(steps: &[Step], span: Span) -> Option<usize> {
    let i = steps.partition_point(|s| s.host.start <= span.start).checked_sub(1)?;
    steps.get(i).filter(|s| span.start < s.host.end).map(|_| i)
}

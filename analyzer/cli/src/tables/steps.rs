// SPDX-License-Identifier: Apache-2.0
//! Each step's time on each device, split: what the device did, and why it did nothing. The parts
//! of a row sum up to its Step Time; Not Seen is what was not observed of it. Steps of warm-up are
//! marked: other figures leave them out. Phases (`phases/`), where they are known, are parts of the
//! same time in another way. Start counts from the time zero of the trace.

use std::cmp::Reverse;
use std::io;

use verdict::analysis::{Analysis, Bucket, Buckets, DeviceAnalysis, IdleSlice, Step};
use verdict::output::chrome::document::first_time;
use verdict::run::{Device, Run, Span};
use verdict::timeline::kernels::KernelTable;
use verdict::timeline::{Observed, Placed, Sweep, Visitor};

use super::table::{naming, ns, number, part, row, text, Column, Row};
use super::{Report, Source};
use crate::phases::{self, Piece};

pub(super) static REPORT: Report = Report {
    name: "steps",
    title: "Steps",
    what: "each step's time by what the GPU did in it, and why it was idle",
    needs: "steps",
    usual: false,
    shown: 0,
    columns: &COLUMNS,
    rows,
    each: Some(each),
};

/// Rows made at once: about 10 MB.
const ROWS_AT_ONCE: usize = 65_536;

/// The parts of a step's time in the order of the columns; keys are those of the summary.
const SPLIT: [(Bucket, Column); Bucket::COUNT] = [
    (Bucket::Compute, part("Compute", "compute_ns")),
    (Bucket::Copy, part("Copy Only", "copy_only_ns")),
    (Bucket::Comm, part("Comm Only", "collective_only_ns")),
    (Bucket::Sync, part("Sync", "sync_ns")),
    (Bucket::Launch, part("Launch", "launch_ns")),
    (Bucket::KernelGap, part("Kernel Gap", "kernel_gap_ns")),
    (Bucket::DeviceWait, part("Device Wait", "device_wait_ns")),
    (Bucket::Host, part("Host", "host_ns")),
    (Bucket::Input, part("Input", "input_ns")),
    (Bucket::CopyWait, part("Copy Wait", "copy_wait_ns")),
    (Bucket::Alloc, part("Alloc", "alloc_ns")),
    (Bucket::Unexplained, part("Unexplained", "unexplained_ns")),
];

const FIRST: [Column; 4] = [
    number("Step", "step"),
    naming("DevId", "device"),
    ns("Start", "start_ns"),
    part("Step Time", "step_ns"),
];
const NOT_SEEN: Column = part("Not Seen", "not_seen_ns");
const LAST: [Column; 3 + phases::Kind::COUNT] = [
    NOT_SEEN,
    Column { spare: true, ..part("Dataload", "dataload_ns") },
    Column { spare: true, ..part("Forward", "forward_ns") },
    Column { spare: true, ..part("Backward", "backward_ns") },
    Column { spare: true, ..part("Optimizer", "optimizer_ns") },
    number("Ops", "gpu_ops"),
    text("Flags", "flags"),
];
/// Phases are looked for on no more devices: each looks at all of the run.
const MOST_WITH_PHASES: usize = 16;

static COLUMNS: [Column; FIRST.len() + SPLIT.len() + LAST.len()] = {
    let mut all = [FIRST[0]; FIRST.len() + SPLIT.len() + LAST.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < FIRST.len() {
            FIRST[i]
        } else if i < FIRST.len() + SPLIT.len() {
            SPLIT[i - FIRST.len()].1
        } else {
            LAST[i - FIRST.len() - SPLIT.len()]
        };
        i += 1;
    }
    all
};

/// One step's part of a device's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// What the device did in it, and why it did nothing, ns.
    pub(crate) buckets: Buckets,
    /// Operations that begin in it.
    pub(crate) ops: u64,
}

/// Hands spans that come in time order out to steps in time order.
struct Split<'a> {
    steps: &'a [Step],
    parts: Vec<Part>,
    observed: &'a Observed,
    /// No earlier step has anything to get.
    first: usize,
}

impl Split<'_> {
    fn add(&mut self, bucket: Bucket, span: Span) {
        for seen in self.observed.parts(span) {
            while self.steps.get(self.first).is_some_and(|s| s.span.end <= seen.start) {
                self.first += 1;
            }
            let steps = self.steps.iter().zip(&mut self.parts).skip(self.first);
            for (step, part) in steps.take_while(|(s, _)| s.span.start < seen.end) {
                part.buckets.add(bucket, seen.clip(step.span).ns());
            }
        }
    }
}

impl<'a> Visitor<'a> for Split<'_> {
    fn busy(&mut self, bucket: Bucket, span: Span) {
        self.add(bucket, span);
    }

    fn gap(&mut self, _span: Span, _op: Placed<'a>) {}

    fn op(&mut self, op: Placed<'a>) {
        let start = op.op.start;
        let steps = self.steps.iter().zip(&mut self.parts).skip(self.first);
        for (_, part) in steps.take_while(|(s, _)| s.span.start <= start).filter(|(s, _)| start < s.span.end)
        {
            part.ops += 1;
        }
    }
}

/// What one device (by index) did in each step of the run, warm-up included. The buckets of a part
/// sum up to its step's time less what was not observed of it. Linear in operations and idle
/// slices. `collectives`: sorted ids of kernels.
pub(crate) fn parts(run: &Run, analysis: &Analysis, device: usize, collectives: &[u32]) -> Vec<Part> {
    let observed = Observed::new(analysis.valid, &run.blind);
    let steps = &analysis.steps.steps;
    match run.devices.get(device) {
        Some(d) => Walk::new(d, analysis.devices.get(device)).parts(steps, u64::MAX, &observed, collectives),
        None => vec![Part::default(); steps.len()],
    }
}

/// The steady step in which the device of the verdict did something else than computing, or
/// nothing, the longest; the first of several. `None` without steps.
pub fn worst(run: &Run, analysis: &Analysis) -> Option<Step> {
    let device = analysis.worst.unwrap_or(0);
    let parts = parts(run, analysis, device, &KernelTable::new(run).collectives());
    let steady = analysis.steps.steps.iter().zip(&parts).skip(analysis.steps.warm_up);
    let lost = |part: &Part| part.buckets.total() - part.buckets.get(Bucket::Compute);
    steady.max_by_key(|(step, part)| (lost(part), Reverse(step.span))).map(|(step, _)| *step)
}

/// A device, from one step to the next.
struct Walk<'a> {
    sweep: Sweep<'a>,
    idle: &'a [IdleSlice],
}

impl<'a> Walk<'a> {
    fn new(device: &'a Device, found: Option<&'a DeviceAnalysis>) -> Walk<'a> {
        Walk { sweep: Sweep::new(device), idle: found.map_or(&[], |found| &found.slices) }
    }

    /// Of the next steps, behind which nothing before `reach` is asked for again.
    fn parts(&mut self, steps: &[Step], reach: u64, observed: &Observed, collectives: &[u32]) -> Vec<Part> {
        let split = || Split { steps, parts: vec![Part::default(); steps.len()], observed, first: 0 };
        let (mut busy, mut idle) = (split(), split());
        self.sweep.until(reach, collectives, &mut busy);
        while let Some((slice, rest)) = self.idle.split_first().filter(|(s, _)| s.start < reach) {
            idle.add(slice.bucket, slice.span());
            if slice.end > reach {
                break; // the next steps have a part of it
            }
            self.idle = rest;
        }
        for (part, idle) in busy.parts.iter_mut().zip(&idle.parts) {
            for bucket in Bucket::ALL {
                part.buckets.add(bucket, idle.buckets.get(bucket));
            }
        }
        busy.parts
    }
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let mut all = Vec::new();
    let kept = each(source, &mut |row| {
        all.push(row);
        Ok(true)
    });
    debug_assert!(kept.is_ok(), "keeping rows does not fail");
    all
}

/// By begin of the step, then by device. All devices are walked side by side, a few steps at a
/// time: a row for every step of every device may be more than fits into memory.
fn each(source: &Source<'_>, give: &mut dyn FnMut(Row) -> io::Result<bool>) -> io::Result<()> {
    let (run, analysis) = (source.run, source.analysis());
    let steps = &analysis.steps.steps;
    let collectives = KernelTable::new(run).collectives();
    let observed = Observed::new(analysis.valid, &run.blind);
    let mut walks: Vec<(u32, Walk<'_>)> = (0..)
        .zip(&run.devices)
        .map(|(i, d): (usize, _)| (d.ordinal, Walk::new(d, analysis.devices.get(i))))
        .collect();
    let phased = run.devices.len() <= MOST_WITH_PHASES;
    let phases: Vec<Vec<Piece>> = match phased {
        true => (0..walks.len()).map(|i| phases::pieces(run, analysis, i)).collect(),
        false => Vec::new(),
    };
    let most = (ROWS_AT_ONCE / walks.len().max(1)).max(1);
    let begin = first_time(run, analysis);
    let mut from = 0;
    while from < steps.len() {
        let mut to = (from + most).min(steps.len());
        let mut reach = steps.get(from..to).unwrap_or(&[]).iter().map(|s| s.span.end).max().unwrap_or(0);
        // steps that overlap stay together
        while let Some(s) = steps.get(to).filter(|s| s.span.start < reach) {
            reach = reach.max(s.span.end);
            to += 1;
        }
        let some = steps.get(from..to).unwrap_or(&[]);
        let mut rows = Vec::with_capacity(some.len() * walks.len());
        for (i, (ordinal, walk)) in walks.iter_mut().enumerate() {
            let parts = walk.parts(some, reach, &observed, &collectives);
            let pieces = phases.get(i).map_or(&[][..], Vec::as_slice);
            rows.extend(some.iter().zip(parts).map(|(step, part)| (step, *ordinal, part, pieces)));
        }
        rows.sort_by_key(|(step, ordinal, ..)| (step.span.start, *ordinal));
        for (step, ordinal, part, pieces) in rows {
            let phases = of_phases(pieces, step.span, &observed);
            let start = step.span.start.saturating_sub(begin);
            if !give(cells((start, step), ordinal, &part, phases))? {
                return Ok(());
            }
        }
        from = to;
    }
    Ok(())
}

/// A step's time by phase; `None` where none is known.
fn of_phases(pieces: &[Piece], step: Span, observed: &Observed) -> Option<[u64; phases::Kind::COUNT]> {
    let mut sums = [0; phases::Kind::COUNT];
    let from = pieces.partition_point(|p| p.span.end <= step.start);
    for piece in pieces.iter().skip(from).take_while(|p| p.span.start < step.end) {
        if let Some(kind) = piece.kind {
            sums[kind as usize] += observed.measure(piece.span.clip(step));
        }
    }
    (!pieces.is_empty()).then_some(sums)
}

fn cells(
    (start, step): (u64, &Step),
    ordinal: u32,
    part: &Part,
    phases: Option<[u64; phases::Kind::COUNT]>,
) -> Row {
    let mut cells = row![step.number, ordinal, start, step.span.ns()];
    let mut rest = step.span.ns();
    for (bucket, _) in SPLIT {
        let ns = part.buckets.get(bucket);
        rest = rest.saturating_sub(ns);
        cells.extend(row![ns]);
    }
    let flags = [("warm-up", step.warm_up), ("odd", step.odd)];
    let flags: Vec<&str> = flags.iter().filter(|f| f.1).map(|f| f.0).collect();
    cells.extend(row![rest]);
    for kind in phases::Kind::ALL {
        cells.extend(row![phases.map(|p| p[kind as usize]).filter(|&ns| ns > 0)]);
    }
    cells.extend(row![part.ops, (!flags.is_empty()).then(|| flags.join(" ")).as_deref()]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_has_its_column_once() {
        for bucket in Bucket::ALL {
            let of: Vec<&str> = SPLIT.iter().filter(|s| s.0 == bucket).map(|s| s.1.key).collect();
            assert_eq!(of, [format!("{}_ns", bucket.key())]);
        }
    }

    /// Kernels and idle time that reach over the border of a piece count on both sides of it.
    #[test]
    fn in_pieces_it_is_the_same_as_at_once() {
        use trace::build::Builder;
        use trace::call::{pack, Class, RUNTIME};
        use trace::{Event, Kind};
        let mut b = Builder::new();
        let kernel = b.kernel("k", 32, 16);
        for i in 0..40u32 {
            let at = 1_000_000 + u64::from(i) * 100_000;
            let mut mark = Event::new(Kind::Step, at, at + 100_000);
            mark.a = i;
            b.on_thread(5, mark);
            let mut call = Event::new(Kind::Call, at + 100, at + 4_000);
            (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, i + 1);
            b.on_thread(5, call);
            // some over several steps, on streams of their own; none in every fifth step
            let long = u64::from(i * 7919 % 13) * 30_000 + 5_000;
            let mut op = Event::new(Kind::Kernel, at + 5_000, at + 5_000 + long);
            (op.a, op.b, op.correlation) = (kernel, 1, i + 1);
            if i % 5 != 3 {
                b.on_stream(0, 1, i % 4, op);
            }
        }
        let run = verdict::load(b.finish().as_slice()).expect("a recording");
        let analysis = verdict::analyze(&run);
        let steps = &analysis.steps.steps;
        assert!(steps.len() > 20, "{}", steps.len());
        let observed = Observed::new(analysis.valid, &run.blind);
        let whole: Vec<(Buckets, u64)> =
            parts(&run, &analysis, 0, &[]).iter().map(|p| (p.buckets, p.ops)).collect();
        assert!(whole.iter().map(|p| p.0.get(Bucket::Compute)).sum::<u64>() > 1_000_000);
        for size in [1, 2, 3, 7] {
            let mut walk = Walk::new(&run.devices[0], analysis.devices.first());
            let pieces: Vec<(Buckets, u64)> = steps
                .chunks(size)
                .flat_map(|some| {
                    let reach = some.iter().map(|s| s.span.end).max().unwrap_or(0);
                    walk.parts(some, reach, &observed, &[])
                })
                .map(|p| (p.buckets, p.ops))
                .collect();
            assert_eq!(pieces, whole, "pieces of {size}");
        }
    }
}

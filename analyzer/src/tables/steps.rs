// SPDX-License-Identifier: Apache-2.0
//! Each step's time on each device, split: what the device did, and why it did nothing. The parts of a row sum up to its
//! Step Time; Not Seen is what was not observed of it. Steps of warm-up are marked: other figures leave them out.

use super::table::{ns, number, part, row, text, Column, Row};
use super::{Report, Source};
use crate::analysis::{Analysis, Bucket, Buckets, Step};
use crate::kernels::KernelTable;
use crate::run::{Run, Span};
use crate::timeline::{sweep, Observed, Placed, Visitor};

pub(super) static REPORT: Report = Report {
    name: "steps",
    title: "Steps",
    what: "each step's time by what the GPU did in it, and why it was idle",
    needs: "steps",
    usual: false,
    shown: 0,
    columns: &COLUMNS,
    rows,
};

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
    number("DevId", "device"),
    ns("Start", "start_ns"),
    part("Step Time", "step_ns"),
];
const LAST: [Column; 3] = [part("Not Seen", "not_seen_ns"), number("Ops", "gpu_ops"), text("Flags", "flags")];

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

/// What one device (by index) did in each step of the run, warm-up included. The buckets of a part sum up to its step's
/// time less what was not observed of it. Linear in operations and idle slices.
/// `collectives`: sorted ids of kernels.
pub(crate) fn parts(run: &Run, analysis: &Analysis, device: usize, collectives: &[u32]) -> Vec<Part> {
    let steps = &analysis.steps.steps;
    let observed = Observed::new(analysis.valid, &run.blind);
    let split = || Split { steps, parts: vec![Part::default(); steps.len()], observed: &observed, first: 0 };
    let (mut busy, mut idle) = (split(), split());
    if let Some(device) = run.devices.get(device) {
        sweep(device, collectives, &mut busy);
    }
    for slice in analysis.devices.get(device).map_or(&[][..], |found| &found.slices) {
        idle.add(slice.bucket, slice.span());
    }
    for (part, idle) in busy.parts.iter_mut().zip(&idle.parts) {
        for bucket in Bucket::ALL {
            part.buckets.add(bucket, idle.buckets.get(bucket));
        }
    }
    busy.parts
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, analysis) = (source.run, source.analysis());
    let steps = &analysis.steps.steps;
    if steps.is_empty() {
        return Vec::new();
    }
    let collectives = KernelTable::new(run).collectives();
    let mut rows = Vec::new();
    for (index, device) in run.devices.iter().enumerate() {
        for (step, part) in steps.iter().zip(parts(run, analysis, index, &collectives)) {
            let start = step.span.start.saturating_sub(run.header.start_monotonic);
            let mut cells = row![step.number, device.ordinal, start, step.span.ns()];
            let mut rest = step.span.ns();
            for (bucket, _) in SPLIT {
                let ns = part.buckets.get(bucket);
                rest = rest.saturating_sub(ns);
                cells.extend(row![ns]);
            }
            let flags = [("warm-up", step.warm_up), ("odd", step.odd)];
            let flags: Vec<&str> = flags.iter().filter(|f| f.1).map(|f| f.0).collect();
            cells.extend(row![rest, part.ops, (!flags.is_empty()).then(|| flags.join(" ")).as_deref()]);
            rows.push((step.span.start, device.ordinal, cells));
        }
    }
    rows.sort_by_key(|r| (r.0, r.1));
    rows.into_iter().map(|r| r.2).collect()
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
}

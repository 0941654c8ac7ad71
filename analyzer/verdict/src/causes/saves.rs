// SPDX-License-Identifier: Apache-2.0
//! What a checkpoint costs that the launching thread writes: copies to the host, the wait for the
//! queue in front of them, and the writing all stand below one `save` call, and go with it. What
//! lies there is one cause (GP122 FILE-IO), not four.

use std::collections::HashMap;

use crate::analysis::{share, Analysis, Bucket, Buckets, DeviceAnalysis};
use crate::gaps::sample_index::{common, LEAST_SAMPLES};
use crate::run::{Run, Span, Thread};
use crate::sites::frames::Frames;
use crate::sites::{Site, Sites};
use crate::timeline::kernels::KernelTable;
use crate::timeline::{sweep, Observed, Placed, Visitor};

/// A thread that launches less than this part of what the busiest one does does not hold the steps
/// up (a thread that saves beside them).
const LAUNCHES: f64 = 0.1;
/// Samples of one call lie closer to each other than this, ns: the sampler looks 100 times a
/// second, and half as often at worst where it is held up.
const ONE_CALL_NS: u64 = 20_000_000;

/// Time of the steps below calls that save a checkpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Saves {
    /// Time in which nothing computes, by bucket.
    pub(super) buckets: Buckets,
    /// Calls.
    pub(super) calls: u64,
    /// The longest, ns.
    pub(super) longest: u64,
    /// Samples that show it.
    pub(super) samples: u32,
    /// The line.
    pub(super) site: Option<Site>,
}

impl Saves {
    /// Where the samples show it, and calls of the device stand in it: else it is HOST, as any
    /// other work.
    pub(super) fn of(run: &Run, analysis: &Analysis, device: &DeviceAnalysis) -> Saves {
        if run.threads.iter().all(|t| t.samples.is_empty()) {
            return Saves::default(); // before any call is looked at
        }
        let (spans, stacks) = spans(run, analysis);
        let Some(of) = run.devices.iter().find(|d| d.ordinal == device.ordinal) else {
            return Saves::default();
        };
        if (stacks.len() as u32) < LEAST_SAMPLES {
            return Saves::default();
        }
        let below = analysis.counts.only(spans.iter().copied());
        let mut saves = Saves {
            calls: spans.len() as u64,
            longest: spans.iter().map(|s| s.ns()).max().unwrap_or(0),
            samples: stacks.len() as u32,
            site: common(&mut Sites::new(run), stacks.into_iter()).map(|c| c.0),
            buckets: Buckets::default(),
        };
        for slice in &device.slices {
            saves.buckets.add(slice.bucket, below.measure(slice.span()));
        }
        let mut busy = Busy { below: &below, buckets: &mut saves.buckets };
        sweep(of, &KernelTable::new(run).collectives(), &mut busy);
        if saves.waits_ns() == 0 {
            return Saves::default();
        }
        saves
    }

    /// Waiting for the device and copying.
    fn waits_ns(&self) -> u64 {
        let waits = [Bucket::Sync, Bucket::Copy, Bucket::CopyWait, Bucket::Alloc];
        waits.iter().map(|&b| self.buckets.get(b)).sum()
    }

    /// Share of the device's wall time.
    pub(super) fn share(&self, bucket: Bucket, device: &DeviceAnalysis) -> f64 {
        share(self.buckets.get(bucket), device.wall_ns)
    }
}

/// Adds what runs on the device below the calls; computing is no loss.
struct Busy<'a> {
    below: &'a Observed,
    buckets: &'a mut Buckets,
}

impl<'a> Visitor<'a> for Busy<'_> {
    fn busy(&mut self, bucket: Bucket, span: Span) {
        if bucket != Bucket::Compute {
            self.buckets.add(bucket, self.below.measure(span));
        }
    }

    fn gap(&mut self, _span: Span, _op: Placed<'a>) {}

    fn op(&mut self, _op: Placed<'a>) {}
}

/// When threads that launch saved, a span a call, and the stacks that show it.
fn spans(run: &Run, analysis: &Analysis) -> (Vec<Span>, Vec<u32>) {
    let launches = |t: &Thread| t.calls.iter().filter(|c| c.launches()).count() as f64;
    let most = run.threads.iter().map(launches).fold(0.0, f64::max);
    let mut known: HashMap<u32, bool> = HashMap::new();
    let mut saves = |stack: u32| {
        stack != 0 && *known.entry(stack).or_insert_with(|| Frames::of(run, stack) == Frames::Save)
    };
    let (mut spans, mut stacks) = (Vec::new(), Vec::new());
    for thread in run.threads.iter().filter(|t| !t.samples.is_empty() && launches(t) >= LAUNCHES * most) {
        for s in thread.samples.iter().filter(|s| analysis.counts.measure(s.span) > 0 && saves(s.stack)) {
            spans.push(s.span);
            stacks.push(s.stack);
        }
        // calls are exact where samples are not
        let calls = thread.calls.iter().filter(|c| analysis.counts.measure(c.span()) > 0 && saves(c.site));
        spans.extend(calls.map(|c| c.span()));
    }
    spans.sort_unstable();
    spans.dedup_by(|next, kept| {
        let joins = next.start <= kept.end.saturating_add(ONE_CALL_NS);
        kept.end = if joins { kept.end.max(next.end) } else { kept.end };
        joins
    });
    (spans, stacks)
}

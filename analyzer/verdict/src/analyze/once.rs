// SPDX-License-Identifier: Apache-2.0
//! What happened once or twice, in words: where in the run, how long, what most of it was, which
//! line. Steps in which it did are taken out by `steps/once.rs`; what lies before the first step
//! and behind the last is here, too.

use crate::analysis::{Analysis, Bucket, Buckets, Once, OncePlace};
use crate::run::{Run, Span};
use crate::sites::{Site, Sites};
use crate::timeline::buckets::NOTICED_SHARE;
use crate::timeline::{class, sweep, Placed, Visitor};

/// All of it that is a hundredth of what was seen and more, by time. Of another tool's trace what
/// lies around its steps belongs to nothing that it says of itself, and is left out.
pub(crate) fn told(run: &Run, a: &Analysis, collectives: &[u32]) -> Vec<Once> {
    let found = a.worst.and_then(|w| Some((run.devices.get(w)?, a.devices.get(w)?)));
    let Some((device, analysis)) = found.filter(|_| !a.steps.steps.is_empty()) else { return Vec::new() };
    let last = a.steps.once.last().filter(|_| a.steps.ends_long);
    let in_steps = a.steps.once.iter().map(|step| {
        let is_last = last.is_some_and(|l| l.span == step.span);
        let place = if is_last { OncePlace::After } else { OncePlace::In(step.number) };
        (step.span, step.span.ns().saturating_sub(a.steps.median_ns), place)
    });
    let mut spans: Vec<(Span, u64, OncePlace)> = in_steps.collect();
    let steps = || a.steps.steps.iter().chain(&a.steps.once).map(|s| s.span);
    let first = steps().map(|s| s.start).min().unwrap_or(0);
    let end = steps().map(|s| s.end).max().unwrap_or(0);
    let around = [
        (Span::new(analysis.span.start, first), OncePlace::Before),
        (Span::new(end, analysis.span.end), OncePlace::After),
    ];
    if !run.foreign {
        spans.extend(around.map(|(span, place)| (span, span.ns(), place)));
    }
    let least = NOTICED_SHARE * a.coverage.seen_ns as f64;
    spans.retain(|s| s.1 as f64 >= least && s.1 > 0);
    spans.sort_by_key(|s| s.0);
    if spans.is_empty() {
        return Vec::new();
    }
    let mut parts: Vec<Part> = spans.iter().map(|s| Part { span: s.0, ..Part::default() }).collect();
    sweep(device, collectives, &mut Parts { parts: &mut parts, collectives });
    for slice in &analysis.slices {
        for part in &mut parts {
            let stack = analysis.stack_of(slice);
            part.take(slice.bucket, slice.span(), (slice.call, stack));
        }
    }
    let mut sites = Sites::new(run);
    let once = |((span, ns, place), part): (&(Span, u64, OncePlace), &Part)| {
        let bucket = part.most();
        Once { span: *span, ns: *ns, place: *place, bucket, site: part.site(run, &mut sites, bucket) }
    };
    spans.iter().zip(&parts).map(once).collect()
}

/// What fills a span.
#[derive(Default)]
struct Part {
    span: Span,
    buckets: Buckets,
    /// Of each bucket its longest piece, and the call and the stack that go with it.
    longest: [(u64, u32, u32); Bucket::COUNT],
}

impl Part {
    fn take(&mut self, bucket: Bucket, span: Span, (call, stack): (u32, u32)) {
        let ns = span.clip(self.span).ns();
        self.buckets.add(bucket, ns);
        if let Some(longest) = self.longest.get_mut(bucket as usize).filter(|l| l.0 < ns) {
            *longest = (ns, call, stack);
        }
    }

    /// What most of it is.
    fn most(&self) -> Bucket {
        Bucket::ALL.into_iter().max_by_key(|&b| self.buckets.get(b)).unwrap_or(Bucket::Unexplained)
    }

    /// Where its longest piece comes from.
    fn site(&self, run: &Run, sites: &mut Sites<'_>, bucket: Bucket) -> Option<Site> {
        let &(_, call, stack) = self.longest.get(bucket as usize).filter(|l| l.0 > 0)?;
        let stack = match stack {
            0 => run.call(call).map_or(0, |(_, c)| c.site),
            stack => stack,
        };
        let site = sites.of(stack)?;
        sites.get(site).cloned()
    }
}

/// Adds what runs on the device in them.
struct Parts<'a> {
    parts: &'a mut [Part],
    collectives: &'a [u32],
}

impl<'a> Visitor<'a> for Parts<'_> {
    fn busy(&mut self, bucket: Bucket, span: Span) {
        for part in &mut *self.parts {
            part.buckets.add(bucket, span.clip(part.span).ns());
        }
    }

    fn gap(&mut self, _span: Span, _op: Placed<'a>) {}

    fn op(&mut self, placed: Placed<'a>) {
        let bucket = class(placed.op, self.collectives);
        for part in &mut *self.parts {
            let ns = placed.op.span().clip(part.span).ns();
            if let Some(longest) = part.longest.get_mut(bucket as usize).filter(|l| l.0 < ns) {
                *longest = (ns, placed.op.call, 0);
            }
        }
    }
}

impl Once {
    /// `0.59 s after the last step: copying (train.py:88)`.
    pub fn words(&self) -> String {
        let place = match self.place {
            OncePlace::Before => "before the first step".to_owned(),
            OncePlace::In(step) => format!("in step {step}"),
            OncePlace::After => "after the last step".to_owned(),
        };
        let what = match self.bucket {
            Bucket::Compute => "computing",
            Bucket::Copy | Bucket::CopyWait => "copying",
            Bucket::Comm => "collectives",
            Bucket::Sync | Bucket::DeviceWait => "waiting",
            Bucket::Launch | Bucket::KernelGap => "launching",
            Bucket::Host => "the host",
            Bucket::Input => "fetching data",
            Bucket::Alloc => "allocating",
            Bucket::Unexplained => "the GPU idle",
        };
        let site = self.site.as_ref().map_or(String::new(), |s| format!(" ({s})"));
        format!("{} {place}: {what}{site}", crate::text::duration::long(self.ns))
    }
}

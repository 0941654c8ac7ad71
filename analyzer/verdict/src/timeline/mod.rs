// SPDX-License-Identifier: Apache-2.0
//! What a device did when: compute | copy only | collective only | gap, by union of intervals.
//!
//! Here: classes of ops, the sweep over all streams of a device, observed time. Not here: why a gap
//! is a gap (`gaps/`).

pub mod buckets;
pub mod kernels;

use trace::Kind;

use crate::run::merge::Merge;
use crate::run::{Device, Op, Run, Span, UnobservedSpan, MAX_TIME};
use crate::timeline::buckets::Bucket;

/// An op in the time order of its device.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The op.
    pub op: &'a Op,
    /// Stream index in the device.
    pub stream: u16,
    /// Number in the stream.
    pub index: u32,
}

/// All ops of a device by start, over its streams. Streams beyond 65,535 are left out (counted
/// nowhere: a recording of ours cannot hold that many tracks).
pub fn ops(device: &Device) -> impl Iterator<Item = Placed<'_>> {
    let lists: Vec<&[Op]> =
        device.streams.iter().take(usize::from(u16::MAX)).map(|s| s.ops.as_slice()).collect();
    Merge::new(lists, |o: &Op| o.start).map(|(stream, index, op)| Placed {
        op,
        stream: stream as u16,
        index: index as u32,
    })
}

/// The bucket an op fills while nothing of a higher class runs. `collectives`: sorted kernel ids.
pub fn class(op: &Op, collectives: &[u32]) -> Bucket {
    match op.kind {
        Kind::Memcpy => Bucket::Copy,
        Kind::Kernel if collectives.binary_search(&op.a).is_ok() => Bucket::Comm,
        _ => Bucket::Compute,
    }
}

/// What the sweep says of a device, in time order.
pub trait Visitor<'a> {
    /// `span` is filled by `bucket` (compute, copy or comm).
    fn busy(&mut self, bucket: Bucket, span: Span);
    /// Nothing runs in `span`; `op` is the next to start.
    fn gap(&mut self, span: Span, op: Placed<'a>);
    /// `op` starts now; everything before its start has been told.
    fn op(&mut self, op: Placed<'a>);
}

/// Sweeps over a device. O(n) after the merge. Returns the latest end.
pub fn sweep<'a>(device: &'a Device, collectives: &[u32], visitor: &mut impl Visitor<'a>) -> u64 {
    let mut ends = [0u64; 3]; // compute, copy, comm: how far each class reaches
    let mut cursor = None;
    for placed in ops(device) {
        take(placed, &mut ends, &mut cursor, collectives, visitor);
    }
    let last = ends.into_iter().max().unwrap_or(0);
    tell(&ends, cursor.unwrap_or(last), last, visitor);
    last
}

/// A sweep that is made in parts, as far as is asked for: of many devices side by side.
pub struct Sweep<'a> {
    ops: std::iter::Peekable<Box<dyn Iterator<Item = Placed<'a>> + 'a>>,
    ends: [u64; 3],
    cursor: Option<u64>,
}

impl<'a> Sweep<'a> {
    /// At the begin of a device.
    pub fn new(device: &'a Device) -> Sweep<'a> {
        let ops: Box<dyn Iterator<Item = Placed<'a>> + 'a> = Box::new(ops(device));
        Sweep { ops: ops.peekable(), ends: [0; 3], cursor: None }
    }

    /// Goes on to `to`, ns: what reaches further is told so far, and the rest the next time.
    pub fn until(&mut self, to: u64, collectives: &[u32], visitor: &mut impl Visitor<'a>) {
        while let Some(placed) = self.ops.next_if(|p| p.op.start < to) {
            take(placed, &mut self.ends, &mut self.cursor, collectives, visitor);
        }
        if let Some(at) = self.cursor.filter(|&at| at < to) {
            self.cursor = Some(tell(&self.ends, at, to, visitor));
        }
    }
}

/// The next op of a sweep. `ends`: how far each class reaches; `cursor`: what has been told.
fn take<'a>(
    placed: Placed<'a>,
    ends: &mut [u64; 3],
    cursor: &mut Option<u64>,
    collectives: &[u32],
    visitor: &mut impl Visitor<'a>,
) {
    let at = cursor.unwrap_or(placed.op.start);
    let at = tell(ends, at, placed.op.start, visitor);
    if at < placed.op.start {
        visitor.gap(Span::new(at, placed.op.start), placed);
    }
    *cursor = Some(at.max(placed.op.start));
    visitor.op(placed);
    let reach = &mut ends[class(placed.op, collectives) as usize];
    *reach = (*reach).max(placed.op.end);
}

/// Tells what fills the time from `at` to `to`; returns where the device falls idle before `to` (or
/// `to`).
fn tell<'a>(ends: &[u64; 3], mut at: u64, to: u64, visitor: &mut impl Visitor<'a>) -> u64 {
    for (bucket, end) in [Bucket::Compute, Bucket::Copy, Bucket::Comm].into_iter().zip(ends) {
        let until = (*end).min(to);
        if until > at {
            visitor.busy(bucket, Span::new(at, until));
            at = until;
        }
    }
    at
}

/// The parts of a span in which the GPU was observed.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    spans: Vec<Span>,
    /// Sum of the lengths before each span.
    before: Vec<u64>,
    total: u64,
}

impl Observed {
    /// `whole` less the `blind` spans (sorted by start, may overlap).
    pub fn new(whole: Span, blind: &[UnobservedSpan]) -> Observed {
        let mut o = Observed::default();
        let mut at = whole.start;
        for b in blind {
            let cut = b.span.clip(whole);
            if cut.ns() == 0 {
                continue;
            }
            o.push(at, cut.start);
            at = at.max(cut.end);
        }
        o.push(at, whole.end);
        o
    }

    /// The parts of it that lie in these spans (by start, side by side or apart).
    pub fn only(&self, spans: impl IntoIterator<Item = Span>) -> Observed {
        let mut o = Observed::default();
        for part in spans.into_iter().flat_map(|s| self.parts(s)) {
            o.push(part.start, part.end);
        }
        o
    }

    /// Observed at `t`.
    pub fn contains(&self, t: u64) -> bool {
        let i = self.spans.partition_point(|s| s.start <= t);
        i.checked_sub(1).and_then(|i| self.spans.get(i)).is_some_and(|s| t < s.end)
    }

    fn push(&mut self, start: u64, end: u64) {
        if let Some(last) = self.spans.last_mut().filter(|s| s.end == start && end > start) {
            last.end = end;
            self.total += end - start;
        } else if end > start {
            self.spans.push(Span { start, end });
            self.before.push(self.total);
            self.total += end - start;
        }
    }

    /// All observed time, ns.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// All time but the spans in which nothing was observed of `run`.
    pub fn of(run: &Run) -> Observed {
        Observed::new(Span::new(0, MAX_TIME), &run.blind)
    }

    /// Observed time before `t`, ns.
    fn until(&self, t: u64) -> u64 {
        let i = self.spans.partition_point(|s| s.start <= t);
        match i.checked_sub(1).and_then(|i| Some((self.spans.get(i)?, self.before.get(i)?))) {
            Some((s, before)) => before + (t.min(s.end) - s.start),
            None => 0,
        }
    }

    /// Observed time inside `span`, ns.
    pub fn measure(&self, span: Span) -> u64 {
        self.until(span.end) - self.until(span.start)
    }

    /// The observed parts of `span`, in order.
    pub fn parts(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let from = self.spans.partition_point(|s| s.end <= span.start);
        let tail = self.spans.get(from..).unwrap_or(&[]);
        tail.iter().take_while(move |s| s.start < span.end).map(move |s| s.clip(span)).filter(|s| s.ns() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observed_time_leaves_the_blind_spans_out() {
        let blind = [(5, 10), (7, 12), (50, 60), (95, 200)];
        let blind = blind.map(|(a, b)| UnobservedSpan { span: Span::new(a, b), reason: 1 });
        let o = Observed::new(Span::new(0, 100), &blind);
        assert_eq!(o.total(), 5 + 38 + 35);
        assert_eq!(o.measure(Span::new(0, 100)), o.total());
        assert_eq!(o.measure(Span::new(4, 13)), 2);
        assert_eq!(o.parts(Span::new(4, 55)).collect::<Vec<_>>(), [Span::new(4, 5), Span::new(12, 50)]);
        assert_eq!(o.measure(Span::new(100, 300)), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Times of another tool's clock into those of a run: what lies impossibly far away is dropped, and
//! the earliest event comes to lie at one second, so that what began before it has room.

use verdict::run::{Call, Op, Span};
use verdict::stats::middle;

use super::assemble::Assembly;

/// Times this far from the middle of a trace are damage: 30 days, ns.
const FAR: u64 = 30 * 86_400 * 1_000_000_000;
/// Where [`Assembly::settle`] puts the earliest event, ns.
pub(super) const ORIGIN: u64 = 1_000_000_000;

/// What [`Assembly::settle`] found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    /// Events that lay too far from all others.
    pub(super) dropped: u64,
    /// The earliest time that was kept, before it was moved.
    pub(super) first: u64,
    middle: u64,
}

impl Settled {
    /// A span where the run has it, `None` if it lies too far from all else.
    pub(super) fn span(&self, s: Span) -> Option<Span> {
        let at = |t: u64| t.checked_add(ORIGIN)?.checked_sub(self.first);
        is_near(self.middle, s).then(|| Some(Span::new(at(s.start)?, at(s.end)?)))?
    }
}

fn is_near(middle: u64, s: Span) -> bool {
    s.start.abs_diff(middle) < FAR && s.end.abs_diff(middle) < FAR
}

impl Assembly {
    /// See the file's head. `others`: what else is to be moved, by the caller; it counts for the
    /// earliest.
    pub(super) fn settle(&mut self, others: impl Iterator<Item = Span> + Clone) -> Settled {
        let (mut first, mut last) = (u64::MAX, 0);
        let ranges = self.run.threads.iter().flat_map(|t| t.ranges.iter().map(|r| r.span));
        let waits = self.run.waits.iter().map(|w| w.span);
        self.work().chain(ranges).chain(waits).chain(others.clone()).for_each(|s| {
            first = first.min(s.start);
            last = last.max(s.end);
        });
        let mut settled = Settled { dropped: 0, first, middle: first };
        if last.saturating_sub(first) >= FAR {
            settled = self.drop_far(others);
        }
        self.shift(&settled);
        settled
    }

    /// Operations and calls.
    fn work(&self) -> impl Iterator<Item = Span> + use<'_> {
        let ops = self.run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| s.ops.iter().map(Op::span));
        ops.chain(self.run.threads.iter().flat_map(|t| t.calls.iter().map(Call::span)))
    }

    /// Keeps what is near the middle of all operations and calls.
    fn drop_far(&mut self, others: impl Iterator<Item = Span>) -> Settled {
        let every = self.work().count() / 10_000 + 1;
        let mut sample: Vec<u64> = self.work().map(|s| s.start).step_by(every).collect();
        let middle = middle(&mut sample).unwrap_or(0);
        let (mut first, mut dropped) = (u64::MAX, 0);
        let mut keep = |s: Span| {
            let near = is_near(middle, s);
            first = if near { first.min(s.start) } else { first };
            dropped += u64::from(!near);
            near
        };
        let run = &mut self.run;
        for s in run.devices.iter_mut().flat_map(|d| &mut d.streams) {
            s.ops.retain(|o| keep(o.span()));
        }
        for t in &mut run.threads {
            t.calls.retain(|c| keep(c.span()));
            t.ranges.retain(|r| keep(r.span));
        }
        let mut owners = std::mem::take(&mut self.process_of_wait).into_iter();
        run.waits.retain(|w| {
            let (owner, near) = (owners.next(), keep(w.span));
            self.process_of_wait.extend(owner.filter(|_| near));
            near
        });
        let other = others.filter(|s| is_near(middle, *s)).map(|s| s.start).min();
        Settled { dropped, first: first.min(other.unwrap_or(u64::MAX)), middle }
    }

    fn shift(&mut self, settled: &Settled) {
        let shift = |start: &mut u64, end: &mut u64| {
            let span = settled.span(Span { start: *start, end: *end }).unwrap_or_default();
            (*start, *end) = (span.start, span.end);
        };
        let run = &mut self.run;
        for s in run.devices.iter_mut().flat_map(|d| &mut d.streams) {
            s.ops.iter_mut().for_each(|o| shift(&mut o.start, &mut o.end));
        }
        for t in &mut run.threads {
            t.calls.iter_mut().for_each(|c| shift(&mut c.start, &mut c.end));
            t.ranges.iter_mut().for_each(|r| shift(&mut r.span.start, &mut r.span.end));
        }
        run.waits.iter_mut().for_each(|w| shift(&mut w.span.start, &mut w.span.end));
    }
}

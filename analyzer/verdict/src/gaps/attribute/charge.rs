// SPDX-License-Identifier: Apache-2.0
//! Hands the pieces of a gap out: to calls that stood in them, to credits, and to what the walk
//! found.

use super::reason::Reason;
use super::{Before, Credit, Walk};
use crate::run::{Span, NONE};
use crate::timeline::buckets::{Bucket, IdleSlice};
use crate::timeline::Placed;

impl<'a> Walk<'a> {
    /// Hands the pending pieces out. Where the host was late: to the allocating calls that stood in
    /// them, then to credits; the rest, and all of the others, to `bucket`.
    pub(super) fn give(
        &mut self,
        next: Placed<'a>,
        before: Option<Before<'a>>,
        reason: Reason,
        credited: bool,
    ) {
        let mut pieces = std::mem::take(&mut self.pending);
        let mut standing = std::mem::take(&mut self.standing);
        if !credited {
            standing.clear();
        }
        for (piece, behind) in pieces.drain(..) {
            let behind = behind.or(before);
            let mut at = piece.start;
            for &(stood, by) in &standing {
                let stood = stood.clip(Span::new(at, piece.end));
                if stood.ns() > 0 {
                    let until = Span::new(at, stood.start);
                    at = self.spend(until, behind, next, reason, credited);
                    self.rest(Span::new(at, stood.start), behind, next, reason);
                    self.slice(stood, behind, Some(next), Bucket::Alloc, by);
                    at = stood.end;
                }
            }
            at = self.spend(Span::new(at, piece.end), behind, next, reason, credited);
            self.rest(Span::new(at, piece.end), behind, next, reason);
        }
        standing.clear();
        (self.pending, self.standing) = (pieces, standing);
    }

    /// What neither a credit nor an allocation takes.
    fn rest(&mut self, span: Span, before: Option<Before<'a>>, next: Placed<'a>, reason: Reason) {
        let late =
            self.away(Span::new(span.start, reason.late.clamp(span.start, span.end)), before, next, reason);
        let span = Span::new(late, span.end);
        let begin = reason.begin.clamp(span.start, span.end);
        let returned = reason.returned.clamp(begin, span.end);
        let parts = [
            (span.start, begin, (reason.bucket, reason.call)),
            (begin, returned, (reason.inside, reason.call)),
            (returned, span.end, reason.stalled),
        ];
        for (from, to, (bucket, call)) in parts.into_iter().filter(|p| p.0 < p.1) {
            self.slice(Span::new(from, to), before, Some(next), bucket, call);
        }
    }

    /// Time in which the host was late: elsewhere in front of any launch that it made meanwhile to
    /// another device, and launching for the rest. One device: nothing ([`super::HostView::away`]).
    /// Returns where the time begins of which nothing of that is known.
    fn away(&mut self, late: Span, before: Option<Before<'a>>, next: Placed<'a>, reason: Reason) -> u64 {
        let (run, host) = (self.run, self.host);
        let mut at = late.start;
        for (away, call) in host.away(run, late) {
            // (launches of several threads that stand at one time came late by the same stretch)
            let away = Span::new(away.start.max(at), away.end.max(at));
            self.slice(Span::new(at, away.start), before, Some(next), Bucket::Launch, reason.call);
            let bucket = if host.is_fetch(call) { Bucket::Input } else { Bucket::Host };
            self.slice(away, before, Some(next), bucket, call);
            at = away.end;
        }
        at
    }

    /// Charges the begin of `span` to the credits, oldest first, until they are spent; returns
    /// where the rest begins.
    fn spend(
        &mut self,
        span: Span,
        before: Option<Before<'a>>,
        next: Placed<'a>,
        reason: Reason,
        credited: bool,
    ) -> u64 {
        let mut at = span.start;
        let mut spent = 0;
        while credited && at < span.end {
            let Some(c) = self.credits.get_mut(spent) else { break };
            let ns = c.left.min(span.end - at);
            c.left -= ns;
            let credit = *c;
            spent += usize::from(c.left == 0);
            let charged = Span::new(at, at + ns);
            self.charge(charged, before, next, credit, reason);
            at += ns;
        }
        self.credits.drain(..spent);
        at
    }

    /// A piece of a gap that a credit pays for. From the return of its call on, what the host is
    /// seen to do before the next launch is what shows.
    fn charge(
        &mut self,
        span: Span,
        before: Option<Before<'a>>,
        next: Placed<'a>,
        credit: Credit,
        reason: Reason,
    ) {
        let own = (credit.bucket, credit.call);
        let meanwhile = Span::new(credit.returned, reason.late);
        let is_seen = match reason.bucket {
            Bucket::Input => true,
            Bucket::Host => self.host.is_seen_elsewhere(self.run, reason.call, meanwhile),
            _ => false,
        };
        let seen = meanwhile.clip(span);
        if !is_seen || seen.ns() == 0 {
            self.slice(span, before, Some(next), own.0, own.1);
            return;
        }
        self.slice(Span::new(span.start, seen.start), before, Some(next), own.0, own.1);
        self.part(seen, before, Some(next), own, (reason.bucket, reason.call));
        self.slice(Span::new(seen.end, span.end), before, Some(next), own.0, own.1);
    }

    pub(super) fn slice(
        &mut self,
        span: Span,
        before: Option<Before>,
        after: Option<Placed>,
        bucket: Bucket,
        call: u32,
    ) {
        self.part(span, before, after, (bucket, call), (bucket, call));
    }

    /// A piece of a gap, by what it is charged to and what shows.
    fn part(
        &mut self,
        span: Span,
        before: Option<Before>,
        after: Option<Placed>,
        (bucket, call): (Bucket, u32),
        (shown, shown_call): (Bucket, u32),
    ) {
        self.out.buckets.add(bucket, self.steady.measure(span));
        for part in self.valid.parts(span) {
            self.out.slices.push(IdleSlice {
                start: part.start,
                end: part.end,
                before: before.map_or(NONE, |b| b.index),
                after: after.map_or(NONE, |a| a.index),
                call,
                before_stream: before.map_or(0, |b| b.stream),
                after_stream: after.map_or(0, |a| a.stream),
                bucket,
                // (turned round once all is judged: `show_what_the_host_does`)
                charged: shown,
                set_off_by: shown_call,
            });
        }
    }
}

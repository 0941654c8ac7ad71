// SPDX-License-Identifier: Apache-2.0
//! A device's time, busy and idle, handed out to windows that lie side by side (steps).

use super::Shown;
use crate::analysis::{Bucket, Buckets};
use crate::run::Span;
use crate::timeline::{sweep, Observed, Placed, Visitor};

/// Buckets of each window, in the order of `windows` (by start); what was not observed is in none.
/// O(n) in operations, slices and windows, where windows do not overlap.
pub(super) fn split(shown: Shown<'_>, windows: &[Span]) -> Vec<Buckets> {
    let observed = Observed::new(shown.analysis.valid, &shown.run.blind);
    let empty = || vec![Buckets::default(); windows.len()];
    let mut busy = Hand { windows, parts: empty(), observed: &observed, first: 0 };
    sweep(shown.device, shown.collectives, &mut busy);
    // idle slices come in an order of their own
    let mut idle = Hand { windows, parts: busy.parts, observed: &observed, first: 0 };
    for slice in &shown.found.slices {
        idle.add(slice.bucket, slice.span());
    }
    idle.parts
}

/// Hands spans that come in time order out.
struct Hand<'a> {
    windows: &'a [Span],
    parts: Vec<Buckets>,
    observed: &'a Observed,
    /// No earlier window has anything to get.
    first: usize,
}

impl Hand<'_> {
    fn add(&mut self, bucket: Bucket, span: Span) {
        for seen in self.observed.parts(span) {
            while self.windows.get(self.first).is_some_and(|w| w.end <= seen.start) {
                self.first += 1;
            }
            let windows = self.windows.iter().zip(&mut self.parts).skip(self.first);
            for (window, part) in windows.take_while(|(w, _)| w.start < seen.end) {
                part.add(bucket, seen.clip(*window).ns());
            }
        }
    }
}

impl<'a> Visitor<'a> for Hand<'_> {
    fn busy(&mut self, bucket: Bucket, span: Span) {
        self.add(bucket, span);
    }

    fn gap(&mut self, _span: Span, _op: Placed<'a>) {}

    fn op(&mut self, _op: Placed<'a>) {}
}

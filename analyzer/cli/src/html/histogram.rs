// SPDX-License-Identifier: Apache-2.0
//! How long gaps and kernels are: bins of 1, 2, 5 a decade, over the steps that count.

use serde_json::{json, Value};
use trace::Kind;
use verdict::analysis::Buckets;
use verdict::run::Span;

use super::buckets;
use super::Shown;

/// Shortest bin's end, ns; what is shorter lies in it too.
const FIRST_END: u64 = 100;

/// A bin: its values lie below `end`, and at or above the end of the bin before.
#[derive(Clone, Copy, Default)]
struct Bin {
    end: u64,
    count: u64,
    buckets: Buckets,
    ns: u64,
}

/// The smallest of 1, 2, 5, 10 ... times [`FIRST_END`] above `ns`, and its number.
fn bin_of(ns: u64) -> (usize, u64) {
    let (mut number, mut decade) = (0, FIRST_END);
    loop {
        for step in [1, 2, 5] {
            let end = decade.saturating_mul(step);
            if ns < end || end == u64::MAX {
                return (number, end);
            }
            number += 1;
        }
        decade = decade.saturating_mul(10);
    }
}

/// The bin of a value; bins up to it come into being.
fn at(bins: &mut Vec<Bin>, ns: u64) -> Option<&mut Bin> {
    let (number, _) = bin_of(ns);
    while bins.len() <= number {
        let end = bins.last().map_or(FIRST_END, |b| bin_of(b.end).1);
        bins.push(Bin { end, ..Bin::default() });
    }
    bins.get_mut(number)
}

/// From the first bin with something in it.
fn written(bins: &[Bin], parts: bool) -> Vec<Value> {
    let from = bins.iter().position(|b| b.count > 0).unwrap_or(bins.len());
    let begin = |i: usize| i.checked_sub(1).and_then(|i| bins.get(i)).map_or(0, |b| b.end);
    let bins = bins.iter().enumerate().skip(from);
    bins.map(|(i, b)| match parts {
        true => json!({"from_ns": begin(i), "to_ns": b.end, "count": b.count, "ns": b.ns, "parts": buckets::parts(&b.buckets)}),
        false => json!({"from_ns": begin(i), "to_ns": b.end, "count": b.count, "ns": b.ns}),
    })
    .collect()
}

/// Gaps: idle slices that touch are one. Their time is that of the idle buckets.
pub(super) fn gaps(shown: Shown<'_>) -> Value {
    let steady = &shown.analysis.counts;
    let mut bins: Vec<Bin> = Vec::new();
    let mut count = 0u64;
    let mut gap = (Span::default(), Buckets::default());
    let mut close = |gap: &(Span, Buckets)| {
        let ns = gap.1.total();
        if ns == 0 {
            return;
        }
        count += 1;
        if let Some(bin) = at(&mut bins, ns) {
            bin.count += 1;
            bin.ns += ns;
            for (all, one) in bin.buckets.0.iter_mut().zip(gap.1 .0) {
                *all += one;
            }
        }
    };
    for slice in &shown.found.slices {
        for part in steady.parts(slice.span()) {
            if part.start != gap.0.end {
                close(&gap);
                gap = (part, Buckets::default());
            }
            gap.0.end = part.end;
            gap.1.add(slice.bucket, part.ns());
        }
    }
    close(&gap);
    json!({"count": count, "bins": written(&bins, true)})
}

/// Kernels that begin in the time that counts.
pub(super) fn durations(shown: Shown<'_>) -> Value {
    let steady = &shown.analysis.counts;
    let mut bins: Vec<Bin> = Vec::new();
    let mut count = 0u64;
    let ops = shown.device.streams.iter().flat_map(|s| &s.ops);
    for op in ops.filter(|o| o.kind == Kind::Kernel && steady.contains(o.start)) {
        let ns = op.span().ns();
        count += 1;
        if let Some(bin) = at(&mut bins, ns) {
            bin.count += 1;
            bin.ns = bin.ns.saturating_add(ns);
        }
    }
    json!({"count": count, "bins": written(&bins, false)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_bin_that_ends_above_it() {
        for (ns, number, end) in [
            (0, 0, 100),
            (99, 0, 100),
            (100, 1, 200),
            (199, 1, 200),
            (200, 2, 500),
            (500, 3, 1_000),
            (1_000, 4, 2_000),
        ] {
            assert_eq!(bin_of(ns), (number, end), "{ns}");
        }
        assert_eq!(bin_of(u64::MAX).1, u64::MAX);
        let mut bins = Vec::new();
        assert!(at(&mut bins, 1_500).is_some_and(|b| b.end == 2_000));
        assert_eq!(bins.iter().map(|b| b.end).collect::<Vec<_>>(), [100, 200, 500, 1_000, 2_000]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Each step's time by bucket, as bars over the run. More steps than bars fit: neighbours share one.

use serde_json::{json, Value};

use super::buckets;
use super::Shown;
use crate::analysis::{Buckets, Step};
use crate::tables::steps::{parts, Part};

/// Bars of steady steps at most; warm-up has as many again at most.
const MOST_BARS: usize = 240;

/// Source, counts, times, bars; `null` of a run without steps.
pub(super) fn figures(shown: Shown<'_>) -> Option<Value> {
    let steps = &shown.analysis.steps;
    if steps.steps.is_empty() {
        return None;
    }
    let parts = parts(shown.run, shown.analysis, shown.index, shown.collectives);
    let each: Vec<(&Step, &Part)> = steps.steps.iter().zip(&parts).collect();
    let (warm_up, steady) = each.split_at(steps.warm_up.min(each.len()));
    let bars = |of: &[(&Step, &Part)]| -> Vec<Value> {
        of.chunks(of.len().div_ceil(MOST_BARS).max(1)).filter_map(bar).collect()
    };
    let bars = [bars(warm_up), bars(steady)].concat();
    Some(json!({
        "source": steps.source.key(),
        "count": steps.steps.len(),
        "warm_up": steps.warm_up,
        "warm_up_ns": steps.warm_up_ns,
        "micro": steps.micro,
        "mean_ns": steps.mean_ns,
        "median_ns": steps.median_ns,
        "p90_ns": steps.p90_ns,
        "bars": bars,
    }))
}

/// Steps side by side as one: sums over all of them.
fn bar(steps: &[(&Step, &Part)]) -> Option<Value> {
    let (first, last) = (steps.first()?.0, steps.last()?.0);
    let ns: u64 = steps.iter().map(|s| s.0.span.ns()).sum();
    let mut sum = Buckets::default();
    for (_, part) in steps {
        for (all, one) in sum.0.iter_mut().zip(part.buckets.0) {
            *all += one;
        }
    }
    Some(json!({
        "first": first.number,
        "last": last.number,
        "steps": steps.len(),
        "ns": ns,
        "warm_up": first.warm_up,
        "odd": steps.iter().filter(|s| s.0.odd).count(),
        "not_seen_ns": ns.saturating_sub(sum.total()),
        "parts": buckets::parts(&sum),
    }))
}

/// The steady step nearest to the median, one like the others if there is any; the first of several.
pub(super) fn representative(shown: Shown<'_>) -> Option<&'_ Step> {
    let steps = &shown.analysis.steps;
    steps.steady().iter().min_by_key(|s| (s.odd, s.span.ns().abs_diff(steps.median_ns), s.span.start))
}

// SPDX-License-Identifier: Apache-2.0
//! Each step's time by bucket, as bars over the run. More steps than bars fit: neighbours share
//! one.

use serde_json::{json, Value};
use verdict::analysis::{Bucket, Buckets, Step};

use super::buckets;
use super::Shown;
use crate::tables::steps::Part;

/// Bars of steady steps at most; warm-up has as many again at most.
const MOST_BARS: usize = 240;

/// Source, counts, times, bars; `null` of a run without steps. `parts`: of each step.
pub(super) fn figures(shown: Shown<'_>, parts: &[Part]) -> Option<Value> {
    let steps = &shown.analysis.steps;
    if steps.steps.is_empty() {
        return None;
    }
    let each: Vec<(&Step, &Part)> = steps.steps.iter().zip(parts).collect();
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

/// The step that is drawn.
pub(super) struct Drawn<'a> {
    pub(super) step: &'a Step,
    /// Why it is not the one nearest to the median.
    pub(super) rare: Option<Rare>,
}

/// What idles a device most, and in few steps: the one nearest to the median has nothing of it.
pub(super) struct Rare {
    pub(super) bucket: Bucket,
    /// Steady steps that have more of it than the mean.
    pub(super) steps: usize,
}

/// A gap's cause is rare where the step nearest to the median has less than so much of its mean, in
/// parts...
const LITTLE_OF_THE_MEAN: u64 = 4;
/// ... and worth looking at where it is at least so much of all time, in parts.
const WORTH_DRAWING: u64 = 20;

/// The steady step nearest to the median, one like the others if there is any; the first of
/// several. Where it shows nothing of what idles the device most, because that comes now and then
/// (a checkpoint, a stall, an epoch's end): of the steps that have it the middle one.
pub(super) fn drawn<'a>(shown: Shown<'a>, parts: &[Part]) -> Option<Drawn<'a>> {
    let steps = &shown.analysis.steps;
    let near = |s: &Step| (s.odd, s.span.ns().abs_diff(steps.median_ns), s.span.start);
    let steady: Vec<(&Step, &Part)> = steps.steps.iter().zip(parts).skip(steps.warm_up).collect();
    let typical = steady.iter().min_by_key(|(s, _)| near(s))?;
    let count = steady.len() as u64;
    let all = |bucket| steady.iter().map(|(_, p)| p.buckets.get(bucket)).sum::<u64>();
    let most = Bucket::ALL.into_iter().filter(|b| b.is_gap()).max_by_key(|&b| all(b))?;
    let (sum, wall) = (all(most), steady.iter().map(|(s, _)| s.span.ns()).sum::<u64>());
    if typical.1.buckets.get(most) * count * LITTLE_OF_THE_MEAN > sum || sum * WORTH_DRAWING < wall {
        return Some(Drawn { step: typical.0, rare: None });
    }
    let mut having: Vec<_> = steady.iter().filter(|(_, p)| p.buckets.get(most) * count > sum).collect();
    having.sort_by_key(|(s, p)| (p.buckets.get(most), s.span.start));
    let middle = having.get(having.len() / 2)?;
    Some(Drawn { step: middle.0, rare: Some(Rare { bucket: most, steps: having.len() }) })
}

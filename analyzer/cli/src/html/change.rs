// SPDX-License-Identifier: Apache-2.0
//! Two runs on one scale: what `gapprobe diff` says of them (`compare/`, which decides what is a
//! difference), a step's time by bucket, and the kernels whose time a step differs most.

use std::collections::HashMap;

use serde_json::{json, Value};

use super::kernels::{self, Row};
use super::names::clean;
use super::{buckets, with_shown, Subject};
use crate::compare::{compare, side, Comparison, Figure, Options, Outcome, Side};

/// Kernels at most; cautions and remarks at most.
const MOST_ROWS: usize = 20;
const MOST_WORDS: usize = 12;

/// The comparison, as the page shows it. Where steps may be other units, kernels are not held
/// against each other.
pub(super) fn figures(before: &Subject<'_>, after: &Subject<'_>, same_work: bool) -> Value {
    let devices = side::devices(before.analysis, after.analysis);
    let a = Side::new(before.name, before.input, before.analysis, devices.0);
    let b = Side::new(after.name, after.input, after.analysis, devices.1);
    let c = compare(&a, &b, Options { same_work, ..Options::default() });
    // each page's kernels are of the device its line is about
    let same_devices = (before.analysis.worst, after.analysis.worst) == devices;
    let comparable = same_devices && !matches!(c.outcome, Outcome::NoSteps | Outcome::OtherSteps);
    let kernels = match comparable {
        true => with_shown(before, kernels::rows).zip(with_shown(after, kernels::rows)),
        false => None,
    };
    let kernels = kernels.map(|(a_rows, b_rows)| changed((a.steps.len(), &a_rows), (b.steps.len(), &b_rows)));
    let line = c.line();
    json!({
        "line": clean(line.strip_prefix("gapprobe diff: ").unwrap_or(&line)),
        "result": c.outcome.key(),
        "cautions": words(&c.cautions),
        "remarks": words(&c.remarks),
        "steps": [a.steps.len(), b.steps.len()],
        "step": c.step.as_ref().map(figure),
        "median": c.median.as_ref().map(figure),
        "not_seen": c.not_seen.as_ref().map(figure),
        "parts": parts(&c),
        "kernels": kernels.as_ref().map(|k| &k.0),
        "kernels_left_out": kernels.as_ref().map(|k| k.1),
    })
}

fn words(all: &[String]) -> Vec<String> {
    all.iter().take(MOST_WORDS).map(|w| clean(w)).collect()
}

/// ns a step before and after, half of the 95 % interval of the difference, and whether that is
/// beyond the noise.
fn figure(f: &Figure) -> Value {
    json!({"a": f.a.value, "b": f.b.value, "band": f.difference.band, "moved": f.moved()})
}

/// Buckets in the page's order; `null` where a run has no steps.
fn parts(c: &Comparison<'_>) -> Option<Vec<Value>> {
    let mut parts: Vec<(usize, Value)> =
        c.buckets.iter().map(|(b, f)| (buckets::place(*b), figure(f))).collect();
    parts.sort_by_key(|p| p.0);
    (!parts.is_empty()).then(|| parts.into_iter().map(|p| p.1).collect())
}

/// Kernels by how much their time a step differs, and how many others differ at all. `before`,
/// `after`: steps, kernels.
fn changed(before: (usize, &[Row]), after: (usize, &[Row])) -> (Vec<Value>, usize) {
    let mut times: HashMap<&str, (&str, [f64; 2], [f64; 2])> = HashMap::new();
    for (side, (steps, rows)) in [before, after].into_iter().enumerate() {
        for row in rows {
            let entry = times.entry(&row.whole).or_insert((&row.short, [0.0; 2], [0.0; 2]));
            let steps = steps.max(1) as f64;
            entry.1[side] = row.ns as f64 / steps;
            entry.2[side] = row.count as f64 / steps;
        }
    }
    let by = |t: &[f64; 2]| t[1] - t[0];
    let mut rows: Vec<_> = times.into_iter().filter(|(_, t)| by(&t.1) != 0.0).collect();
    rows.sort_by(|(a_name, a), (b_name, b)| {
        by(&b.1).abs().total_cmp(&by(&a.1).abs()).then_with(|| a_name.cmp(b_name))
    });
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let written = rows.into_iter().map(|(whole, (short, ns, count))| {
        json!({"name": short, "whole": (whole != short).then_some(whole), "ns": ns, "count": count})
    });
    (written.collect(), left_out)
}

// SPDX-License-Identifier: Apache-2.0
//! Two runs on one scale: a step's time by bucket, and the kernels whose time a step changed most. Where one of them
//! has no steps, what a step of it costs is not known, and only shares can be held against each other.

use std::collections::HashMap;

use serde_json::{json, Value};

use super::kernels::{self, Row};
use super::{buckets, with_shown, Shown, Subject};

/// Kernels at most.
const MOST_ROWS: usize = 20;

/// Both sides; `null` where one has no device to speak of.
pub(super) fn figures(before: &Subject<'_>, after: &Subject<'_>) -> Option<Value> {
    let (b, b_rows) = with_shown(before, side)?;
    let (a, a_rows) = with_shown(after, side)?;
    let both_have_steps = b.steps > 0 && a.steps > 0;
    let kernels = both_have_steps.then(|| changed(&b, &b_rows, &a, &a_rows));
    Some(json!({
        "sides": [b.written(), a.written()],
        "kernels": kernels.as_ref().map(|k| &k.0),
        "kernels_left_out": kernels.map(|k| k.1),
    }))
}

struct Side {
    /// That count.
    steps: u64,
    step_ns: f64,
    parts: Vec<u64>,
}

impl Side {
    /// A sum over all steps as what one step has of it.
    fn a_step(&self, ns: u64) -> f64 {
        ns as f64 / self.steps.max(1) as f64
    }

    fn written(&self) -> Value {
        let steps = self.steps > 0;
        let parts: Vec<f64> = self.parts.iter().map(|&p| self.a_step(p)).collect();
        json!({
            "steps": self.steps,
            "step_ns": steps.then_some(self.step_ns),
            "parts_ns": steps.then_some(parts),
        })
    }
}

fn side(shown: Shown<'_>) -> (Side, Vec<Row>) {
    let steps = &shown.analysis.steps;
    let parts = buckets::parts(&shown.found.buckets);
    (Side { steps: steps.steady().len() as u64, step_ns: steps.mean_ns, parts }, kernels::rows(shown))
}

/// Kernels by how much their time a step changed, and how many others changed at all.
fn changed(before: &Side, b_rows: &[Row], after: &Side, a_rows: &[Row]) -> (Vec<Value>, usize) {
    let mut times: HashMap<&str, (&str, [f64; 2], [f64; 2])> = HashMap::new();
    for (number, (side, rows)) in [(before, b_rows), (after, a_rows)].into_iter().enumerate() {
        for row in rows {
            let entry = times.entry(&row.whole).or_insert((&row.short, [0.0; 2], [0.0; 2]));
            if let (Some(ns), Some(count)) = (entry.1.get_mut(number), entry.2.get_mut(number)) {
                (*ns, *count) = (side.a_step(row.ns), side.a_step(row.count));
            }
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

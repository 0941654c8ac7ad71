// SPDX-License-Identifier: Apache-2.0
//! Kernels by time, over the steps that count. Times of operations that overlap are summed: a
//! damaged trace may pass 64 bits, which is no reason to end.

use std::collections::HashMap;

use serde_json::{json, Value};
use trace::Kind;

use super::names;
use super::Shown;
use crate::tables::class_of;

/// Rows at most.
const MOST_ROWS: usize = 50;

/// What is known of the kernels of one (whole) name.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// As C++ source has it.
    pub(super) whole: String,
    /// For people.
    pub(super) short: String,
    /// Time on the GPU, ns.
    pub(super) ns: u64,
    /// How many.
    pub(super) count: u64,
}

/// All of them, most time first.
pub(super) fn rows(shown: Shown<'_>) -> Vec<Row> {
    let steady = &shown.analysis.counts;
    let mut by_id: HashMap<u32, (u64, u64)> = HashMap::new();
    let ops = shown.device.streams.iter().flat_map(|s| &s.ops);
    for op in ops.filter(|o| o.kind == Kind::Kernel && steady.contains(o.start)) {
        let sum = by_id.entry(op.a).or_default();
        sum.0 = sum.0.saturating_add(op.span().ns());
        sum.1 += 1;
    }
    let mut by_name: HashMap<String, Row> = HashMap::new();
    for (id, (ns, count)) in by_id {
        let (whole, short) = names::kernel(shown.run, id);
        let row = by_name.entry(whole.clone()).or_insert_with(|| Row { whole, short, ..Row::default() });
        row.ns = row.ns.saturating_add(ns);
        row.count += count;
    }
    let mut rows: Vec<Row> = by_name.into_values().collect();
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.whole.cmp(&b.whole)));
    rows
}

/// The first rows, and what the others sum to.
pub(super) fn figures(shown: Shown<'_>) -> Value {
    let rows = rows(shown);
    let (first, rest) = rows.split_at(rows.len().min(MOST_ROWS));
    let sum = |of: &[Row]| of.iter().map(|r| r.ns).fold(0, u64::saturating_add);
    let written = first.iter().map(|r| {
        json!({
            "name": r.short,
            "whole": (r.whole != r.short).then_some(&r.whole),
            "class": class_of(&r.whole).label(),
            "ns": r.ns,
            "count": r.count,
        })
    });
    json!({
        "ns": sum(&rows),
        "count": rows.iter().map(|r| r.count).sum::<u64>(),
        "names": rows.len(),
        "rows": written.collect::<Vec<_>>(),
        "others": {"names": rest.len(), "ns": sum(rest), "count": rest.iter().map(|r| r.count).sum::<u64>()},
    })
}

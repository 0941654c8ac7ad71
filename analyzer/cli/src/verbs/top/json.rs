// SPDX-License-Identifier: Apache-2.0
//! `top --json`: the rows as objects.

use cli::live::DeviceFigures;
use serde_json::{json, Map, Value};
use verdict::analysis::Bucket;
use verdict::output::summary::counters;

use super::program_lines;
use crate::verbs::watched::Watched;

/// One a device. Keys are part of the interface: added, not renamed.
pub(super) fn objects(w: &Watched, lines: bool) -> Vec<Value> {
    let h = &w.process.header;
    let counted = w.counted();
    let one = |d: Option<&DeviceFigures>| {
        let f = w.figures.as_ref();
        let buckets = d.map(|d| {
            Bucket::ALL
                .iter()
                .map(|&b| (b.key().to_owned(), json!(d.buckets.share(b))))
                .collect::<Map<_, _>>()
        });
        let mut object = json!({
            "pid": h.pid,
            "rank": h.rank.checked_sub(1),
            "world_size": (h.world_size > 0).then_some(h.world_size),
            "job": f.map(|f| f.job.as_str()).filter(|j| !j.is_empty()),
            "device": d.map(|d| d.ordinal),
            "step_ns": f.and_then(|f| f.step_ns),
            "p90_ns": f.and_then(|f| f.p90_ns),
            "steps": f.map(|f| f.steps),
            "busy_share": d.filter(|d| d.buckets.total() > 0).map(|d| d.busy),
            "bucket_shares": buckets,
            "counters": d.and_then(|d| d.counters).map(counters),
            "cost_share": f.map(|f| f.cost.share),
            "cost_least": f.map(|f| f.cost.least),
            "cost_most": f.map(|f| f.cost.most),
            "cost_measured": f.map(|f| f.cost.measured),
            "losses": w.process.losses(),
            "seen_ns": f.map(|f| f.seen_ns),
            "age_ns": f.map(|_| w.process.age()),
            "counted": counted.map(|c| json!({
                "step_ns": c.step_ns,
                "sync_ns": c.step_ns.map(|_| c.sync_ns),
                "hung_ns": c.hang.map(|h| h.ns),
                "hung_in": c.hang.and_then(|h| h.call),
                "between": c.between.map(|b| json!({
                    "steps": b.steps, "launches": b.launches, "syncs": b.syncs, "sync_ns": b.sync_ns,
                })),
            })),
            "standing": w.process.standing().word(),
            "verdict": f.map(|f| json!({
                "code": f.verdict.0, "cause": f.verdict.1, "share": f.lost, "inconclusive": f.inconclusive, "site": f.site,
            })),
            "command": h.command,
        });
        if let Some(keys) = object.as_object_mut().filter(|_| lines) {
            keys.insert("lines".to_owned(), program_lines::objects(w));
        }
        object
    };
    match w.figures.as_ref().map_or(&[][..], |f| &f.devices) {
        [] => vec![one(None)],
        devices => devices.iter().map(|d| one(Some(d))).collect(),
    }
}

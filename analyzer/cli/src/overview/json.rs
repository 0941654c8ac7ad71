// SPDX-License-Identifier: Apache-2.0
//! The overview for programs: the summary's keys (`summary.rs`), and what a foreign trace adds,
//! what was lost of it among the `losses`. Keys are part of the interface. `devices` cover the
//! whole file, `steps` and `buckets_ns` the steady state.

use serde_json::{json, Value};
use verdict::analysis::Bucket;
use verdict::causes::lines::{Line, Lines};
use verdict::output::summary::{site, summary, Around};

use super::gauges::Gauges;
use super::{next, stack, Overview};
use crate::phases::Phases;

/// The lines that wait, and what each would win by itself.
fn lines(lines: &Lines) -> Value {
    let of = |l: &Line| {
        json!({
            "site": site(&l.site), "calls": l.calls, "blocked_ns": l.blocked_ns, "win": l.win, "needed": l.needed,
        })
    };
    let pair = lines.pair.map(|p| json!({ "lines": [p.one, p.other], "win": p.win }));
    json!({ "alone": lines.lines.iter().map(of).collect::<Vec<_>>(), "together": pair })
}

/// One object.
pub fn json(o: &Overview<'_>) -> Value {
    let (run, a) = (&o.input.run, o.source.analysis());
    let sentence = verdict::output::sentence::line(run, a, None);
    let mut all = summary(run, a, &Around { line: &sentence, ..Around::default() });
    let worst = a.worst.and_then(|w| a.devices.get(w));
    let buckets =
        Bucket::ALL.iter().map(|&b| (b.key().to_owned(), json!(worst.map_or(0, |d| d.buckets.get(b)))));
    let r = &o.input.refused;
    if let Value::Object(keys) = &mut all {
        if let Some(verdict) = keys.get_mut("verdict").and_then(Value::as_object_mut) {
            verdict.insert("next".to_owned(), json!(next(o.source.run, a)));
            verdict.insert("stack".to_owned(), json!(stack(run, a)));
        }
        keys.insert("lines".to_owned(), lines(&Lines::of(run, a)));
        keys.insert("gauges".to_owned(), worst.map_or(Value::Null, |d| Gauges::of(run, a, d).json()));
        keys.insert("phases".to_owned(), Phases::of(run, a).map_or(Value::Null, |p| p.json()));
        keys.insert("buckets_ns".to_owned(), Value::Object(buckets.collect()));
        keys.insert(
            "input".to_owned(),
            json!({
                "file": o.file,
                "format": o.input.format.name(),
                "events": o.input.events,
                "bytes": o.input.bytes,
                "refused": {
                    "no_time": r.no_time, "negative": r.negative, "broken": r.broken,
                    "recovered": r.recovered, "aside": r.aside,
                    "unplaced": r.unplaced, "orphans": r.orphans, "left_out": r.left_out,
                    "older": r.older,
                    "duplicates": r.duplicates, "cut": r.cut, "damaged": r.damaged,
                },
                // of `losses`: they stand in `reading_problems`, too
                "lost": r.lost(),
                "notes": o.input.notes,
            }),
        );
        if let Some(losses) = keys.get_mut("losses").and_then(Value::as_object_mut) {
            let ends = [("file_cut", u64::from(r.cut)), ("file_damaged", u64::from(r.damaged))];
            let counted = [
                ("no_time", r.no_time),
                ("negative_time", r.negative),
                ("broken_places", r.broken),
                ("unplaced", r.unplaced),
                ("left_out", r.left_out),
            ];
            losses.extend(counted.into_iter().chain(ends).map(|(key, n)| (key.to_owned(), json!(n))));
        }
        let devices = keys.get_mut("devices").and_then(Value::as_array_mut);
        for device in devices.into_iter().flatten() {
            let ordinal = device.get("ordinal").cloned().unwrap_or(Value::Null);
            if let Some(device) = device.as_object_mut() {
                device.insert("id".to_owned(), ordinal);
            }
        }
    }
    all
}

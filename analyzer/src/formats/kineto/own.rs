// SPDX-License-Identifier: Apache-2.0
//! What gapprobe's own traces say beside their events (`chrome/facts.rs` writes it): the header of the recording, and
//! who recorded it. Numbers that cannot be are cut to what can.

use serde_json::Value as Json;
use trace::{Header, Loss, Total};

use crate::chrome::facts::{numbers, times, MOST_MARKS};
use crate::run::{LossMark, Recorder, Run, MAX_TIME};

/// Facts of a trace of ours.
#[derive(Debug, Clone)]
pub(super) struct Own {
    facts: Json,
    /// The recording's time of the trace's zero, ns.
    pub(super) base: i64,
}

impl Own {
    /// `None` where it is no object.
    pub(super) fn new(facts: Json) -> Option<Own> {
        let base = facts.as_object()?.get("base_monotonic_ns").and_then(Json::as_u64).unwrap_or(0);
        Some(Own { base: base.min(MAX_TIME) as i64, facts })
    }

    /// Who recorded it.
    pub(super) fn recorder(&self) -> Recorder {
        let key = self.facts.get("recorder").and_then(Json::as_str);
        Recorder::ALL.into_iter().find(|r| Some(r.key()) == key).unwrap_or_default()
    }

    /// Puts what it says into a run of the trace's events.
    pub(super) fn apply(&self, run: &mut Run) {
        let number = |of: &Json, key: &str| of.get(key).and_then(Json::as_u64);
        run.recorder = self.recorder();
        run.slowed_host |= self.facts.get("slowed_host").and_then(Json::as_bool).unwrap_or(false);
        for (key, to) in numbers(&mut run.header) {
            *to = number(&self.facts, key).and_then(|n| u32::try_from(n).ok()).unwrap_or(*to);
        }
        for (key, to) in times(&mut run.header) {
            *to = number(&self.facts, key).unwrap_or(*to).min(MAX_TIME);
        }
        let Header { losses, totals, .. } = &mut run.header;
        let of = |table: &str, key: &str| self.facts.get(table).and_then(|t| number(t, key)).unwrap_or(0);
        for loss in Loss::ALL {
            losses[loss.code() as usize] = of("losses", loss.key());
        }
        for total in Total::ALL {
            totals[*total as usize] = of("totals", total.key());
        }
        let marks = self.facts.get("loss_marks").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for mark in marks.iter().take(MOST_MARKS) {
            let n = |i: usize| mark.get(i).and_then(Json::as_u64);
            let small = |i: usize| n(i).and_then(|n| u32::try_from(n).ok());
            if let (Some(at), Some(code), Some(count)) = (n(0), small(1), small(2)) {
                run.loss_marks.push(LossMark { at: at.min(MAX_TIME), code, count });
            }
        }
        let damage = |key: &str| number(&self.facts, key).unwrap_or(0).min(1 << 40);
        run.problems.cut_segments += damage("cut_segments");
        run.problems.bad_segments += damage("bad_segments");
        run.problems.bad_events += damage("bad_events");
        run.foreign = run.recorder != Recorder::Gapprobe;
    }
}

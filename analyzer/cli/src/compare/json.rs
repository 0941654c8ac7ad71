// SPDX-License-Identifier: Apache-2.0
//! A [`Comparison`] for programs. Keys are part of the interface: they are added, not renamed.
//! Times are ns, shares 0 to 1, unknown is `null`.

use serde_json::{json, Map, Value};
use verdict::analysis::Bucket;

use super::work::Changed;
use super::{words, Comparison, Figure, Outcome, Side};

/// Version of the keys.
const DIFF_VERSION: u32 = 1;

impl Comparison<'_> {
    /// The line.
    pub fn line(&self) -> String {
        words::line(self)
    }

    /// The report for people, without the line. `run_noise`: as in the options of the comparison.
    /// `most`: columns of a line, at most; `None`: nobody says.
    pub fn report(&self, run_noise: Option<f64>, most: Option<usize>) -> String {
        words::report(self, run_noise, most)
    }

    /// Everything, as one object.
    pub fn json(&self) -> Value {
        let claimed = matches!(self.outcome, Outcome::Faster | Outcome::Slower);
        json!({
            "diff_version": DIFF_VERSION,
            "line": self.line(),
            "result": self.outcome.key(),
            "cautions": self.cautions,
            "remarks": self.remarks,
            "speedup": self.step.filter(|s| claimed && s.b.value > 0.0).map(|s| s.a.value / s.b.value),
            "a": side(self.a),
            "b": side(self.b),
            "work": {
                "same": self.work.sameness.key(),
                "told_same": self.same_work,
                "common_share": self.work.common,
                "reshaped_share": self.work.reshaped,
                "remark": (!self.work.why.is_empty()).then_some(&self.work.why),
                "kernels": self.work.changed.iter().map(kernel).collect::<Vec<_>>(),
            },
            "step_mean": self.step.as_ref().map(figure),
            "step_median": self.median.as_ref().map(figure),
            "buckets": self.buckets.iter().map(|(b, f)| (b.key().to_owned(), figure(f))).collect::<Map<_, _>>(),
            "not_seen": self.not_seen.as_ref().map(figure),
            "scaling": self.scaling.as_ref().map(|s| json!({
                "gpus_a": s.gpus.0,
                "gpus_b": s.gpus.1,
                "known_by_a": s.known_by.0,
                "known_by_b": s.known_by.1,
                "weak": s.weak,
                "efficiency_if_weak": s.if_weak,
                "efficiency_low": s.range.map(|r| r.0),
                "efficiency_high": s.range.map(|r| r.1),
                "efficiency_if_strong": s.if_strong,
                "lost_to": s.lost_to.map(|(bucket, ns)| json!({"bucket": bucket.key(), "ns": ns})),
            })),
        })
    }
}

fn side(s: &Side<'_>) -> Value {
    let v = &s.analysis.verdict;
    let device = s.device.and_then(|d| s.analysis.devices.get(d));
    json!({
        "file": s.name,
        "format": s.format.name(),
        "code": v.code,
        "cause": v.cause,
        "text": v.text(),
        "inconclusive": v.why_inconclusive(),
        "steps": s.steps.len(),
        "step_source": s.analysis.steps.source.key(),
        "warm_up": s.analysis.steps.warm_up,
        "device": device.map(|d| d.ordinal),
        "gpu": (!s.gpu().is_empty()).then(|| s.gpu()),
        "idle_share": s.idle(),
        "shares": Bucket::ALL.iter().map(|&b| (b.key().to_owned(), json!(s.share(b)))).collect::<Map<_, _>>(),
    })
}

fn figure(f: &Figure) -> Value {
    json!({
        "a_ns": f.a.value,
        "b_ns": f.b.value,
        "difference_ns": f.difference.ns,
        "band_ns": f.difference.band,
        "beyond_noise": f.difference.band.map(|_| f.moved()),
    })
}

fn kernel(k: &Changed) -> Value {
    json!({
        "name": k.name,
        "change": k.change.key(),
        "a_count": k.count.0,
        "b_count": k.count.1,
        "a_ns": k.ns.0,
        "b_ns": k.ns.1,
        "a_blocks": (k.blocks.0 > 0.0).then_some(k.blocks.0),
        "b_blocks": (k.blocks.1 > 0.0).then_some(k.blocks.1),
    })
}

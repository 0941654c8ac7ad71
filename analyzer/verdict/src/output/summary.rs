// SPDX-License-Identifier: Apache-2.0
//! The summary: everything the line says and the figures behind it, as one JSON object for
//! programs.
//!
//! Keys are part of the interface: they are added, not renamed. Times are ns, shares 0 to 1,
//! unknown is `null`.

use serde_json::{json, Map, Value};
use trace::header::sources;
use trace::{Header, Loss, Total};

use crate::analysis::{
    Analysis, Bucket, Buckets, Counters, DeviceAnalysis, Facts, Figure, Finding, Once, OncePlace,
};
use crate::gaps::pauses::Pauses;
use crate::output::chrome::Written;
use crate::run::{Run, NONE};
use crate::sites::Site;

/// Version of the keys.
pub const SUMMARY_VERSION: u32 = 1;

/// What the summary tells besides the analysis itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// The line.
    pub line: &'a str,
    /// File name of the trace; `None` where there is none.
    pub trace: Option<&'a str>,
    /// What the trace holds.
    pub written: Option<Written>,
}

/// The summary of a run.
pub fn summary(run: &Run, analysis: &Analysis, around: &Around<'_>) -> Value {
    let h = &run.header;
    json!({
        "summary_version": SUMMARY_VERSION,
        "line": around.line,
        "evidence": crate::output::line::evidence(run, analysis),
        "verdict": verdict(run, analysis),
        "findings": analysis.findings.iter().map(|f| finding(run, f)).collect::<Vec<_>>(),
        "steps": steps(analysis),
        "once": analysis.once.iter().map(once).collect::<Vec<_>>(),
        "pauses": analysis.pauses.as_ref().map(pauses),
        "devices": analysis.devices.iter().enumerate().map(|(i, d)| device(run, i, d)).collect::<Vec<_>>(),
        "worst_device": analysis.worst.and_then(|i| analysis.devices.get(i)).map(|d| d.ordinal),
        "losses": losses(run, analysis),
        "reading_problems": problems(run),
        "totals": (!run.foreign).then(|| Total::ALL.iter().map(|&t| (t.key().to_owned(), json!(h.total(t)))).collect::<Map<_, _>>()),
        "cost": {
            "share": analysis.cost.share,
            "least": analysis.cost.least,
            "most": analysis.cost.most,
            "measured": analysis.cost.measured,
            "attached_most": analysis.cost.attached_most,
            // of a window that was cut out nobody counted it
            "callback_ns": (!run.cut_out).then_some(analysis.cost.callback_ns),
            "cupti_ns": analysis.cost.cupti_ns,
            "cupti_kept_bytes": analysis.cost.kept_bytes,
        },
        "coverage": coverage(run, analysis),
        "model": {
            "measured_ns": analysis.model.measured_ns,
            "replayed_ns": analysis.model.replayed_ns,
            "operations": analysis.model.ops,
            "error": analysis.model.error(),
        },
        "versions": versions(h),
        "rank": number_from_one(h.rank),
        "local_rank": number_from_one(h.local_rank),
        "world_size": (h.world_size > 0).then_some(h.world_size),
        "host": h.host,
        "pid": h.pid,
        "uid": h.uid,
        "cpus": (h.cpus > 0).then_some(h.cpus),
        "command": h.command,
        "attributes": run.definitions.attributes().map(|(k, v)| (k.to_owned(), json!(v))).collect::<Map<_, _>>(),
        "times": times(run),
        "trace": around.trace,
        "trace_file": around.written.map(|w| json!({
            "bytes": w.bytes,
            "gpu_operations": w.ops,
            "api_calls": w.calls,
            "left_out": {
                "gpu_operations": w.ops_left_out,
                "api_calls": w.calls_left_out,
                "ranges": w.ranges_left_out,
                "idle_slices": w.gaps_left_out,
            },
        })),
    })
}

/// Stored as number + 1, so that 0 is "not told".
fn number_from_one(n: u32) -> Option<u32> {
    n.checked_sub(1)
}

/// The function a flat call number stands for.
fn call_name(run: &Run, call: u32) -> Option<&str> {
    (call != NONE).then(|| run.call(call).map(|(_, c)| run.call_name(c))).flatten()
}

fn verdict(run: &Run, analysis: &Analysis) -> Value {
    let v = &analysis.verdict;
    json!({
        "code": v.code,
        "cause": v.cause,
        "text": v.text(),
        "figures": figures(&v.facts),
        "fix": v.advice.long,
        "confidence": v.confidence.key(),
        "share": v.share,
        "step_ns": (v.step_ns > 0.0).then_some(v.step_ns),
        "predicted_ns": v.promise.map(|p| p.ns()),
        "error_ns": v.promise.map(|p| p.error_ns()),
        "tied": v.tied.map(|t| json!({
            "code": t.code, "cause": t.cause, "fix": t.advice.long, "share": t.share,
            "predicted_ns": t.promise.map(|p| p.ns()), "error_ns": t.promise.map(|p| p.error_ns()),
        })),
        "then": v.then.map(|(cause, share)| json!({"cause": cause, "share": share})),
        "inconclusive": v.why_inconclusive(),
        "without_profiler": v.profiled.map(|p| json!({
            "cause": p.cause, "step_ns": p.step_ns, "busy_share": p.busy,
        })),
        "call": call_name(run, v.call),
        "site": v.site.as_ref().map(site),
    })
}

/// The figures of what was seen, by name; what a figure is of is the end of its name. Of two that
/// have the same name, the first.
fn figures(facts: &Facts) -> Value {
    let mut all = Map::new();
    for (name, figure) in facts.said.iter().flat_map(|fact| &fact.figures) {
        let (of, value) = match figure {
            Figure::Count(n) | Figure::Of(n, ..) => ("", json!(n)),
            Figure::Share(share) | Figure::SmallShare(share) => ("_share", json!(share)),
            Figure::Time(ns) => ("_ns", json!(ns)),
            Figure::Bytes(n) => ("_bytes", json!(n)),
            Figure::Rate(n) => ("_bytes_per_s", json!(n)),
            Figure::Cpus(n) => ("_cpus", json!(n)),
            Figure::Causes(causes) => {
                ("", causes.iter().map(|(cause, share)| (*cause, json!(share))).collect())
            }
            Figure::Together(causes) => ("", json!(causes)),
            Figure::Site(s) | Figure::Place(s) | Figure::Who(s) => ("", site(s)),
            Figure::Often(_) | Figure::Word(_) | Figure::Name(_) => ("", json!(figure.to_string())),
        };
        all.entry(format!("{name}{of}")).or_insert(value);
    }
    all.into()
}

/// A line of the program: `file` as the interpreter names it.
pub fn site(s: &Site) -> Value {
    json!({
        "file": Some(&s.path).filter(|p| !p.is_empty()),
        "line": (s.line > 0).then_some(s.line),
        "function": s.function,
        "via": s.via,
    })
}

fn finding(run: &Run, f: &Finding) -> Value {
    json!({
        "code": f.code,
        "cause": f.cause,
        "share": f.share,
        "win": f.win.share(),
        "unrecorded_win": f.unrecorded_win,
        "predicted_ns": f.promise.map(|p| p.ns()),
        "error_ns": f.promise.map(|p| p.error_ns()),
        "text": f.text(),
        "figures": figures(&f.facts),
        "fix": f.advice.long,
        "confidence": f.confidence.key(),
        "call": call_name(run, f.call),
        "count": f.count,
        "site": f.site.as_ref().map(site),
        "more_lines": f.more_lines,
    })
}

fn steps(analysis: &Analysis) -> Value {
    let steps = &analysis.steps;
    let mut lengths: Vec<u64> = steps.steady().iter().map(|s| s.span.ns()).collect();
    lengths.sort_unstable();
    json!({
        "source": steps.source.key(),
        // those in which something happened once, too
        "count": steps.seen(),
        "unplaced": steps.unplaced,
        "warm_up": steps.warm_up,
        "warm_up_ns": steps.warm_up_ns,
        "steady_ns": steps.steady_ns,
        "steady_share": analysis.steady_share(),
        "may_be_parts": steps.may_be_parts,
        // a period that is no step
        "parts": steps.parts.map(|p| json!({ "count": p.count, "median_ns": p.median_ns })),
        "micro_steps": steps.micro,
        "mean_ns": (!lengths.is_empty()).then_some(steps.mean_ns),
        "median_ns": (!lengths.is_empty()).then_some(steps.median_ns),
        "p95_ns": percentile(&lengths, 95),
    })
}

/// What happened once or twice, and is in no share: `where` is `before` (the first step), `after`
/// (the last) or `step`, whose number `step` is then.
fn once(once: &Once) -> Value {
    let (place, step) = match once.place {
        OncePlace::Before => ("before", None),
        OncePlace::In(step) => ("step", Some(step)),
        OncePlace::After => ("after", None),
    };
    json!({
        "where": place,
        "step": step,
        "from_ns": once.span.start,
        "to_ns": once.span.end,
        "ns": once.ns,
        "bucket": once.bucket.key(),
        "site": once.site.as_ref().map(site),
    })
}

/// Pauses between windows, in no share.
fn pauses(p: &Pauses) -> Value {
    json!({
        "count": p.count,
        "ns": p.ns,
        "usual_ns": p.usual_ns,
        "every_ns": p.every_ns,
        "share": p.share,
        "doing": p.doing.map(|d| d.words()),
        "site": p.site.as_ref().map(site),
    })
}

/// The value that `percent` of the sorted values do not exceed (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

fn device(run: &Run, index: usize, d: &DeviceAnalysis) -> Value {
    let info = run.devices.get(index).map(|d| d.info).unwrap_or_default();
    json!({
        "ordinal": d.ordinal,
        "name": run.definitions.string(info.name),
        "uuid": run.definitions.attribute(&trace::define::gpu_uuid(d.ordinal)),
        "multiprocessors": (info.multiprocessors > 0).then_some(info.multiprocessors),
        "span_ns": d.span.ns(),
        "busy_ns": d.busy_ns,
        "idle_ns": d.idle_ns,
        "gaps": d.gaps,
        "max_gap_ns": d.max_gap_ns,
        "steady_wall_ns": d.wall_ns,
        "steady_operations": d.ops,
        "steady_kernels": d.kernels,
        "buckets_ns": buckets(&d.buckets),
        "small_kernels": {
            "share": d.small.share,
            "kernels": d.small.kernels,
            "small": d.small.small,
            "median_ns": d.small.median_ns,
        },
        "counters": d.counters.map(counters),
        "start_before_launch": d.start_before_launch,
        "most_before_launch_ns": d.most_before_launch_ns,
    })
}

/// What a GPU's own counters say.
pub fn counters(c: Counters) -> Value {
    json!({
        "ns": c.ns,
        "sm_active_share": c.sm,
        "sm_occupancy_share": c.occupancy,
        "tensor_active_share": c.tensor,
        "memory_bandwidth_share": c.memory,
        "fp64_active_share": c.fp64,
        "fp32_active_share": c.fp32,
        "fp16_active_share": c.fp16,
        "integer_active_share": c.integer,
        "pcie_sent_bytes_per_s": c.pcie_sent,
        "pcie_received_bytes_per_s": c.pcie_received,
        "nvlink_sent_bytes_per_s": c.nvlink_sent,
        "nvlink_received_bytes_per_s": c.nvlink_received,
    })
}

fn buckets(buckets: &Buckets) -> Map<String, Value> {
    Bucket::ALL.iter().map(|&b| (b.key().to_owned(), json!(buckets.get(b)))).collect()
}

/// Every loss by name, the zeros too: a reader need not know which there are.
pub fn losses(run: &Run, analysis: &Analysis) -> Map<String, Value> {
    let count = |l: Loss| analysis.losses.iter().find(|(m, _)| *m == l).map_or(0, |(_, n)| *n);
    let missing = [("kernels_missing", analysis.unanswered), ("calls_missing", run.uncalled.calls)];
    let all = Loss::ALL.iter().map(|&l| (l.key(), count(l))).chain(missing);
    all.map(|(key, n)| (key.to_owned(), json!(n))).collect()
}

fn problems(run: &Run) -> Value {
    let p = &run.problems;
    json!({
        "bad_segments": p.bad_segments,
        "busy_segments": p.busy_segments,
        "cut_segments": p.cut_segments,
        "bad_events": p.bad_events,
        "bad_definitions": p.bad_definitions,
        "unknown_tracks": p.unknown_tracks,
    })
}

fn coverage(run: &Run, analysis: &Analysis) -> Value {
    let c = &analysis.coverage;
    json!({
        "seen_ns": c.seen_ns,
        "run_ns": c.run_ns,
        "front_ns": c.front_ns,
        "steps_seen": c.steps_seen,
        "steps_run": c.steps_run,
        // there were more, in spans that were not observed, and nobody counted them
        "steps_unknown": c.steps_unknown,
        "overwritten": c.overwritten,
        // it never reached our exit handler: a signal, _exit, exec
        "killed": c.killed,
        // its last steps may be missing: killed, or the exit did not wait for the last records
        "cut": c.cut,
        "signal": c.signal,
        "events": analysis.events,
        "operations_without_call": run.unjoined,
        "data_losses": analysis.data_losses,
        "between_windows": between_windows(&run.header, c.clock_unit),
        "unobserved_ns": analysis.blind.iter().map(|b| b.span.ns()).sum::<u64>(),
        "unobserved": analysis.blind.iter().take(100).map(|b| json!({
            "from_ns": b.span.start, "to_ns": b.span.end, "reason": b.text(),
        })).collect::<Vec<_>>(),
    })
}

/// What is known of the time between windows, for the whole run; `null` without windows. `unit`:
/// see [`crate::analysis::Coverage::clock_unit`].
fn between_windows(h: &Header, unit: f64) -> Value {
    let steps = (h.total(Total::StepsBetween) as f64 * unit).round() as u64;
    let sync_ns = h.total(Total::SyncBetweenNs);
    if h.total(Total::Windows) == 0 {
        return Value::Null;
    }
    json!({
        "steps": steps,
        "launches": h.total(Total::LaunchesBetween),
        "syncs": h.total(Total::SyncsBetween),
        "sync_ns": sync_ns,
        "sync_ns_per_step": (steps > 0).then(|| sync_ns as f64 / steps as f64),
    })
}

fn versions(h: &Header) -> Value {
    let source = |bit: u32| h.sources & bit != 0;
    json!({
        "gapprobe": env!("CARGO_PKG_VERSION"),
        "recorder": h.gapprobe,
        "recording": format!("{}.{}", trace::header::VERSION_MAJOR, trace::header::VERSION_MINOR),
        "driver": (h.driver_version > 0).then_some(h.driver_version),
        "cupti": (h.cupti_version > 0).then_some(h.cupti_version),
        "sources": {
            "callbacks": source(sources::CALLBACKS),
            "call_filter": source(sources::CALL_FILTER),
            "call_kinds": source(sources::CALL_KINDS),
            "graph_level": source(sources::GRAPH_LEVEL),
            "gave_up": source(sources::GAVE_UP),
            "no_launches": source(sources::NO_LAUNCHES),
            "waits_by_calls": source(sources::WAITS_BY_CALLS),
        },
    })
}

fn times(run: &Run) -> Value {
    let h = &run.header;
    let told = |monotonic: u64| (monotonic > 0).then(|| run.realtime(monotonic));
    json!({
        "start_unix_ns": h.start_realtime,
        "first_use_unix_ns": told(h.first_use),
        "gpu_complete_to_unix_ns": told(h.gpu_complete_to),
        "last_write_unix_ns": told(h.last_write),
        "exit_unix_ns": told(h.exit_monotonic),
    })
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_values_that_occurred() {
        assert_eq!(percentile(&[], 95), None);
        assert_eq!(percentile(&[7], 50), Some(7));
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 95)), (Some(50), Some(95)));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The verdict in the line's own words, and what the reader should know before believing it.

use serde_json::{json, Value};
use verdict::causes::inconclusive;
use verdict::output::line;
use verdict::output::sentence;
use verdict::run::Uncalled;
use verdict::text::plural::{counted, of};
use verdict::timeline::Observed;

use super::names::clean;
use super::Subject;
use crate::overview;

/// Remarks at most; findings at most.
const MOST_REMARKS: usize = 20;
const MOST_FINDINGS: usize = 8;
/// Frames of a stack at most, innermost first.
const MOST_FRAMES: usize = 48;

/// The whole line, without a trace file.
pub(super) fn line(subject: &Subject<'_>) -> String {
    sentence::line(&subject.input.run, subject.analysis, None)
}

/// The line's sentence and its figures apart, what to do, what it promises, and the other causes
/// there is evidence of.
pub(super) fn figures(subject: &Subject<'_>) -> Value {
    let v = &subject.analysis.verdict;
    let findings = subject.analysis.findings.iter().take(MOST_FINDINGS).map(|f| {
        json!({
            "code": f.code, "cause": f.cause, "share": f.share, "win": f.win.share(), "unrecorded_win": f.unrecorded_win, "text": clean(&f.text()),
            "fix": f.advice.long, "confidence": f.confidence.key(), "count": f.count,
        })
    });
    let stack = overview::stack(&subject.input.run, subject.analysis);
    let promise = v.promise.filter(|_| v.step_ns > 0.0);
    json!({
        "code": v.code,
        "cause": v.cause,
        "confidence": v.confidence.key(),
        "sentence": clean(&sentence::sentence(&subject.input.run, subject.analysis)),
        "evidence": line::evidence(&subject.input.run, subject.analysis).iter().map(|said| clean(said)).collect::<Vec<_>>(),
        "line": clean(&line(subject)),
        "site": v.site.as_ref().map(|s| clean(&s.to_string())),
        "stack": stack.iter().take(MOST_FRAMES).map(|f| clean(f)).collect::<Vec<_>>(),
        "stack_left_out": stack.len().saturating_sub(MOST_FRAMES),
        "fix": v.advice.long,
        "or": v.tied.map(|t| json!({ "cause": t.cause, "fix": t.advice.long })),
        "next": overview::next(&subject.input.run, subject.analysis).map(|n| clean(&n)),
        "share": v.share,
        "step_ns": (v.step_ns > 0.0).then_some(v.step_ns),
        "predicted_ns": promise.map(|p| p.ns()),
        "error_ns": promise.map(|p| p.error_ns()),
        "findings": findings.collect::<Vec<_>>(),
    })
}

/// What was lost, not seen, or not usable, one sentence each.
pub(super) fn remarks(subject: &Subject<'_>) -> Vec<String> {
    let (run, analysis, refused) = (&subject.input.run, subject.analysis, &subject.input.refused);
    let mut remarks: Vec<String> = Vec::new();
    if let Some(p) = &analysis.verdict.profiled {
        remarks.push(line::under_the_profiler(&analysis.verdict, p));
    } else if run.slowed_host {
        remarks.push("Taken by a profiler with host operators on, which slows the host.".to_owned());
    }
    let not_observed = analysis.valid.ns() - Observed::new(analysis.valid, &run.blind).total();
    if let Some(blind) = analysis.blind.first() {
        let long = verdict::text::duration::long(not_observed);
        remarks.push(format!(
            "{long} in {} were not observed ({} ...).",
            counted(analysis.blind.len() as u64, "span"),
            blind.text()
        ));
    }
    for (loss, count) in &analysis.losses {
        remarks.push(format!("Lost: {count} {}.", loss.sentence()));
    }
    if analysis.unanswered > 0 {
        remarks.push(format!("{}.", inconclusive::missing_kernels(analysis.unanswered).text()));
    }
    if run.uncalled.calls > 0 {
        let Uncalled { calls, ops, .. } = run.uncalled;
        let (calls, are, ops) = (counted(calls, "call"), of(calls, "is", "are"), counted(ops, "operation"));
        remarks.push(format!("{calls} that launched {ops} {are} not in the trace."));
    }
    let counted = [
        (refused.no_time, "events without a time that can be read"),
        (refused.negative, "events that end before they begin"),
        (refused.duplicates, "events that stand in the file more than once (counted once)"),
        (refused.broken, "places that cannot be parsed: what stood there is lost"),
        (run.problems.damaged().saturating_sub(refused.lost()), "parts that could not be read (damaged)"),
        (run.left_out, "older events were not looked at"),
    ];
    remarks.extend(
        counted.into_iter().filter(|c| c.0 > 0).map(|(count, what)| format!("In the file: {count} {what}.")),
    );
    remarks.extend(subject.input.notes.iter().map(|n| format!("{}.", n.trim_end_matches('.'))));
    let more = remarks.len().saturating_sub(MOST_REMARKS);
    remarks.truncate(MOST_REMARKS);
    if more > 0 {
        remarks.push(format!("{more} more remarks: gapprobe stats says them."));
    }
    remarks.iter().map(|r| clean(r)).collect()
}

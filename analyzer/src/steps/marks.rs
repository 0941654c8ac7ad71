// SPDX-License-Identifier: Apache-2.0
//! Steps that the program itself names: `gapprobe_step`, or ranges called `step` or `ProfilerStep#`.

use trace::event::OPEN_ENDED;

use super::{behind, step, MIN_STEPS};
use crate::analysis::Step;
use crate::run::{RangeKind, Run, Span};
use crate::timeline::Observed;

/// An open-ended last step counts if it is at least this share of the median step.
const OPEN_STEP_SHARE: f64 = 0.5;

/// Steps by the marks of the thread that set most of them.
pub(super) fn from_marks(run: &Run, observed: &Observed, valid: Span, last_op: u64) -> Option<Vec<Step>> {
    let thread = run.threads.iter().max_by_key(|t| t.marks.len())?;
    let starts: Vec<(u64, u64, u32, bool)> = thread
        .marks
        .iter()
        // a mark is a moment: its step ends at the next one
        .map(|m| (m.span.start, m.span.end, m.number, m.flags & OPEN_ENDED != 0 || m.span.ns() == 0))
        .collect();
    tile(run, &starts, observed, valid, last_op)
}

/// Steps by the ranges of the thread that has most of them; a step lasts to the next one's begin.
pub(super) fn from_ranges(run: &Run, observed: &Observed, valid: Span, last_op: u64) -> Option<Vec<Step>> {
    let mut best: Vec<(u64, u64, u32, bool)> = Vec::new();
    for t in &run.threads {
        let mut found: Vec<(u64, u64, u32, bool)> = Vec::new();
        for r in t.ranges.iter().filter(|r| r.kind == RangeKind::User) {
            let Some(number) = run.definitions.string(r.name).and_then(|n| step_number(n, found.len()))
            else {
                continue;
            };
            // a step named inside a step (a library's own range) is no step of its own; one that begins a little before
            // the other ends (rounded stamps) is
            if found.last().is_none_or(|f| r.span.start >= f.1 || r.span.end > f.1) {
                found.push((r.span.start, r.span.end, number, r.flags & OPEN_ENDED != 0));
            }
        }
        if found.len() > best.len() {
            best = found;
        }
    }
    tile(run, &best, observed, valid, last_op)
}

/// The number of a step range, or `None` for other ranges. Unnumbered ones count up.
fn step_number(name: &str, position: usize) -> Option<u32> {
    if matches!(name, "step" | "train_step" | "training_step") {
        return Some(position as u32);
    }
    let digits = ["ProfilerStep#", "step#", "step ", "step_"].iter().find_map(|p| name.strip_prefix(p))?;
    digits.parse().ok()
}

/// Steps that lie side by side: each lasts to the next one's begin, the last to its own end or the last op. Only what was
/// observed from begin to end is a step; a range before an unobserved span may end by itself. Times are put off to where
/// the GPU is done with the steps before ([`behind`]).
fn tile(
    run: &Run,
    marks: &[(u64, u64, u32, bool)],
    observed: &Observed,
    valid: Span,
    last_op: u64,
) -> Option<Vec<Step>> {
    if marks.len() < MIN_STEPS {
        return None;
    }
    let mut host: Vec<u64> = marks.iter().flat_map(|m| [m.0, m.1]).collect();
    host.sort_unstable();
    let device = behind::put_off(run, &host);
    let put_off = |t: u64| host.binary_search(&t).ok().and_then(|i| device.get(i)).copied().unwrap_or(t);
    let seen = |s: &Span| s.ns() > 0 && observed.measure(*s) == s.ns();
    let mut steps = Vec::with_capacity(marks.len());
    for (i, &(start, end, number, open)) in marks.iter().enumerate() {
        let begin = put_off(start);
        let (marked, until) = match marks.get(i + 1) {
            Some(next) => (next.0, put_off(next.0)),
            None if open || end > valid.end => (end.min(valid.end), last_op.max(begin)),
            None => (end, put_off(end)),
        };
        let spans = [Span::new(begin, until), Span::new(begin, put_off(end).min(until))];
        let host = Span::new(start, marked);
        let span = spans.into_iter().find(seen);
        steps.extend(span.map(|span| Step { host, ..step(span, number) }));
    }
    let mut times: Vec<u64> = steps.iter().map(|s| s.span.ns()).collect();
    let usual = super::median(&mut times) as f64;
    let open = marks.last().filter(|m| m.3 || m.1 > valid.end);
    let short = |s: &&Step| (s.span.ns() as f64) < usual * OPEN_STEP_SHARE;
    if steps.last().filter(short).is_some_and(|s| open.is_some_and(|o| o.0 == s.host.start)) {
        steps.pop();
    }
    Some(steps)
}

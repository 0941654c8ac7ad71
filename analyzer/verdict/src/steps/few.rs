// SPDX-License-Identifier: Apache-2.0
//! Other tools' traces that hold no more than a step or two (`schedule(active=1)`, a bare
//! `with profile()`, inference). One or two marks are steps. A period inside of them is a part of a
//! step, and so is one that covers little of a trace without marks: what lies around it is then
//! most of the time, and no figure may leave it out.
//!
//! The whole of such a trace: from the first to the last GPU operation. Our own recordings are not
//! read like this: what they hold beside their steady steps is set-up and teardown.

use super::marks;
use super::{Parts, Step, StepSource, Steps};
use crate::run::{Device, Run, Span};
use crate::stats::median;
use crate::timeline::Observed;

/// What a profiler's stop takes at least: it waits for the GPU, and for the records of a whole step
/// (10 ms to seconds in the traces seen).
const LEAST_STOP_NS: u64 = 1_000_000;
/// Steps that cover less than one in so many parts of the whole do not stand for it.
const OF_THE_WHOLE: u64 = 2;

/// One or two steps by marks or named ranges, if most of the GPU's work is theirs.
pub(super) fn find(
    run: &Run,
    observed: &Observed,
    valid: Span,
    last_op: u64,
) -> Option<(StepSource, marks::Tiled)> {
    if !run.foreign {
        return None;
    }
    let by_marks =
        marks::from_marks(run, observed, valid, last_op, 1).map(|found| (StepSource::Marks, found));
    let by_ranges = || {
        let found = marks::from_ranges(run, observed, valid, last_op, 1).filter(|_| super::whole_ranges(run));
        found.map(|found| (StepSource::Ranges, found))
    };
    by_marks.or_else(by_ranges).filter(|(_, (steps, _))| holds_most(run, steps))
}

/// Most of the operations' time is in operations that begin in these steps.
fn holds_most(run: &Run, steps: &[Step]) -> bool {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return false };
    let (mut inside, mut all) = (0u64, 0u64);
    for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
        let ns = op.span().ns();
        all = all.saturating_add(ns);
        if (first.span.start..last.span.end).contains(&op.start) {
            inside = inside.saturating_add(ns);
        }
    }
    inside.saturating_mul(2) >= all
}

/// Repetitions as parts of a step.
pub(super) fn parts(steps: &[Step]) -> Option<Parts> {
    let mut times: Vec<u64> = steps.iter().filter(|s| !s.odd).map(|s| s.span.ns()).collect();
    let count = times.len();
    (count > 0).then(|| Parts { count, median_ns: median(&mut times) })
}

/// Takes away steps that do not stand for a mostly idle whole, so that all that is said is said of
/// the whole; doubts those of a period that does not stand for a busy one.
pub(super) fn stand_for_the_whole(run: &Run, valid: Span, mut steps: Steps) -> Steps {
    let is_period = steps.source == StepSource::Period;
    if !is_period && !steps.are_few() {
        return steps;
    }
    let Some(whole) = Whole::of(run, valid) else { return steps };
    let covered = whole.within(&steps);
    if covered.ns.saturating_mul(OF_THE_WHOLE) >= whole.span.ns() {
        return steps;
    }
    let rest = whole.span.ns() - covered.ns;
    let busy = whole.busy.measure(whole.span).saturating_sub(covered.busy);
    if busy.saturating_mul(2) < rest {
        let parts = if is_period { parts(&steps.steps) } else { steps.parts };
        return Steps { micro: 1, parts, ..Steps::default() };
    }
    steps.may_be_parts |= is_period;
    steps
}

/// The device with the most operations from the first of them to the last.
struct Whole {
    span: Span,
    busy: Observed,
}

/// The part of it that steps are.
struct Covered {
    ns: u64,
    busy: u64,
}

impl Whole {
    fn of(run: &Run, valid: Span) -> Option<Whole> {
        let device: &Device = run.devices.iter().max_by_key(|d| d.ops())?;
        let ops = device.streams.iter().flat_map(|s| &s.ops);
        let mut busy: Vec<Span> = ops.map(|o| o.span().clip(valid)).filter(|s| s.ns() > 0).collect();
        busy.sort_unstable();
        busy.dedup_by(|next, kept| {
            let joins = next.start <= kept.end;
            kept.end = if joins { kept.end.max(next.end) } else { kept.end };
            joins
        });
        let span = Span::new(busy.first()?.start, busy.last()?.end);
        Some(Whole { span, busy: Observed::new(span, &[]).only(busy) })
    }

    fn within(&self, steps: &Steps) -> Covered {
        let spans = || steps.steady().iter().map(|s| s.span.clip(self.span));
        Covered { ns: spans().map(Span::ns).sum(), busy: spans().map(|s| self.busy.measure(s)).sum() }
    }
}

/// Behind the last operation of the last step no GPU waits for the host: a long time there is its
/// profiler's own stop. It counts as far as the other steps have such time, too.
pub(super) fn end_with_the_work(run: &Run, steps: &mut [Step]) {
    let mut ends = vec![0u64; steps.len()];
    for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
        let at = steps.partition_point(|s| s.span.start <= op.start).checked_sub(1);
        let Some((n, step)) = at.and_then(|n| Some((n, steps.get(n)?))) else { continue };
        if let Some(end) = ends.get_mut(n).filter(|_| op.start < step.span.end) {
            *end = op.end.min(step.span.end).max(*end);
        }
    }
    let Some((last, others)) = steps.split_last_mut() else { return };
    let Some((&end, ends)) = ends.split_last().filter(|(end, _)| **end > 0) else { return };
    let behind = others.iter().zip(ends).filter(|(_, end)| **end > 0);
    let mut behind: Vec<u64> = behind.map(|(s, end)| s.span.end.saturating_sub(*end)).collect();
    let usual = end.saturating_add(median(&mut behind));
    if last.span.end.saturating_sub(usual) >= LEAST_STOP_NS {
        last.span.end = usual;
    }
}

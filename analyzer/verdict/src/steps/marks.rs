// SPDX-License-Identifier: Apache-2.0
//! Steps that the program itself names: `gapprobe_step`, or ranges called `step` or
//! `ProfilerStep#`.

use trace::event::OPEN_ENDED;

use super::behind::{self, Host};
use super::Step;
use super::{few, step};
use crate::run::{Mark, RangeKind, Run, Span, Thread};
use crate::timeline::Observed;

/// An open-ended last step counts if it takes so many times the median of the others: a shorter one
/// was cut off, and a longer one has what came behind the steps in it (a checkpoint saved, an
/// evaluation).
const OPEN_STEP: std::ops::RangeInclusive<f64> = 0.5..=1.5;

/// Steps, and how many of the marks inside the observed time have none: their begin or end on the
/// GPU is not known.
pub(super) type Tiled = (Vec<Step>, usize);

/// A step as the program names it: begin, end, number, and whether its end is not known.
type Named = (u64, u64, u32, bool);

/// Steps by the marks of the thread that set most of them; by those of all threads where they count
/// on together.
pub(super) fn from_marks(
    run: &Run,
    observed: &Observed,
    valid: Span,
    last_op: u64,
    least: usize,
) -> Option<Tiled> {
    let (threads, marks) = used(run).filter(|u| u.1.len() >= least)?;
    // a mark is a moment: its step ends at the next one
    let open = |m: &Mark| m.flags & OPEN_ENDED != 0 || m.span.ns() == 0;
    let named = marks.iter().map(|m| (m.span.start, m.span.end, m.number, open(m)));
    tile(run, &threads, &named.collect::<Vec<Named>>(), observed, valid, last_op)
}

/// The share of all recorded marks that name steps: others are of a second thread with steps of its
/// own, or name the same step again.
pub fn used_share(run: &Run) -> f64 {
    let all: usize = run.threads.iter().map(|t| t.marks.len()).sum();
    used(run).map_or(1.0, |(_, marks)| marks.len() as f64 / all.max(1) as f64)
}

/// The marks that name the steps, and the threads that set them.
fn used(run: &Run) -> Option<(Vec<usize>, Vec<&Mark>)> {
    let marking: Vec<usize> = (0..run.threads.len()).filter(|&t| !marks_of(run, t).is_empty()).collect();
    let mut all: Vec<&Mark> = marking.iter().flat_map(|&t| marks_of(run, t)).collect();
    all.sort_by_key(|m| m.span.start);
    // libraries that mark the same step do so once
    all.dedup_by_key(|m| m.number);
    let together = all.windows(2).all(|w| matches!(w, [a, b] if a.number < b.number));
    let most = marking.iter().copied().max_by_key(|&t| marks_of(run, t).len())?;
    Some(match together {
        true => (marking, all),
        false => {
            let mut own: Vec<&Mark> = marks_of(run, most).iter().collect();
            own.dedup_by_key(|m| m.number);
            (vec![most], own)
        }
    })
}

fn marks_of(run: &Run, thread: usize) -> &[Mark] {
    run.threads.get(thread).map_or(&[], |t| &t.marks)
}

/// Steps by ranges; a step lasts to the next one's begin. By a thread that launches rather than by
/// another (an environment has steps of its own), by the profiler's own rather than by what other
/// libraries call a step, then by most.
pub(super) fn from_ranges(
    run: &Run,
    observed: &Observed,
    valid: Span,
    last_op: u64,
    least: usize,
) -> Option<Tiled> {
    /// Launches, the profiler's own, how many.
    type Rank = (bool, bool, usize);
    let mut best: Option<(Rank, usize, Vec<Named>)> = None;
    for (thread, t) in run.threads.iter().enumerate() {
        let launches = t.calls.iter().any(|c| c.launches());
        for profilers in [true, false] {
            let found = named(run, t, profilers);
            let rank = (launches, profilers, found.len());
            if found.len() >= least && best.as_ref().is_none_or(|b| rank > b.0) {
                best = Some((rank, thread, found));
            }
        }
    }
    let (_, thread, found) = best?;
    tile(run, &[thread], &found, observed, valid, last_op)
}

/// The step ranges of a thread: the profiler's, or the others.
fn named(run: &Run, thread: &Thread, profilers: bool) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    for r in thread.ranges.iter().filter(|r| r.kind == RangeKind::User) {
        // in whatever domain of the program's; a library's range is never a step, whatever it is
        // called
        if run.is_librarys(r) {
            continue;
        }
        let name = run.plain_name(r);
        let Some(number) = step_number(name, found.len()) else { continue };
        if name.starts_with(PROFILERS) != profilers {
            continue;
        }
        // a step named inside a step (a library's own range) is no step of its own; one that begins
        // a little before the other ends (rounded stamps) is
        if found.last().is_none_or(|f| r.span.start >= f.1 || r.span.end > f.1) {
            let end = if thread.is_left_open(r) { r.span.start } else { r.span.end };
            found.push((r.span.start, end, number, r.flags & OPEN_ENDED != 0));
        }
    }
    found
}

/// torch.profiler's name of a step.
const PROFILERS: &str = "ProfilerStep#";

/// The number of a step range, or `None` for other ranges. Unnumbered ones count up.
fn step_number(name: &str, position: usize) -> Option<u32> {
    if matches!(name, "step" | "train_step" | "training_step") {
        return Some(position as u32);
    }
    let digits = [PROFILERS, "step#", "step ", "step_"].iter().find_map(|p| name.strip_prefix(p))?;
    digits.parse().ok()
}

/// Steps that lie side by side: each lasts to the next one's begin, the last to its own end or the
/// last op. Only what was observed from begin to end is a step; a range before an unobserved span
/// may end by itself. Times are those of the GPU ([`behind`]); a step that has no known begin or
/// end there is none.
fn tile(
    run: &Run,
    threads: &[usize],
    marks: &[Named],
    observed: &Observed,
    valid: Span,
    last_op: u64,
) -> Option<Tiled> {
    let last = marks.last().filter(|m| !m.3 && m.1 <= valid.end);
    let begins: Vec<u64> = marks.iter().map(|m| m.0).collect();
    let device = behind::on_device(run, &Host { threads, begins: &begins, end: last.map(|m| m.1) })?;
    let seen = |s: &Span| s.ns() > 0 && observed.measure(*s) == s.ns();
    let mut steps = Vec::with_capacity(marks.len());
    let mut unplaced = 0;
    for (i, &(start, end, number, _)) in marks.iter().enumerate() {
        let inside = || seen(&Span::new(start, marks.get(i + 1).map_or(end, |next| next.0)));
        let Some(begin) = device.begins.get(i).copied().flatten() else {
            unplaced += usize::from(inside());
            continue;
        };
        let (marked, until) = match marks.get(i + 1) {
            Some(next) => (next.0, device.begins.get(i + 1).copied().flatten()),
            None if last.is_none() => (end.min(valid.end), Some(last_op.max(begin))),
            None => (end, device.end),
        };
        let whole = until.map(|until| Span::new(begin, until));
        // a range that ended before the GPU was no longer observed, with all of its work
        let alone = Some(Span::new(begin, end.min(until.unwrap_or(end)))).filter(|_| until.is_some());
        let span = [whole, alone].into_iter().flatten().find(seen);
        unplaced += usize::from(until.is_none() && inside());
        let host = Span::new(start, marked);
        steps.extend(span.map(|span| Step { host, ..step(span, number) }));
    }
    let open = marks.last().filter(|_| last.is_none());
    if let Some((end, others)) = steps.split_last().filter(|(s, _)| open.is_some_and(|o| o.0 == s.host.start))
    {
        let mut times: Vec<u64> = others.iter().map(|s| s.span.ns()).collect();
        let usual = crate::stats::median(&mut times) as f64;
        if !times.is_empty() && !OPEN_STEP.contains(&(end.span.ns() as f64 / usual.max(1.0))) {
            steps.pop();
        }
    }
    if run.foreign {
        few::end_with_the_work(run, &mut steps);
    }
    Some((steps, unplaced))
}

// SPDX-License-Identifier: Apache-2.0
//! The steps of a run: the program's marks, else its named ranges, else a period in the sequence of
//! launches.
//!
//! `marks.rs` reads marks and ranges, `behind.rs` says when they begin on the GPU, `sequence.rs`
//! makes the sequence of launches, `period.rs` finds the period in it, `cut.rs` cuts it into steps,
//! `parts.rs` doubts them, `drains.rs` takes the stretches between synchronizes where the period is
//! but a tile. `few.rs`: other tools' traces of no more than two steps; `once.rs`: steps in which
//! something happened once. Here: the choice between them, warm-up, step times. Not here: what a
//! step's time was spent on.

pub mod behind;
mod cut;
mod drains;
mod few;
pub mod marks;
pub(crate) mod once;
mod parts;
pub mod period;
pub mod sequence;
mod step;

pub use step::{LongSteps, Parts, Step, StepSource, Steps};

use trace::Loss;

use crate::run::{Op, Run, Span};
use crate::stats::median;
use crate::timeline::kernels::KernelTable;
use crate::timeline::Observed;

/// A leading step that takes longer than this many medians of the later half is warm-up.
pub const WARM_UP_MEDIANS: f64 = 1.5;
/// Leading slow steps up to this many, or a quarter of the run, can be warm-up.
const MOST_WARM_UP: usize = 3;
/// One of the first steps that takes this many times the longest of all later ones happened once,
/// before it all went steadily: the run waited for other ranks, compiled, or was held up (H200: the
/// third of 158 steps stood for nine seconds at a gate, and 92 % of the run's time was HOST). What
/// comes again is no warm-up: a later step is about as long.
const ONCE: u64 = 10;
/// Steps looked at for that.
const FIRST: usize = 10;
/// Fewer steps than this are no steps.
pub const MIN_STEPS: usize = 3;

/// Finds the steps inside the valid span. What lies in an unobserved span, or reaches into one, is
/// no step.
pub fn find(run: &Run, kernels: &KernelTable, valid: Span) -> Steps {
    let observed = Observed::new(valid, &run.blind);
    let last_op = last_op_end(run).clamp(valid.start, valid.end);
    let mut steps = Steps { micro: 1, ..Steps::default() };
    let by_period = || period::find(run, kernels, &observed.parts(valid).collect::<Vec<_>>());
    if let Some(found) = marks::from_marks(run, &observed, valid, last_op, MIN_STEPS) {
        steps.source = StepSource::Marks;
        (steps.steps, steps.unplaced) = found;
    } else if let Some(found) =
        whole_ranges(run).then(|| marks::from_ranges(run, &observed, valid, last_op, MIN_STEPS)).flatten()
    {
        steps.source = StepSource::Ranges;
        (steps.steps, steps.unplaced) = found;
    } else if let Some((source, found)) = few::find(run, &observed, valid, last_op) {
        steps.source = source;
        (steps.steps, steps.unplaced) = found;
        steps.parts = by_period().and_then(|found| few::parts(&found.steps));
    } else if let Some(found) = by_period() {
        steps.source = StepSource::Period;
        steps.steps = found.steps;
        end_as_others_do(run, &observed, valid, &mut steps.steps);
        for (s, number) in steps.steps.iter_mut().zip(0..) {
            s.number = number;
            s.host = s.span;
        }
        (steps.micro, steps.may_be_parts) = (found.micro, found.may_be_parts);
    }
    let least = if run.foreign && steps.source != StepSource::Period { 1 } else { MIN_STEPS };
    if steps.steps.len() < least {
        return Steps { micro: 1, ..Steps::default() };
    }
    // of one or two steps nobody can say
    if !steps.are_few() {
        leave_warm_up_out(&mut steps);
        once::take_out(&mut steps);
    }
    measure(&mut steps);
    match run.foreign {
        true => few::stand_for_the_whole(run, valid, steps),
        false => steps,
    }
}

/// Ranges some of which were dropped tell no steps: one whose begin is missing makes two steps one.
fn whole_ranges(run: &Run) -> bool {
    run.header.loss(Loss::RangeDropped) == 0
}

/// A step of a period ends where the next one begins, the last one before an unobserved span with
/// its last op: without the host's time behind it, which the others have. It ends as they do, as
/// far as that was observed and nothing else runs. (What the host would have done behind the last
/// step of the run, nobody knows.)
fn end_as_others_do(run: &Run, observed: &Observed, valid: Span, steps: &mut [Step]) {
    let parts: Vec<Span> = observed.parts(valid).collect();
    let part_of = |s: &Step| parts.partition_point(|p| p.end <= s.span.start);
    let next = |i: usize, steps: &[Step]| steps.get(i + 1).map(part_of);
    let is_last = |i: usize, s: &Step, steps: &[Step]| next(i, steps).is_some_and(|part| part != part_of(s));
    let inner = steps.iter().enumerate().filter(|(i, s)| next(*i, steps) == Some(part_of(s)));
    let mut times: Vec<u64> = inner.map(|(_, s)| s.span.ns()).collect();
    // where each is the last one, as far as was observed
    let usual = if times.is_empty() { u64::MAX } else { median(&mut times) };
    for i in 0..steps.len() {
        let Some(s) = steps.get(i).filter(|s| is_last(i, s, steps)).copied() else { continue };
        let seen = parts.get(part_of(&s)).map_or(0, |p| p.end);
        let streams = run.devices.iter().flat_map(|d| &d.streams);
        let behind = |ops: &[Op]| ops.get(ops.partition_point(|o| o.start < s.span.end)).map(|o| o.start);
        let other = streams.filter_map(|s| behind(&s.ops)).min().unwrap_or(u64::MAX);
        let until = s.span.start.saturating_add(usual).min(seen).min(other);
        if let Some(step) = steps.get_mut(i) {
            step.span.end = step.span.end.max(until);
        }
    }
}

fn last_op_end(run: &Run) -> u64 {
    let streams = run.devices.iter().flat_map(|d| &d.streams);
    streams.flat_map(|s| s.ops.iter().map(|o| o.end)).max().unwrap_or(0)
}

fn leave_warm_up_out(steps: &mut Steps) {
    let times: Vec<u64> = steps.steps.iter().map(|s| s.span.ns()).collect();
    steps.warm_up = warm_up(&times);
    for s in steps.steps.iter_mut().take(steps.warm_up) {
        s.warm_up = true;
        steps.warm_up_ns += s.span.ns();
    }
}

/// How many of the first of these step times are warm-up: those far above the later half, if they
/// are few. Many are a phase of the run, and count (a host that is slow for half of it); then so
/// far as they are far above the later half of the phase.
fn warm_up(times: &[u64]) -> usize {
    slow_in_front(times).max(held_up(times))
}

/// Up to and with the last of the first steps that was held up once.
fn held_up(times: &[u64]) -> usize {
    let first = FIRST.min(times.len() / 4);
    let is_once = |at: &usize| {
        let later = times.get(at + 1..).and_then(|l| l.iter().max()).copied().unwrap_or(u64::MAX);
        times.get(*at).is_some_and(|ns| *ns > later.saturating_mul(ONCE))
    };
    (0..first).rev().find(is_once).map_or(0, |at| at + 1)
}

fn slow_in_front(times: &[u64]) -> usize {
    let n = times.len();
    let Some(later) = times.get(n / 2..).filter(|later| !later.is_empty()) else { return 0 };
    let limit = median(&mut later.to_vec()) as f64 * WARM_UP_MEDIANS;
    let slow = times.iter().take_while(|ns| **ns as f64 > limit).count();
    match slow <= (n / 4).max(MOST_WARM_UP).min(n / 2) {
        true => slow,
        // never the whole of it: `slow` is less than what it is counted of
        false => times.get(..slow).map_or(0, slow_in_front),
    }
}

fn measure(steps: &mut Steps) {
    let mut times: Vec<u64> = steps.steady().iter().map(|s| s.span.ns()).collect();
    if times.is_empty() {
        return;
    }
    steps.steady_ns = times.iter().sum();
    let mean = steps.steady_ns as f64 / times.len() as f64;
    let p90 = {
        let at = (times.len() * 9 / 10).min(times.len() - 1);
        *times.select_nth_unstable(at).1
    };
    let middle = median(&mut times);
    steps.mean_ns = mean;
    steps.median_ns = middle;
    steps.p90_ns = p90;
}

/// A step of the given span; the other fields are filled in later.
pub fn step(span: Span, number: u32) -> Step {
    Step { span, host: span, number, warm_up: false, odd: false }
}

#[cfg(test)]
mod tests {
    use super::{median, warm_up};

    /// Step times of this many steps each.
    fn phases(of: &[(usize, u64)]) -> Vec<u64> {
        of.iter().flat_map(|&(count, ns)| std::iter::repeat_n(ns, count)).collect()
    }

    #[test]
    fn few_slow_steps_in_front_are_warm_up_and_many_are_a_phase() {
        assert_eq!(warm_up(&phases(&[(3, 90), (9, 10)])), 3);
        assert_eq!(warm_up(&phases(&[(12, 10)])), 0);
        assert_eq!(warm_up(&phases(&[(20, 27), (28, 17)])), 0);
    }

    #[test]
    fn what_is_slow_within_a_slow_phase_is_warm_up() {
        // seen on an H200: the first steps held the setting up, the next twenty a slower host
        assert_eq!(warm_up(&phases(&[(1, 11_898), (1, 260), (20, 27), (28, 17)])), 2);
        assert_eq!(warm_up(&phases(&[(1, 11_898), (2, 27), (9, 10)])), 3);
    }

    #[test]
    fn what_held_the_run_up_once_before_it_went_steadily_is_warm_up() {
        assert_eq!(warm_up(&phases(&[(2, 5), (1, 9120), (155, 5)])), 3);
        assert_eq!(warm_up(&phases(&[(2, 5), (1, 90), (20, 5), (1, 90), (130, 5)])), 0, "it comes again");
        assert_eq!(warm_up(&phases(&[(60, 5), (1, 9120), (95, 5)])), 0, "in the middle of the run");
        assert_eq!(warm_up(&phases(&[(2, 5), (1, 9120), (3, 5)])), 0, "too few to say what is steady");
    }

    #[test]
    fn steps_of_no_length_harm_nothing() {
        assert_eq!(warm_up(&[]), 0);
        assert_eq!(warm_up(&[0, 0, 0]), 0);
        assert_eq!(warm_up(&[5, 0, 0, 0]), 1);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        for (values, expected) in [
            (&[][..], 0),
            (&[7], 7),
            (&[9, 1], 5),
            (&[3, 1, 2], 2),
            (&[8, 1, 4, 2], 3),
            (&[8, 1, 5, 2], 4),
            (&[u64::MAX, u64::MAX], u64::MAX),
        ] {
            assert_eq!(median(&mut values.to_vec()), expected, "{values:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! What recording costs a step, measured: steps before CUPTI was switched off for the first time
//! against those behind it, in one process, by the step clock, which needs no CUPTI. Where no steps
//! are known: the time from launch to launch.

use std::collections::VecDeque;

use trace::Total;

use super::step_clock;

/// So many blocks of either side are held against each other, of a look each (a quarter of a
/// second), or of a step where that takes longer.
const BLOCKS: usize = 20;
/// Fewer tell nothing.
const LEAST: usize = 6;
/// The first stretch has so many blocks of steps whose times are known.
const ENOUGH: usize = 12;
/// Looks while nothing is recorded, a minute of them: what has too few launches to be measured is
/// not waited for any longer.
const MOST_LOOKS: usize = 240;
/// Step times of now against those that were measured: beyond this, either way, the program does
/// something else by now.
const ELSE: f64 = 1.5;
/// Steps behind the switch that are left out: what was launched before it is still being recorded.
const LEFT_OUT: u64 = 3;
/// A block of launches has so many at least.
const LAUNCHES: u64 = 50;

/// How much longer a step takes while everything is recorded, as a share of a step that is not: the
/// mean, and the half of its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Longer {
    pub(super) mean: f64,
    pub(super) half: f64,
}

impl Longer {
    /// The upper end, 0 or more.
    pub(super) fn most(&self) -> f64 {
        (self.mean + self.half).max(0.0)
    }

    /// Steps were not faster while they were recorded: that would be the program's own change.
    fn is_sound(&self) -> bool {
        self.mean + self.half >= 0.0
    }

    /// Of two sets of blocks: the ratio of their means, and its error from those of both (Welch),
    /// with Student's t for the smaller of them.
    fn of(on: &Blocks, off: &Blocks) -> Option<Longer> {
        let ((a, a_error), (b, b_error)) = (on.mean()?, off.mean()?);
        let ratio = a / b;
        let error = ratio * ((a_error / a).powi(2) + (b_error / b).powi(2)).sqrt();
        let half = student(on.values.len().min(off.values.len()) - 1) * error;
        (ratio.is_finite() && half.is_finite()).then_some(Longer { mean: ratio - 1.0, half })
    }
}

/// The 97.5th percentile of Student's t, within 1 % from 5 degrees of freedom on (its expansion in
/// 1/n).
fn student(freedom: usize) -> f64 {
    let n = freedom.max(1) as f64;
    1.96 + 2.37 / n + 2.8 / n.powi(2) + 2.5 / n.powi(3)
}

/// Times of a step (or from launch to launch), ns: one a block, the latest ones.
#[derive(Default)]
struct Blocks {
    values: VecDeque<f64>,
}

impl Blocks {
    fn push(&mut self, value: f64, keeps_latest: bool) {
        if self.values.len() == BLOCKS {
            if !keeps_latest {
                return;
            }
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Mean and standard error, the longest tenth left out, one at least: pauses, which either side
    /// may have. `None`: too few.
    ///
    /// (The error of a trimmed mean: from the values with the longest that is kept in place of
    /// those left out, Tukey and McLaughlin 1963.)
    fn mean(&self) -> Option<(f64, f64)> {
        if self.values.len() < LEAST {
            return None;
        }
        let mut values: Vec<f64> = self.values.iter().copied().collect();
        values.sort_unstable_by(f64::total_cmp);
        let all = values.len() as f64;
        values.truncate(values.len() - (values.len() / 10).max(1));
        let kept = values.len() as f64;
        let mean = values.iter().sum::<f64>() / kept;
        let longest = values.last().copied().unwrap_or(mean);
        let instead = all - kept;
        let middle = (mean * kept + longest * instead) / all;
        let squares =
            values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() + instead * (longest - middle).powi(2);
        let error = (squares / (all - 1.0) / all).sqrt() * all / kept;
        Some((mean, error * self.clumping(middle, longest)))
    }

    /// A host's slow moments last for several blocks: so many times larger is the error of a mean
    /// of blocks that are like their neighbours (that of a first-order autoregression, from the
    /// blocks' own correlation).
    fn clumping(&self, middle: f64, longest: f64) -> f64 {
        const MAX_CORRELATION: f64 = 0.8;
        let off: Vec<f64> = self.values.iter().map(|v| v.min(longest) - middle).collect();
        let beside: f64 = off.iter().zip(off.iter().skip(1)).map(|(a, b)| a * b).sum();
        let all: f64 = off.iter().map(|v| v * v).sum();
        let alike = if all > 0.0 { (beside / all).clamp(0.0, MAX_CORRELATION) } else { 0.0 };
        ((1.0 + alike) / (1.0 - alike)).sqrt()
    }
}

/// One way to tell time: blocks of before the switch, and of after it.
#[derive(Default)]
struct Sides {
    on: Blocks,
    off: Blocks,
}

impl Sides {
    fn push(&mut self, value: f64, is_on: bool) {
        match is_on {
            true => self.on.push(value, true),
            false => self.off.push(value, false),
        }
    }

    /// As many blocks are behind the switch as before it, and enough.
    fn is_done(&self) -> bool {
        self.off.values.len() >= self.on.values.len().max(ENOUGH)
    }

    fn has(&self, blocks: usize) -> bool {
        self.on.values.len().min(self.off.values.len()) >= blocks
    }
}

/// The measurement: of the first time that CUPTI is switched off, and of no later one, behind which
/// more of CUPTI stays.
#[derive(Default)]
pub(super) struct Measured {
    steps: Sides,
    launches: Sides,
    /// The next step whose time is not looked at yet.
    next_step: u64,
    /// How often it was changed what a step is.
    changes: u64,
    /// Launches at the last look, and when that was; `None`: CUPTI was switched since.
    last: Option<(u64, u64)>,
    /// Steps whose time is known, while everything was recorded.
    recorded_steps: u64,
    is_begun: bool,
    is_over: bool,
    /// Looks while nothing was recorded.
    looks_off: usize,
    /// What a step took (or launches, one to the next: `false`) while everything was recorded, ns.
    then: Option<(bool, f64)>,
    /// Looks in a row in which steps took another time than those that were measured.
    others: usize,
    longer: Option<Longer>,
}

impl Measured {
    /// The steps since the last look, in which everything was recorded, or nothing was; `None`:
    /// CUPTI was switched meanwhile.
    pub(super) fn look(&mut self, now: u64, recorded: Option<bool>) {
        let step = step_clock::steps();
        let changes = step_clock::changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.next_step = step + 1;
            if !self.is_over {
                (self.steps, self.recorded_steps) = (Sides::default(), 0);
            }
        }
        let times = step_clock::times(self.next_step, step + 1);
        let launches = step_clock::launches();
        let (before, since) = self.last.replace((launches, now)).unwrap_or((launches, now));
        let (made, took) = (launches.saturating_sub(before), now.saturating_sub(since));
        let apart = (made >= LAUNCHES).then(|| took as f64 / made as f64);
        self.next_step = self.next_step.max(step + 1);
        if self.is_over {
            let by_steps = self.then.is_some_and(|then| then.0);
            self.compare(if by_steps { usual(times) } else { apart });
            return;
        }
        let Some(is_on) = recorded else { return };
        if is_on {
            self.recorded_steps += times.len() as u64;
        }
        if let Some(usual) = usual(times) {
            self.steps.push(usual, is_on);
        }
        if let Some(apart) = apart {
            self.launches.push(apart, is_on);
        }
        if !is_on {
            self.looks_off += 1;
            let sides = self.sides();
            self.longer = Longer::of(&sides.on, &sides.off).filter(Longer::is_sound);
        }
    }

    #[cfg(test)]
    pub(super) fn known(longer: Longer) -> Measured {
        Measured { longer: Some(longer), is_over: true, ..Measured::default() }
    }

    #[cfg(test)]
    pub(super) fn knows_steps(&mut self) {
        self.recorded_steps = 1;
    }

    /// What was measured is of steps as they were then: where they take another time for as long as
    /// it took to measure them, it says nothing any more.
    fn compare(&mut self, now: Option<f64>) {
        let (Some(now), Some((_, then))) = (now, self.then) else { return };
        self.others = if now > then * ELSE || now < then / ELSE { self.others + 1 } else { 0 };
        if self.others >= BLOCKS {
            self.longer = None;
        }
    }

    /// CUPTI is off at this step.
    pub(super) fn switched_off(&mut self, step: u64) {
        (self.next_step, self.last, self.is_begun) = (step + LEFT_OUT, None, true);
    }

    /// It is on again: what follows is no part of the measurement.
    pub(super) fn switched_on(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.then = self.sides().on.mean().map(|(mean, _)| (self.is_by_steps(), mean));
        }
    }

    /// Steps of which it is known how long they took while everything was recorded.
    pub(super) fn recorded_steps(&self) -> u64 {
        self.recorded_steps
    }

    /// Are there enough blocks of them to measure by?
    pub(super) fn has_enough(&self) -> bool {
        self.steps.on.values.len() >= ENOUGH
    }

    /// CUPTI was switched off once.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Nothing will be known better than now.
    pub(super) fn is_done(&self) -> bool {
        self.is_over || self.sides().is_done() || self.looks_off >= MOST_LOOKS
    }

    /// By steps where enough of them are known on both sides; else by launches, which are known
    /// from the start.
    fn is_by_steps(&self) -> bool {
        self.steps.has(LEAST) || !self.launches.has(LEAST)
    }

    fn sides(&self) -> &Sides {
        match self.is_by_steps() {
            true => &self.steps,
            false => &self.launches,
        }
    }

    /// What was measured so far, `None`: nothing yet.
    pub(super) fn longer(&self) -> Option<Longer> {
        self.longer
    }

    /// Counters for the header, millionths: the mean and both ends of the interval, none below 0.
    pub(super) fn totals(&self) -> [(Total, u64); 3] {
        let millionths = |share: f64| (share.max(0.0) * 1e6).round() as u64;
        let [mean, least, most] = self.longer().map_or([0; 3], |l| {
            // (an upper end of 0 means that nothing was measured)
            [millionths(l.mean), millionths(l.mean - l.half), millionths(l.mean + l.half).max(1)]
        });
        [(Total::LongerPpm, mean), (Total::LongerLeastPpm, least), (Total::LongerMostPpm, most)]
    }
}

/// The usual one: the middle one, or the mean where they are so uneven that the middle one says
/// nothing (launches that run ahead, and a wait for all of them now and then; a step that is
/// counted in parts, of which one has the wait). The longest hundredth is left out: pauses.
pub(super) fn usual(mut values: Vec<u64>) -> Option<f64> {
    const UNEVEN: f64 = 2.0;
    values.sort_unstable();
    values.truncate(values.len() - values.len() / 100);
    let middle = *values.get(values.len() / 2)? as f64;
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
    Some(if mean > UNEVEN * middle { mean } else { middle })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(on: impl Iterator<Item = f64>, off: impl Iterator<Item = f64>) -> Sides {
        let mut sides = Sides::default();
        on.for_each(|value| sides.push(value, true));
        off.for_each(|value| sides.push(value, false));
        sides
    }

    fn longer(sides: &Sides) -> Longer {
        Longer::of(&sides.on, &sides.off).expect("enough blocks")
    }

    /// Values around 1, none alike.
    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        (0..).scan(seed, |state, _| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some(0.95 + (*state >> 40) as f64 / (1_u64 << 24) as f64 / 10.0)
        })
    }

    #[test]
    fn the_interval_holds_what_is_true_nineteen_times_of_twenty() {
        let holds = (0..1000).filter(|&n| {
            let on = noise(n).take(20).map(|v| v * 12e6);
            let found = longer(&sides(on, noise(n + 5000).take(20).map(|v| v * 10e6)));
            assert!((0.1..0.3).contains(&found.mean) && found.half < 0.05, "{found:?}");
            (found.mean - 0.2).abs() <= found.half
        });
        let holds = holds.count();
        assert!((940..=990).contains(&holds), "{holds} of 1,000");
    }

    #[test]
    fn slow_moments_that_last_make_the_interval_wider() {
        let clumped = |seed| noise(seed).take(5).flat_map(|v| std::iter::repeat_n(v * 10e6, 4));
        let apart = longer(&sides(noise(1).take(20).map(|v| v * 10e6), noise(2).take(20).map(|v| v * 10e6)));
        let together = longer(&sides(clumped(1), clumped(2)));
        assert!(together.half > 1.5 * apart.half, "{together:?} {apart:?}");
    }

    #[test]
    fn a_pause_is_neither_sides_cost_and_too_few_blocks_say_nothing() {
        let mut paused: Vec<f64> = noise(1).take(20).map(|v| v * 10e6).collect();
        paused[7] = 900e6;
        let found = longer(&sides(paused.into_iter(), noise(2).take(20).map(|v| v * 10e6)));
        assert!(found.mean.abs() < 0.05 && found.half < 0.05, "{found:?}");
        let few = sides(noise(1).take(20), noise(2).take(LEAST - 1));
        assert!(Longer::of(&few.on, &few.off).is_none() && !few.is_done());
        let faster = longer(&sides(noise(1).take(20), noise(2).take(20).map(|v| v * 1.4)));
        assert!(!faster.is_sound(), "{faster:?}: no recorder makes steps shorter");
    }

    #[test]
    fn what_was_measured_is_of_the_steps_that_were_measured() {
        let mut measured =
            Measured { then: Some((true, 1.0)), ..Measured::known(Longer { mean: 0.0, half: 0.01 }) };
        for _ in 0..BLOCKS - 1 {
            measured.compare(Some(0.2));
        }
        measured.compare(Some(1.1));
        measured.compare(Some(0.2));
        assert!(measured.longer().is_some(), "an evaluation, and steps again");
        (0..BLOCKS).for_each(|_| measured.compare(Some(0.2)));
        assert_eq!(measured.longer(), None, "the program does something else");
    }

    #[test]
    fn the_latest_blocks_before_the_switch_count_and_the_first_ones_behind_it() {
        let warm = std::iter::repeat_n(99.0, 50).chain(std::iter::repeat_n(2.0, BLOCKS));
        let mut sides = sides(warm, std::iter::repeat_n(1.0, BLOCKS));
        assert!(sides.is_done());
        sides.push(50.0, false);
        assert_eq!(longer(&sides), Longer { mean: 1.0, half: 0.0 });
    }

    #[test]
    fn students_t_is_as_the_tables_say() {
        for (freedom, t) in [(5, 2.571), (10, 2.228), (19, 2.093), (30, 2.042)] {
            assert!((student(freedom) / t - 1.0).abs() < 0.01, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn steps_that_are_counted_in_parts_take_as_long_as_they_do_on_the_whole() {
        assert_eq!(usual(vec![]), None);
        assert_eq!(usual(vec![7]), Some(7.0));
        assert_eq!(usual(vec![10, 11, 12, 13, 30]), Some(12.0), "one that took longer");
        // four parts that launch, and one that waits
        let parts = [20, 20, 20, 20, 2600].repeat(100);
        assert_eq!(usual(parts).map(f64::round), Some(515.0));
        // a pause of ten minutes among steps of 10 ms
        let mut paused = vec![10; 4000];
        paused[17] = 600_000;
        assert_eq!(usual(paused), Some(10.0));
    }
}

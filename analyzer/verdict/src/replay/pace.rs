// SPDX-License-Identifier: Apache-2.0
//! Waits that end when something outside the program says so: a batch from another process, an
//! actor's answer, a loop held to so many steps a second. Who comes to such a wait earlier waits
//! longer, and no fix but one of the wait itself wins anything.
//!
//! Looked at: in each step the longest time `w` that the host spends between two calls. The times
//! of the steps tell more than samples can, of which a short step has none: with `b` the time since
//! the wait before ended, `w` goes with `b` by a slope of -1 where the end is given from outside
//! (`w` is what `b` leaves of the interval), and of 0 where the host works or sleeps so long
//! whatever came before. Steps are compared whose `w` before are alike: a synchronize behind a
//! stretch of work is shorter by as much as that is longer, and successive stretches are alike.
//! Where `b` is too much the same in all steps to tell, samples decide: a thread that mostly stands
//! waiting for others there is taken to be paced by them, for a fix that wins too little in the
//! replay accuses nobody.

use super::prepare::{Prepared, Role};
use crate::gaps::HostView;
use crate::run::{Run, Span};
use crate::stats::median_of;
use crate::timeline::Observed;

/// Fewer steps tell nothing.
const LEAST_STEPS: usize = 16;
/// A wait shorter than this share of the interval is nobody's pace.
const LEAST_SHARE: f64 = 0.05;
/// Between a slope of -1 and one of 0.
const HALF: f64 = -0.5;
/// From this share of steep slopes on the end is given from outside; by noise alone half of them
/// are steep. (A thousand steps each, paced by sockets, pipes and timers on the simulated driver:
/// 0.7 to 0.96, and 0.3 to 0.6 where the steps were too much alike.)
const CLEAR: f64 = 0.7;
/// Up to this share it is not, whatever samples say.
const FREE: f64 = 0.15;
/// Of so many pairs at least, whose `b` differ by this share of the interval.
const LEAST_PAIRS: u32 = 100;
const LEAST_DIFFERENCE: f64 = 0.01;
/// Steps looked at, the latest.
const MOST_STEPS: usize = 500;
/// Steps whose wait, or whose rest, is this many times the usual one or its part are of another
/// time of the run: a prefetched reserve runs out, a stall.
const UNUSUAL: f64 = 2.0;

/// The longest stretch of host time in a step.
struct Longest {
    item: usize,
    think: u64,
    /// When it ended.
    end: u64,
    /// Since the one before of those that are looked at, ns; 0 of the first.
    interval: u64,
}

impl Prepared {
    /// Gives waits that end by themselves their pace: no sooner than so long after the one before.
    pub(super) fn take_paces(&mut self, run: &Run, host: &HostView) {
        if self.items.iter().any(|i| i.pace.is_some()) {
            return; // workers' batches, told by their ranges
        }
        let waits = self.longest_of_steps(run);
        let steep = steep(&waits);
        self.ends_from_outside = steep.is_some_and(|s| s >= CLEAR);
        let is_paced =
            self.ends_from_outside || (steep.is_none_or(|s| s > FREE) && self.wait_for_others(&waits, host));
        for wait in waits.iter().filter(|_| is_paced) {
            if let Some(item) = self.items.get_mut(wait.item) {
                item.pace = Some(wait.interval);
            }
        }
    }

    /// Of each whole step, where it is a wait worth the name.
    fn longest_of_steps(&self, run: &Run) -> Vec<Longest> {
        let mut all: Vec<Longest> = Vec::new();
        let mut open: Option<Longest> = None;
        let mut begun = false;
        for (n, item) in self.items.iter().enumerate() {
            // what comes before a step's first launch is this step's
            if item.first_of_step && begun {
                all.extend(open.take());
            }
            begun |= item.first_of_step;
            let counts = begun && item.chain == 0 && !item.overlaps;
            if counts && open.as_ref().is_none_or(|l| item.think > l.think) {
                let end = run.call(item.call).map_or(0, |(_, c)| c.start);
                open = Some(Longest { item: n, think: item.think, end, interval: 0 });
            }
        }
        let observed = Observed::of(run);
        measure(&mut all, &observed);
        let usual = usual_of(all.iter().map(|l| l.interval as f64));
        all.retain(|l| l.think as f64 >= LEAST_SHARE * usual);
        // steps that did not wait had theirs in reserve, and bring the next no sooner
        measure(&mut all, &observed);
        all
    }

    /// Does the host stand waiting for others in most of them?
    fn wait_for_others(&self, waits: &[Longest], host: &HostView) -> bool {
        let stands = |wait: &&Longest| {
            let behind = self.items.iter().skip(wait.item);
            let launch = behind.filter(|i| i.chain == 0).find(|i| i.role == Role::Launch);
            launch.is_some_and(|i| host.waits_for_others(i.call))
        };
        waits.len() >= LEAST_STEPS && waits.iter().filter(stands).count() * 2 > waits.len()
    }
}

/// Intervals between the ends of these.
fn measure(waits: &mut [Longest], observed: &Observed) {
    let mut before = None;
    for wait in waits {
        let since = before.replace(wait.end).unwrap_or(wait.end);
        wait.interval = observed.measure(Span::new(since, wait.end));
    }
}

/// Does what comes before a wait shorten it by as much? The share of steep slopes among those
/// between all pairs of steps (after Theil and Sen: some of the steps may be of another kind) whose
/// `b` differ, and by more than their waits before; `None` where there are too few.
fn steep(waits: &[Longest]) -> Option<f64> {
    let row = |pair: &[Longest]| match pair {
        [before, this] => {
            let b = this.interval.saturating_sub(this.think);
            Some([this.think, b, before.think].map(|ns| ns as f64))
        }
        _ => None,
    };
    let mut rows: Vec<[f64; 3]> = waits.windows(2).rev().filter_map(row).take(MOST_STEPS).collect();
    for column in 0..3 {
        let usual = usual_of(rows.iter().filter_map(|r| r.get(column)).copied());
        let is_usual =
            |r: &[f64; 3]| r.get(column).is_some_and(|v| *v <= usual * UNUSUAL && *v >= usual / UNUSUAL);
        rows.retain(is_usual);
    }
    let least = LEAST_DIFFERENCE * usual_of(rows.iter().map(|[w, b, _]| w + b));
    let (mut steep, mut all) = (0u32, 0u32);
    for (n, &[w, b, p]) in rows.iter().enumerate() {
        for &[w2, b2, p2] in rows.iter().skip(n + 1) {
            let (by, before) = (b2 - b, p2 - p);
            if by.abs() >= least.max(2.0 * before.abs()) {
                all += 1;
                steep += u32::from((w2 - w) / by < HALF);
            }
        }
    }
    (all >= LEAST_PAIRS).then(|| f64::from(steep) / f64::from(all))
}

fn usual_of(values: impl Iterator<Item = f64>) -> f64 {
    median_of(&mut values.collect::<Vec<f64>>()).unwrap_or(0.0)
}

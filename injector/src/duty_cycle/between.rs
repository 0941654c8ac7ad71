// SPDX-License-Identifier: Apache-2.0
// WARM
//! What is known of the time between windows: steps, launches and the time in synchronizing calls,
//! counted without records. Run-wide for the header, and as readings of about a second each for the
//! trace.

use trace::event::{Event, Gauge, Kind};
use trace::Total;

use super::{step_clock, sync_clock};
use crate::store::Store;

/// A reading is of so long at least, ns.
const READING: u64 = 1_000_000_000;

/// What was counted until a moment.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) at: u64,
    pub(super) launches: u64,
    pub(super) steps: u64,
    pub(super) syncs: u64,
    pub(super) sync_ns: u64,
    /// What tells a step is known.
    pub(super) has_steps: bool,
}

impl Counts {
    pub(super) fn now(at: u64) -> Counts {
        Counts {
            at,
            launches: step_clock::launches(),
            steps: step_clock::steps(),
            syncs: sync_clock::calls(),
            sync_ns: sync_clock::ns(at),
            has_steps: step_clock::source() != step_clock::Source::None,
        }
    }

    /// What came since `before`. (Steps begin anew where another anchor is found.)
    pub(super) fn since(&self, before: &Counts) -> Counts {
        Counts {
            at: self.at.saturating_sub(before.at),
            launches: self.launches.saturating_sub(before.launches),
            steps: self.steps.saturating_sub(before.steps),
            syncs: self.syncs.saturating_sub(before.syncs),
            sync_ns: self.sync_ns.saturating_sub(before.sync_ns),
            has_steps: self.has_steps && before.has_steps,
        }
    }
}

/// The account of the time between windows.
#[derive(Default)]
pub(super) struct Between {
    counted: Counts,
    /// Launches when the latest window ended, or what told a step until then was none any more.
    begun: u64,
    /// The reading under way began here.
    reading: Counts,
    all: Counts,
}

impl Between {
    /// A window ended `now`.
    pub(super) fn begin(&mut self, now: u64) {
        self.begin_at(Counts::now(now));
    }

    fn begin_at(&mut self, counts: Counts) {
        (self.counted, self.reading, self.begun) = (counts, counts, counts.launches);
    }

    /// Counts up to `now`. At the `end` the reading under way is stored, however short.
    pub(super) fn count(&mut self, now: u64, end: bool, store: &mut Store) {
        let since = self.add(Counts::now(now));
        if since.at >= READING || end && since.at > 0 {
            readings(self.reading.at, now, &since, store);
            self.reading = self.counted;
        }
    }

    /// Adds what was counted until then; what came since the reading under way began.
    fn add(&mut self, mut counts: Counts) -> Counts {
        // (a call that ended between two looks may have been in the sum twice)
        counts.sync_ns = counts.sync_ns.max(self.counted.sync_ns);
        let mut new = counts.since(&self.counted);
        if !counts.has_steps && self.counted.has_steps {
            self.begun = counts.launches; // what told a step is none any more: its steps are counted
        }
        if counts.has_steps && !self.counted.has_steps {
            // what tells a step was learnt meanwhile, and its steps are of all the run: those of
            // before this stretch by their part of the launches
            let before =
                u128::from(counts.steps) * u128::from(self.begun) / u128::from(counts.launches.max(1));
            new.steps = counts.steps.saturating_sub(u64::try_from(before).unwrap_or(u64::MAX));
        }
        self.all.launches += new.launches;
        self.all.steps += new.steps;
        self.all.syncs += new.syncs;
        self.all.sync_ns += new.sync_ns;
        self.counted = counts;
        counts.since(&self.reading)
    }

    /// Launches between windows so far.
    pub(super) fn launches(&self) -> u64 {
        self.all.launches
    }

    /// Counters for the header.
    pub(super) fn totals(&self) -> [(Total, u64); 4] {
        [
            (Total::LaunchesBetween, self.all.launches),
            (Total::StepsBetween, self.all.steps),
            (Total::SyncsBetween, self.all.syncs),
            (Total::SyncBetweenNs, self.all.sync_ns),
        ]
    }
}

fn readings(from: u64, to: u64, counts: &Counts, store: &mut Store) {
    let mean = counts.at.checked_div(counts.steps).filter(|_| counts.has_steps);
    let values = [
        (Gauge::StepNs, mean),
        (Gauge::Launches, Some(counts.launches)),
        (Gauge::SyncNs, Some(counts.sync_ns)),
    ];
    for (gauge, value) in values {
        let Some(value) = value else { continue };
        let mut e = Event::new(Kind::Gauge, from, to);
        (e.a, e.b, e.c) = (gauge as u32, value as u32, (value >> 32) as u32);
        store.add_recorder(&e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(launches: u64, steps: u64, has_steps: bool) -> Counts {
        Counts { at: launches * 1000, launches, steps, has_steps, ..Counts::default() }
    }

    #[test]
    fn steps_are_counted_from_the_windows_end_on() {
        let mut b = Between::default();
        b.begin_at(counts(2_600, 26, true));
        b.add(counts(10_000, 100, true));
        b.begin_at(counts(11_000, 110, true));
        b.add(counts(20_000, 200, true));
        assert_eq!((b.all.steps, b.all.launches), (74 + 90, 7_400 + 9_000));
    }

    /// H200, 5218761: a budget closed the first window at step 26, the clock found its steps behind
    /// it, and all 460 were said to lie between.
    #[test]
    fn a_clock_that_finds_its_steps_between_windows_has_those_of_the_window_among_them() {
        let mut b = Between::default();
        b.begin_at(counts(2_600, 0, false));
        b.add(counts(5_000, 0, false));
        let since = b.add(counts(10_000, 100, true));
        assert!(!since.has_steps, "no mean of a stretch in which steps became known");
        assert_eq!(b.all.steps, 74);
        b.add(counts(46_000, 460, true));
        assert_eq!(b.all.steps, 434);
    }

    #[test]
    fn steps_of_one_clock_are_not_counted_again_by_the_next() {
        let mut b = Between::default();
        b.begin_at(counts(20_000, 200, true));
        b.add(counts(100_000, 1_000, true));
        b.add(counts(160_000, 1_000, false)); // an evaluation, and its anchor is dropped
        b.add(counts(190_000, 0, false));
        b.add(counts(210_000, 7_000, true)); // another one, of 30 launches, numbers all of the run
        assert_eq!(b.all.steps, 800 + 50_000 / 30 + 1);
        b.add(counts(240_000, 8_000, true));
        assert_eq!(b.all.steps, 1_800 + 50_000 / 30 + 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! What is known of the time between windows: steps, launches and the time in synchronizing calls, counted without records. Run-wide
//! for the header, and as readings of about a second each for the trace.

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
}

impl Counts {
    pub(super) fn now(at: u64) -> Counts {
        Counts {
            at,
            launches: step_clock::launches(),
            steps: step_clock::steps(),
            syncs: sync_clock::calls(),
            sync_ns: sync_clock::ns(at),
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
        }
    }
}

/// The account of the time between windows.
#[derive(Default)]
pub(super) struct Between {
    counted: Counts,
    /// The reading under way began here.
    reading: Counts,
    all: Counts,
}

impl Between {
    /// A window ended `now`.
    pub(super) fn begin(&mut self, now: u64) {
        self.counted = Counts::now(now);
        self.reading = self.counted;
    }

    /// Counts up to `now`. At the `end` the reading under way is stored, however short.
    pub(super) fn count(&mut self, now: u64, end: bool, store: &mut Store) {
        let mut counts = Counts::now(now);
        // (a call that ended between two looks may have been in the sum twice)
        counts.sync_ns = counts.sync_ns.max(self.counted.sync_ns);
        let new = counts.since(&self.counted);
        self.all.launches += new.launches;
        self.all.steps += new.steps;
        self.all.syncs += new.syncs;
        self.all.sync_ns += new.sync_ns;
        self.counted = counts;
        let since = counts.since(&self.reading);
        if since.at >= READING || end && since.at > 0 {
            readings(self.reading.at, now, &since, store);
            self.reading = counts;
        }
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
    let mean = counts.at.checked_div(counts.steps);
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

// SPDX-License-Identifier: Apache-2.0
// WARM
//! Looks at the counted steps, launches and waits once in a while: how long steps take, whether
//! they became slow or stopped, and what the program is in meanwhile. For the header (`gapprobe
//! top`), and for the alarm.

use trace::Total;

use super::alarm::{Alarm, Reason};
use super::between::Counts;
use super::orders::{self, Open};
use super::{step_clock, sync_clock};

/// Time in synchronizing calls a step is a mean over so long at least, ns.
const MEAN_OVER: u64 = 1_000_000_000;

/// See above.
pub(super) struct Watch {
    pub(super) alarm: Alarm,
    /// The sum of all that is counted when it changed last, and when that was seen.
    activity: u64,
    active_at: u64,
    /// The mean under way began here.
    mean_since: Counts,
    sync_step_ns: u64,
    step_ns: u64,
    in_sync: Option<sync_clock::UnderWay>,
}

impl Watch {
    pub(super) fn new(slow_step: f64) -> Watch {
        Watch {
            alarm: Alarm::new(slow_step),
            activity: 0,
            active_at: 0,
            mean_since: Counts::default(),
            sync_step_ns: 0,
            step_ns: 0,
            in_sync: None,
        }
    }

    /// One look. `recorded`: launches that were recorded, of whatever way.
    pub(super) fn look(&mut self, now: u64, step_ns: u64, recorded: u64) {
        let counts = Counts::now(now);
        let activity = counts.launches + counts.steps + counts.syncs + recorded;
        if activity != self.activity || self.active_at == 0 {
            (self.activity, self.active_at) = (activity, now);
        }
        let since = counts.since(&self.mean_since);
        if self.mean_since.at == 0 || counts.steps < self.mean_since.steps {
            self.mean_since = counts;
        } else if since.at >= MEAN_OVER && since.steps > 0 {
            self.sync_step_ns = since.sync_ns / since.steps;
            self.mean_since = counts;
        }
        self.step_ns = step_ns;
        self.in_sync = sync_clock::longest(now);
    }

    /// How long a step takes, ns; 0: not known.
    pub(super) fn usual_step(&self) -> u64 {
        self.step_ns
    }

    /// Is there a reason for an alarm, now, and which? The flight recorder is told.
    pub(super) fn alarm(&mut self, now: u64, has_steps: bool, unobserved: Option<Open>) -> Option<Reason> {
        let reason = self.alarm.rings(now, has_steps, self.active_at)?;
        orders::ask(now, reason, self.in_sync, unobserved);
        Some(reason)
    }

    /// State for the header.
    pub(super) fn totals(&self) -> [(Total, u64); 7] {
        let in_sync = self.in_sync;
        [
            (Total::ClockStepNs, self.step_ns),
            (Total::ClockSyncNs, self.sync_step_ns),
            (Total::LastStepAt, step_clock::last_step_at()),
            (Total::LastActivityAt, self.active_at),
            (Total::InSyncSince, in_sync.map_or(0, |c| c.since)),
            (Total::InSyncCall, in_sync.map_or(0, |c| u64::from(c.call))),
            (Total::Flights, orders::written()),
        ]
    }
}

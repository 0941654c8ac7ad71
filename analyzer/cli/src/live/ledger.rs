// SPDX-License-Identifier: Apache-2.0
//! What many looks at a process add up to: GPU time by cause, and its steps. Each look counts the
//! recorded time from where the one before ended, so that the sums only grow, and the difference of
//! any two is what was recorded between them.
//!
//! A look ends with the last GPU operation, since only the next one tells whose the time behind it
//! is.

use std::collections::BTreeMap;

use trace::define::gpu_uuid;
use trace::{Header, Recording, Source, Total};
use verdict::analysis::{Bucket, Buckets};
use verdict::analyze::{tally, Tally};
use verdict::load::{load_window, Window};
use verdict::run::complete_to::complete_to;
use verdict::run::{Device, LoadError, Run, Span};
use verdict::steps::marks::used_share;

use super::run_name::run_name;
use super::{MARGIN, MOST_EVENTS};

/// Time without a GPU operation that is counted before one has come, ns: a hang shows.
const HOLD: u64 = 10_000_000_000;

/// Loaded before what is counted, ns, where it has no more than [`MOST_EVENTS`]: steps are found by
/// their like, three of them at least.
const BEFORE: u64 = 60_000_000_000;

/// Upper ends of the histogram of step times, seconds.
pub const STEP_BOUNDS: [f64; 31] = [
    0.0005, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1,
    0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 60.0,
];

/// Step times that were recorded.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepTimes {
    /// How many are at most as long as each of [`STEP_BOUNDS`], and longer than the one before; the
    /// last: longer than all.
    pub counts: [u64; STEP_BOUNDS.len() + 1],
    /// Sum, ns.
    pub ns: u64,
}

impl StepTimes {
    fn add(&mut self, ns: u64) {
        let at = STEP_BOUNDS.partition_point(|bound| *bound < ns as f64 / 1e9);
        if let Some(n) = self.counts.get_mut(at) {
            *n += 1;
        }
        self.ns = self.ns.saturating_add(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The sums of one device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceTime {
    /// Its UUID, as NVML writes it; "": not known.
    pub uuid: String,
    /// Its name; "": not known.
    pub name: String,
    /// Where its time went. All of it is what was observed.
    pub buckets: Buckets,
    /// Operations in it.
    pub ops: u64,
}

impl DeviceTime {
    fn busy(&self) -> u64 {
        self.buckets.total() - self.buckets.idle()
    }
}

/// The sums of one process.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ledger {
    /// Counted up to here, CLOCK_MONOTONIC ns; 0: not looked at yet.
    to: u64,
    /// What the processes of a run have in common, on all nodes and over restarts as far as that is
    /// known (`run_name.rs`).
    pub run: String,
    /// From where it counts, ns since 1970.
    pub since: u64,
    /// By ordinal.
    pub devices: BTreeMap<u32, DeviceTime>,
    /// Recorded steps.
    pub step_times: StepTimes,
    /// Steps of the run, recorded or not, as far as they were counted.
    pub steps: u64,
    /// [`counters`] at the last look.
    counted: Option<[u64; 2]>,
    /// Recorded steps at the last look.
    found: u64,
    /// Of the marks those that name steps, where some were recorded.
    marks_share: Option<f64>,
    /// Parts of a step that were counted and are not in `steps` yet.
    rest: f64,
}

impl Ledger {
    /// Of a process that is counted from what is complete now: nothing before it is.
    pub fn from_now(header: &Header) -> Ledger {
        Ledger { to: complete_to(header).max(1), counted: Some(counters(header)), ..Ledger::default() }
    }

    /// Counts what is complete since the last look; the first one, of a default ledger, what the
    /// recording still holds. `clock_unit`: [`verdict::analysis::Coverage::clock_unit`].
    ///
    /// # Errors
    /// As [`verdict::load()`]: the next look counts it.
    pub fn advance<S: Source + ?Sized>(
        &mut self,
        source: &S,
        header: &Header,
        clock_unit: f64,
    ) -> Result<(), LoadError> {
        let end = complete_to(header);
        let recording = Recording::open(source)?;
        if self.since == 0 {
            let h = &recording.header;
            self.to = self.to.max(h.first_use).max(h.start_monotonic).max(h.valid_from);
            self.since = h.start_realtime.saturating_add(self.to.saturating_sub(h.start_monotonic)).max(1);
            self.run = run_name(h, &recording.definitions);
        }
        while self.to < end {
            let run = load_window(source, &self.next(&recording, end))?;
            if run.problems.busy_segments > 0 {
                break; // a part is being written: it is there at the next look
            }
            self.marks_share = Some(used_share(&run));
            if !self.take(run, end) {
                break;
            }
        }
        self.count_steps(header, clock_unit);
        Ok(())
    }

    /// What is loaded next: as much of the time up to `end` as has no more events than a look
    /// takes, and so much before it.
    fn next(&self, recording: &Recording, end: u64) -> Window {
        let bound = |before: u64, to: u64| {
            recording.event_bound_within(self.to.saturating_sub(before), to) > MOST_EVENTS
        };
        let mut ns = end - self.to;
        while ns > MARGIN && bound(MARGIN, self.to + ns) {
            ns /= 2;
        }
        let mut before = BEFORE;
        while before > MARGIN && bound(before, self.to + ns) {
            before /= 2;
        }
        let valid = Span::new(self.to.saturating_sub(before), self.to + ns);
        Window { valid, margin: MARGIN, most: u64::MAX }
    }

    /// Adds a loaded part up to its last operation. `false`: nothing more can be counted yet.
    fn take(&mut self, mut run: Run, end: u64) -> bool {
        let loaded = complete_to(&run.header);
        let from = self.to.max(run.header.valid_from);
        self.add_idle_devices(&mut run);
        let last = |d: &Device| {
            let ends = d.streams.iter().flat_map(|s| &s.ops).map(|o| o.end);
            ends.filter(|end| *end <= loaded).max().unwrap_or(0)
        };
        let settled = run.devices.iter().map(last).min().unwrap_or(0).max(loaded.saturating_sub(HOLD));
        let to = match settled > from {
            true => settled,
            false if loaded < end => loaded,
            false => return false,
        };
        let Tally { devices, steps } = tally(&run, Span::new(from, to));
        for (device, (buckets, ops)) in run.devices.iter().zip(&devices) {
            let sums = self.devices.entry(device.ordinal).or_insert_with(|| {
                let text = |text: Option<&str>| text.unwrap_or("").to_owned();
                let uuid = text(run.definitions.attribute(&gpu_uuid(device.ordinal)));
                DeviceTime {
                    uuid,
                    name: text(run.definitions.string(device.info.name)),
                    ..DeviceTime::default()
                }
            });
            Bucket::ALL.into_iter().for_each(|b| sums.buckets.add(b, buckets.get(b)));
            sums.ops += ops;
        }
        steps.into_iter().for_each(|ns| self.step_times.add(ns));
        self.to = to;
        loaded < end
    }

    /// The devices that work: those that did a tenth of what the busiest one did. What does less
    /// was used in passing, and its idle time is no one's loss ([`verdict::analysis::working`]).
    pub fn working(&self) -> impl Iterator<Item = (u32, &DeviceTime)> {
        let most = |of: fn(&DeviceTime) -> u64| self.devices.values().map(of).max().unwrap_or(0);
        let (ops, busy) = (most(|d| d.ops), most(DeviceTime::busy));
        let tenth = |part: u64, of: u64| part > 0 && part.saturating_mul(10) >= of;
        let works = move |d: &DeviceTime| tenth(d.ops, ops) || tenth(d.busy(), busy);
        self.devices.iter().filter(move |(_, d)| works(d)).map(|(ordinal, d)| (*ordinal, d))
    }

    /// Devices that did nothing in this part are idle in it.
    fn add_idle_devices(&self, run: &mut Run) {
        for &ordinal in self.devices.keys() {
            if run.devices.iter().all(|d| d.ordinal != ordinal) {
                run.devices.push(Device { ordinal, ..Device::default() });
            }
        }
        run.devices.sort_by_key(|d| d.ordinal);
    }

    /// By the program's marks, else by those that were counted without records, else by those that
    /// were found in the records. `unit`: steps for each that was counted without records.
    fn count_steps(&mut self, header: &Header, unit: f64) {
        let [marks, clock] = counters(header);
        let found = self.step_times.count();
        let [marks_before, clock_before] = self.counted.unwrap_or_default();
        // what was learnt on the way has not counted what came before
        let is_counted = clock_before > 0 || (self.counted.is_none() && clock > found);
        let new = match (marks, is_counted) {
            (1.., _) => marks.saturating_sub(marks_before) as f64 * self.marks_share.unwrap_or(1.0),
            (0, true) => clock.saturating_sub(clock_before) as f64 * unit,
            (0, false) => found.saturating_sub(self.found) as f64,
        };
        let sum = self.rest + new.max(0.0);
        self.steps = self.steps.saturating_add(sum as u64);
        self.rest = sum.fract();
        (self.counted, self.found) = (Some([marks, clock]), found);
    }
}

/// Run-wide counters of steps: marks, and those counted without records.
fn counters(header: &Header) -> [u64; 2] {
    [header.total(Total::Steps), header.total(Total::ClockSteps)]
}

// SPDX-License-Identifier: Apache-2.0
//! The newest seconds of a recording whose process runs, in figures: what `gapprobe top` and
//! `gapprobe metrics` show.
//!
//! Bounded in time and memory whatever the recording's length: of segments outside the last seconds
//! only the header is read (64 bytes of 32 KiB), and of what is inside at most so many events, the
//! newest ([`MOST_EVENTS`]). What it rests on is said ([`Figures::seen_ns`]).

pub mod counted;
pub mod ledger;
pub mod lines;
mod run_name;

use trace::define::{ENDED, WINDOWS};
use trace::header::state;
use trace::{Header, Loss, Recording, Source, Total};
use verdict::analysis::{share, working, Analysis, Buckets, Counters, StepSource};
use verdict::load::{load_window, Window};
use verdict::run::{LoadError, Run, Span};

use self::counted::{Between, Counted};
pub use verdict::run::complete_to::{complete_to, unobserved_to};

/// Events looked at: 20 steps of 5,000 launches. Load and analysis of them take about 0.1 s and 30
/// MB (`tests/live.rs` measures a recording of 256 MB).
pub const MOST_EVENTS: u64 = 200_000;

/// Loaded before the seconds that count, ns: calls that launched their first operations.
const MARGIN: u64 = 20_000_000;

/// Behind the header's own time by more than this: recording is off, or the disk takes nothing, ns.
/// Both times are written at the same moment while it is on.
const BEHIND: u64 = 1_000_000;

/// A header older than this is not being written, ns: it is, every 50 ms, while the process runs.
const STALE: u64 = 5_000_000_000;

/// How a recording stands whose process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordingState {
    /// It grows.
    On,
    /// Between two windows, or the program has switched recording off, or another profiler holds
    /// the GPU's records.
    Off,
    /// Nothing more is recorded of this process: never by the header ([`has_ended`]).
    Ended,
    /// Nobody has written to it for seconds: its disk hangs, or the process gets no time.
    Stalled,
    /// The process is stopped, by a signal or a debugger: never by the header, whoever sees the
    /// process says so.
    Stopped,
    /// It could not be written (disk full, quota); recording goes on in memory.
    DiskFull,
    /// The process has begun to end.
    Ending,
}

impl RecordingState {
    /// One word.
    pub const fn word(self) -> &'static str {
        match self {
            RecordingState::On => "on",
            RecordingState::Off => "off",
            RecordingState::Ended => "ended",
            RecordingState::Stalled => "stalled",
            RecordingState::Stopped => "stopped",
            RecordingState::DiskFull => "disk-full",
            RecordingState::Ending => "ending",
        }
    }

    /// By the header, `now` being CLOCK_MONOTONIC, ns.
    pub fn of(header: &Header, now: u64) -> RecordingState {
        if header.state != state::RECORDING {
            return RecordingState::Ending;
        }
        // before its first round it has no time of its own
        if now.saturating_sub(header.last_write.max(header.start_monotonic)) > STALE {
            return RecordingState::Stalled;
        }
        if header.last_write.saturating_sub(header.host_complete_to) <= BEHIND {
            return RecordingState::On;
        }
        match header.loss(Loss::MirrorWrite) {
            0 => RecordingState::Off,
            _ => RecordingState::DiskFull,
        }
    }
}

/// Has recording ended for good, though the process goes on? The recording's definitions tell,
/// where other words on its windows may stand before.
pub fn has_ended<S: Source + ?Sized>(source: &S) -> bool {
    Recording::open(source).is_ok_and(|r| r.definitions.attributes().any(|a| a == (WINDOWS, ENDED)))
}

/// Up to when everything is known, ns since 1970; `None`: nothing is yet.
pub fn last_recorded(header: &Header) -> Option<u64> {
    let since_begin = complete_to(header).checked_sub(header.start_monotonic)?;
    Some(header.start_realtime.saturating_add(since_begin))
}

/// Loads the last `ns` of what is complete.
///
/// # Errors
/// As [`verdict::load()`].
pub fn load_tail<S: Source + ?Sized>(
    source: &S,
    header: &Header,
    ns: u64,
    most: u64,
) -> Result<Run, LoadError> {
    let end = complete_to(header);
    let valid = Span::new(end.saturating_sub(ns), end);
    load_window(source, &Window { valid, margin: MARGIN, most })
}

/// One device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceFigures {
    /// Ordinal in the process.
    pub ordinal: u32,
    /// Share of the time that counts in which anything ran, 0 to 1.
    pub busy: f64,
    /// Where that time went; all zero where there was none.
    pub buckets: Buckets,
    /// How well its units were used, by its own counters.
    pub counters: Option<Counters>,
}

/// What is shown of a process.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What they rest on, ns: observed time of the last seconds.
    pub seen_ns: u64,
    /// Whole steps in it.
    pub steps: u64,
    /// Median step, ns; `None`: no steps were found.
    pub step_ns: Option<u64>,
    /// 90th percentile of the steps, ns.
    pub p90_ns: Option<u64>,
    /// Those that work, worst first.
    pub devices: Vec<DeviceFigures>,
    /// The verdict's code and name.
    pub verdict: (&'static str, &'static str),
    /// Share of the time lost to it, 0 to 1; `None` where nothing is accused.
    pub lost: Option<f64>,
    /// Why there is no verdict.
    pub inconclusive: Option<String>,
    /// Line of the program that the verdict names.
    pub site: Option<String>,
    /// What recording costs.
    pub cost: verdict::analysis::Cost,
    /// Steps as found for each that was counted without records
    /// ([`verdict::analysis::Coverage::clock_unit`]).
    pub clock_unit: f64,
    /// CPU time of the recorder's own threads, share of one CPU over the whole run.
    pub own_cpu: f64,
    /// The job's name.
    pub job: String,
    /// For which lines of the program the GPU worked ([`lines::lines`]); `None`: not asked for, or
    /// none was recorded.
    pub lines: Option<Vec<lines::Line>>,
}

impl Figures {
    /// Of a loaded tail.
    pub fn new(run: &Run) -> Figures {
        let a = verdict::analyze(run);
        let h = &run.header;
        let steps = &a.steps;
        let has_steps = steps.source != StepSource::None && !steps.steady().is_empty();
        let v = &a.verdict;
        let own = h.total(Total::DrainCpuNs).saturating_add(h.total(Total::SamplerCpuNs));
        Figures {
            seen_ns: a.coverage.seen_ns,
            steps: if has_steps { steps.steps.len() as u64 } else { 0 },
            step_ns: has_steps.then_some(steps.median_ns),
            p90_ns: has_steps.then_some(steps.p90_ns),
            devices: devices(&a),
            verdict: (v.code, v.cause),
            lost: (v.share > 0.0).then_some(v.share),
            inconclusive: v.why_inconclusive(),
            site: v.site.as_ref().map(|s| format!("{}:{}", s.path, s.line)),
            cost: a.cost,
            clock_unit: a.coverage.clock_unit,
            own_cpu: share(own, a.coverage.run_ns),
            job: job(run).to_owned(),
            lines: None,
        }
    }

    /// What was counted without records, in steps as the records show them. How long these take is
    /// not known where what was counted are parts of them.
    pub fn in_its_units(&self, counted: Counted) -> Counted {
        if !(self.clock_unit.is_finite() && self.clock_unit > 0.0) {
            return counted;
        }
        let longer = |ns: u64| (ns as f64 / self.clock_unit).round() as u64;
        let fewer = |steps: u64| (steps as f64 * self.clock_unit).round() as u64;
        Counted {
            step_ns: counted.step_ns.filter(|_| self.clock_unit >= 1.0).map(longer),
            sync_ns: longer(counted.sync_ns),
            between: counted.between.map(|b| Between { steps: fewer(b.steps), ..b }),
            ..counted
        }
    }
}

/// Host memory that CUPTI keeps of this process's launches at most, bytes
/// ([`trace::total::kept_bytes`]).
pub fn cupti_kept_bytes(header: &Header) -> u64 {
    verdict::causes::memory::kept_so_far(header)
}

/// The job's name as the recorder found it, "" where it is not known.
pub fn job(run: &Run) -> &str {
    run.definitions.attribute(trace::define::JOB).unwrap_or("")
}

fn devices(a: &Analysis) -> Vec<DeviceFigures> {
    let worst = a.worst.and_then(|w| a.devices.get(w)).map(|d| d.ordinal);
    let mut all: Vec<DeviceFigures> = working(&a.devices)
        .map(|(_, d)| DeviceFigures {
            ordinal: d.ordinal,
            busy: d.busy_share(),
            buckets: d.buckets,
            counters: d.counters,
        })
        .collect();
    all.sort_by_key(|d| (Some(d.ordinal) != worst, d.ordinal));
    all
}

#[cfg(test)]
mod tests {
    use trace::define::UNSEEN;

    use super::*;

    #[test]
    fn how_a_recording_stands_is_told_by_its_header() {
        let s = 1_000_000_000;
        let on = Header {
            state: state::RECORDING,
            last_write: 9 * s,
            host_complete_to: 9 * s,
            ..Header::default()
        };
        let off = Header { host_complete_to: 7 * s, ..on.clone() };
        let mut full = off.clone();
        full.losses[Loss::MirrorWrite as usize] = 3;
        let standing = |h: &Header| RecordingState::of(h, 10 * s);
        assert_eq!(
            [&on, &off, &full].map(standing),
            [RecordingState::On, RecordingState::Off, RecordingState::DiskFull]
        );
        let first = Header { start_monotonic: 9 * s, last_write: 0, host_complete_to: 0, ..on.clone() };
        assert_eq!(standing(&first), RecordingState::On, "nothing is known yet");
        assert_eq!(standing(&Header { last_write: 2 * s, ..on.clone() }), RecordingState::Stalled);
        assert_eq!(standing(&Header { state: state::CLOSED, ..on.clone() }), RecordingState::Ending);
        assert_eq!(complete_to(&Header { gpu_complete_to: 8 * s, ..on.clone() }), 8 * s);
        assert_eq!(complete_to(&Header { gpu_complete_to: 8 * s, ..off }), 7 * s);
    }

    #[test]
    fn the_last_recorded_moment_is_told_by_the_clock_on_the_wall() {
        let begun = Header { start_monotonic: 100, start_realtime: 1_000_000, ..Header::default() };
        assert_eq!(last_recorded(&begun), None, "nothing is complete");
        let off = Header { gpu_complete_to: 190, host_complete_to: 150, ..begun };
        assert_eq!(last_recorded(&off), Some(1_000_050));
    }

    #[test]
    fn recording_has_ended_for_good_where_the_definitions_say_so() {
        for (windows, wanted) in
            [(&[][..], false), (&["20 of 1000 steps"], false), (&[ENDED], true), (&[UNSEEN, ENDED], true)]
        {
            let mut b = trace::build::Builder::new();
            windows.iter().for_each(|text| b.attribute(WINDOWS, text));
            assert_eq!(has_ended(b.finish().as_slice()), wanted, "{windows:?}");
        }
    }
}

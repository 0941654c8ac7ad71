// SPDX-License-Identifier: Apache-2.0
//! What the analysis found: the types the reports are written from.
//!
//! Here: types only, and their small accessors; of what was seen (`facts.rs`), of what is wrong
//! (`verdict.rs`), of what a fix wins (`win.rs`); those of steps, buckets and the replay come from
//! their rooms. How they are computed: `steps/`, `timeline/`, `gaps/`, `replay/`, `causes/`, put
//! together in `analyze/`. All times are ns of the recorded CLOCK_MONOTONIC.

mod counters;
mod facts;
pub mod idle_stacks;
pub mod peaks;
mod verdict;
mod win;

use trace::Loss;

use crate::gaps::dispatching::Dispatched;
use crate::gaps::pauses::Pauses;
use crate::gaps::sample_index::HostActivity;
use crate::run::{Span, UnobservedSpan};
use crate::sites::Site;
use crate::timeline::Observed;

pub use crate::gaps::SmallKernels;
pub use crate::replay::Model;
pub use crate::stats::share;
pub use crate::steps::{LongSteps, Parts, Step, StepSource, Steps};
pub use crate::timeline::buckets::{Bucket, Buckets, IdleSlice};
pub use counters::Counters;
pub use facts::{Fact, Facts, Figure, Often};
pub use verdict::{Advice, Confidence, Finding, Tied, Unlike, Verdict};
pub use win::{Bound, Promise, Win};

/// One device's figures.
#[derive(Clone, Debug, Default)]
pub struct DeviceAnalysis {
    /// Ordinal, as in `Run.devices` at the same index.
    pub ordinal: u32,
    /// First op's start to last op's end, inside the valid span (steady or not).
    pub span: Span,
    /// Time in `span` with at least one op running, ns: plain union of intervals.
    pub busy_ns: u64,
    /// `span` less `busy_ns`.
    pub idle_ns: u64,
    /// Gaps in `span`.
    pub gaps: u64,
    /// Longest gap in `span`, ns.
    pub max_gap_ns: u64,
    /// What the buckets sum to: the time of [`Analysis::counts`], ns.
    pub wall_ns: u64,
    /// Buckets of the steady span.
    pub buckets: Buckets,
    /// Why idle, over the whole valid span (steady or not), by start.
    pub slices: Vec<IdleSlice>,
    /// What the launching threads did in the HOST time of the steady span, by samples.
    pub host: HostActivity,
    /// The same of INPUT.
    pub input: HostActivity,
    /// Time of the steady span that they spent in front of launches with fetching data, hidden by
    /// the device's work or not, ns.
    pub fetched_ns: u64,
    /// Where they stood in its LAUNCH time, by samples.
    pub launch: Dispatched,
    /// Late launching calls (flat numbers, sorted), and the stack id that samples in front of each
    /// show.
    pub stood: Vec<(u32, u32)>,
    /// Small kernels in the steady span.
    pub small: SmallKernels,
    /// How well its units were used in the steady span, by its own counters.
    pub counters: Option<Counters>,
    /// Ops in the steady span.
    pub ops: u64,
    /// Kernels in the steady span.
    pub kernels: u64,
    /// Ops that start before their launch call (clock error), in the valid span.
    pub start_before_launch: u64,
    /// By how much at most, ns.
    pub most_before_launch_ns: u64,
    /// Ops whose launch call is known, of those that were looked at for that.
    pub launched: u64,
}

/// The devices that work, with their indices: those with a tenth of the operations of the busiest
/// one, or with a tenth of its busy time (a few long kernels are work too). What does less was used
/// in passing: its idle time is no one's loss.
pub fn working(devices: &[DeviceAnalysis]) -> impl Iterator<Item = (usize, &DeviceAnalysis)> {
    let most = devices.iter().map(|d| d.ops).max().unwrap_or(0);
    let longest = devices.iter().map(DeviceAnalysis::steady_busy_ns).max().unwrap_or(0);
    let tenth = |part: u64, of: u64| part > 0 && part.saturating_mul(10) >= of;
    devices.iter().enumerate().filter(move |(_, d)| tenth(d.ops, most) || tenth(d.steady_busy_ns(), longest))
}

/// The devices that did something, and too little to be judged by their idle time.
pub fn passing(devices: &[DeviceAnalysis]) -> impl Iterator<Item = &DeviceAnalysis> {
    let judged: Vec<u32> = working(devices).map(|(_, d)| d.ordinal).collect();
    devices.iter().filter(move |d| d.ops > 0 && !judged.contains(&d.ordinal))
}

impl DeviceAnalysis {
    /// Where the launching thread stood in idle time of HOST or INPUT, by samples: a stack id, 0
    /// where there is none.
    pub fn stack_of(&self, slice: &IdleSlice) -> u32 {
        if !matches!(slice.bucket, Bucket::Host | Bucket::Input) {
            return 0;
        }
        let at = self.stood.binary_search_by_key(&slice.call, |s| s.0);
        at.ok().and_then(|i| self.stood.get(i)).map_or(0, |s| s.1)
    }

    /// Steady wall time with anything running, ns.
    pub fn steady_busy_ns(&self) -> u64 {
        self.buckets.total() - self.buckets.idle()
    }

    /// Share of the whole (from its first to its last operation) in which nothing runs, 0 to 1.
    pub fn whole_idle_share(&self) -> f64 {
        share(self.idle_ns, self.span.ns())
    }

    /// What counts is under half of the whole, and most of the rest is idle.
    pub fn is_mostly_outside(&self) -> bool {
        let rest = self.span.ns().saturating_sub(self.wall_ns);
        let idle = self.idle_ns.saturating_sub(self.buckets.idle());
        self.wall_ns < rest && rest < idle.saturating_mul(2)
    }

    /// Share of the steady wall time with anything running, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        share(self.buckets.total() - self.buckets.idle(), self.buckets.total())
    }
}

/// A run without the profiler that recorded it, as far as can be said: the end of the range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profiled {
    /// The cause that would be named.
    pub cause: &'static str,
    /// Step time (without steps: the steady wall time), ns.
    pub step_ns: f64,
    /// Share of it with anything running on the GPU, 0 to 1.
    pub busy: f64,
}

/// Something that happened once or twice: a first load, a checkpoint, the model moved in the end.
#[derive(Clone, Debug)]
pub struct Once {
    /// The step in which it happened, or the time before all steps, or behind them.
    pub span: Span,
    /// How much longer than a usual step that is, ns.
    pub ns: u64,
    /// Where in the run.
    pub place: OncePlace,
    /// What most of it was, as the track of the trace shows it.
    pub bucket: Bucket,
    /// The line, where one is known.
    pub site: Option<Site>,
}

/// Where in the run something happened once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OncePlace {
    /// Before the first step.
    Before,
    /// In this step.
    In(u32),
    /// After the last step.
    After,
}

/// How much of the run the recording shows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Coverage {
    /// Valid span less unobserved spans, ns. Where no flush says that anything is whole
    /// ([`crate::run::Run::unproven`]): up to the last operation.
    pub seen_ns: u64,
    /// First GPU use to the last thing known of the program, ns.
    pub run_ns: u64,
    /// Of another tool's trace: from its first event to the first GPU operation or step, ns: in no
    /// figure.
    pub front_ns: u64,
    /// Steps in the valid span.
    pub steps_seen: u64,
    /// Steps of the whole run where the recorder counted them (marks, its clock of steps), else the
    /// same as `steps_seen`.
    pub steps_run: u64,
    /// `steps_run` is estimated: from the run-wide count of launches, or from a count of another
    /// unit (`clock_unit`).
    pub steps_estimated: bool,
    /// How many steps there were in unobserved spans nobody counted: the run has more than
    /// `steps_run`.
    pub steps_unknown: bool,
    /// Steps as found for each that was counted between windows: 1 but where the two are of
    /// different units.
    pub clock_unit: f64,
    /// The rings were lapped: the beginning is gone, by design.
    pub overwritten: bool,
    /// The recording is of a process that never reached our exit handler: a signal, `_exit`, exec.
    /// Which, it cannot tell.
    pub killed: bool,
    /// The end of the run is not in it: [`Coverage::killed`], or its last records were not waited
    /// for (`GAPPROBE_EXIT_MS`). How many steps there were behind what was seen is not known.
    pub cut: bool,
    /// The signal that ended it, where somebody saw it (`gapprobe run` of its own command).
    pub signal: Option<i32>,
}

/// What recording cost the run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Callbacks and buffer handlers on the program's threads (sampled, scaled), ns.
    pub callback_ns: u64,
    /// Launches times the assumed cost of one kernel record inside CUPTI, ns.
    pub cupti_ns: u64,
    /// The share of the run that was lost to recording, 0 to 1: as measured ([`Cost::measured`]),
    /// else what the replay takes for likely ([`crate::replay::RECORDER_SLOWS`]). What a CUPTI that
    /// is attached takes by itself is not in it.
    pub share: f64,
    /// Both ends of its 95 % interval; of the model's range where nothing was measured.
    pub least: f64,
    /// See [`Cost::least`].
    pub most: f64,
    /// By the process itself, when it switched recording off for the first time.
    pub measured: bool,
    /// The share of the run that CUPTI took between windows at most, by being attached: launches
    /// and nodes of graphs times what each is known to take ([`trace::total::left_behind_ns`]).
    /// Where the GPU is the limit it is hidden.
    pub attached_most: f64,
    /// Host memory that CUPTI keeps of the run's launches at most, bytes
    /// ([`trace::total::kept_bytes`]).
    pub kept_bytes: u64,
}

impl Analysis {
    /// What is replayed: steps between which nothing happened once, from the first of them to the
    /// last.
    pub fn undisturbed(&self) -> (&[Step], Span) {
        let steps = self.steps.undisturbed();
        let span = match (self.steps.once.is_empty(), steps.first(), steps.last()) {
            (false, Some(first), Some(last)) => Span::new(first.span.start, last.span.end).clip(self.valid),
            _ => self.steady,
        };
        (steps, span)
    }

    /// Share of the recorded (valid, observed) time that the steps that count are, 0 to 1; `None`
    /// without steps.
    pub fn steady_share(&self) -> Option<f64> {
        let steps = self.steps.steady_ns;
        (steps > 0).then(|| share(steps, self.coverage.seen_ns.max(steps)))
    }
}

/// Everything found in a run.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// From where to where the recording can be believed.
    pub valid: Span,
    /// Unobserved spans inside it, merged, by start.
    pub blind: Vec<UnobservedSpan>,
    /// Steps.
    pub steps: Steps,
    /// From where to where the part of the valid span reaches that counts (warm-up left out).
    pub steady: Span,
    /// What counts of it: the steps, less unobserved spans; without steps all that was observed.
    /// Every figure but those of the whole recording is of this time.
    pub counts: Observed,
    /// Same index as `Run.devices`.
    pub devices: Vec<DeviceAnalysis>,
    /// Index of the device the line is about.
    pub worst: Option<usize>,
    /// All causes with evidence, best win first.
    pub findings: Vec<Finding>,
    /// The answer.
    pub verdict: Verdict,
    /// The replay's own error.
    pub model: Model,
    /// Every loss counter above zero.
    pub losses: Vec<(Loss, u64)>,
    /// Kernels of another tool's trace that were launched and are not in it (`missing_kernels.rs`);
    /// 0 of our own recordings, which have counters.
    pub unanswered: u64,
    /// Items of severity `Data` lost inside the valid span.
    pub data_losses: u64,
    /// Events inside the valid span.
    pub events: u64,
    /// What happened once or twice, by time: in no share of the verdict, and no cost of each step.
    pub once: Vec<Once>,
    /// Pauses between windows.
    pub pauses: Option<Pauses>,
    /// What was seen of the run.
    pub coverage: Coverage,
    /// What recording cost.
    pub cost: Cost,
    /// The steps that were recorded are not like those of the whole run.
    pub unlike: Option<Unlike>,
}

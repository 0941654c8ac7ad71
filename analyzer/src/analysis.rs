// SPDX-License-Identifier: Apache-2.0
//! What the analysis found: the types the reports are written from.
//!
//! Here: types only, and their small accessors. How they are computed: `steps/`, `timeline.rs`, `gaps/`, `replay/`,
//! `causes/`, put together in `analyze.rs`. All times are ns of the recorded CLOCK_MONOTONIC.

use trace::Loss;

use crate::gaps::dispatching::Dispatched;
use crate::gaps::standing::Stood;
use crate::run::{Blind, Span, NONE};
use crate::sites::Site;
use crate::timeline::Observed;

/// Where a nanosecond of a device's wall time goes. The order is the order of the stored numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Bucket {
    /// A kernel that computes (or a memset) runs.
    Compute = 0,
    /// Only copies run.
    Copy = 1,
    /// Only collectives (with or without copies) run.
    Comm = 2,
    /// Gap: a blocking call had drained the queue.
    Sync = 3,
    /// Gap: the host was on its way from launch to launch.
    Launch = 4,
    /// Gap: the device's own spacing between queued ops.
    KernelGap = 5,
    /// Gap: queued work waited for an event, a stream, a copy or a collective.
    DeviceWait = 6,
    /// Gap: the host was busy with something else between launches.
    Host = 7,
    /// Gap: a blocking pageable copy held the host.
    CopyWait = 8,
    /// Gap: an allocating or freeing call held the host.
    Alloc = 9,
    /// Gap of no known cause.
    Unexplained = 10,
    /// Gap: the launching thread was fetching data.
    Input = 11,
}

impl Bucket {
    /// How many there are.
    pub const COUNT: usize = 12;
    /// All, by number.
    pub const ALL: [Bucket; Bucket::COUNT] = [
        Bucket::Compute,
        Bucket::Copy,
        Bucket::Comm,
        Bucket::Sync,
        Bucket::Launch,
        Bucket::KernelGap,
        Bucket::DeviceWait,
        Bucket::Host,
        Bucket::CopyWait,
        Bucket::Alloc,
        Bucket::Unexplained,
        Bucket::Input,
    ];

    /// Stable machine-readable name.
    pub const fn key(self) -> &'static str {
        match self {
            Bucket::Compute => "compute",
            Bucket::Copy => "copy_only",
            Bucket::Comm => "collective_only",
            Bucket::Sync => "sync",
            Bucket::Launch => "launch",
            Bucket::KernelGap => "kernel_gap",
            Bucket::DeviceWait => "device_wait",
            Bucket::Host => "host",
            Bucket::CopyWait => "copy_wait",
            Bucket::Alloc => "alloc",
            Bucket::Unexplained => "unexplained",
            Bucket::Input => "input",
        }
    }

    /// Name for people, upper case as in the line.
    pub const fn label(self) -> &'static str {
        match self {
            Bucket::Compute => "COMPUTE",
            Bucket::Copy => "COPY",
            Bucket::CopyWait => "COPY-WAIT",
            Bucket::Comm => "COMM",
            Bucket::Sync => "SYNC",
            Bucket::Launch => "LAUNCH",
            Bucket::KernelGap => "KERNEL-GAP",
            Bucket::DeviceWait => "DEVICE-WAIT",
            Bucket::Host => "HOST",
            Bucket::Alloc => "ALLOC",
            Bucket::Unexplained => "UNEXPLAINED",
            Bucket::Input => "INPUT",
        }
    }

    /// The device runs nothing in it.
    pub const fn is_gap(self) -> bool {
        !matches!(self, Bucket::Compute | Bucket::Copy | Bucket::Comm)
    }
}

/// ns per [`Bucket`]; they sum exactly to the steady wall time of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Buckets(pub [u64; Bucket::COUNT]);

impl Buckets {
    /// ns in one bucket.
    pub fn get(&self, bucket: Bucket) -> u64 {
        self.0[bucket as usize]
    }

    /// Adds ns to one bucket.
    pub fn add(&mut self, bucket: Bucket, ns: u64) {
        self.0[bucket as usize] += ns;
    }

    /// Sum of all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Sum of the gap buckets.
    pub fn idle(&self) -> u64 {
        Bucket::ALL.iter().filter(|b| b.is_gap()).map(|&b| self.get(b)).sum()
    }

    /// Share of all, 0 to 1; 0 of an empty sum.
    pub fn share(&self, bucket: Bucket) -> f64 {
        share(self.get(bucket), self.total())
    }
}

/// `part` of `whole`, 0 where there is no whole.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// One slice of the "why idle" track of a device. Slices of a device do not overlap and are in time order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleSlice {
    /// Begin, ns.
    pub start: u64,
    /// End, ns.
    pub end: u64,
    /// Number of the op before the gap in `Run.devices[d].streams[before_stream].ops`, or [`NONE`].
    pub before: u32,
    /// Number of the op after the gap, or [`NONE`].
    pub after: u32,
    /// Flat number ([`crate::run::Run::call`]) of the call that is to blame (blocking call, late launch), or [`NONE`].
    pub call: u32,
    /// Stream index of `before`.
    pub before_stream: u16,
    /// Stream index of `after`.
    pub after_stream: u16,
    /// Why.
    pub bucket: Bucket,
}

impl IdleSlice {
    /// Begin and end.
    pub fn span(&self) -> Span {
        Span { start: self.start, end: self.end }
    }

    /// The call to blame, as a flat call number.
    pub fn call(&self) -> Option<u32> {
        (self.call != NONE).then_some(self.call)
    }
}

/// Where the steps come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StepSource {
    /// The program's own marks.
    Marks,
    /// Named ranges (`step`, `ProfilerStep#`).
    Ranges,
    /// A period in the sequence of launches.
    Period,
    /// No steps found.
    #[default]
    None,
}

impl StepSource {
    /// Stable machine-readable name.
    pub const fn key(self) -> &'static str {
        match self {
            StepSource::Marks => "marks",
            StepSource::Ranges => "ranges",
            StepSource::Period => "period",
            StepSource::None => "none",
        }
    }
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Marks and ranges: from its mark or, where the device was not ready for its first kernel, from when that began
    /// (`steps/behind.rs`), to the same of the next one. Periods: from its first op to that of the next step.
    pub span: Span,
    /// Marks and ranges: from mark to mark on the program's thread, where calls and ranges lie. Periods: as `span`.
    pub host: Span,
    /// The program's step number, else its position.
    pub number: u32,
    /// Left out of all figures as warm-up.
    pub warm_up: bool,
    /// Not like the others (evaluation, checkpoint between two steps): longer than the launches of one step.
    pub odd: bool,
}

/// The steps of the run.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Where they come from.
    pub source: StepSource,
    /// In time order, warm-up included.
    pub steps: Vec<Step>,
    /// How many more the program marked, of which it is not known when they began or ended on the GPU: work was launched in them
    /// or behind them that is not in the recording.
    pub unplaced: usize,
    /// How many of them, from the first, are warm-up.
    pub warm_up: usize,
    /// Time of the warm-up steps, ns.
    pub warm_up_ns: u64,
    /// Time of the steps that count, ns.
    pub steady_ns: u64,
    /// Found by a period, beside much work of other kinds that does not repeat: the trace may be shorter than a few steps, and
    /// these be layers (`steps/parts.rs`).
    pub may_be_parts: bool,
    /// Equal sub-periods in a step (gradient accumulation); 1 where there are none.
    pub micro: u32,
    /// Steady-state step times, ns: mean of wall time, median and 90th percentile of single steps; 0 without steps.
    pub mean_ns: f64,
    /// Median.
    pub median_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
}

impl Steps {
    /// Steps that count (warm-up left out).
    pub fn steady(&self) -> &[Step] {
        self.steps.get(self.warm_up..).unwrap_or(&[])
    }
}

/// Kernels too small to fill the device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SmallKernels {
    /// Share of the kernels' busy time in kernels shorter than `gaps::SMALL_KERNEL_NS` or with fewer blocks than
    /// the device has multiprocessors, 0 to 1.
    pub share: f64,
    /// Kernels counted.
    pub kernels: u64,
    /// Small ones of them.
    pub small: u64,
    /// Median kernel duration, ns.
    pub median_ns: u64,
}

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
    pub host: Stood,
    /// The same of INPUT.
    pub input: Stood,
    /// Time of the steady span that they spent in front of launches with fetching data, hidden by the device's work or not, ns.
    pub fetched_ns: u64,
    /// Where they stood in its LAUNCH time, by samples.
    pub launch: Dispatched,
    /// Late launching calls (flat numbers, sorted), and the stack id that samples in front of each show.
    pub stood: Vec<(u32, u32)>,
    /// Small kernels in the steady span.
    pub small: SmallKernels,
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

/// The devices that work, with their indices: those with a tenth of the operations of the busiest one, or with a tenth of
/// its busy time (a few long kernels are work too). What does less was used in passing: its idle time is no one's loss.
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
    /// Where the launching thread stood in idle time of HOST or INPUT, by samples: a stack id, 0 where there is none.
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

    /// Share of the steady wall time with anything running, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        share(self.buckets.total() - self.buckets.idle(), self.buckets.total())
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub enum Confidence {
    /// Take it as a hint.
    #[default]
    Low,
    /// Probably.
    Medium,
    /// The evidence is direct.
    High,
}

impl Confidence {
    /// As printed.
    pub const fn key(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// One cause's evidence and what its fix would win.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable code, `GP101`.
    pub code: &'static str,
    /// Name as in the line, `SYNC`.
    pub cause: &'static str,
    /// Share of the steady wall time lost to it, 0 to 1: its idle time, or what its fix wins where that is more.
    pub share: f64,
    /// Of it, what the buckets charge to it: the rest counts for other causes, which go with it (a wait that keeps the host from
    /// running ahead of its own pauses).
    pub charged: f64,
    /// What its realisable fix wins by the replay, share of the step (or wall) time, 0 to 1.
    pub win: f64,
    /// The same of a step that nobody records: what causes are named by. [`Self::win`] where that is not known, and of findings under 5 %.
    pub unrecorded_win: f64,
    /// Step time (without steps: steady wall time) after the fix, ns; 0 where nothing is promised.
    pub predicted_ns: f64,
    /// ± of `predicted_ns`, ns.
    pub error_ns: f64,
    /// What was seen, in words (goes into the parentheses of the line).
    pub text: String,
    /// What to change, one sentence.
    pub fix: &'static str,
    /// How sure.
    pub confidence: Confidence,
    /// Flat number of the call that stands for it ([`crate::run::Run::call`]), or [`NONE`].
    pub call: u32,
    /// How often (calls, gaps).
    pub count: u64,
    /// The line of the program that costs most; `None` where that is not known.
    pub site: Option<Site>,
    /// Further lines that cost about as much.
    pub more_lines: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Verdict {
    /// Stable code (`GP101`; `GP190` GPU-BOUND, `GP191` MIXED, `GP199` INCONCLUSIVE).
    pub code: &'static str,
    /// Name as in the line.
    pub cause: &'static str,
    /// What was seen, in words.
    pub text: String,
    /// What to change, one sentence.
    pub fix: &'static str,
    /// How sure.
    pub confidence: Confidence,
    /// Share of the steady wall time lost to it, 0 to 1.
    pub share: f64,
    /// Step time now, ns (0: no steps found).
    pub step_ns: f64,
    /// Step time after the fix, ns (0: no promise).
    pub predicted_ns: f64,
    /// ± of `predicted_ns`, ns.
    pub error_ns: f64,
    /// Another cause whose fix, another one, wins as much; `None` where one alone wins.
    pub tied: Option<Tied>,
    /// The next cause worth naming (label, share 0 to 1).
    pub then: Option<(&'static str, f64)>,
    /// Set with INCONCLUSIVE: why.
    pub inconclusive: Option<String>,
    /// The trace was taken by a profiler that slows the host: what may be true without it.
    pub profiled: Option<Profiled>,
    /// Flat number of the call that stands for it, or [`NONE`].
    pub call: u32,
    /// The line of the program that costs most; `None` where that is not known.
    pub site: Option<Site>,
}

/// A cause as good as the one that is named: their wins differ by less than the model's error or a fifth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tied {
    /// Stable code.
    pub code: &'static str,
    /// Name as in the line.
    pub cause: &'static str,
    /// What to change, one sentence.
    pub fix: &'static str,
    /// Its fix is more work than that of the named one, by the registry's order.
    pub more_work: bool,
    /// Share of the steady wall time lost to it, 0 to 1.
    pub share: f64,
    /// Step time after its fix alone, ns (0: no promise).
    pub predicted_ns: f64,
    /// ± of `predicted_ns`, ns.
    pub error_ns: f64,
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

/// How well the replay gives the measured time back.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Model {
    /// Measured time of the replayed span, ns (0: nothing replayed).
    pub measured_ns: f64,
    /// The same by the replay with nothing changed, ns.
    pub replayed_ns: f64,
    /// Ops replayed.
    pub ops: u64,
}

impl Model {
    /// Relative error, 0 to 1 (1 where nothing was replayed).
    pub fn error(&self) -> f64 {
        if self.measured_ns <= 0.0 {
            1.0
        } else {
            ((self.replayed_ns - self.measured_ns) / self.measured_ns).abs().min(1.0)
        }
    }
}

/// How much of the run the recording shows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Coverage {
    /// Valid span less unobserved spans, ns. Where no flush says that anything is whole ([`crate::run::Run::unproven`]): up to the last operation.
    pub seen_ns: u64,
    /// First GPU use to the last thing known of the program, ns.
    pub run_ns: u64,
    /// Steps in the valid span.
    pub steps_seen: u64,
    /// Steps of the whole run where the recorder counted them (marks), else the same as `steps_seen`.
    pub steps_run: u64,
    /// `steps_run` is estimated: from the run-wide count of launches, or from a count of another unit (`clock_unit`).
    pub steps_estimated: bool,
    /// Steps as found for each that was counted between windows: 1 but where the two are of different units.
    pub clock_unit: f64,
    /// The rings were lapped: the beginning is gone, by design.
    pub overwritten: bool,
    /// The recording is of a process that never reached our exit handler: a signal, `_exit`, exec. Which, it cannot tell.
    pub killed: bool,
    /// The signal that ended it, where somebody saw it (`gapprobe run` of its own command).
    pub signal: Option<i32>,
}

/// What recording cost, an estimate.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Callbacks and buffer handlers on the program's threads (sampled, scaled), ns.
    pub callback_ns: u64,
    /// Launches times the assumed cost of one kernel record inside CUPTI, ns.
    pub cupti_ns: u64,
    /// What recorded steps take longer, a share of them, by the replay ([`crate::replay::RECORDER_SLOWS`]), times the share of the run's launches that
    /// were recorded, and what stays of CUPTI between windows. Where the replay is no good: the two above as a share of the run. 0 to 1.
    pub share: f64,
    /// Host memory that CUPTI keeps of the run's launches at most, bytes ([`trace::total::kept_bytes`]).
    pub kept_bytes: u64,
}

impl Analysis {
    /// Share of the recorded (valid, observed) time that the steps that count are, 0 to 1; `None` without steps.
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
    pub blind: Vec<Blind>,
    /// Steps.
    pub steps: Steps,
    /// From where to where the part of the valid span reaches that counts (warm-up left out).
    pub steady: Span,
    /// What counts of it: the steps, less unobserved spans; without steps all that was observed. Every figure but those of the
    /// whole recording is of this time.
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
    /// Kernels of another tool's trace that were launched and are not in it (`unanswered.rs`); 0 of our own recordings, which
    /// have counters.
    pub unanswered: u64,
    /// Items of severity `Data` lost inside the valid span.
    pub data_losses: u64,
    /// Events inside the valid span.
    pub events: u64,
    /// What was seen of the run.
    pub coverage: Coverage,
    /// What recording cost.
    pub cost: Cost,
    /// The steps that were recorded are not like those of the whole run.
    pub unlike: Option<Unlike>,
}

/// Steps recorded in windows that take another time than those of the whole run, which were counted (`causes/unlike.rs`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Unlike {
    /// Mean of the steps that were recorded, ns.
    pub recorded_ns: f64,
    /// Mean of all steps, ns.
    pub all_ns: f64,
    /// So far off that what was recorded carries no verdict.
    pub far: bool,
}

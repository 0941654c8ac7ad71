// SPDX-License-Identifier: Apache-2.0
//! The metrics, in one table for all formats: names and units as OpenTelemetry writes them, from
//! which Prometheus' names follow by its own rules ([`Family::prometheus`]). They are part of the
//! interface: added, not renamed. What is not known is left out, never 0.
//!
//! Counters add up over ranks and time: a share is the quotient of two of them. Who a process is
//! stands in [`PROCESS_INFO`]; its other series have what tells them apart, and no more.

use cli::live::ledger::StepTimes;
use cli::live::{last_recorded, RecordingState};
use trace::loss::Severity;
use trace::{Header, Loss, Total};
use verdict::analysis::{Bucket, Counters};
use verdict::text::escape::visible;

use super::looked::{Gpu, Looked, Process};

/// What kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up, over the process's life.
    Counter,
    /// Of the recorded steps.
    Histogram,
}

/// A value with those of the family's own labels.
type Points<V> = Vec<(Vec<String>, V)>;

/// What a family's points are of, and how they are made.
#[derive(Clone, Copy)]
enum Of {
    /// The command itself.
    Command(fn(&Looked) -> Points<f64>),
    /// Each process, as its recording counts.
    Process(fn(&Process) -> Points<f64>),
    /// Each process, summed up by the looks.
    Summed(fn(&Process) -> Points<f64>),
    /// Each process's steps.
    Steps(fn(&Process) -> &StepTimes),
    /// Each GPU of each process.
    Gpu(fn(&Process, &Gpu) -> Points<f64>),
}

/// One metric.
pub(super) struct Family {
    /// As OpenTelemetry has it.
    pub(super) name: &'static str,
    /// In UCUM; "" where there is nothing to count.
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    /// Beside those of [`Family::labels`] that say whose it is.
    own: &'static [&'static str],
    of: Of,
}

/// A number, or a histogram.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Number(f64),
    Steps(Box<StepTimes>),
}

/// One point of a family.
pub(super) struct Point<'a> {
    /// In the order of [`Family::labels`].
    pub(super) labels: Vec<String>,
    pub(super) value: Value,
    /// Whose it is; `None`: the command's own.
    pub(super) process: Option<&'a Process>,
    /// Of which GPU it is.
    pub(super) gpu: Option<&'a Gpu>,
}

impl Family {
    /// All its labels.
    pub(super) fn labels(&self) -> Vec<&'static str> {
        let whose: &[&str] = match self.of {
            Of::Command(_) => &[],
            Of::Process(_) | Of::Summed(_) | Of::Steps(_) => &["run", "rank"],
            Of::Gpu(..) => &["run", "rank", "gpu_uuid"],
        };
        [whose, self.own].concat()
    }

    /// Prometheus' name, as its OTLP receiver makes it: the unit in words at the end, of counters
    /// `_total` after it.
    pub(super) fn prometheus(&self) -> String {
        let unit = match self.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            "By/s" => "_bytes_per_second",
            "1" if self.kind == Kind::Gauge => "_ratio",
            _ => "", // nothing, or in braces
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }

    /// From when on the process's points count, ns since 1970.
    pub(super) fn since(&self, process: &Process) -> u64 {
        match self.of {
            Of::Summed(_) | Of::Steps(_) | Of::Gpu(..) => process.sums().since,
            Of::Command(_) | Of::Process(_) => process.header().start_realtime,
        }
    }

    /// Its points.
    pub(super) fn points<'a>(&self, looked: &'a Looked) -> Vec<Point<'a>> {
        let number =
            |(own, value): (Vec<String>, f64), process: Option<&'a Process>, gpu: Option<&'a Gpu>| {
                let whose = process.map(|p| [p.run.clone(), p.rank()]).into_iter().flatten();
                let labels = whose.chain(gpu.map(|g| g.uuid.clone())).chain(own).collect();
                Point { labels, value: Value::Number(value), process, gpu }
            };
        let all = looked.processes.iter();
        let points: Vec<Point<'a>> = match self.of {
            Of::Command(get) => get(looked).into_iter().map(|p| number(p, None, None)).collect(),
            Of::Process(get) | Of::Summed(get) => all
                .flat_map(|w| get(w).into_iter().map(move |p| (w, p)))
                .map(|(w, p)| number(p, Some(w), None))
                .collect(),
            Of::Steps(get) => all
                .filter(|w| get(w).count() > 0)
                .map(|w| Point {
                    value: Value::Steps(Box::new(get(w).clone())),
                    ..number((Vec::new(), 0.0), Some(w), None)
                })
                .collect(),
            Of::Gpu(get) => all
                .flat_map(|w| w.gpus.iter().map(move |g| (w, g)))
                .flat_map(|(w, g)| get(w, g).into_iter().map(move |p| (w, g, p)))
                .map(|(w, g, p)| number(p, Some(w), Some(g)))
                .collect(),
        };
        let is_known = |p: &Point| !matches!(p.value, Value::Number(n) if !n.is_finite());
        points.into_iter().filter(is_known).collect()
    }
}

fn one(value: Option<f64>) -> Points<f64> {
    value.map(|v| (Vec::new(), v)).into_iter().collect()
}

/// 1 with these labels.
fn info(labels: Vec<String>) -> Points<f64> {
    vec![(labels, 1.0)]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What was recorded, and what was not but counted: nothing is where recording has ended for good.
fn recorded(p: &Process, yes: Total, no: Total, unit: f64) -> Points<f64> {
    let both = [("yes", yes), ("no", no)].into_iter();
    both.filter(|of| of.0 == "yes" || !p.has_ended())
        .map(|(w, t)| (vec![w.to_owned()], p.header().total(t) as f64 / unit))
        .collect()
}

/// All of a severity, those that are 0, too: so that the first one is seen.
fn losses(h: &Header, severity: Severity) -> Points<f64> {
    let of = Loss::ALL.iter().filter(|l| l.severity() == severity);
    of.map(|&l| (vec![l.key().to_owned()], h.loss(l) as f64)).collect()
}

/// Characters of a command line that are shown.
const MAX_COMMAND: usize = 128;

fn process_info(p: &Process) -> Points<f64> {
    let h = p.header();
    let world = if h.world_size == 0 { String::new() } else { h.world_size.to_string() };
    let text = |t: &str| visible(t).to_string();
    let command = text(&h.command).chars().take(MAX_COMMAND).collect();
    info(vec![text(&p.figures().job), world, text(&h.host), h.pid.to_string(), command, text(&h.gapprobe)])
}

/// Where the time went, by cause, and whether the GPU was busy in it.
fn gpu_time(_: &Process, gpu: &Gpu) -> Points<f64> {
    let of = |bucket: Bucket| {
        let state = if bucket.is_gap() { "idle" } else { "busy" };
        (vec![state.to_owned(), bucket.key().to_owned()], seconds(gpu.buckets.get(bucket)))
    };
    Bucket::ALL.into_iter().map(of).collect()
}

/// Of the last seconds, as the GPU's own counters have it.
fn counter(gpu: &Gpu, of: fn(Counters) -> Option<f64>) -> Points<f64> {
    one(gpu.counters.and_then(of))
}

/// By direction, bytes a second.
fn link(gpu: &Gpu, sent: fn(Counters) -> Option<f64>, received: fn(Counters) -> Option<f64>) -> Points<f64> {
    let both = [("sent", sent), ("received", received)].into_iter();
    both.filter_map(|(way, of)| Some((vec![way.to_owned()], gpu.counters.and_then(of)?))).collect()
}

/// The family that says who a process is.
pub(super) const PROCESS_INFO: &str = "gapprobe.process.info";

macro_rules! families {
    ($($name:expr, $unit:literal, $kind:ident, [$($label:literal),*], $of:ident($get:expr), $help:literal;)*) => {
        /// All of them.
        pub(super) const FAMILIES: &[Family] = &[$(Family {
            name: $name, unit: $unit, kind: Kind::$kind, help: $help, own: &[$($label),*], of: Of::$of($get),
        },)*];
    };
}

families! {
    "gapprobe.build.info", "", Gauge, ["version"],
        Command(|_| info(vec![env!("CARGO_PKG_VERSION").to_owned()])),
        "1; version: that of gapprobe metrics.";
    "gapprobe.processes", "{process}", Gauge, [],
        Command(|l| one(Some(l.processes.len() as f64))),
        "Recorded processes of this user.";
    "gapprobe.scrape.duration", "s", Gauge, [],
        Command(|l| one(Some(l.took.as_secs_f64()))),
        "Time that gapprobe metrics took to look at all of them.";
    PROCESS_INFO, "", Gauge, ["job_name", "world_size", "host", "pid", "command", "version"],
        Process(process_info),
        "1; who the process is, by run and rank; command: its first 128 characters; version: that of its recorder.";
    "gapprobe.process.start_time", "s", Gauge, [],
        Process(|p| one(Some(seconds(p.header().start_realtime)))),
        "When its recording began, since 1970: all counters begin anew with another one.";
    "gapprobe.gpu.info", "", Gauge, ["device", "model"],
        Gpu(|_, g| info(vec![g.ordinal.to_string(), g.name.clone()])),
        "1; the GPU's number in the process, and its name.";
    "gapprobe.gpu.time", "s", Counter, ["state", "cause"],
        Gpu(gpu_time),
        "Observed time by what the GPU did (busy) or waited for (idle); over all causes it is gapprobe_gpu_observed_time_seconds_total.";
    "gapprobe.gpu.observed_time", "s", Counter, [],
        Gpu(|_, g| one(Some(seconds(g.buckets.total())))),
        "Recorded time in which it is known what the GPU did; under the default budget a part of the run.";
    "gapprobe.gpu.tensor.active", "1", Gauge, [],
        Gpu(|_, g| counter(g, |c| c.tensor)),
        "Share of the last seconds of recorded time in which the tensor cores worked, of the whole device (NVML's GPM, on Hopper and newer): of their peak FLOP/s at the clock it had.";
    "gapprobe.gpu.memory.active", "1", Gauge, [],
        Gpu(|_, g| counter(g, |c| c.memory)),
        "Share of the memory bandwidth that was used in them, of the whole device.";
    "gapprobe.gpu.sm.active", "1", Gauge, [],
        Gpu(|_, g| counter(g, |c| c.sm)),
        "Share of them in which a warp was on a multiprocessor, mean over all.";
    "gapprobe.gpu.sm.occupancy", "1", Gauge, [],
        Gpu(|_, g| counter(g, |c| c.occupancy)),
        "Warps on the multiprocessors in them, of those that there is room for.";
    "gapprobe.gpu.pcie.io", "By/s", Gauge, ["direction"],
        Gpu(|_, g| link(g, |c| c.pcie_sent, |c| c.pcie_received)),
        "Traffic over PCIe in them, as the device sees it.";
    "gapprobe.gpu.nvlink.io", "By/s", Gauge, ["direction"],
        Gpu(|_, g| link(g, |c| c.nvlink_sent, |c| c.nvlink_received)),
        "Traffic over NVLink in them, as the device sees it.";
    "gapprobe.steps", "{step}", Counter, [],
        Summed(|p| one(p.steps().map(|n| n as f64))),
        "Steps of the run: those marked by the program, else all that were counted, else those recorded; absent where some are in none of these.";
    "gapprobe.step.duration", "s", Histogram, [],
        Steps(|p| &p.sums().step_times),
        "Time of the recorded steps.";
    "gapprobe.kernels", "{kernel}", Counter, [],
        Process(|p| one(Some(p.header().total(Total::Kernels) as f64))),
        "Kernels recorded.";
    "gapprobe.launches", "{launch}", Counter, ["recorded"],
        Process(|p| recorded(p, Total::Launches, Total::LaunchesBetween, 1.0)),
        "Kernel launches; recorded=no: between windows.";
    "gapprobe.syncs", "{call}", Counter, ["recorded"],
        Process(|p| recorded(p, Total::Syncs, Total::SyncsBetween, 1.0)),
        "Synchronizing calls; recorded=no: between windows.";
    "gapprobe.sync.time", "s", Counter, ["recorded"],
        Process(|p| recorded(p, Total::SyncNs, Total::SyncBetweenNs, 1e9)),
        "Time in synchronizing calls, summed over threads; recorded=no: between windows.";
    "gapprobe.verdict.info", "", Gauge, ["code", "cause"],
        Process(|p| info(vec![p.figures().verdict.0.to_owned(), p.figures().verdict.1.to_owned()])),
        "1; the verdict on the last seconds of recorded time (gapprobe explain CODE).";
    "gapprobe.verdict.lost", "1", Gauge, [],
        Process(|p| one(Some(p.figures().lost.unwrap_or(0.0)))),
        "Share of those seconds that is lost to the verdict's cause; of GPU-BOUND, what is not spent in kernels.";
    "gapprobe.hang.duration", "s", Gauge, [],
        Process(|p| one(p.hang_ns().map(seconds))),
        "For how long the process has done nothing, where that is 20 of its steps and ten seconds; else 0; absent where no steps are counted.";
    "gapprobe.data.losses", "{loss}", Counter, ["loss"],
        Process(|p| losses(p.header(), Severity::Data)),
        "GPU operations and calls missing from the recording, by name: figures may be off.";
    "gapprobe.notes", "{note}", Counter, ["note"],
        Process(|p| losses(p.header(), Severity::Note)),
        "What went wrong while recording and left no GPU operation or call out, by name.";
    "gapprobe.recording.active", "{process}", Gauge, [],
        Process(|p| one(Some(f64::from(u8::from(p.watched.process.standing() == RecordingState::On))))),
        "1 while the process records, 0 while that is off.";
    "gapprobe.recording.ended", "{process}", Gauge, [],
        Process(|p| one(Some(f64::from(u8::from(p.has_ended()))))),
        "1 once nothing more will be recorded of the process, else 0.";
    "gapprobe.recording.last_time", "s", Gauge, [],
        Process(|p| one(last_recorded(p.header()).map(seconds))),
        "Up to when everything is recorded, since 1970: verdict and shares are of the time before.";
    "gapprobe.recording.size", "By", Gauge, [],
        Process(|p| one(Some(p.watched.process.length as f64))),
        "Size of the recording on disk.";
    "gapprobe.recording.cost", "1", Gauge, [],
        Process(|p| one(Some(p.figures().cost).filter(|c| c.measured).map(|c| c.share))),
        "Share of the run that recording took, as measured in it.";
    "gapprobe.recording.cost_upper", "1", Gauge, [],
        Process(|p| one(Some(p.figures().cost).filter(|c| c.measured).map(|c| c.most))),
        "The upper end of its 95% interval.";
    "gapprobe.recording.cost_estimate", "1", Gauge, [],
        Process(|p| one(Some(p.figures().cost).filter(|c| !c.measured).map(|c| c.share))),
        "The same by estimate, where it has not been measured.";
    "gapprobe.recorder.cpu_time", "s", Counter, [],
        Process(|p| one(Some(seconds(p.header().total(Total::DrainCpuNs).saturating_add(p.header().total(Total::SamplerCpuNs)))))),
        "CPU time of the recorder's own threads.";
    "gapprobe.cupti.kept_memory", "By", Gauge, [],
        Process(|p| one(Some(cli::live::cupti_kept_bytes(p.header()) as f64))),
        "Host memory that CUPTI 13.0 to 13.3 keeps of launches beside CUDA graphs until the program ends, at most.";
    "gapprobe.flight.traces", "{trace}", Counter, [],
        Process(|p| one(p.counted().map(|_| p.header().total(Total::Flights) as f64))),
        "Traces that the flight recorder wrote.";
}

// SPDX-License-Identifier: Apache-2.0
//! The figures as metrics, in one list for all formats. Names, labels and units are part of the
//! interface: added, not renamed. A figure that cannot be told is left out, never 0.

use std::time::Duration;

use cli::live::counted::{Between, Counted};
use cli::live::RecordingState;
use trace::{Header, Loss, Total};
use verdict::analysis::Bucket;
use verdict::text::escape::visible;

use crate::verbs::watched::Watched;

/// What kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up, over the process's life.
    Counter,
}

/// One metric: the same labels at each of its points.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// As UCUM writes it, for OTLP; Prometheus has it in the name.
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: Vec<&'static str>,
    pub(super) points: Vec<Point>,
}

/// One number of one process.
pub(super) struct Point {
    /// In the order of the family's labels.
    pub(super) values: Vec<String>,
    pub(super) value: f64,
    /// When its process was first recorded, ns since 1970.
    pub(super) since: u64,
}

/// Of every process: who it is.
const IDENTITY: [&str; 5] = ["job", "rank", "world_size", "host", "pid"];

fn identity(w: &Watched) -> Vec<String> {
    let h = &w.process.header;
    let number = |n: u32| if n == 0 { String::new() } else { n.to_string() };
    let rank = h.rank.checked_sub(1).map_or_else(String::new, |r| r.to_string());
    let job = w.figures.as_ref().map_or("", |f| &f.job);
    vec![
        visible(job).to_string(),
        rank,
        number(h.world_size),
        visible(&h.host).to_string(),
        h.pid.to_string(),
    ]
}

struct Families(Vec<Family>);

impl Families {
    fn new_one(
        &mut self,
        (name, unit, kind): (&'static str, &'static str, Kind),
        help: &'static str,
        more: &[&'static str],
        mut points: impl FnMut(&Watched) -> Vec<(Vec<String>, f64)>,
        all: &[Watched],
    ) {
        let of = |w: &Watched| {
            let (since, who) = (w.process.header.start_realtime, identity(w));
            let point = |(more, value): (Vec<String>, f64)| {
                let values = who.iter().cloned().chain(more).collect();
                Point { values, value, since }
            };
            points(w).into_iter().map(point).collect::<Vec<_>>()
        };
        let points = all.iter().flat_map(of).filter(|p| p.value.is_finite()).collect();
        let labels = IDENTITY.into_iter().chain(more.iter().copied()).collect();
        self.0.push(Family { name, help, unit, kind, labels, points });
    }
}

fn one(value: Option<f64>) -> Vec<(Vec<String>, f64)> {
    value.map(|v| (Vec::new(), v)).into_iter().collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// All metrics of all processes; `took`: what looking at them took.
pub(super) fn families(all: &[Watched], took: Duration) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    let mut f = Families(Vec::new());
    let alone = |name, help, unit, value| Family {
        name,
        help,
        unit,
        kind: Gauge,
        labels: Vec::new(),
        points: vec![Point { values: Vec::new(), value, since: 0 }],
    };
    f.0.push(alone("gapprobe_processes", "Recorded processes of this user.", "1", all.len() as f64));
    f.0.push(alone(
        "gapprobe_look_seconds",
        "Time that gapprobe metrics took to look at all of them.",
        "s",
        took.as_secs_f64(),
    ));
    let standing = |w: &Watched| one(Some(f64::from(u8::from(w.process.standing() == RecordingState::On))));
    f.new_one(
        ("gapprobe_recording", "1", Gauge),
        "1 while the process records, 0 while that is switched off.",
        &[],
        standing,
        all,
    );
    let figures = |get: fn(&cli::live::Figures) -> Option<f64>| {
        move |w: &Watched| one(w.figures.as_ref().and_then(get))
    };
    f.new_one(
        ("gapprobe_seen_seconds", "s", Gauge),
        "Observed time that the figures of steps and GPU time rest on.",
        &[],
        figures(|f| Some(seconds(f.seen_ns))),
        all,
    );
    f.new_one(
        ("gapprobe_steps", "1", Gauge),
        "Whole steps in that time.",
        &[],
        figures(|f| Some(f.steps as f64)),
        all,
    );
    f.new_one(
        ("gapprobe_step_seconds", "s", Gauge),
        "Step time: median and 90th percentile.",
        &["percentile"],
        |w| {
            let f = w.figures.as_ref();
            let both = [("50", f.and_then(|f| f.step_ns)), ("90", f.and_then(|f| f.p90_ns))];
            both.into_iter().filter_map(|(q, ns)| Some((vec![q.to_owned()], seconds(ns?)))).collect()
        },
        all,
    );
    f.new_one(
        ("gapprobe_gpu_busy_ratio", "1", Gauge),
        "Share of the time in which anything ran on the GPU.",
        &["device"],
        |w| by_device(w, |d| vec![(Vec::new(), d.busy)]),
        all,
    );
    f.new_one(
        ("gapprobe_gpu_time_ratio", "1", Gauge),
        "Where the GPU's time went: shares of all of it, which sum up to 1.",
        &["device", "bucket"],
        |w| {
            let share =
                |d: &cli::live::DeviceFigures, b: Bucket| (vec![b.key().to_owned()], d.buckets.share(b));
            by_device(w, |d| Bucket::ALL.iter().map(|&b| share(d, b)).collect())
        },
        all,
    );
    f.new_one(
        ("gapprobe_verdict_lost_ratio", "1", Gauge),
        "Share of the time that is lost to the cause which the verdict names (gapprobe explain CODE); of GPU-BOUND, what is not spent in kernels.",
        &["code", "cause"],
        |w| {
            let Some(f) = &w.figures else { return Vec::new() };
            vec![(vec![f.verdict.0.to_owned(), f.verdict.1.to_owned()], f.lost.unwrap_or(0.0))]
        },
        all,
    );
    f.new_one(
        ("gapprobe_cost_ratio", "1", Gauge),
        "The share of the run that recording took, as measured in it; an estimate until then, and where it cannot be measured.",
        &[],
        figures(|f| Some(f.cost.share)),
        all,
    );
    f.new_one(
        ("gapprobe_cost_upper_ratio", "1", Gauge),
        "The same at most: the upper end of its 95% interval, or of the estimate's range.",
        &[],
        figures(|f| Some(f.cost.most)),
        all,
    );
    f.new_one(
        ("gapprobe_own_cpu_seconds_total", "s", Counter),
        "CPU time of the recorder's own threads.",
        &[],
        |w| one(Some(seconds(of_header(w, &[Total::DrainCpuNs, Total::SamplerCpuNs])))),
        all,
    );
    f.new_one(
        ("gapprobe_cupti_kept_bytes", "By", Gauge),
        "Host memory that CUPTI 13.0 to 13.3 keeps of launches beside CUDA graphs until the program ends, at most.",
        &[],
        |w| one(Some(cli::live::cupti_kept_bytes(&w.process.header) as f64)),
        all,
    );
    f.new_one(
        ("gapprobe_losses_total", "1", Counter),
        "What was lost while recording, by name; data: figures may be off by it. any: all of severity data together.",
        &["loss", "severity"],
        |w| losses(&w.process.header),
        all,
    );
    for (name, help, total) in [
        ("gapprobe_kernels_total", "Kernels recorded.", Total::Kernels),
        ("gapprobe_launches_total", "Kernel launches recorded.", Total::Launches),
        ("gapprobe_syncs_total", "Synchronizing calls recorded.", Total::Syncs),
    ] {
        f.new_one((name, "1", Counter), help, &[], |w| one(Some(of_header(w, &[total]) as f64)), all);
    }
    counted(&mut f, all);
    f.new_one(
        ("gapprobe_recording_bytes", "By", Gauge),
        "Size of the recording on disk.",
        &[],
        |w| one(Some(w.process.length as f64)),
        all,
    );
    f.0
}

/// What processes count without records: between windows, and with the flight recorder on.
fn counted(f: &mut Families, all: &[Watched]) {
    use Kind::{Counter, Gauge};
    type OfBetween = fn(&Between) -> f64;
    type OfCounted = fn(&Counted) -> Option<u64>;
    let between: [(_, _, _, OfBetween); 4] = [
        ("gapprobe_between_steps_total", "1", "Steps between windows.", |b| b.steps as f64),
        ("gapprobe_between_launches_total", "1", "Kernel launches between windows, not recorded.", |b| {
            b.launches as f64
        }),
        ("gapprobe_between_syncs_total", "1", "Synchronizing calls between windows, not recorded.", |b| {
            b.syncs as f64
        }),
        (
            "gapprobe_between_sync_seconds_total",
            "s",
            "Time in synchronizing calls between windows, summed over threads; by gapprobe_between_steps_total: a step.",
            |b| seconds(b.sync_ns),
        ),
    ];
    for (name, unit, help, get) in between {
        let points = |w: &Watched| one(w.counted().and_then(|c| c.between).map(|b| get(&b)));
        f.new_one((name, unit, Counter), help, &[], points, all);
    }
    let gauges: [(_, _, OfCounted); 3] = [
        ("gapprobe_counted_step_seconds", "Usual time of the last steps (median; mean where they are uneven), counted without records.", |c| c.step_ns),
        (
            "gapprobe_counted_sync_seconds",
            "Time in synchronizing calls a step, summed over threads, counted without records: the last second or so.",
            |c| c.step_ns.map(|_| c.sync_ns),
        ),
        (
            "gapprobe_hung_seconds",
            "For how long the process has done nothing, where that is 20 of its steps and ten seconds; else 0.",
            |c| c.step_ns.map(|_| c.hang.map_or(0, |h| h.ns)),
        ),
    ];
    for (name, help, get) in gauges {
        let points = |w: &Watched| one(w.counted().and_then(|c| get(&c)).map(seconds));
        f.new_one((name, "s", Gauge), help, &[], points, all);
    }
    f.new_one(
        ("gapprobe_flights_total", "1", Counter),
        "Traces that the flight recorder wrote.",
        &[],
        |w| one(w.counted().map(|_| of_header(w, &[Total::Flights]) as f64)),
        all,
    );
}

fn of_header(w: &Watched, totals: &[Total]) -> u64 {
    totals.iter().map(|&t| w.process.header.total(t)).fold(0, u64::saturating_add)
}

/// For each device that worked in the time that counts.
fn by_device(
    w: &Watched,
    points: impl Fn(&cli::live::DeviceFigures) -> Vec<(Vec<String>, f64)>,
) -> Vec<(Vec<String>, f64)> {
    let devices = w.figures.iter().flat_map(|f| &f.devices).filter(|d| d.buckets.total() > 0);
    let with_device = |d: &cli::live::DeviceFigures| {
        let add = |(more, value): (Vec<String>, f64)| {
            (std::iter::once(d.ordinal.to_string()).chain(more).collect(), value)
        };
        points(d).into_iter().map(add).collect::<Vec<_>>()
    };
    devices.flat_map(with_device).collect()
}

/// Those that are not 0, and always the sum of the grave ones, so that there is something to watch.
fn losses(h: &Header) -> Vec<(Vec<String>, f64)> {
    use trace::loss::Severity;
    let word = |s: Severity| if s == Severity::Data { "data" } else { "note" };
    let point = |name: &str, s: Severity, n: u64| (vec![name.to_owned(), word(s).to_owned()], n as f64);
    let data = Loss::ALL.iter().filter(|l| l.severity() == Severity::Data).map(|&l| h.loss(l));
    let mut all = vec![point("any", Severity::Data, data.fold(0, u64::saturating_add))];
    let some = Loss::ALL.iter().filter(|&&l| h.loss(l) > 0);
    all.extend(some.map(|&l| point(l.key(), l.severity(), h.loss(l))));
    all
}

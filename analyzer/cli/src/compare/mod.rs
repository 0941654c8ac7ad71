// SPDX-License-Identifier: Apache-2.0
//! Two runs against each other: the same work? which parts of a step moved, beyond the noise? And
//! the conditions that a run is held against in CI. `gapprobe diff` and `gapprobe check` print it.
//!
//! ```text
//! side.rs      one run: steps by bucket, kernels by name     noise.rs    what a difference is
//! work.rs      is it the same work?                          scaling.rs  one GPU against many
//! words.rs     report and line                               json.rs     the same for programs
//! gate.rs      conditions on one run              unit.rs     is a step the same unit in both?
//! ```
//! A figure of a step is its mean over the steps that count, so that the buckets sum up to the step
//! and the step is the one of the line; the median stands beside it. Nothing is called faster or
//! slower that lies within the noise, or where a verdict is INCONCLUSIVE, where the steps may be
//! other units, or where one trace alone comes from a slowed host.

pub mod gate;
mod json;
pub mod noise;
mod scaling;
pub mod side;
mod unit;
mod words;
pub mod work;

pub use scaling::Scaling;
pub use side::Side;

use verdict::analysis::Bucket;
use verdict::causes::inconclusive;
use verdict::text::plural::counted;

use noise::{Difference, Estimate, Place, MIN_STEPS, RUN_GPU, RUN_HOST};
use unit::same_unit;
use work::{Sameness, Work};

/// What can be said of the step time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A verdict is INCONCLUSIVE: nothing.
    Inconclusive,
    /// A run has no steps.
    NoSteps,
    /// Steps were found by periods and the work differs: a step may be another unit.
    OtherSteps,
    /// One of the traces alone was taken by a profiler that slows the host.
    OtherProfiler,
    /// Fewer than [`MIN_STEPS`] steps in a run: no band.
    TooFewSteps,
    /// Within the noise.
    NoDifference,
    /// B's steps are shorter.
    Faster,
    /// B's steps are longer.
    Slower,
}

impl Outcome {
    /// Stable machine-readable name.
    pub const fn key(self) -> &'static str {
        match self {
            Outcome::Inconclusive => "inconclusive",
            Outcome::NoSteps => "no_steps",
            Outcome::OtherSteps => "other_steps",
            Outcome::OtherProfiler => "other_profiler",
            Outcome::TooFewSteps => "too_few_steps",
            Outcome::NoDifference => "no_difference",
            Outcome::Faster => "faster",
            Outcome::Slower => "slower",
        }
    }
}

/// A figure of both runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// In A, ns a step.
    pub a: Estimate,
    /// In B, ns a step.
    pub b: Estimate,
    /// B - A.
    pub difference: Difference,
    /// What two runs differ by without a cause, ns.
    pub run_ns: f64,
}

impl Figure {
    fn new(a: Estimate, b: Estimate, run_ns: f64) -> Figure {
        Figure { a, b, difference: Difference::new(&a, &b, 1.0, run_ns), run_ns }
    }

    /// The difference lies beyond the noise.
    pub fn moved(&self) -> bool {
        matches!(self.difference.place(), Some(Place::Below | Place::Above))
    }
}

/// How to compare.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Options {
    /// What two runs of one program differ by, share 0 to 1; `None`: [`RUN_HOST`] and [`RUN_GPU`].
    pub run_noise: Option<f64>,
    /// The user says that both do the same work, whatever their kernels.
    pub same_work: bool,
    /// Compare by number of GPUs.
    pub scaling: bool,
    /// GPUs of A and B, where the user tells.
    pub gpus: Option<(u32, u32)>,
}

/// Two runs compared.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The run before.
    pub a: &'a Side<'a>,
    /// The run after.
    pub b: &'a Side<'a>,
    /// What to know before any figure, one sentence each.
    pub cautions: Vec<String>,
    /// What else to know.
    pub remarks: Vec<String>,
    /// Is it the same work?
    pub work: Work,
    /// [`Options::same_work`].
    pub same_work: bool,
    /// What can be said of the step time.
    pub outcome: Outcome,
    /// Mean step; `None` where a run has no steps.
    pub step: Option<Figure>,
    /// Median step.
    pub median: Option<Figure>,
    /// Mean of each bucket; empty where a run has no steps.
    pub buckets: Vec<(Bucket, Figure)>,
    /// Mean of what was not observed of the steps.
    pub not_seen: Option<Figure>,
    /// With [`Options::scaling`].
    pub scaling: Option<Scaling>,
}

/// Compares two runs.
pub fn compare<'a>(a: &'a Side<'a>, b: &'a Side<'a>, options: Options) -> Comparison<'a> {
    let work = work::work(a, b, options.scaling);
    let mut c = Comparison {
        a,
        b,
        cautions: Vec::new(),
        remarks: Vec::new(),
        work,
        same_work: options.same_work,
        outcome: Outcome::NoSteps,
        step: None,
        median: None,
        buckets: Vec::new(),
        not_seen: None,
        scaling: None,
    };
    if !a.steps.is_empty() && !b.steps.is_empty() {
        let run = |bucket: Bucket, x: &Estimate, y: &Estimate| {
            run_share(bucket, options.run_noise) * (x.value + y.value) / 2.0
        };
        let mut all_runs = 0.0;
        for bucket in Bucket::ALL {
            let (x, y) = (a.bucket(bucket), b.bucket(bucket));
            all_runs += run(bucket, &x, &y);
            c.buckets.push((bucket, Figure::new(x, y, run(bucket, &x, &y))));
        }
        c.step = Some(Figure::new(a.mean(), b.mean(), all_runs));
        c.median = Some(Figure::new(a.median(), b.median(), all_runs));
        c.not_seen = Some(Figure::new(a.not_seen(), b.not_seen(), 0.0));
    }
    c.outcome = outcome(&c);
    c.cautions = cautions(&c, options.scaling);
    c.remarks = remarks(&c);
    if options.scaling {
        c.scaling = Some(Scaling::new(&c, options.gpus));
    }
    c
}

/// What two runs' times of a bucket differ by without a cause, as a share.
pub(crate) fn run_share(bucket: Bucket, told: Option<f64>) -> f64 {
    told.unwrap_or(match bucket {
        Bucket::Compute | Bucket::Copy => RUN_GPU,
        _ => RUN_HOST,
    })
}

/// The names of the GPUs where they are known to differ.
pub(crate) fn other_gpus<'a>(a: &'a Side<'_>, b: &'a Side<'_>) -> Option<(&'a str, &'a str)> {
    let names = (a.gpu(), b.gpu());
    (!names.0.is_empty() && !names.1.is_empty() && names.0 != names.1).then_some(names)
}

fn outcome(c: &Comparison<'_>) -> Outcome {
    let unsure = |s: &Side<'_>| s.analysis.verdict.code == inconclusive::CODE;
    let Some(step) = c.step else {
        return if unsure(c.a) || unsure(c.b) { Outcome::Inconclusive } else { Outcome::NoSteps };
    };
    if unsure(c.a) || unsure(c.b) {
        return Outcome::Inconclusive;
    }
    if !same_unit(c.a, c.b, &c.work, c.same_work) {
        return Outcome::OtherSteps;
    }
    if c.a.run.slowed_host != c.b.run.slowed_host {
        return Outcome::OtherProfiler;
    }
    // mean and median may not contradict each other
    let against = c.median.and_then(|m| m.difference.place());
    match step.difference.place() {
        None => Outcome::TooFewSteps,
        Some(Place::Below) if against != Some(Place::Above) => Outcome::Faster,
        Some(Place::Above) if against != Some(Place::Below) => Outcome::Slower,
        Some(_) => Outcome::NoDifference,
    }
}

/// The numbers of GPUs, in words, where they are known to differ.
pub(crate) fn other_numbers(a: &Side<'_>, b: &Side<'_>) -> Option<String> {
    let (works, worlds) = ((a.working(), b.working()), (a.run.header.world_size, b.run.header.world_size));
    if works.0 != works.1 && works.0 > 0 && works.1 > 0 {
        let (s, work) = if works.0 == 1 { ("", "works") } else { ("s", "work") };
        return Some(format!("{} GPU{s} {work} in A, {} in B", works.0, works.1));
    }
    (worlds.0 != worlds.1 && worlds.0 > 0 && worlds.1 > 0)
        .then(|| format!("A's job has a world size of {}, B's of {}", worlds.0, worlds.1))
}

/// What has to be said first.
fn cautions(c: &Comparison<'_>, scaling: bool) -> Vec<String> {
    let mut said = Vec::new();
    let (a, b) = (c.a, c.b);
    for (letter, side) in [("A", a), ("B", b)] {
        if let Some(why) = side.analysis.verdict.why_inconclusive() {
            said.push(format!("{letter} is INCONCLUSIVE: {why}"));
        }
        said.extend(side.lost().map(|lost| format!("{letter} lost something: {lost}")));
    }
    for (letter, _) in [("A", a), ("B", b)].into_iter().filter(|s| s.1.analysis.steps.may_be_parts) {
        said.push(format!(
            "the steps found in {letter} may be parts of a step: much work beside them does not repeat"
        ));
    }
    if c.outcome == Outcome::OtherSteps && c.same_work {
        said.push(format!(
            "the steps were found by their launches, and beside the kernels nothing shows that a step of A is the unit of B's: \
             {} (marks tell: gapprobe.step(), record_function(\"step\"))",
            unit::why_not(a, b)
        ));
    }
    match c.work.sameness {
        Sameness::Same | Sameness::Nearly => {}
        _ if c.same_work => said.push(words::waived(a, b, &c.work)),
        Sameness::Unknown => said.push(format!("whether it is the same work is not known: {}", c.work.why)),
        Sameness::Other => {
            said.push(format!("other work: {}{}", words::common(&c.work), words::SAME_WORK));
            if !c.work.why.is_empty() {
                said.push(c.work.why.clone());
            }
        }
    }
    if c.outcome == Outcome::OtherSteps && !c.same_work {
        said.push(
            "the steps were found by their launches and their work differs: a step of A may be another unit than one of B \
             (marks tell: gapprobe.step(), record_function(\"step\"))"
                .to_owned(),
        );
    }
    if a.run.slowed_host != b.run.slowed_host {
        let slowed = if a.run.slowed_host { "A" } else { "B" };
        said.push(format!("{slowed} alone was taken with a profiler that slows the host up to 1.7 times"));
    } else if a.format.recorder() != b.format.recorder() {
        said.push(format!(
            "other formats, whose recorders may cost differently: {} and {}",
            a.format.name(),
            b.format.name()
        ));
    }
    if let Some((ga, gb)) = other_gpus(a, b) {
        said.push(format!("other GPUs: {ga} and {gb}"));
    }
    if let Some(numbers) = other_numbers(a, b).filter(|_| !scaling) {
        said.push(format!("{numbers} (--scaling compares by that)"));
    }
    for (letter, side) in [("A", a), ("B", b)] {
        match side.steps.len() {
            0 => said.push(format!("{letter} has no steps: there is no step time to compare")),
            n if n < MIN_STEPS => {
                let steps = counted(n as u64, "step");
                said.push(format!("{letter} has {steps}, fewer than {MIN_STEPS}: no band"))
            }
            _ => {}
        }
    }
    said
}

/// What else is worth a word.
fn remarks(c: &Comparison<'_>) -> Vec<String> {
    let mut said = Vec::new();
    match c.work.sameness {
        Sameness::Same => said.push("the same work".to_owned()),
        Sameness::Nearly => said.push(format!("nearly the same work: {}", words::common(&c.work))),
        Sameness::Other | Sameness::Unknown => {}
    }
    let known = !matches!(c.work.sameness, Sameness::Other | Sameness::Unknown);
    if known && !c.work.why.is_empty() {
        said.push(c.work.why.clone());
    }
    if let (Some(step), Some(median)) = (&c.step, &c.median) {
        if c.outcome == Outcome::NoDifference && median.moved() {
            let by = words::change(&median.a, &median.b);
            said.push(format!(
                "the median step moved by {by}, the mean did not: a few steps differ from the rest"
            ));
        } else if matches!(c.outcome, Outcome::Faster | Outcome::Slower) && !median.moved() {
            let by = words::change(&step.a, &step.b);
            said.push(format!(
                "the mean step moved by {by}, the median did not: the difference is in fewer than half of the steps"
            ));
        }
    }
    said
}

// SPDX-License-Identifier: Apache-2.0
//! The steps of a run.

use crate::run::Span;

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
    /// Marks and ranges: from its mark or, where the device was not ready for its first kernel,
    /// from when that began (`steps/behind.rs`), to the same of the next one. Periods: from its
    /// first op to that of the next step.
    pub span: Span,
    /// Marks and ranges: from mark to mark on the program's thread, where calls and ranges lie.
    /// Periods: as `span`.
    pub host: Span,
    /// The program's step number, else its position.
    pub number: u32,
    /// Left out of all figures as warm-up.
    pub warm_up: bool,
    /// Not like the others (evaluation, checkpoint between two steps): longer than the launches of
    /// one step.
    pub odd: bool,
}

/// A period of the launches that is no step: layers of a step, of which the trace has too few.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// How often it was found.
    pub count: usize,
    /// Its median length, ns.
    pub median_ns: u64,
}

/// Steps far longer than the others that came three times or more.
#[derive(Clone, Debug, Default)]
pub struct LongSteps {
    /// How many steps it is from one of them to the next, where they come evenly.
    pub every: Option<usize>,
    /// Their spans, by time.
    pub spans: Vec<Span>,
}

/// The steps of the run.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Where they come from.
    pub source: StepSource,
    /// In time order, warm-up included.
    pub steps: Vec<Step>,
    /// Steps of the run in which something happened that does so once or twice, by time: they stand
    /// for no others, and are in no figure (`steps/once.rs`).
    pub once: Vec<Step>,
    /// The last one of them was the last step of all.
    pub ends_long: bool,
    /// Those that are far longer than the others and come again.
    pub long: LongSteps,
    /// How many more the program marked, of which it is not known when they began or ended on the
    /// GPU: work was launched in them or behind them that is not in the recording.
    pub unplaced: usize,
    /// How many of them, from the first, are warm-up.
    pub warm_up: usize,
    /// Time of the warm-up steps, ns.
    pub warm_up_ns: u64,
    /// Time of the steps that count, ns.
    pub steady_ns: u64,
    /// Found by a period, beside much work of other kinds that does not repeat: the trace may be
    /// shorter than a few steps, and these be layers (`steps/parts.rs`).
    pub may_be_parts: bool,
    /// Of another tool's trace: the period that was found inside of one or two named steps, or that
    /// covers too little of a trace without any.
    pub parts: Option<Parts>,
    /// Equal sub-periods in a step (gradient accumulation); 1 where there are none.
    pub micro: u32,
    /// Steady-state step times, ns: mean of wall time, median and 90th percentile of single steps;
    /// 0 without steps.
    pub mean_ns: f64,
    /// Median.
    pub median_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
}

impl Steps {
    /// One or two: real ones, of which nobody can say whether they are warm-up.
    pub fn are_few(&self) -> bool {
        (1..crate::steps::MIN_STEPS).contains(&self.steps.len())
    }

    /// Steps that were seen, whether they count or not.
    pub fn seen(&self) -> usize {
        self.steps.len() + self.once.len()
    }

    /// The same, by time.
    pub fn all(&self) -> Vec<Step> {
        let mut all = [self.steps.as_slice(), &self.once].concat();
        all.sort_by_key(|s| s.span);
        all
    }

    /// Of the steps that count the longest run of them between which nothing happened once.
    pub fn undisturbed(&self) -> &[Step] {
        let (steady, once) = (self.steady(), self.once.iter());
        let before = |once: &Step| steady.partition_point(|s| s.span.start < once.span.start);
        let cuts: Vec<usize> = [0].into_iter().chain(once.map(before)).chain([steady.len()]).collect();
        let runs = cuts.windows(2).filter_map(|c| steady.get(c[0]..c[1]));
        let length = |run: &&[Step]| run.iter().map(|s| s.span.ns()).sum::<u64>();
        runs.max_by_key(length).unwrap_or(steady)
    }

    /// More than half of their time is in a few long ones that come irregularly: a mean of them is
    /// no step's time.
    pub fn has_no_usual_time(&self) -> bool {
        let long: u64 = self.long.spans.iter().map(|s| s.ns()).sum();
        self.long.are_uneven() && long.saturating_mul(2) > self.steady_ns
    }

    /// Steps that count (warm-up left out).
    pub fn steady(&self) -> &[Step] {
        self.steps.get(self.warm_up..).unwrap_or(&[])
    }
}

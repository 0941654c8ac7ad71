// SPDX-License-Identifier: Apache-2.0
//! Pauses between windows, where nothing of CUPTI was on: steps that did not come while the
//! recorder's sampler looked (`injector/src/duty_cycle/pauses.rs`). What comes every 30 s is seen
//! there although seven seconds were recorded.

use trace::event::Unobserved;
use trace::Loss;

use crate::gaps::sample_index::common;
use crate::run::{Run, Sample, Span, Thread};
use crate::sites::activity::{doing, sleeps_by_select, Activity};
use crate::sites::frames::Frames;
use crate::sites::{Site, Sites};
use crate::stats::share;
use crate::text::duration::long;
use crate::text::plural::counted;

/// A thread that launches less than this part of what the busiest one does holds no step up.
const LAUNCHES: f64 = 0.1;
/// Samples of one pause lie no further apart than this, ns, or than this part of it so far: of a
/// long one few are kept.
const APART_NS: u64 = 500_000_000;
const APART: u64 = 10;
/// Less of the time than this is no word's worth.
const LEAST: f64 = 0.01;
/// Distances of so many pauses that differ by this share of their median at most are even.
const EVEN_FROM: usize = 3;
const EVEN: f64 = 0.25;

/// All of them together.
#[derive(Clone, PartialEq, Debug)]
pub struct Pauses {
    /// How many.
    pub count: u64,
    /// How long together, and the median of them, ns.
    pub ns: u64,
    /// See [`Pauses::ns`].
    pub usual_ns: u64,
    /// From one to the next, where they come evenly, ns.
    pub every_ns: Option<u64>,
    /// Their share of the time between windows, 0 to 1.
    pub share: f64,
    /// What the launching thread did, as half of the samples show it.
    pub doing: Option<Activity>,
    /// The line of them.
    pub site: Option<Site>,
}

/// Samples of pauses belong to no stretch in front of a launch that was recorded: they are kept
/// apart. `run.blind` and samples are sorted.
pub fn set_apart(run: &mut Run) {
    let between: Vec<Span> = between(run).collect();
    if between.is_empty() {
        return;
    }
    let is_between = |s: &Sample| {
        let next = between.partition_point(|b| b.end <= s.span.start);
        between.get(next).is_some_and(|b| b.start <= s.span.start)
    };
    for thread in &mut run.threads {
        let samples = std::mem::take(&mut thread.samples);
        (thread.between, thread.samples) = samples.into_iter().partition(is_between);
    }
}

fn between(run: &Run) -> impl Iterator<Item = Span> + '_ {
    run.blind.iter().filter(|b| b.reason == Unobserved::Window as u32).map(|b| b.span)
}

/// What was seen of them; `None` where there were none, or too little to be told.
pub(crate) fn of(run: &Run) -> Option<Pauses> {
    if run.threads.iter().all(|t| t.between.is_empty()) {
        return None;
    }
    let launches = |t: &Thread| t.calls.iter().filter(|c| c.launches()).count() as f64;
    let most = run.threads.iter().map(launches).fold(0.0, f64::max);
    let launching = run.threads.iter().filter(|t| launches(t) >= LAUNCHES * most);
    let mut samples: Vec<&Sample> = launching.flat_map(|t| &t.between).collect();
    samples.sort_by_key(|s| s.span);
    let mut pauses: Vec<Span> = Vec::new();
    for s in &samples {
        match pauses.last_mut() {
            Some(last) if s.span.start <= last.end.saturating_add(APART_NS.max(last.ns() / APART)) => {
                last.end = last.end.max(s.span.end);
            }
            _ => pauses.push(s.span),
        }
    }
    let ns = pauses.iter().map(|p| p.ns()).sum();
    // once as many samples are kept as a run keeps, pauses are not seen any more
    let last = samples.iter().map(|s| s.span.end).max().filter(|_| run.header.loss(Loss::PausesFull) > 0);
    let until = last.unwrap_or(u64::MAX);
    let watched = between(run).map(|b| b.end.min(until).saturating_sub(b.start)).sum();
    let share = share(ns, watched);
    if share < LEAST {
        return None;
    }
    let selects = sleeps_by_select(run);
    let mut tally: Vec<(Activity, u32)> = Vec::new();
    for s in &samples {
        let doing = doing(s, Frames::of(run, s.stack), selects);
        match tally.iter_mut().find(|t| t.0 == doing) {
            Some(known) => known.1 += 1,
            None => tally.push((doing, 1)),
        }
    }
    let most = tally.into_iter().max_by_key(|t| t.1);
    let lengths: Vec<u64> = pauses.iter().map(|p| p.ns()).collect();
    Some(Pauses {
        count: pauses.len() as u64,
        ns,
        usual_ns: crate::stats::median(&mut lengths.clone()),
        every_ns: every(&pauses),
        share,
        doing: most.filter(|t| t.1 as usize * 2 >= samples.len()).map(|t| t.0),
        site: common(&mut Sites::new(run), samples.iter().map(|s| s.stack)).map(|c| c.0),
    })
}

/// From one to the next, where that is about the same each time.
fn every(pauses: &[Span]) -> Option<u64> {
    let mut distances: Vec<u64> = pauses.windows(2).map(|p| p[1].start - p[0].start).collect();
    let usual = crate::stats::median(&mut distances);
    let most = usual as f64 * EVEN;
    let is_even = pauses.len() >= EVEN_FROM && distances.iter().all(|d| d.abs_diff(usual) as f64 <= most);
    is_even.then_some(usual)
}

impl Pauses {
    /// `6 pauses of 2.0 s, every 30 s, 7 % of that time: writes a checkpoint, train.py:88 in save`.
    pub fn words(&self) -> String {
        let mut out = format!("{} of {}", counted(self.count, "pause"), long(self.usual_ns));
        if let Some(every) = self.every_ns {
            out.push_str(&format!(", every {}", long(every)));
        }
        out.push_str(&format!(", {:.0}% of that time", self.share * 100.0));
        let does = self.doing.filter(|d| *d != Activity::Unknown).map(|d| d.words().to_owned());
        let what: Vec<String> = does.into_iter().chain(self.site.as_ref().map(Site::to_string)).collect();
        if !what.is_empty() {
            out.push_str(&format!(": {}", what.join(", ")));
        }
        out
    }
}

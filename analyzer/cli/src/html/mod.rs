// SPDX-License-Identifier: Apache-2.0
//! One page to look at: a run's verdict, where its time went, one step in detail; and two runs side
//! by side.
//!
//! ```text
//! headline.rs   the line's sentence, what it rests on, what is missing
//! buckets.rs    names of the buckets, shares that sum to 100 %
//! series.rs     each step's buckets, as bars
//! timeline.rs   one step: streams, calls, why idle         drawn.rs     thousands of slices as some that can be seen
//! histogram.rs  lengths of gaps and kernels                flame.rs     idle time by the ranges of the blamed calls
//! kernels.rs    kernels by time                            gpu_flame.rs GPU time by what launched
//! tree.rs       what a flame graph draws                   change.rs    before and after
//! names.rs      names of foreign programs, safe to show    embed.rs     figures and page in one file
//! page/         the page: HTML, CSS and JavaScript that draws the figures; it computes nothing but positions
//! ```
//! Figures only: nothing here judges. Everything is bounded (`MOST_*` where it is made), whatever
//! the size of the trace; what is left out is among the figures, and the page says it. The figures
//! are of the device the line is about.

mod buckets;
mod change;
mod drawn;
mod embed;
mod flame;
mod gpu_flame;
mod headline;
mod histogram;
mod kernels;
mod names;
mod series;
mod timeline;
mod tree;

use formats::Input;
use serde_json::{json, Value};
use verdict::analysis::{Analysis, DeviceAnalysis};
use verdict::run::{Device, Run};
use verdict::timeline::kernels::KernelTable;

use crate::overview;
use crate::phases::Phases;

/// Version of the figures' keys.
pub const FIGURES_VERSION: u32 = 1;

/// A trace, and what was found in it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The file's name, as the page shows it.
    pub name: &'a str,
    /// The trace.
    pub input: &'a Input,
    /// What was found.
    pub analysis: &'a Analysis,
}

/// The device a page is about.
#[derive(Clone, Copy)]
struct Shown<'a> {
    run: &'a Run,
    analysis: &'a Analysis,
    /// Its number in run and analysis.
    index: usize,
    device: &'a Device,
    found: &'a DeviceAnalysis,
    /// Sorted ids of the kernels that are collectives.
    collectives: &'a [u32],
}

/// The run after a change.
#[derive(Clone, Copy)]
pub struct After<'a> {
    /// The run.
    pub subject: &'a Subject<'a>,
    /// The user knows that both do the same work though their kernels are not the same.
    pub same_work: bool,
}

/// The page of a run; with `after`, of that run before and after a change.
pub fn page(subject: &Subject<'_>, after: Option<After<'_>>) -> String {
    let title = match after {
        Some(after) => format!("{} → {}", subject.name, after.subject.name),
        None => subject.name.to_owned(),
    };
    embed::page(&names::clean(&title), &headline::line(subject), &figures(subject, after))
}

/// The figures of a page.
pub fn figures(subject: &Subject<'_>, after: Option<After<'_>>) -> Value {
    let all: Vec<&Subject<'_>> = [Some(subject), after.map(|a| a.subject)].into_iter().flatten().collect();
    json!({
        "figures_version": FIGURES_VERSION,
        "gapprobe": env!("CARGO_PKG_VERSION"),
        "buckets": buckets::legend(),
        "classes": gpu_flame::legend(),
        "runs": all.iter().map(|s| run(s)).collect::<Vec<_>>(),
        "change": after.map(|after| change::figures(subject, after.subject, after.same_work)),
    })
}

fn run(subject: &Subject<'_>) -> Value {
    json!({
        "file": names::clean(subject.name),
        "format": subject.input.format.name(),
        "verdict": headline::figures(subject),
        "remarks": headline::remarks(subject),
        "device": with_shown(subject, device),
    })
}

/// Calls `make` with the device the line is about; `None` of a run without one.
fn with_shown<T>(subject: &Subject<'_>, make: impl FnOnce(Shown<'_>) -> T) -> Option<T> {
    let (run, analysis) = (&subject.input.run, subject.analysis);
    let index = analysis.worst?;
    let collectives = KernelTable::new(run).collectives();
    let (device, found) = (run.devices.get(index)?, analysis.devices.get(index)?);
    Some(make(Shown { run, analysis, index, device, found, collectives: &collectives }))
}

fn device(shown: Shown<'_>) -> Value {
    let found = shown.found;
    let parts = match shown.analysis.steps.steps.is_empty() {
        true => Vec::new(),
        false => crate::tables::steps::parts(shown.run, shown.analysis, shown.index, shown.collectives),
    };
    json!({
        "ordinal": found.ordinal,
        "name": shown.run.definitions.string(shown.device.info.name).map(names::clean),
        "of": shown.analysis.devices.len(),
        "wall_ns": found.wall_ns,
        "buckets": buckets::figures(&found.buckets),
        "gauges": overview::gauges(shown.run, shown.analysis),
        "phases": Phases::of(shown.run, shown.analysis).map(|p| p.json()),
        "steps": series::figures(shown, &parts),
        "timeline": timeline::figures(shown, &parts),
        "gaps": histogram::gaps(shown),
        "durations": histogram::durations(shown),
        "idle_by_range": flame::figures(shown),
        "gpu_time": gpu_flame::figures(shown),
        "kernels": kernels::figures(shown),
    })
}

// SPDX-License-Identifier: Apache-2.0
//! What recording cost the run: as the process measured it when it first switched recording off,
//! else the replay's model, as a range.

use trace::{total, Total};

use super::Case;
use crate::analysis::{share, Analysis, Cost};
use crate::run::{Call, Run};

/// The model's ends, permille of it: eager programs, held against processes without gapprobe, lost
/// 0.9 to 1.9 times what it says (H100, 2026-11-27).
const ENDS: (u64, u64) = (500, 2000);
/// A node of a graph takes longer by so much at most, ns: graphs of empty kernels
/// (docs/windows.md).
const NODE_MOST_NS: u64 = 1400;
/// What CUPTI that is attached and asked for nothing takes of a graph's node, ns: JAX's graphs 1.2
/// us, `reduce-overhead` 0.7 (docs/windows.md).
const NODE_ATTACHED_NS: u64 = 1200;
/// Where anything was launched it cost this at most, if not more: kernels that begin a little
/// later, where the GPU is the limit (docs/run-cost.md).
const MIN_UPPER_BOUND: f64 = 0.01;
/// As much is taken to be lost while nothing is known (`injector/src/duty_cycle/budget.rs`,
/// `BOUND`).
const UNKNOWN_COST: f64 = 0.3;

/// The share of the time in which everything is recorded that is lost to it, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Lost {
    pub(super) likely: f64,
    least: f64,
    most: f64,
    measured: bool,
}

/// Measured, or by the model.
pub(super) fn lost(run: &Run, a: &Analysis, case: Option<&Case>) -> Lost {
    if run.foreign {
        return Lost::default();
    }
    if let Some(longer) = run.header.longer() {
        let [likely, least, most] = longer.map(|l| l / (1.0 + l));
        return Lost { likely, least, most, measured: true };
    }
    let (launches, nodes) = recorded(run, a);
    if launches == 0 {
        return Lost::default();
    }
    let time = a.coverage.seen_ns;
    let part = |ns: u64| share(ns, time).min(1.0);
    let by_calls = launches.saturating_mul(u64::from(run.header.launch_cost_ns));
    let by_nodes = part(nodes.saturating_mul(NODE_MOST_NS));
    let callbacks = if run.cut_out { 0 } else { run.header.total(Total::CallbackNs) };
    let [least, likely, most] = match case.and_then(Case::modelled) {
        Some(ends) => ends,
        None => [0.0, part(by_calls.saturating_add(callbacks)), part(by_calls.saturating_mul(2))],
    };
    let most = (most + by_nodes).clamp(MIN_UPPER_BOUND, UNKNOWN_COST).max(likely);
    Lost { likely, least: least.min(likely), most, measured: false }
}

/// Launches that were recorded, and nodes of graphs among them: by the process's counters, else (of
/// a window that was cut out, of a recording without counters) by what is there.
fn recorded(run: &Run, a: &Analysis) -> (u64, u64) {
    let of = |t: Total| run.header.total(t);
    let counted = of(Total::Launches).saturating_add(of(Total::GraphLaunches));
    if run.cut_out || counted == 0 {
        let inside = |c: &&Call| c.is_launch() && a.valid.start <= c.start && c.start < a.valid.end;
        return (run.threads.iter().flat_map(|t| &t.calls).filter(inside).count() as u64, 0);
    }
    let nodes = match of(Total::GraphLaunches) {
        0 => 0,
        _ => of(Total::Kernels).saturating_sub(of(Total::Launches)),
    };
    (counted, nodes)
}

/// What it comes to of the whole run, and what a CUPTI that is attached takes between windows by
/// itself.
pub(super) fn cost(run: &Run, a: &Analysis, lost: Lost) -> Cost {
    let (launches, nodes) = recorded(run, a);
    // of steps of which every n-th lost a part
    let of_run = |lost: f64| match recorded_share(run) {
        part if part < 1.0 && !run.cut_out && lost < 1.0 => {
            let longer = part * lost / (1.0 - lost);
            longer / (1.0 + longer)
        }
        _ => lost,
    };
    Cost {
        callback_ns: if run.cut_out { 0 } else { run.header.total(Total::CallbackNs) },
        cupti_ns: launches.saturating_mul(u64::from(run.header.launch_cost_ns)),
        share: of_run(lost.likely),
        least: of_run(lost.least),
        most: of_run(lost.most),
        measured: lost.measured,
        attached_most: share(left_behind(run, launches, nodes), a.coverage.run_ns).min(1.0),
        kept_bytes: super::memory::kept_by_cupti(run),
    }
}

/// What CUPTI left on the launches between windows at most, ns: graphs among them are taken to be
/// as many, and as large, as where these were recorded.
fn left_behind(run: &Run, launches: u64, nodes: u64) -> u64 {
    let h = &run.header;
    let each = total::left_behind_ns(h.total(Total::Windows), h.total(Total::GraphLaunches));
    let with_nodes = each.saturating_add(nodes.saturating_mul(NODE_ATTACHED_NS) / launches.max(1));
    h.total(Total::LaunchesBetween).saturating_mul(with_nodes)
}

/// The share of the run's launches that was recorded, 0 to 1: all of them where it did not record
/// in windows.
fn recorded_share(run: &Run) -> f64 {
    let recorded = run.header.total(Total::Launches).saturating_add(run.header.total(Total::GraphLaunches));
    match run.header.total(Total::LaunchesBetween) {
        0 => 1.0,
        between => share(recorded, recorded.saturating_add(between)),
    }
}

impl Case<'_> {
    /// By the replay: the share that recording took of what was replayed, at its least, likely and
    /// at its most. `None`: the replay is no good.
    fn modelled(&self) -> Option<[f64; 3]> {
        let likely = self.slowed_by_us()?;
        let slows = self.prepared.recorder_slows()?;
        let end = |permille| {
            let ns = self.prepared.play_unrecorded(slows.scaled(permille)) as f64;
            (1.0 - ns / self.base).clamp(0.0, 1.0)
        };
        Some([end(ENDS.0).min(likely), likely, end(ENDS.1).max(likely)])
    }
}

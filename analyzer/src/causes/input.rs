// SPDX-License-Identifier: Apache-2.0
//! GP110 INPUT: the GPU waits for data.
//!
//! # What it means
//! The launching thread fetches the next batch while the GPU has nothing to do: it reads and decodes the data itself
//! (`num_workers=0`), or waits for workers that are too few or too slow.
//!
//! # How it is recognised
//! As HOST, and at least half of the stretch since the launch before lies in a range that fetches data: the iteration
//! over a DataLoader as torch.profiler names it, or a range that the program calls `data`, `dataload`, `next_batch` or
//! the like; or, with samples of the thread's stack, at least half of those in such stretches (of 5 or more) stand in a loader. How much of the fetching is hidden behind the GPU's work and how much is not is told in the text.
//!
//! # How sure
//! That the thread was in that range is exact. Why fetching takes so long is told where samples tell it: GP111 INPUT-MAIN,
//! GP112 INPUT-WORKERS, GP113 INPUT-STORAGE.
//!
//! # What to change
//! `DataLoader(..., num_workers=N, pin_memory=True, persistent_workers=True)`: N is the fetching time of a batch divided
//! by the step time without it, rounded up, and no more than the cores there are; beyond that decode on the GPU (DALI),
//! or cache decoded data.

use std::collections::HashMap;

use super::{input_main, input_storage, input_workers, Case};
use crate::analysis::{Bucket, Finding};
use crate::gaps::input;
use crate::replay::Fix;
use crate::sites::doing::Doing;

/// Stable code.
pub const CODE: &str = "GP110";
/// Name in the line.
pub const NAME: &str = "INPUT";
/// This cause and its kinds.
pub(super) const CODES: [&str; 4] = [CODE, input_main::CODE, input_workers::CODE, input_storage::CODE];

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    match kind(case) {
        Some(_) => None, // it has a name of its own
        None => waits(case, (CODE, NAME)),
    }
}

/// The finding where samples tell that it is this kind of it.
pub(super) fn of_kind(
    case: &Case,
    cause: (&'static str, &'static str),
    fix: &'static str,
) -> Option<Finding> {
    if kind(case)? != cause.0 {
        return None;
    }
    let mut f = waits(case, cause)?;
    f.fix = fix;
    Some(f)
}

/// Workers on a CPU for this part of the time are busy.
const BUSY: f64 = 0.7;
/// Workers on a CPU for less than this wait for something.
const WAITING: f64 = 0.5;
/// Workers blocked on a disk for this part of the time wait for it.
const ON_DISK: f64 = 0.3;
/// Workers that wait and read less than this do not wait for storage, bytes a second.
const READS: f64 = 1_048_576.0;

/// The code of what samples and child processes tell; `None`: INPUT, and no more is known.
fn kind(case: &Case) -> Option<&'static str> {
    let stood = &case.device.input;
    if stood.mostly(|d| d == Doing::FetchesHere) {
        let reads = stood.reading * 2 >= stood.count(|d| d == Doing::FetchesHere);
        return Some(if reads { input_storage::CODE } else { input_main::CODE });
    }
    if !stood.mostly(|d| d == Doing::FetchesFromWorkers) {
        return None;
    }
    let workers = Workers::of(case);
    match () {
        () if workers.count == 0 => None,
        () if workers.on_disk >= ON_DISK => Some(input_storage::CODE),
        () if workers.on_cpu >= BUSY => Some(input_workers::CODE),
        () if workers.on_cpu < WAITING && workers.read_rate >= READS => Some(input_storage::CODE),
        () => None,
    }
}

/// The child processes that do anything, in the steady state.
pub(super) struct Workers {
    /// How many.
    pub(super) count: u64,
    /// Mean share of the time on a CPU, on a disk, 0 to 1 each.
    pub(super) on_cpu: f64,
    pub(super) on_disk: f64,
    /// Bytes a second read by all.
    pub(super) read_rate: f64,
    /// CPU time of all, ns.
    cpu_ns: f64,
}

impl Workers {
    /// Children used for less than this on a CPU and a disk do nothing (the resource tracker of multiprocessing).
    const DOES_NOTHING: f64 = 0.02;

    pub(super) fn of(case: &Case) -> Workers {
        let steady = case.analysis.steady;
        // by process: time seen, on a CPU, on a disk, bytes
        let mut each: HashMap<u32, (f64, f64, f64, f64)> = HashMap::new();
        for c in &case.run.children {
            let ns = c.span.clip(steady).ns() as f64;
            let part = ns / (c.span.ns() as f64).max(1.0);
            let sum = each.entry(c.pid).or_default();
            sum.0 += ns;
            sum.1 += ns * f64::from(c.on_cpu) / 1e3;
            sum.2 += ns * f64::from(c.on_disk) / 1e3;
            sum.3 += part * f64::from(c.read_kib) * 1024.0;
        }
        each.retain(|_, s| s.0 > 0.0 && (s.1 + s.2) / s.0 >= Workers::DOES_NOTHING);
        let sum = each.values().fold((0.0, 0.0, 0.0), |a, s| (a.0 + s.0, a.1 + s.1, a.2 + s.2));
        let seen = sum.0.max(1.0);
        let read_rate = each.values().map(|s| s.3 / s.0 * 1e9).sum();
        Workers {
            count: each.len() as u64,
            on_cpu: sum.1 / seen,
            on_disk: sum.2 / seen,
            read_rate,
            cpu_ns: sum.1,
        }
    }

    /// How many would keep up with steps that do not wait for them; `None` where steps are not known.
    pub(super) fn wanted(&self, case: &Case, win: f64) -> Option<u64> {
        let steps = case.analysis.steps.steady().len() as f64;
        let step = case.analysis.steps.mean_ns * (1.0 - win);
        (steps > 0.0 && step > 0.0).then(|| (self.cpu_ns / steps / step).ceil() as u64)
    }
}

fn waits(case: &Case, cause: (&'static str, &'static str)) -> Option<Finding> {
    let share = case.share(&[Bucket::Input]);
    let win = case.stretch_win(Fix::Input, share)?;
    let mut f = case.finding(cause, share, win);
    let counts = &case.analysis.counts;
    let slices = case.device.slices.iter().filter(|s| s.bucket == Bucket::Input);
    let mut last = None;
    let mut longest = 0;
    for s in slices.filter(|s| counts.measure(s.span()) > 0) {
        f.count += u64::from(last != s.call());
        last = s.call();
        if s.end - s.start > longest {
            longest = s.end - s.start;
            f.call = s.call;
        }
    }
    let fetching = input::all(case.run, case.analysis.steady, &case.device.slices);
    let part = crate::analysis::share(fetching.exposed_ns.min(fetching.ns), fetching.ns) * 100.0;
    let steps = (case.analysis.steps.steady().len() as f64).max(1.0);
    let takes = match fetching.complete {
        true => format!(
            "takes {:.1} ms {}",
            fetching.ns as f64 / 1e6 / steps,
            if case.analysis.steps.steady().is_empty() { "in all" } else { "a step" }
        ),
        false => "is".to_owned(),
    };
    f.text = format!(
        "fetching data {takes}{} hidden {:.0} %, exposed {part:.0} %{}",
        if fetching.complete { "," } else { "" },
        100.0 - part,
        match fetching.workers {
            Some(true) => "; the workers are too few or too slow",
            Some(false) => "; no workers",
            None => "",
        }
    );
    f.fix = match fetching.workers {
        Some(true) => "more DataLoader workers, up to the cores there are, persistent_workers=True; else decode on the GPU or cache",
        _ => "DataLoader(num_workers=4 or more, pin_memory=True): fetch the next batch while the GPU works on this one",
    };
    if let Some(site) = &case.device.input.site {
        f.text = format!("{site}: {}", f.text);
        f.site = Some(site.clone());
    }
    Some(f)
}

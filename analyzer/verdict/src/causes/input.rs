// SPDX-License-Identifier: Apache-2.0
//! GP110 INPUT: the GPU waits for data.
//!
//! # What it means
//! The launching thread fetches the next batch while the GPU has nothing to do. It reads and
//! decodes the data itself (`num_workers=0`), or waits for workers that are too few or too slow.
//!
//! # How it is recognised
//! As GP105 HOST, and at least half of the time since the last launch is in a range that fetches
//! data: a DataLoader's iteration as torch.profiler names it, or a range named `data`, `dataload`,
//! `next_batch` or the like. Without such ranges, at least half of the stack samples (of 5 or more)
//! must be in a loader. The text says how much of the fetching is hidden behind the GPU's work.
//!
//! # How sure
//! That the thread is in such a range is exact. A fetching time with `about` is an estimate: many
//! stacks could not be read. Samples also show why fetching is slow: GP111 INPUT-MAIN, GP112
//! INPUT-WORKERS, GP113 INPUT-STORAGE, GP116 INPUT-COLLATE, GP117 INPUT-PIN. Workers are recognised
//! by their stacks. If their memory may not be read, it is not known why they are late.
//!
//! # Example
//! ```python
//! # slow: two workers, started again in each epoch
//! loader = DataLoader(dataset, batch_size=64, num_workers=2)
//! # fixed: more workers, kept between epochs, and more batches ahead
//! loader = DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True,
//!                     prefetch_factor=4, pin_memory=True)
//! ```
//!
//! # What to change
//! Set `num_workers=N` to the fetching time of a batch divided by the step time without the wait,
//! rounded up, and at most the number of CPUs. Beyond that decode on the GPU (DALI) or cache
//! decoded data. If workers keep up on average and are still waited for, set `prefetch_factor=4` or
//! more. If each epoch starts its own workers, set `persistent_workers=True`. With
//! `pin_memory=True`, copy with `.to(device, non_blocking=True)`.

use std::collections::HashMap;

use trace::FrameInfo;

use super::cpus::Cpus;
use super::worker_waits::Waited;
use super::workers::{busy_children, Workers};
use super::{input_collate, input_main, input_pin, input_storage, input_workers, Case};
use crate::analysis::{Advice, Bucket, Fact, Figure, Finding};
use crate::gaps::input::{self, Pinned};
use crate::gaps::sample_index::{common, LEAST_SAMPLES};
use crate::replay::Fix;
use crate::run::{ChildSample, Run};
use crate::sites::activity::Activity;
use crate::sites::workers::{works, Worker as Works};
use crate::sites::{Site, Sites};

/// Stable code.
pub const CODE: &str = "GP110";
/// Name in the line.
pub const NAME: &str = "INPUT";
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    match kind(case) {
        Some(_) => None, // it has a name of its own
        None => waits(case, (CODE, NAME)),
    }
}

/// The finding where samples tell that it is this kind of it.
pub(super) fn of_kind(case: &Case, cause: (&'static str, &'static str), advice: Advice) -> Option<Finding> {
    if kind(case)? != cause.0 {
        return None;
    }
    let mut f = waits(case, cause)?;
    f.advice = advice;
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
    if stood.mostly(Activity::is_fetching_here) {
        let here = stood.count(Activity::is_fetching_here);
        return Some(match () {
            () if stood.reading * 2 >= here => input_storage::CODE,
            () if stood.count(|d| d == Activity::Collates) * 2 >= here => input_collate::CODE,
            () => input_main::CODE,
        });
    }
    if !stood.mostly(|d| d == Activity::FetchesFromWorkers) {
        return None;
    }
    let workers = Workers::of(case);
    let pinned = pinned(case);
    let computing = || match Worked::of(case).collates() {
        true => Some(input_collate::CODE),
        false => Some(input_workers::CODE),
    };
    // (where there are too few CPUs none of them has one for most of the time)
    let cpus = Cpus::of(case);
    match () {
        // (children that compute all the time may be the workers)
        () if workers.on_cpu.max(workers.strangers.1) < BUSY && is_busy(pinned) => Some(input_pin::CODE),
        () if workers.count == 0 => None,
        () if workers.on_disk >= ON_DISK => Some(input_storage::CODE),
        () if workers.on_cpu >= BUSY => computing(),
        // (a child that computes may be who they wait for)
        () if workers.on_cpu < WAITING
            && Waited::of(case, &workers).is_storage()
            && busy_children(case) == 0 =>
        {
            Some(input_storage::CODE)
        }
        () if cpus.are_contended_by_workers() => computing(),
        () if workers.on_cpu < WAITING && workers.read_rate >= READS && !cpus.are_contended() => {
            Some(input_storage::CODE)
        }
        () => None,
    }
}

/// What the threads did that pin batches.
pub(super) fn pinned(case: &Case) -> Pinned {
    input::pinned(case.run, &case.device.slices, &case.analysis.counts)
}

/// They are what is waited for.
fn is_busy(pinned: Pinned) -> bool {
    pinned.samples >= LEAST_SAMPLES && f64::from(pinned.busy) >= BUSY * f64::from(pinned.samples)
}

/// Where the workers stood that ran, in the steady state.
#[derive(Default)]
pub(super) struct Worked {
    /// Samples in which they fetched or collated.
    pub(super) samples: u32,
    /// Of these, in the collate function.
    pub(super) collating: u32,
    /// Samples besides, in which they waited for threads or processes of their own.
    waiting: u32,
    /// The line or function of the program that most of them stand in, and how many do.
    pub(super) site: Option<(Site, u32)>,
}

impl Worked {
    pub(super) fn of(case: &Case) -> Worked {
        let (run, steady) = (case.run, case.analysis.steady);
        let mut known: HashMap<u32, Option<Works>> = HashMap::new();
        let mut sites = Sites::new(run);
        let mut worked = Worked::default();
        let mut stacks = Vec::new();
        let ran = |s: &&ChildSample| s.waits.is_none() && s.span.clip(steady).ns() > 0;
        for s in run.child_samples.iter().filter(ran) {
            let Some(worker) = *known.entry(s.stack).or_insert_with(|| works(run, s.stack)) else { continue };
            if worker.waits {
                worked.waiting += 1;
                continue; // the CPU is other threads'
            }
            worked.samples += 1;
            worked.collating += u32::from(worker.doing == Activity::Collates);
            stacks.push(if is_inside(run, s.stack, worker.own, &mut sites) { s.stack } else { 0 });
        }
        worked.site = common(&mut sites, stacks.into_iter());
        if worked.waiting >= worked.samples {
            // what they wait for takes the time, and that is not seen
            (worked.samples, worked.collating, worked.site) = (0, 0, None);
        }
        worked
    }

    /// Is it in collating that they spend most of their time?
    pub(super) fn collates(&self) -> bool {
        self.samples >= LEAST_SAMPLES && self.collating * 2 >= self.samples
    }

    /// ", 83 of their 100 samples at data.py:33 in Words.__getitem__"; nothing where most stand
    /// nowhere in particular.
    pub(super) fn at(&self) -> Option<Fact> {
        match &self.site {
            Some((site, n)) => Some(
                Fact::new(", {there} of their {samples} samples at {works_at}")
                    .with("there", *n)
                    .with("samples", self.samples)
                    .with("works_at", site),
            ),
            None => (self.waiting >= LEAST_SAMPLES.max(self.samples))
                .then(|| Fact::new(", whose main threads wait for threads or processes of their own")),
        }
    }
}

/// Is a stack's line among its innermost frames, so many of them?
fn is_inside(run: &Run, stack: u32, own: usize, sites: &mut Sites<'_>) -> bool {
    let Some(site) = sites.of(stack).and_then(|n| sites.get(n)) else { return false };
    let file = |f: &FrameInfo| run.definitions.string(f.file) == Some(&*site.path);
    run.definitions.stack(stack).take(own).any(|f| f.line == site.line && file(f))
}

/// What is to be changed where there are no workers.
pub(super) const WITH_WORKERS: Advice = Advice::new("load in workers[, num_workers={wanted}]", "DataLoader(num_workers=N, pin_memory=True, persistent_workers=True) and .to(device, non_blocking=True): fetch the next batch while the GPU works on this one");
/// ... where there are too few.
pub(super) const MORE_WORKERS: Advice = Advice::new("more workers", "more DataLoader workers, up to the cores there are, persistent_workers=True; else decode on the GPU or cache");
/// ... where they are not busy all the time.
const EVEN_WORKERS: Advice = Advice::new("a larger prefetch_factor, more workers", "prefetch_factor=4 or more where batches take unevenly long, more DataLoader workers, persistent_workers=True");
/// ... where it is not known what they do.
const UNSEEN_WORKERS: Advice = Advice::new("see what the workers do", "see what the workers do: if they wait (remote reads), more of them wait in parallel; if they compute, more up to the cores there are; prefetch_factor=4 or more, persistent_workers=True");
/// ... where every epoch starts its own.
const KEPT_WORKERS: Advice = Advice::new(
    "persistent_workers=True",
    "persistent_workers=True: every epoch starts its workers anew, and waits for their first batches",
);
/// ... where those that there are have all the CPUs.
pub(super) const ALL_IN_USE: Advice = Advice::new(
    "cheaper samples, or decode on the GPU",
    "the CPUs are all in use: decode on the GPU, cache decoded data, or make a sample cheaper",
);
/// ... where there are not cores enough for those that are needed.
pub(super) const BEYOND_CPUS: Advice = Advice::new("a worker for each CPU, cheaper samples", "as many workers as there are CPUs, and make a sample cheaper: decode on the GPU (DALI, nvJPEG), cache decoded data");

/// Fetching in the steady state.
pub(super) struct Fetching {
    /// Time in it, ns.
    ns: f64,
    /// Part of it in which the device waited, 0 to 1, where that is known.
    exposed: Option<f64>,
    /// By the ranges or samples themselves; else by the stretches between launches in which most
    /// samples that could be read fetch.
    exact: bool,
    workers: Option<bool>,
}

impl Fetching {
    pub(super) fn of(case: &Case) -> Fetching {
        let seen = input::all(case.run, case.analysis.steady, &case.device.slices);
        let ns = match seen.complete {
            true => seen.ns,
            // not less than what the samples that could be read tell
            false => case.device.fetched_ns.max(seen.ns),
        };
        let exposed = seen.exposed_ns.map(|e| crate::analysis::share(e.min(seen.ns), seen.ns));
        Fetching { ns: ns as f64, exposed, exact: seen.complete, workers: seen.workers }
    }

    /// Workers of which each takes as long for a batch as this thread does, that keep up with steps
    /// that do not wait; `None` where steps are not known.
    pub(super) fn wanted(&self, case: &Case, win: f64) -> Option<u64> {
        let steps = case.analysis.steps.steady().len() as f64;
        let step = case.analysis.steps.mean_ns * (1.0 - win);
        (steps > 0.0 && step > 0.0).then(|| (self.ns / steps / step).ceil() as u64)
    }
}

/// The part of this thread's fetching in which a CPU is needed, 0 to 1: what another thread
/// computes meanwhile, a worker's would have to compute, too.
fn here_on_cpu(case: &Case) -> f64 {
    let stood = &case.device.input;
    match stood.meanwhile {
        Some(_) => 1.0,
        None => stood.here_on_cpu,
    }
}

/// CPUs in use by the launching thread's own fetching, a mean: workers would need as many.
pub(super) fn cpus_here(case: &Case) -> f64 {
    if !case.device.input.mostly(Activity::is_fetching_here) {
        return 0.0;
    }
    Fetching::of(case).ns / (case.device.wall_ns as f64).max(1.0) * here_on_cpu(case)
}

/// Says how many workers would take over what this thread does; no more than there are CPUs for
/// what they would use of them.
pub(super) fn advise_workers(case: &Case, f: &mut Finding) {
    let Some(n) = Fetching::of(case).wanted(case, f.win.share()).filter(|&n| n > 0) else { return };
    let (cpus, on_cpu) = (Cpus::of(case), here_on_cpu(case));
    if cpus.are_fewer_than((n as f64 * on_cpu).ceil()) {
        f.advice = BEYOND_CPUS;
        f.facts.add([Fact::new("{beyond} would keep up").with("beyond", n), cpus.there_are()]);
    } else if on_cpu < WAITING {
        let waits = "it waits, on a CPU for {on_cpu} of it: num_workers={wanted} would keep up if what it waits for serves as many at a time";
        f.facts.say(Fact::new(waits).with("on_cpu", Figure::Share(on_cpu)).with("wanted", n));
    } else {
        f.facts.say(Fact::new("num_workers={wanted} would keep up").with("wanted", n));
    }
}

fn waits(case: &Case, cause: (&'static str, &'static str)) -> Option<Finding> {
    let share = case.share(&[Bucket::Input]);
    let win = case.stretch_win(Fix::Input, Bucket::Input)?;
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
    let fetching = Fetching::of(case);
    let steps = case.analysis.steps.steady().len();
    let takes = match (fetching.exact, steps) {
        (true, 0) => Fact::new("fetching data takes {fetching} in all"),
        (true, _) => Fact::new("fetching data takes {fetching} a step"),
        (false, 0) => Fact::new("fetching data takes about {fetching} in all"),
        (false, _) => Fact::new("fetching data takes about {fetching} a step"),
    };
    f.facts.say(takes.with("fetching", Figure::Time(fetching.ns / steps.max(1) as f64)));
    f.facts.add(fetching.exposed.map(|exposed| {
        Fact::new(", hidden {hidden}, exposed {exposed}")
            .with("hidden", Figure::Share(1.0 - exposed))
            .with("exposed", Figure::Share(exposed))
    }));
    match fetching.workers {
        // (what pins their batches is too slow)
        Some(true) if cause.0 == input_pin::CODE => {}
        Some(true) => f.facts.say(Fact::new("the workers are too few or too slow")),
        Some(false) => f.facts.say(Fact::new("no workers")),
        None => {}
    }
    let workers = Workers::of(case);
    f.advice = match fetching.workers {
        _ if workers.anew > 0 && cause.0 == CODE => KEPT_WORKERS,
        Some(true) if Cpus::of(case).are_contended() => ALL_IN_USE,
        Some(true) if workers.count == 0 => UNSEEN_WORKERS,
        Some(true) if workers.count > 0 && workers.on_cpu < BUSY => EVEN_WORKERS,
        Some(true) => MORE_WORKERS,
        _ => WITH_WORKERS,
    };
    if workers.anew > 0 {
        let anew = Figure::Of(workers.anew, "worker was", "workers were");
        f.facts.say(Fact::new("{anew} started anew").with("anew", anew));
    }
    if cause.0 == CODE && fetching.workers == Some(true) {
        f.facts.add(workers.may_be());
    }
    let stood = &case.device.input;
    let functions = || case.function_of(Bucket::Input).filter(|_| stood.samples == 0);
    if let Some(site) = stood.site.clone().or_else(functions) {
        f.place(site);
    }
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! The CPUs that the process may use and who uses them, as far as the recording tells: its
//! children, and its threads that call CUDA. Other threads are not looked at: what is in use is in
//! use at least.
//!
//! Who computes for a batch (the loader's workers, or who fetches in their place) computes as long
//! for it however many they are: no step is shorter than their CPU time in it by the CPUs there
//! are, whatever is mended.

use trace::define::{CPUS, CPU_QUOTA};
use trace::event::Gauge;

use super::workers::{children_of, in_use, InUse, Workers};
use super::{input, input_collate, input_workers, is_of, starved, Case, MINOR_WIN};
use crate::analysis::{share, Advice, Fact, Figure, Finding, Promise};
use crate::run::{Run, Sample};

/// CPUs of which this part is in use are all in use: the rest is what switching between those who
/// share them costs, and others' threads.
const ALL_OF_THEM: f64 = 0.9;
/// A thread that waits for a CPU for less than this part of the time was unlucky.
const WAITS: f64 = 0.1;
/// CPUs that are worth a word.
const LEAST_CPUS: f64 = 0.1;
/// A quota that stops the process for less than this part of the time is not why it waits.
const STOPS: f64 = 0.01;

/// See the module's head.
pub(super) struct Cpus {
    /// That the process may use, by its affinity or by the cgroup's quota where that is less; 0:
    /// not known.
    allowed: f64,
    /// It is the quota that is less.
    is_quota: bool,
    /// The part of the time in which the quota stopped the process, 0 to 1.
    stopped: f64,
    /// By children.
    children: InUse,
    /// The loader's workers of them, and CPUs in use by these.
    workers: (u64, f64),
    /// CPUs in use by threads that call CUDA, and how many more they wait for.
    threads: (f64, f64),
    /// CPUs in use by the other threads of the process; 0 where that was not read.
    others: f64,
}

/// By affinity and quota, and whether it is the quota.
fn allowed(run: &Run) -> (f64, bool) {
    let told = |key| {
        let value = run.definitions.attributes().find(|a| a.0 == key)?.1.parse::<f64>().ok()?;
        (value.is_finite() && value > 0.0).then_some(value)
    };
    let cpus = told(CPUS).unwrap_or(f64::from(run.header.cpus));
    match told(CPU_QUOTA) {
        Some(quota) if cpus == 0.0 || quota < cpus => (quota, true),
        _ => (cpus, false),
    }
}

/// How long the cgroup's quota stopped the process, a share of the steady state.
fn stopped(case: &Case) -> f64 {
    let steady = case.analysis.steady;
    let quota = case.run.readings.iter().filter(|r| r.gauge == Gauge::CpuThrottledNs as u32);
    let stopped = quota.filter(|r| r.span.clip(steady).ns() > 0).map(|r| r.value.min(r.span.ns()));
    share(stopped.fold(0, u64::saturating_add), steady.ns())
}

/// CPUs in use by all threads of the process, a mean of the steady state; 0 where that was not
/// read.
fn process(case: &Case) -> f64 {
    let steady = case.analysis.steady;
    let readings = case.run.readings.iter().filter(|r| r.gauge == Gauge::ProcessCpuNs as u32);
    let (mut used, mut seen) = (0.0, 0.0);
    for r in readings.filter(|r| r.span.ns() > 0) {
        let inside = r.span.clip(steady).ns() as f64;
        used += r.value as f64 * inside / r.span.ns() as f64;
        seen += inside;
    }
    if seen > 0.0 {
        used / seen
    } else {
        0.0
    }
}

impl Cpus {
    pub(super) fn of(case: &Case) -> Cpus {
        let counts = &case.analysis.counts;
        let sum = |of: fn(&Sample) -> u16| -> f64 {
            let samples = case.run.threads.iter().flat_map(|t| &t.samples);
            let ns = samples.map(|s| counts.measure(s.span) as f64 * f64::from(of(s)) / 1e3);
            ns.sum::<f64>() / (case.device.wall_ns as f64).max(1.0)
        };
        let (allowed, is_quota) = allowed(case.run);
        let workers = Workers::of(case);
        let threads = (sum(|s| s.on_cpu), sum(|s| s.run_queue));
        Cpus {
            allowed,
            is_quota,
            stopped: stopped(case),
            children: in_use(case),
            workers: (workers.count, workers.cpus()),
            others: (process(case) - threads.0).max(0.0),
            threads,
        }
    }

    fn used(&self) -> f64 {
        self.children.used + self.threads.0 + self.others
    }

    /// Are there fewer than this?
    pub(super) fn are_fewer_than(&self, wanted: f64) -> bool {
        self.allowed > 0.0 && self.allowed < wanted
    }

    /// All that the process may use are in use.
    pub(super) fn are_all_in_use(&self) -> bool {
        self.allowed > 0.0 && self.used() >= self.allowed * ALL_OF_THEM
    }

    /// They are, or other programs have the rest: threads or children that wait for as long as they
    /// run find none free.
    pub(super) fn are_contended(&self) -> bool {
        let wait = |(used, waits): (f64, f64)| waits >= WAITS && waits >= used;
        let children = (self.children.used, self.children.waits);
        self.are_all_in_use() || (self.allowed > 0.0 && (wait(self.threads) || wait(children)))
    }

    /// ... and of those of this process the loader's workers use most: each has less of a CPU than
    /// it could use.
    pub(super) fn are_contended_by_workers(&self) -> bool {
        self.are_contended() && self.workers.1 * 2.0 >= self.used()
    }

    /// The quota is why the process waits.
    fn is_stopped(&self) -> bool {
        self.stopped >= STOPS
    }

    /// " and there are 2 CPUs".
    pub(super) fn there_are(&self) -> Fact {
        let there_are = match self.allowed == 1.0 {
            true => Fact::new(" and there is {cpus} CPU"),
            false => Fact::new(" and there are {cpus} CPUs"),
        };
        there_are.with("cpus", Figure::Cpus(self.allowed))
    }

    /// Who wants them: "2 CPUs allowed: 14 workers use 1.7, threads that call CUDA 0.2 and wait for
    /// 0.7 more".
    fn shared(&self) -> Vec<Fact> {
        let mut said = Vec::new();
        if self.allowed > 0.0 {
            let allowed = match (self.allowed == 1.0, self.is_quota) {
                (true, false) => Fact::new("{cpus} CPU allowed:"),
                (true, true) => Fact::new("{cpus} CPU allowed by the cgroup's quota:"),
                (false, false) => Fact::new("{cpus} CPUs allowed:"),
                (false, true) => Fact::new("{cpus} CPUs allowed by the cgroup's quota:"),
            };
            said.push(allowed.with("cpus", Figure::Cpus(self.allowed)));
            let InUse { children: n, used, waits } = self.children;
            let who = match n == self.workers.0 {
                true => Figure::Of(n, "worker", "workers"),
                false => children_of(n),
            };
            let children = match n {
                1 => Fact::new(" {children} uses {used_by_children}"),
                _ => Fact::new(" {children} use {used_by_children}"),
            };
            if n > 0 {
                said.push(children.with("children", who).with("used_by_children", Figure::Cpus(used)));
                said.push(match waits >= LEAST_CPUS {
                    true => Fact::new(" and wait for {wanted_by_children} more,")
                        .with("wanted_by_children", Figure::Cpus(waits)),
                    false => Fact::new(","),
                });
            }
            if self.others >= LEAST_CPUS {
                let others = Figure::Cpus(self.others);
                said.push(Fact::new(" other threads of the process {others},").with("others", others));
            }
            let threads = match n {
                0 => Fact::new(" threads that call CUDA use {used} and wait for {wanted} more"),
                _ => Fact::new(" threads that call CUDA {used} and wait for {wanted} more"),
            };
            let (used, wanted) = self.threads;
            said.push(threads.with("used", Figure::Cpus(used)).with("wanted", Figure::Cpus(wanted)));
        }
        if self.is_stopped() {
            let stopped = Figure::Share(self.stopped);
            said.push(
                Fact::new("the cgroup's CPU quota stopped the process for {stopped} of the time")
                    .with("stopped", stopped),
            );
        }
        said
    }

    /// What is said of a launching thread that waits for a CPU, and what is to be changed.
    pub(super) fn explain(&self, f: &mut Finding) {
        f.facts.add(self.shared());
        let (used, waits) = self.threads;
        f.advice = match () {
            () if self.is_stopped() => LARGER_QUOTA,
            () if self.are_all_in_use() => MORE_CPUS,
            () if self.are_fewer_than(self.children.children as f64 + used + waits + self.others) => FEWER,
            () => MORE_OR_FEWER,
        };
        if self.are_all_in_use() && !self.is_stopped() {
            // fewer who share them get no more done
            f.facts.say(NOTHING_MORE);
            f.promise = None;
        }
    }

    /// A promise of a cause with this code: of no step shorter than the CPUs make it, but where it
    /// is their number that is mended. `None`: they leave nothing to win.
    pub(super) fn promise(&self, case: &Case, code: &str, promised: Promise) -> Option<Promise> {
        if self.allowed <= 0.0 || (code == starved::CODE && self.is_stopped()) {
            return Some(promised);
        }
        // (who waits for a disk could go on with less of a CPU)
        let computes = [input::CODE, input_workers::CODE, input_collate::CODE];
        if computes.contains(&code) && self.are_contended() {
            return None;
        }
        let here = if is_of(code, input::CODE) { input::cpus_here(case) } else { 0.0 };
        let step = case.step_ns();
        let least = step * ((self.workers.1 + here) / self.allowed).min(1.0);
        (least <= step * (1.0 - MINOR_WIN)).then(|| promised.at_least(least))
    }

    /// All promises as [`Self::promise`].
    pub(super) fn bound(&self, case: &Case, findings: &mut [Finding]) {
        for f in findings {
            let Some(promised) = f.promise else { continue };
            f.promise = self.promise(case, f.code, promised);
            if f.promise.is_none() {
                f.facts.say(NOTHING_MORE);
            }
        }
    }
}

const NOTHING_MORE: Fact = Fact::new("the CPUs are all in use: nothing is promised");

const LARGER_QUOTA: Advice = Advice::new("a larger CPU quota", "a larger CPU quota (docker --cpus, Kubernetes limits.cpu), or fewer DataLoader workers and threads (OMP_NUM_THREADS)");
const FEWER: Advice = Advice::new("no more workers and threads than CPUs", "fewer DataLoader workers and threads (OMP_NUM_THREADS), no more than the CPUs allowed; or more CPUs for the job");
const MORE_CPUS: Advice = Advice::new("more CPUs, or less for them to do", "more CPUs for the job, or less for them to do (decode on the GPU, cache decoded data); no more workers and threads than CPUs");
const MORE_OR_FEWER: Advice = Advice::new(
    "more CPUs, or fewer threads",
    "more CPUs for the job, or fewer threads and workers (OMP_NUM_THREADS)",
);

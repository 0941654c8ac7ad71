// SPDX-License-Identifier: Apache-2.0
//! The child processes: what each used of the CPUs and disks in the steady state, and which of them
//! are a DataLoader's workers, by where their stacks stand.

use std::collections::HashMap;

use super::Case;
use crate::analysis::{Fact, Figure};
use crate::run::Span;
use crate::sites::workers::{is_worker, works};

/// The DataLoader's workers in the steady state: the child processes that were seen in a worker's
/// loop.
#[derive(Default)]
pub(super) struct Workers {
    /// How many at a time.
    pub(super) count: u64,
    /// How many more there were, one after the other: workers that were started anew.
    pub(super) anew: u64,
    /// Their process ids, and how long all of them together were seen in the steady state, ns.
    pub(super) pids: Vec<u32>,
    pub(super) seen_ns: f64,
    /// Mean share of the time on a CPU, on a disk, 0 to 1 each.
    pub(super) on_cpu: f64,
    pub(super) on_disk: f64,
    /// Bytes a second read by all.
    pub(super) read_rate: f64,
    /// CPU time of all, ns.
    cpu_ns: f64,
    /// Children that use a CPU or a disk, and what they use of CPUs: whether these are workers is
    /// not known. Only where no worker is known.
    pub(super) strangers: (u64, f64),
}

/// What a child did.
#[derive(Clone, Copy, Default)]
struct Child {
    /// From when it was first seen to when it was last.
    span: Span,
    seen_ns: f64,
    cpu_ns: f64,
    queued_ns: f64,
    disk_ns: f64,
    bytes: f64,
}

impl Child {
    /// Children used for less than this on a CPU and a disk do nothing (the resource tracker of
    /// multiprocessing).
    const DOES_NOTHING: f64 = 0.02;

    fn does_something(&self) -> bool {
        (self.cpu_ns + self.disk_ns) / self.seen_ns >= Child::DOES_NOTHING
    }
}

/// Every child of the steady state.
fn children(case: &Case) -> HashMap<u32, Child> {
    let steady = case.analysis.steady;
    let mut each: HashMap<u32, Child> = HashMap::new();
    for c in case.run.children.iter().filter(|c| c.span.clip(steady).ns() > 0) {
        let span = c.span.clip(steady);
        let ns = span.ns() as f64;
        let child = each.entry(c.pid).or_insert(Child { span, ..Child::default() });
        child.span = Span::new(child.span.start.min(span.start), child.span.end.max(span.end));
        child.seen_ns += ns;
        child.cpu_ns += ns * f64::from(c.on_cpu) / 1e3;
        child.queued_ns += ns * f64::from(c.run_queue) / 1e3;
        child.disk_ns += ns * f64::from(c.on_disk) / 1e3;
        child.bytes += ns / (c.span.ns() as f64).max(1.0) * f64::from(c.read_kib) * 1024.0;
    }
    each
}

/// How many of the spans lie side by side at most.
fn at_a_time(spans: impl Iterator<Item = Span>) -> u64 {
    let mut edges: Vec<(u64, i64)> = spans.flat_map(|s| [(s.start, 1), (s.end, -1)]).collect();
    edges.sort_unstable(); // at one moment ends come first
    let mut now = 0;
    edges
        .iter()
        .map(|e| {
            now += e.1;
            now
        })
        .max()
        .map_or(0, |n| n.max(0) as u64)
}

/// What the stacks of a child tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Is {
    /// A worker that fetches, or waits for what it fetches, in [`FETCHES`] of the steady state.
    Fetching,
    Worker,
    /// A process of the same Python that was never seen in a worker's loop.
    Other,
}

/// A worker of a loader that is used fetches for this part of the steady state; one of an
/// evaluation's that waits for its turn does not.
const FETCHES: f64 = 0.05;

/// Children of which stacks could be read, in the whole run. One that runs no Python has none.
fn told(case: &Case) -> HashMap<u32, Is> {
    let steady = case.analysis.steady;
    let mut known: HashMap<u32, Is> = HashMap::new();
    // what it is at most, and how long it fetches in the steady state
    let mut each: HashMap<u32, (Is, u64)> = HashMap::new();
    for s in case.run.child_samples.iter().filter(|s| s.stack != 0) {
        let is = *known.entry(s.stack).or_insert_with(|| match works(case.run, s.stack) {
            Some(_) => Is::Fetching,
            None if is_worker(case.run, s.stack) => Is::Worker,
            None => Is::Other,
        });
        let (most, fetches) = each.entry(s.pid).or_insert((Is::Other, 0));
        *most = is.min(*most);
        *fetches += if is == Is::Fetching { s.span.clip(steady).ns() } else { 0 };
    }
    let least = FETCHES * steady.ns() as f64;
    let is = |most: Is, fetches: u64| match most {
        Is::Fetching if (fetches as f64) < least => Is::Worker,
        most => most,
    };
    each.into_iter().map(|(pid, (most, fetches))| (pid, is(most, fetches))).collect()
}

impl Workers {
    pub(super) fn of(case: &Case) -> Workers {
        let each = children(case);
        let told = told(case);
        let strangers = || each.iter().filter(|(pid, w)| !told.contains_key(pid) && w.does_something());
        let is = |pid| told.get(pid).copied().unwrap_or(Is::Other);
        let mut workers: Vec<(Child, bool, u32)> = each
            .iter()
            .filter(|(pid, _)| is(pid) != Is::Other)
            .map(|(pid, w)| (*w, is(pid) == Is::Fetching || w.does_something(), *pid))
            .collect();
        if workers.is_empty() {
            let seen = strangers().map(|(_, w)| w.seen_ns).sum::<f64>().max(1.0);
            let count = at_a_time(strangers().map(|(_, w)| w.span));
            let on_cpu = strangers().map(|(_, w)| w.cpu_ns).sum::<f64>() / seen;
            return Workers { strangers: (count, on_cpu), ..Workers::default() };
        }
        // those of another loader that has nothing to do (an evaluation's) are not the ones waited
        // for; where none does anything, all may be
        if workers.iter().any(|w| w.1) {
            workers.retain(|w| w.1);
        }
        let pids = workers.iter().map(|w| w.2).collect();
        let workers: Vec<Child> = workers.into_iter().map(|w| w.0).collect();
        let sum = |of: fn(&Child) -> f64| workers.iter().map(of).sum::<f64>();
        let seen = sum(|w| w.seen_ns).max(1.0);
        let count = at_a_time(workers.iter().map(|w| w.span));
        Workers {
            count,
            anew: workers.len() as u64 - count,
            pids,
            seen_ns: seen,
            on_cpu: sum(|w| w.cpu_ns) / seen,
            on_disk: sum(|w| w.disk_ns) / seen,
            read_rate: sum(|w| w.bytes) / seen * 1e9 * count as f64,
            cpu_ns: sum(|w| w.cpu_ns),
            strangers: (0, 0.0),
        }
    }

    /// CPUs in use by them, a mean.
    pub(super) fn cpus(&self) -> f64 {
        self.on_cpu * self.count as f64
    }

    /// "2 workers, 98 % on a CPU".
    pub(super) fn on_cpus(&self) -> Fact {
        Fact::new("{workers}, {on_cpu} on a CPU")
            .with("workers", Figure::Of(self.count, "worker", "workers"))
            .with("on_cpu", Figure::Share(self.on_cpu))
    }

    /// "2 child processes, 98 % on a CPU: whether that is the workers is not known".
    pub(super) fn may_be(&self) -> Option<Fact> {
        let (n, on_cpu) = self.strangers;
        let children = Fact::new("{children}, {on_cpu} on a CPU: whether that is the workers is not known")
            .with("children", children_of(n))
            .with("on_cpu", Figure::Share(on_cpu));
        (n > 0).then_some(children)
    }

    /// How many would keep up with steps that do not wait for them; `None` where steps are not
    /// known.
    pub(super) fn wanted(&self, case: &Case, win: f64) -> Option<u64> {
        let steps = case.analysis.steps.steady().len() as f64;
        let step = case.analysis.steps.mean_ns * (1.0 - win);
        (steps > 0.0 && step > 0.0).then(|| (self.cpu_ns / steps / step).ceil() as u64)
    }
}

/// "1 child process".
pub(super) const fn children_of(n: u64) -> Figure {
    Figure::Of(n, "child process", "child processes")
}

/// CPUs that children use and wait for.
pub(super) struct InUse {
    /// Those that do something, at a time.
    pub(super) children: u64,
    /// CPUs in use by them, and how many more they wait for: a mean of the time in which children
    /// were looked at (of half of the steady state at least: one that came and went was none of the
    /// rest's).
    pub(super) used: f64,
    pub(super) waits: f64,
}

/// See [`InUse`].
pub(super) fn in_use(case: &Case) -> InUse {
    let steady = case.analysis.steady;
    let mut looks: Vec<Span> = case.run.children.iter().map(|c| c.span.clip(steady)).collect();
    looks.retain(|s| s.ns() > 0);
    looks.sort_unstable_by_key(|s| s.start);
    let (mut seen, mut reach) = (0, 0);
    for s in looks {
        seen += s.end.saturating_sub(s.start.max(reach));
        reach = reach.max(s.end);
    }
    let each = children(case);
    let busy = || each.values().filter(|c| c.does_something());
    let time = (seen as f64).max(steady.ns() as f64 / 2.0).max(1.0);
    InUse {
        children: at_a_time(busy().map(|c| c.span)),
        used: busy().map(|c| c.cpu_ns).sum::<f64>() / time,
        waits: busy().map(|c| c.queued_ns).sum::<f64>() / time,
    }
}

/// Does any child do something, a worker or not?
pub(super) fn any_works(case: &Case) -> bool {
    children(case).values().any(Child::does_something)
}

/// A child on a CPU for this part of the time makes something.
const MAKES: f64 = 0.5;

/// How many children compute most of the steady state that are no workers of a loader.
pub(super) fn busy_children(case: &Case) -> usize {
    let told = told(case);
    let each = children(case);
    let others = each.iter().filter(|(pid, _)| told.get(pid).is_none_or(|is| *is == Is::Other));
    let least = MAKES * case.analysis.steady.ns() as f64;
    others.filter(|(_, c)| c.cpu_ns >= least).count()
}

// SPDX-License-Identifier: Apache-2.0
//! What causes of kernels have in common: some kernels of a device, how long they run in the steady
//! steps, for which line.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use trace::Kind;

use super::Case;
use crate::analysis::{share, Bound, Bucket, Confidence, DeviceAnalysis, Fact, Figure, Finding};
use crate::replay::Kernel;
use crate::run::{Device, Op};
use crate::sites::{Site, Sites};
use crate::timeline::buckets::NOTICED_SHARE;
use crate::timeline::kernels::classify;

/// The line is named where that much of their time has one.
const MOST: f64 = 0.5;
/// Other functions are named where the first has less of their time, and they have so much.
const ALMOST_ALL: f64 = 0.9;
const LARGE: f64 = 0.1;

/// Which kernels they are.
enum Chosen {
    /// By the id of a definition, with what would be left of their time, 0 to 1.
    Named(HashMap<u32, f64>),
    /// By the stack of the launch (or of the one that was captured); nothing would be left.
    LaunchedFrom(HashSet<u32>),
    /// Each by itself, with the time that it would take, ns.
    These(HashMap<Key, u64>),
}

/// Definition and begin, that tell a kernel from others.
type Key = (u32, u64);

fn key(kernel: Kernel) -> Key {
    (kernel.id, kernel.start)
}

/// An operation as the replay has it.
pub(super) fn as_kernel(op: &Op) -> Kernel {
    Kernel { id: op.a, start: op.start, captured: op.captured, call: op.call, ns: op.span().ns() }
}

/// Of what belongs together: a kernel, or a copy to the host, behind which another thing begins.
/// (Other copies are part of it: `masked_fill` makes one.)
pub(super) fn goes_on_or_ends(op: &Op) -> bool {
    op.kind == Kind::Kernel || op.is_copy_to_host()
}

/// Kernels of the device that a case is about.
pub(super) struct Kernels<'c, 'a> {
    case: &'c Case<'a>,
    device: &'a Device,
    chosen: Chosen,
    least: u64,
    /// By the id of a definition: does it move data between ranks, whatever launched it?
    collective: HashSet<u32>,
    /// Those that ran in the steady steps.
    pub(super) count: u64,
    /// Their time there, ns.
    ns: u64,
    /// What would be won of it, ns.
    won: u64,
}

impl<'c, 'a> Kernels<'c, 'a> {
    /// Those that run for `least` ns or more, and of whose time, by their (mangled or plain) name,
    /// `rest` would be left, 0 to 1. `None`: there are none.
    pub(super) fn named(
        case: &'c Case<'a>,
        least: u64,
        rest: impl Fn(&str) -> Option<f64>,
    ) -> Option<Kernels<'c, 'a>> {
        let named = case.run.definitions.kernels();
        let named = named.filter_map(|(id, _)| Some((id, rest(case.run.definitions.kernel_name(id))?)));
        Kernels::new(case, Chosen::Named(named.collect()), least)
    }

    /// Those that were launched from a stack of which `are` says so. `None`: there are none.
    pub(super) fn launched_from(case: &'c Case<'a>, are: impl Fn(u32) -> bool) -> Option<Kernels<'c, 'a>> {
        let stacks = case.run.definitions.stacks().map(|(id, _)| id).filter(|id| are(*id));
        Kernels::new(case, Chosen::LaunchedFrom(stacks.collect()), 0)
    }

    /// These, with the time that each would take, ns. `None`: there are none.
    pub(super) fn these(
        case: &'c Case<'a>,
        all: impl Iterator<Item = (Kernel, u64)>,
    ) -> Option<Kernels<'c, 'a>> {
        Kernels::new(case, Chosen::These(all.map(|(kernel, ns)| (key(kernel), ns)).collect()), 0)
    }

    /// Those of them that were put on the GPU by no such operator. `None`: there are none.
    pub(super) fn but(self, is_such: impl Fn(&str) -> bool) -> Option<Kernels<'c, 'a>> {
        let run = self.case.run;
        let is_one = |op: &&Op| !run.operator_of(op).is_some_and(|o| is_such(o.name));
        if self.ops().all(|op| is_one(&op)) {
            return Some(self); // (those of other devices, too)
        }
        let rest = |op: &'a Op| (as_kernel(op), self.becomes(as_kernel(op)).unwrap_or(op.span().ns()));
        Kernels::these(self.case, self.ops().filter(is_one).map(rest))
    }

    fn new(case: &'c Case<'a>, chosen: Chosen, least: u64) -> Option<Kernels<'c, 'a>> {
        let is_none = match &chosen {
            Chosen::Named(all) => all.is_empty(),
            Chosen::LaunchedFrom(all) => all.is_empty(),
            Chosen::These(all) => all.is_empty(),
        };
        if is_none {
            return None;
        }
        let device = case.recorded_device()?;
        let definitions = &case.run.definitions;
        let collective = definitions.kernels().map(|(id, _)| id);
        let collective = collective.filter(|id| classify(definitions.kernel_name(*id)).collective).collect();
        let mut all = Kernels { case, device, chosen, least, collective, count: 0, ns: 0, won: 0 };
        let (mut count, mut ns, mut won) = (0, 0u64, 0u64);
        for op in all.ops() {
            let took = case.analysis.counts.measure(op.span());
            count += u64::from(took > 0);
            ns = ns.saturating_add(took);
            won = won.saturating_add(all.wins(op));
        }
        (all.count, all.ns, all.won) = (count, ns, won);
        Some(all)
    }

    /// They, in the order of their streams.
    pub(super) fn ops(&self) -> impl Iterator<Item = &'a Op> + use<'_, 'c, 'a> {
        let all = self.device.streams.iter().flat_map(|s| &s.ops).filter(|op| op.kind == Kind::Kernel);
        all.filter(|op| self.becomes(as_kernel(op)).is_some())
    }

    /// How long this kernel would take, ns; `None`: it is none of them.
    fn becomes(&self, kernel: Kernel) -> Option<u64> {
        let rest = match &self.chosen {
            Chosen::These(all) => return all.get(&key(kernel)).map(|ns| *ns.min(&kernel.ns)),
            Chosen::Named(ids) => *ids.get(&kernel.id)?,
            Chosen::LaunchedFrom(stacks) => {
                let run = self.case.run;
                let captured = run.captured.get(&kernel.captured).map(|launch| launch.site);
                let stack = captured.or_else(|| run.call(kernel.call).map(|(_, call)| call.site))?;
                stacks.contains(&stack).then_some(0.0)?
            }
        };
        let is_one = kernel.ns >= self.least && !self.collective.contains(&kernel.id);
        is_one.then_some((kernel.ns as f64 * rest) as u64)
    }

    /// What would be won of the time of this kernel, of whatever device, that counts, ns.
    fn wins(&self, op: &Op) -> u64 {
        let kernel = as_kernel(op);
        let rest = self.becomes(kernel).unwrap_or(kernel.ns) as f64 / kernel.ns.max(1) as f64;
        (self.case.analysis.counts.measure(op.span()) as f64 * (1.0 - rest)) as u64
    }

    /// The finding that they are, at the line of the function that most of their time is for.
    pub(super) fn finding(&self, cause: (&'static str, &'static str), seen: Fact) -> Option<Finding> {
        let mut f = self.within(self.room(), cause, seen)?;
        let functions = self.functions();
        f.facts.add(others(&functions));
        if let Some((first, _)) = functions.into_iter().next() {
            f.place(first);
        }
        Some(f)
    }

    /// The finding that they are, of no line, by what holds for this device alone.
    pub(super) fn of_device(&self, cause: (&'static str, &'static str), seen: Fact) -> Option<Finding> {
        self.within(self.case.elsewhere.room(), cause, seen)
    }

    /// What can be won at most: other devices take what such a change leaves of their kernels.
    fn room(&self) -> f64 {
        let case = self.case;
        let left = |found: &DeviceAnalysis| {
            let device = case.run.devices.iter().find(|d| d.ordinal == found.ordinal);
            let ops = device.into_iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
            let won = ops.filter(|op| op.kind == Kind::Kernel).map(|op| self.wins(op));
            found.buckets.share(Bucket::Compute) - share(won.sum(), found.wall_ns)
        };
        let others = case.analysis.devices.iter().filter(|d| d.ordinal != case.device.ordinal);
        1.0 - others.map(left).fold(0.0, f64::max)
    }

    /// What a replay wins in which each takes its other time, at most `room`; `None`: it is not
    /// worth a word. `seen`: what is said of them first.
    fn within(&self, room: f64, cause: (&'static str, &'static str), seen: Fact) -> Option<Finding> {
        let case = self.case;
        let won = share(self.won, case.device.wall_ns).min(self.share());
        if won < NOTICED_SHARE {
            return None;
        }
        let most = Bound::kernels(&case.device.buckets, won);
        let win = case.win_of_kernels(&|k| self.becomes(k).unwrap_or(k.ns), most, room);
        let mut f = case.finding(cause, self.share(), win);
        f.confidence = f.confidence.min(Confidence::Medium);
        f.count = self.count;
        f.facts.say(seen);
        Some(f)
    }

    /// Their part of the time, of what the device computes alone at most.
    pub(super) fn share(&self) -> f64 {
        share(self.ns, self.case.device.wall_ns).min(self.case.share(&[Bucket::Compute]))
    }

    /// The functions of the program that their time is for, each at its largest line, with their
    /// parts of it, most first. None where the lines of half of it are not known.
    fn functions(&self) -> Vec<(Site, f64)> {
        let run = self.case.run;
        let mut sites = Sites::new(run);
        let mut by_line: HashMap<u32, u64> = HashMap::new();
        for op in self.ops() {
            let stack = run.origin(op).map_or(0, |origin| origin.work.stack);
            let Some(line) = sites.of_kernel(stack) else { continue };
            let ns = by_line.entry(line).or_default();
            *ns = ns.saturating_add(self.case.analysis.counts.measure(op.span()));
        }
        let mut lines: Vec<(u32, u64)> = by_line.into_iter().collect();
        lines.sort_unstable_by_key(|&(line, ns)| (Reverse(ns), line));
        let known: u64 = lines.iter().map(|l| l.1).sum();
        if share(known, self.ns) < MOST {
            return Vec::new();
        }
        let (mut functions, mut known) = (Vec::<(Site, u64)>::new(), HashMap::new());
        for (line, ns) in lines {
            let Some(site) = sites.get(line) else { continue };
            match known.entry((&site.path, &site.function)) {
                Entry::Vacant(new) => {
                    new.insert(functions.len());
                    functions.push((site.clone(), ns));
                }
                Entry::Occupied(at) => functions[*at.get()].1 += ns,
            }
        }
        functions.sort_by_key(|&(_, ns)| Reverse(ns));
        functions.into_iter().map(|(site, ns)| (site, share(ns, self.ns))).collect()
    }
}

/// What of the time other functions have than the one that is named, where that is much.
fn others(functions: &[(Site, f64)]) -> Option<Fact> {
    let (_, own) = functions.first().filter(|(_, own)| *own < ALMOST_ALL)?;
    let mut rest = functions.iter().skip(1).filter(|(_, part)| *part >= LARGE);
    let fact = match (rest.next(), rest.next()) {
        (Some((second, part)), None) => {
            Fact::new("of that time {own} is in that function, {part} in {second}")
                .with("part", Figure::Share(*part))
                .with("second", Figure::Who(second.clone()))
        }
        (Some((second, part)), Some((third, rest))) => {
            Fact::new("of that time {own} is in that function, {part} in {second}, {rest} in {third}")
                .with("part", Figure::Share(*part))
                .with("second", Figure::Who(second.clone()))
                .with("rest", Figure::Share(*rest))
                .with("third", Figure::Who(third.clone()))
        }
        (None, _) => Fact::new("of that time {own} is in that function"),
    };
    Some(fact.with("own", Figure::Share(*own)))
}

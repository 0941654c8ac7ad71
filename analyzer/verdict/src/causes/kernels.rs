// SPDX-License-Identifier: Apache-2.0
//! What causes of kernels have in common: some kernels of a device, how long they run in the steady
//! steps, for which line.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use trace::Kind;

use super::Case;
use crate::analysis::{share, Bucket};
use crate::replay::Kernel;
use crate::run::{Device, Op};
use crate::sites::{Site, Sites};
use crate::timeline::kernels::classify;

/// The line is named from this part of their time on.
const MOST: f64 = 0.5;

/// Which kernels they are.
enum Chosen {
    /// By the id of a definition.
    Named(HashMap<u32, bool>),
    /// By the stack of the launch (or of the one that was captured).
    LaunchedFrom(HashMap<u32, bool>),
    /// Each by itself.
    These(HashSet<Key>),
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
}

impl<'c, 'a> Kernels<'c, 'a> {
    /// Those for whose (mangled or plain) name `are` says so, and that run for `least` ns or more.
    /// `None`: there are none.
    pub(super) fn named(
        case: &'c Case<'a>,
        least: u64,
        are: impl Fn(&str) -> bool,
    ) -> Option<Kernels<'c, 'a>> {
        let named = case.run.definitions.kernels();
        let named = named.map(|(id, _)| (id, are(case.run.definitions.kernel_name(id)))).collect();
        Kernels::new(case, Chosen::Named(named), least)
    }

    /// Those that were launched from a stack of which `are` says so. `None`: there are none.
    pub(super) fn launched_from(case: &'c Case<'a>, are: impl Fn(u32) -> bool) -> Option<Kernels<'c, 'a>> {
        let stacks = case.run.definitions.stacks().map(|(id, _)| (id, are(id))).collect();
        Kernels::new(case, Chosen::LaunchedFrom(stacks), 0)
    }

    /// These. `None`: there are none.
    pub(super) fn these(case: &'c Case<'a>, all: impl Iterator<Item = Kernel>) -> Option<Kernels<'c, 'a>> {
        Kernels::new(case, Chosen::These(all.map(key).collect()), 0)
    }

    fn new(case: &'c Case<'a>, chosen: Chosen, least: u64) -> Option<Kernels<'c, 'a>> {
        let is_none = match &chosen {
            Chosen::Named(all) | Chosen::LaunchedFrom(all) => !all.values().any(|is_one| *is_one),
            Chosen::These(all) => all.is_empty(),
        };
        if is_none {
            return None;
        }
        let device = case.run.devices.iter().find(|d| d.ordinal == case.device.ordinal)?;
        let definitions = &case.run.definitions;
        let collective = definitions.kernels().map(|(id, _)| id);
        let collective = collective.filter(|id| classify(definitions.kernel_name(*id)).collective).collect();
        let mut all = Kernels { case, device, chosen, least, collective, count: 0, ns: 0 };
        let times = all.ops().map(|op| case.analysis.counts.measure(op.span()));
        let (count, ns) =
            times.fold((0, 0u64), |(count, sum), ns| (count + u64::from(ns > 0), sum.saturating_add(ns)));
        (all.count, all.ns) = (count, ns);
        Some(all)
    }

    fn ops(&self) -> impl Iterator<Item = &'a Op> + use<'_, 'c, 'a> {
        let all = self.device.streams.iter().flat_map(|s| &s.ops).filter(|op| op.kind == Kind::Kernel);
        all.filter(|op| self.has(as_kernel(op)))
    }

    /// Is this kernel one of them?
    pub(super) fn has(&self, kernel: Kernel) -> bool {
        let is_chosen = match &self.chosen {
            Chosen::These(all) => return all.contains(&key(kernel)),
            Chosen::Named(ids) => ids.get(&kernel.id),
            Chosen::LaunchedFrom(stacks) => {
                let run = self.case.run;
                let captured = run.captured.get(&kernel.captured).map(|launch| launch.site);
                let stack = captured.or_else(|| run.call(kernel.call).map(|(_, call)| call.site));
                stack.and_then(|stack| stacks.get(&stack))
            }
        };
        kernel.ns >= self.least
            && is_chosen.copied().unwrap_or(false)
            && !self.collective.contains(&kernel.id)
    }

    /// Their part of the time, of what the device computes alone at most.
    pub(super) fn share(&self) -> f64 {
        share(self.ns, self.case.device.wall_ns).min(self.case.share(&[Bucket::Compute]))
    }

    /// The line of the program that most of their time is for, where that is known of half of it.
    pub(super) fn line(&self) -> Option<Site> {
        let run = self.case.run;
        let mut sites = Sites::new(run);
        let mut by_line: HashMap<u32, u64> = HashMap::new();
        for op in self.ops() {
            let stack = run.origin(op).map_or(0, |origin| origin.work.stack);
            let Some(line) = sites.of(stack) else { continue };
            let ns = by_line.entry(line).or_default();
            *ns = ns.saturating_add(self.case.analysis.counts.measure(op.span()));
        }
        let known: u64 = by_line.values().sum();
        let (line, _) = by_line.into_iter().max_by_key(|&(line, ns)| (ns, Reverse(line)))?;
        sites.get(line).filter(|_| share(known, self.ns) >= MOST).cloned()
    }
}

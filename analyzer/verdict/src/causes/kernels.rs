// SPDX-License-Identifier: Apache-2.0
//! What causes of kernels have in common: kernels of a device chosen by their names, how long they
//! run in the steady steps, for which line.

use std::collections::HashMap;

use trace::Kind;

use super::Case;
use crate::analysis::{share, Bucket};
use crate::run::{Device, Op};
use crate::sites::{Site, Sites};

/// The line is named from this part of their time on.
const MOST: f64 = 0.5;

/// Kernels of the device that a case is about.
pub(super) struct Kernels<'a> {
    device: &'a Device,
    /// By the id of a definition: is it one of them?
    chosen: HashMap<u32, bool>,
    /// Those that ran in the steady steps.
    pub(super) count: u64,
    /// Their time there, ns.
    pub(super) ns: u64,
}

impl<'a> Kernels<'a> {
    /// Those for whose (mangled or plain) name `are` says so, and that run for `least` ns or more.
    /// `None`: the device is not known.
    pub(super) fn of(case: &Case<'a>, least: u64, are: impl Fn(&str) -> bool) -> Option<Kernels<'a>> {
        let device = case.run.devices.iter().find(|d| d.ordinal == case.device.ordinal)?;
        let mut all = Kernels { device, chosen: HashMap::new(), count: 0, ns: 0 };
        for op in device.streams.iter().flat_map(|s| &s.ops).filter(|op| op.kind == Kind::Kernel) {
            let is_one = || are(case.run.definitions.kernel_name(op.a));
            if !*all.chosen.entry(op.a).or_insert_with(is_one) || op.span().ns() < least {
                continue;
            }
            let ns = case.analysis.counts.measure(op.span());
            all.count += u64::from(ns > 0);
            all.ns = all.ns.saturating_add(ns);
        }
        Some(all)
    }

    /// Is the kernel with this id one of them?
    pub(super) fn has(&self, id: u32) -> bool {
        self.chosen.get(&id).copied().unwrap_or(false)
    }

    /// Their part of the time, of what the device computes alone at most.
    pub(super) fn share(&self, case: &Case) -> f64 {
        share(self.ns, case.device.wall_ns).min(case.share(&[Bucket::Compute]))
    }

    /// The line of the program that most of their time is for, where that is known of half of it.
    pub(super) fn line(&self, case: &Case) -> Option<Site> {
        let mut sites = Sites::new(case.run);
        let mut by_line: HashMap<u32, u64> = HashMap::new();
        let ours = |op: &&Op| op.kind == Kind::Kernel && self.has(op.a);
        for op in self.device.streams.iter().flat_map(|s| &s.ops).filter(ours) {
            let stack = case.run.origin(op).map_or(0, |origin| origin.work.stack);
            let Some(line) = sites.of(stack) else { continue };
            let ns = by_line.entry(line).or_default();
            *ns = ns.saturating_add(case.analysis.counts.measure(op.span()));
        }
        let known: u64 = by_line.values().sum();
        let (line, _) = by_line.into_iter().max_by_key(|&(line, ns)| (ns, std::cmp::Reverse(line)))?;
        sites.get(line).filter(|_| share(known, self.ns) >= MOST).cloned()
    }
}

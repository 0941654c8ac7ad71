// SPDX-License-Identifier: Apache-2.0
//! Which line of the program a cause comes from: time summed by the site of the calls to blame.

use std::collections::{HashMap, HashSet};

use super::Case;
use crate::analysis::{Bucket, Fact, Figure, Finding};
use crate::run::{Call, Run};
use crate::sites::{Site, Sites};

/// Lines that cost at least this part of what the worst costs are counted beside it.
const SAME_COST: f64 = 0.5;

/// The worst line, and what is called there.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) site: Site,
    /// Further lines that cost about as much.
    pub(super) others: Vec<Site>,
    /// The function that costs most there.
    pub(super) name: String,
    /// Calls of it there that cost something.
    pub(super) calls: u64,
    /// One of them.
    pub(super) flat: u32,
    /// At least half of all the time is this line's.
    pub(super) is_most: bool,
}

impl Spot {
    /// "and 3 more lines", or nothing.
    pub(super) fn rest(&self) -> Option<Fact> {
        let others = Figure::Of(self.others.len() as u64, "more line", "more lines");
        (!self.others.is_empty()).then(|| Fact::new("and {others}").with("others", others))
    }

    /// Puts the line into a finding.
    pub(super) fn into(self, f: &mut Finding) {
        f.call = self.flat;
        f.more_lines = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
        f.place(self.site);
    }
}

/// Time by site and function.
pub(super) struct Spots<'a> {
    run: &'a Run,
    sites: Sites<'a>,
    sums: HashMap<(u32, u32), (u64, u64, u32)>,
    seen: HashSet<u32>,
    known: u64,
    all: u64,
}

impl<'a> Spots<'a> {
    /// `None` where no call has a stack.
    pub(super) fn new(run: &'a Run) -> Option<Spots<'a>> {
        let any = run.threads.iter().flat_map(|t| &t.calls).any(|c| c.site != 0);
        any.then(|| Spots {
            run,
            sites: Sites::new(run),
            sums: HashMap::new(),
            seen: HashSet::new(),
            known: 0,
            all: 0,
        })
    }

    /// `ns` more because of this call.
    pub(super) fn add(&mut self, flat: u32, call: &Call, ns: u64) {
        self.all = self.all.saturating_add(ns);
        let Some(site) = self.sites.of(call.site) else { return };
        self.known = self.known.saturating_add(ns);
        let sum = self.sums.entry((site, call.packed)).or_insert((0, 0, flat));
        sum.0 = sum.0.saturating_add(ns);
        sum.1 += u64::from(self.seen.insert(flat));
    }

    /// The line that costs most; `None` where the lines of more than half of the time are not
    /// known.
    pub(super) fn worst(self) -> Option<Spot> {
        if self.known < self.all - self.known || self.known == 0 {
            return None;
        }
        let mut lines: HashMap<u32, u64> = HashMap::new();
        for (&(site, _), sum) in &self.sums {
            let line: &mut u64 = lines.entry(site).or_default();
            *line = line.saturating_add(sum.0);
        }
        let (&worst, &most) = lines.iter().max_by_key(|(&site, &ns)| (ns, u32::MAX - site))?;
        let about = lines.iter().filter(|(&site, &ns)| site != worst && ns as f64 >= most as f64 * SAME_COST);
        let others: Vec<Site> = about.filter_map(|(&site, _)| self.sites.get(site).cloned()).collect();
        let there = self.sums.iter().filter(|((site, _), _)| *site == worst);
        let (_, &(_, calls, flat)) = there.max_by_key(|((_, packed), sum)| (sum.0, u32::MAX - packed))?;
        let name = self.run.call(flat).map_or("", |(_, c)| self.run.call_name(c)).to_owned();
        let site = self.sites.get(worst)?.clone();
        let is_most = most >= self.all - most.min(self.all);
        Some(Spot { site, others, name, calls, flat, is_most })
    }
}

impl Case<'_> {
    /// The function of the program that the host was in for most of a bucket's idle time, where the
    /// trace holds functions.
    pub(super) fn function_of(&self, bucket: Bucket) -> Option<Site> {
        #[cfg(feature = "readers")]
        {
            let slices = self.device.slices.iter().filter(|s| s.bucket == bucket);
            let counted = slices.filter(|s| self.analysis.counts.measure(s.span()) > 0);
            let placed = counted.filter_map(|s| Some((self.run.call(s.call)?.0, s.span())));
            crate::gaps::functions::of_most(self.run, placed)
        }
        #[cfg(not(feature = "readers"))]
        {
            let _ = bucket;
            None
        }
    }

    /// The innermost of the program's lines below which the calls of at least half of a bucket's
    /// idle time were made.
    pub(super) fn below(&self, bucket: Bucket) -> Option<Site> {
        let slices = self.device.slices.iter().filter(|s| s.bucket == bucket);
        let placed = slices.filter_map(|s| {
            let ns = self.analysis.counts.measure(s.span());
            Some((self.run.call(s.call).filter(|_| ns > 0)?.1.site, ns))
        });
        let mut sites = Sites::new(self.run);
        let (line, _) = sites.below(placed)?;
        sites.get(line).cloned()
    }

    /// The worst line of a bucket's idle time.
    pub(super) fn spot(&self, bucket: Bucket) -> Option<Spot> {
        let mut spots = Spots::new(self.run)?;
        for s in self.device.slices.iter().filter(|s| s.bucket == bucket) {
            let ns = self.analysis.counts.measure(s.span());
            if let Some((_, call)) = self.run.call(s.call).filter(|_| ns > 0) {
                spots.add(s.call, call, ns);
            }
        }
        spots.worst()
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What the program, or its framework, calls the place where time goes, in another tool's trace
//! without a stack there: the range that the program named (`record_function`, NVTX), and the
//! outermost operator in it.

use std::collections::{BTreeMap, HashMap};

use super::Case;
#[cfg(feature = "readers")]
use crate::analysis::idle_stacks::open_in;
use crate::analysis::idle_stacks::{idle_stacks, step_stem};
use crate::analysis::{Bucket, Finding};
#[cfg(feature = "readers")]
use crate::run::Span;
use crate::run::{Range, RangeKind, Run};
use crate::sites::Site;

/// Range and operator around a call: numbers of their names.
type Place = (Option<u32>, Option<u32>);

/// Time by place.
#[derive(Default)]
struct Places {
    sums: BTreeMap<Place, u64>,
    all: u64,
}

impl Places {
    fn add(&mut self, place: Place, ns: u64) {
        *self.sums.entry(place).or_default() += ns;
        self.all += ns;
    }

    /// The range, and the operator, that at least half of the time has.
    fn most(&self, run: &Run) -> Option<Site> {
        let mut by_range: HashMap<&str, u64> = HashMap::new();
        let mut by_operator: HashMap<&str, u64> = HashMap::new();
        for ((range, operator), ns) in &self.sums {
            for (to, name) in [(&mut by_range, range), (&mut by_operator, operator)] {
                if let Some(name) = name.and_then(|name| run.definitions.string(name)) {
                    *to.entry(name).or_default() += ns;
                }
            }
        }
        let most = |of: HashMap<&str, u64>| {
            let (name, ns) =
                of.into_iter().max_by_key(|&(name, ns)| (ns, std::cmp::Reverse(name.to_owned())))?;
            (ns > 0 && ns >= self.all - ns).then(|| name.to_owned())
        };
        let (range, operator) = (most(by_range), most(by_operator));
        let (function, via) = match (range, operator) {
            (Some(range), operator) => (range, operator),
            (None, operator) => (operator?, None),
        };
        Some(Site { function, via, ..Site::default() })
    }
}

impl Case<'_> {
    /// Puts the range or operator around a bucket's idle time into a finding that has no line: that
    /// around the calls that it is blamed on, or, of HOST, that in which the host was meanwhile.
    pub(super) fn name_by_range(&self, f: &mut Finding, bucket: Bucket) {
        if f.site.is_some() || !self.run.foreign {
            return;
        }
        let places = if bucket == Bucket::Host { self.of_the_host() } else { self.of_calls(bucket) };
        if let Some(site) = places.most(self.run) {
            f.place(site);
        }
    }

    fn of_calls(&self, bucket: Bucket) -> Places {
        let mut places = Places::default();
        idle_stacks(self.run, self.device, &self.analysis.counts, |idle| {
            if idle.bucket == bucket {
                let ranges: Vec<&Range> = idle.ranges().collect();
                places.add(self.place_in(&ranges), idle.ns);
            }
        });
        places
    }

    /// Of the time in which the host did not launch: the call that it is blamed on, the next
    /// launch, comes only after it.
    #[cfg(feature = "readers")]
    fn of_the_host(&self) -> Places {
        let mut places = Places::default();
        let mut by_thread: BTreeMap<usize, Vec<Span>> = BTreeMap::new();
        for s in self.device.slices.iter().filter(|s| s.bucket == Bucket::Host) {
            let ns = self.analysis.counts.measure(s.span());
            match s.call().and_then(|call| self.run.call(call)) {
                _ if ns == 0 => {}
                Some((thread, _)) => by_thread.entry(thread).or_default().push(s.span()),
                None => places.add((None, None), ns),
            }
        }
        for (thread, mut spans) in by_thread {
            let Some(thread) = self.run.threads.get(thread) else { continue };
            spans.sort_unstable();
            open_in(thread, &spans, |open, ns| places.add(self.place_in(open), ns));
        }
        places
    }

    /// (What the injected library writes is never another tool's.)
    #[cfg(not(feature = "readers"))]
    fn of_the_host(&self) -> Places {
        Places::default()
    }

    /// Of ranges around a call, outermost first: the innermost that the program named, but for
    /// steps; the first operator in it.
    fn place_in(&self, ranges: &[&Range]) -> Place {
        let name = |r: &Range| self.run.definitions.string(r.name).filter(|name| !name.is_empty());
        let is_step = |name: &str| step_stem(name).is_some() || name.starts_with("ProfilerStep");
        let is_named = |r: &&Range| {
            r.kind == RangeKind::User
                && !self.run.is_librarys(r)
                && name(r).is_some_and(|name| !is_step(name))
        };
        let at = ranges.iter().rposition(is_named);
        let inside = ranges.get(at.map_or(0, |at| at + 1)..).unwrap_or(&[]);
        let operator = inside.iter().find(|r| r.kind == RangeKind::Operator && name(r).is_some());
        (at.and_then(|at| ranges.get(at)).map(|r| r.name), operator.map(|r| r.name))
    }
}

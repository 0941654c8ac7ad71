// SPDX-License-Identifier: Apache-2.0
//! What the program, or its framework, calls the place where time goes, in another tool's trace
//! without a stack there: the range that the program named (`record_function`, NVTX), and the
//! outermost operator in it.

use std::collections::HashMap;

use super::Case;
use crate::analysis::{Bucket, Finding};
use crate::gaps::stacks::{idle_stacks, without_number};
use crate::run::{Range, RangeKind};
use crate::sites::Site;

/// Range and operator around a call.
type Place = (Option<String>, Option<String>);

impl Case<'_> {
    /// Puts the range or operator around the calls that a bucket's idle time is blamed on into a
    /// finding that has no line.
    pub(super) fn name_by_range(&self, f: &mut Finding, bucket: Bucket) {
        if f.site.is_some() || !self.run.foreign {
            return;
        }
        if let Some(site) = self.range_of_most(bucket) {
            f.text = format!("{site}: {}", f.text);
            f.site = Some(site);
        }
    }

    fn range_of_most(&self, bucket: Bucket) -> Option<Site> {
        let mut sums: HashMap<Place, u64> = HashMap::new();
        let mut all = 0;
        idle_stacks(self.run, self.device, &self.analysis.counts, |idle| {
            if idle.bucket == bucket {
                let ranges: Vec<&Range> = idle.ranges().collect();
                *sums.entry(self.place_in(&ranges)).or_default() += idle.ns;
                all += idle.ns;
            }
        });
        let mut by_range: HashMap<&str, u64> = HashMap::new();
        let mut by_operator: HashMap<&str, u64> = HashMap::new();
        for ((range, operator), ns) in &sums {
            for (to, name) in [(&mut by_range, range), (&mut by_operator, operator)] {
                if let Some(name) = name {
                    *to.entry(name).or_default() += ns;
                }
            }
        }
        let most = |of: HashMap<&str, u64>| {
            let (name, ns) =
                of.into_iter().max_by_key(|&(name, ns)| (ns, std::cmp::Reverse(name.to_owned())))?;
            (ns > 0 && ns >= all - ns).then(|| name.to_owned())
        };
        let (range, operator) = (most(by_range), most(by_operator));
        let (function, via) = match (range, operator) {
            (Some(range), operator) => (range, operator),
            (None, operator) => (operator?, None),
        };
        Some(Site { function, via, ..Site::default() })
    }

    /// Of ranges around a call, outermost first: the innermost that the program named, but for
    /// steps; the first operator in it.
    fn place_in(&self, ranges: &[&Range]) -> Place {
        let name = |r: &Range| self.run.definitions.string(r.name).unwrap_or("").to_owned();
        let is_named = |r: &&Range| {
            let name = name(r);
            let is_step = without_number(&name) != name || name.starts_with("ProfilerStep");
            r.kind == RangeKind::User && !name.is_empty() && !is_step && !self.run.is_librarys(r)
        };
        let at = ranges.iter().rposition(is_named);
        let inside = ranges.get(at.map_or(0, |at| at + 1)..).unwrap_or(&[]);
        let operator = inside.iter().find(|r| r.kind == RangeKind::Operator);
        (at.and_then(|at| ranges.get(at)).map(|r| name(r)), operator.map(|r| name(r)))
    }
}

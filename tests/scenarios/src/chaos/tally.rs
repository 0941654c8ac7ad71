// SPDX-License-Identifier: Apache-2.0
//! The figures of many runs.

use std::collections::BTreeMap;
use std::fmt;

use super::{Found, Plan};

/// Sums over runs.
#[derive(Default)]
pub struct Tally {
    runs: u64,
    /// By kind of trouble: runs, and those of them that failed.
    troubles: BTreeMap<String, (u64, u64)>,
    sum: Found,
    /// Seeds that failed, and why.
    pub failed: Vec<(u64, Vec<String>)>,
}

impl Tally {
    /// One run more.
    pub fn add(&mut self, plan: &Plan, found: Found) {
        self.runs += 1;
        for trouble in plan.troubles() {
            let entry = self.troubles.entry(trouble).or_default();
            entry.0 += 1;
            entry.1 += u64::from(!found.failures.is_empty());
        }
        let sum = &mut self.sum;
        sum.closed += found.closed;
        sum.recovered += found.recovered;
        sum.without += found.without;
        sum.operations += found.operations;
        sum.lost += found.lost;
        sum.unobserved += found.unobserved;
        for (key, count) in found.losses {
            *sum.losses.entry(key).or_default() += count;
        }
        if !found.failures.is_empty() {
            self.failed.push((plan.seed, found.failures));
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = &self.sum;
        writeln!(f, "{:<40} {:>8} {:>8}", "trouble", "runs", "failed")?;
        for (trouble, (runs, failed)) in &self.troubles {
            writeln!(f, "{trouble:<40} {runs:>8} {failed:>8}")?;
        }
        writeln!(f, "{:<40} {:>8} {:>8}", "all", self.runs, self.failed.len())?;
        writeln!(f, "\nprocesses that ended in order, recorded    {:>10}", sum.closed)?;
        writeln!(f, "killed ones, recovered                     {:>10}", sum.recovered)?;
        writeln!(f, "with nothing to record, or no place for it {:>10}", sum.without)?;
        writeln!(f, "operations of the device                   {:>10}", sum.operations)?;
        writeln!(f, "in no recording                            {:>10}", sum.lost)?;
        writeln!(f, "  while capture was off                    {:>10}", sum.unobserved)?;
        for (key, count) in &sum.losses {
            writeln!(f, "  counter {key:<32} {count:>10}")?;
        }
        Ok(())
    }
}

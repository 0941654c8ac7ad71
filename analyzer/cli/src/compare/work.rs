// SPDX-License-Identifier: Apache-2.0
//! Do two runs do the same work? By the kernels of a step: name ([`super::side::base_name`]),
//! count, grid.
//!
//! ```text
//! common, of A    sum over kernels of ns a step * min(1, count in B / count in A), over the sum of ns a step
//! common          the smaller one of A's and B's
//! reshaped        the same sum over the kernels whose grids differ; the larger one of A's and B's
//! ```
//! A step's kernels are those of all GPUs in the trace: what one GPU no longer does is other work,
//! whoever's time is compared.
//!
//! Durations are not compared: they are what changes. Copies and memsets are not: that a copy is
//! gone is often the change.

use std::collections::{BTreeSet, HashMap};

use super::side::{Kernels, Side};

/// The first and the last step of a run may be cut a kernel early or late: so many launches of a
/// run are no difference. Not so many of each step: steps follow each other, and what one lacks the
/// next one has.
const CUT: f64 = 2.0;
/// With grids this close together two kernels have the same shape.
const SAME_GRID: f64 = 0.05;
/// From this common share on it is the same work.
pub const SAME: f64 = 0.99;
/// Below this share it is other work.
pub const OTHER: f64 = 0.90;
/// Kernels with less of the kernels' time in both runs are counted, not named.
pub const MIN_SHARE_SAID: f64 = 0.001;

/// What is said of two runs' work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sameness {
    /// The same kernels.
    Same,
    /// Less than a tenth of the kernels' time is in other kernels.
    Nearly,
    /// Other kernels, or other shapes.
    Other,
    /// The kernels are not known.
    Unknown,
}

impl Sameness {
    /// Stable machine-readable name.
    pub const fn key(self) -> &'static str {
        match self {
            Sameness::Same => "same",
            Sameness::Nearly => "nearly",
            Sameness::Other => "other",
            Sameness::Unknown => "unknown",
        }
    }
}

/// How a kernel changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// In B only.
    Appeared,
    /// In A only.
    Vanished,
    /// As often (nearly), in grids of another size.
    Grid,
    /// More or less often a step.
    Count,
}

impl Change {
    /// Stable machine-readable name, and the word in the text.
    pub const fn key(self) -> &'static str {
        match self {
            Change::Appeared => "appeared",
            Change::Vanished => "vanished",
            Change::Grid => "grid",
            Change::Count => "count",
        }
    }
}

/// A kernel that changed. Without steps counts and times are of the whole span.
#[derive(Clone, PartialEq, Debug)]
pub struct Changed {
    /// Name.
    pub name: String,
    /// How.
    pub change: Change,
    /// Launches a step.
    pub count: (f64, f64),
    /// ns a step.
    pub ns: (f64, f64),
    /// Blocks a launch, 0 unknown.
    pub blocks: (f64, f64),
}

/// The comparison of the work.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    /// The answer.
    pub sameness: Sameness,
    /// Share of the kernels' time in kernels that both runs have equally often, 0 to 1.
    pub common: f64,
    /// Share of the kernels' time in kernels that both have, in grids of another size, 0 to 1,
    /// where it is larger.
    pub reshaped: f64,
    /// Why the work is not known, or what the counts look like; "" where there is nothing to say.
    pub why: String,
    /// Kernels that changed, by time.
    pub changed: Vec<Changed>,
}

impl Work {
    /// Share of the kernels' time that is not known to be the same work, 0 to 1.
    pub fn differs(&self) -> f64 {
        (1.0 - self.common + self.reshaped).clamp(0.0, 1.0)
    }
}

/// Compares. `scaling`: the runs have different numbers of GPUs by intent, so collectives do not
/// count, and the compared GPU's kernels only.
pub fn work(a: &Side<'_>, b: &Side<'_>, scaling: bool) -> Work {
    let unknown = |why: &str| Work {
        sameness: Sameness::Unknown,
        common: 0.0,
        reshaped: 0.0,
        why: why.to_owned(),
        changed: Vec::new(),
    };
    let of = |side: &Side<'_>| -> HashMap<String, Kernels> {
        let kernels = if scaling { &side.kernels } else { &side.all_kernels };
        // a trace that has one block for every kernel does not tell grids
        let told = kernels.values().any(|k| k.blocks > k.count);
        let all = kernels.iter().filter(|(_, k)| !scaling || !k.collective);
        all.map(|(name, k)| (name.clone(), Kernels { blocks: if told { k.blocks } else { 0 }, ..*k }))
            .collect()
    };
    let (ka, kb) = (of(a), of(b));
    if ka.is_empty() || kb.is_empty() {
        return unknown("no kernel in the steps (graphs recorded as one operation have none)");
    }
    if a.steps.is_empty() != b.steps.is_empty() {
        return unknown("only one of the runs has steps");
    }
    if a.steps.is_empty() {
        // no unit to count in: as if both had run equally long
        let total = |k: &HashMap<String, Kernels>| k.values().map(|k| k.count).sum::<u64>() as f64;
        let mut work = compare(&ka, &kb, (1.0, total(&kb) / total(&ka)));
        work.why = "no steps: counts are compared by their shares".to_owned();
        return work;
    }
    let (na, nb) = (a.steps.len() as f64, b.steps.len() as f64);
    let mut work = compare(&ka, &kb, (na, nb));
    if work.sameness == Sameness::Other {
        let total = |k: &HashMap<String, Kernels>| k.values().map(|k| k.count).sum::<u64>() as f64;
        let factor = (total(&kb) / nb) / (total(&ka) / na);
        if !(0.8..1.25).contains(&factor) && compare(&ka, &kb, (na, nb * factor)).common >= OTHER {
            work.why =
                format!("a step of B holds {factor:.2} times the kernels of a step of A: another step?");
        }
    }
    work
}

fn compare(ka: &HashMap<String, Kernels>, kb: &HashMap<String, Kernels>, steps: (f64, f64)) -> Work {
    let names: BTreeSet<&String> = ka.keys().chain(kb.keys()).collect();
    let per = |sum: u64, steps: f64| sum as f64 / steps;
    let (mut all, mut common, mut reshaped) = ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0));
    let cut = CUT / steps.0 + CUT / steps.1;
    let mut changed = Vec::new();
    for name in names {
        let (x, y) = (ka.get(name).copied().unwrap_or_default(), kb.get(name).copied().unwrap_or_default());
        let count = (per(x.count, steps.0), per(y.count, steps.1));
        let ns = (per(x.ns, steps.0), per(y.ns, steps.1));
        let blocks = (per(x.blocks, x.count.max(1) as f64), per(y.blocks, y.count.max(1) as f64));
        let both = x.count > 0 && y.count > 0;
        let same_count = both && (count.0 - count.1).abs() <= cut;
        let part = |mine: f64, other: f64| match both {
            true if same_count => 1.0,
            true => (other / mine).min(1.0),
            false => 0.0,
        };
        let shared = (ns.0 * part(count.0, count.1), ns.1 * part(count.1, count.0));
        all = (all.0 + ns.0, all.1 + ns.1);
        common = (common.0 + shared.0, common.1 + shared.1);
        let other_grid = blocks.0 > 0.0 && blocks.1 > 0.0 && !near(blocks, SAME_GRID);
        if other_grid {
            reshaped = (reshaped.0 + shared.0, reshaped.1 + shared.1);
        }
        let change = match (x.count, y.count) {
            (0, _) => Change::Appeared,
            (_, 0) => Change::Vanished,
            // counts that differ by less than SAME asks for are not worth a row
            _ if !same_count && !near(count, 1.0 - SAME) => Change::Count,
            _ if other_grid => Change::Grid,
            _ => continue,
        };
        changed.push(Changed { name: name.clone(), change, count, ns, blocks });
    }
    let of = |part: f64, all: f64| if all > 0.0 { (part / all).min(1.0) } else { 1.0 };
    let common = of(common.0, all.0).min(of(common.1, all.1));
    let share = |part: f64, all: f64| if all > 0.0 { (part / all).min(1.0) } else { 0.0 };
    let reshaped = share(reshaped.0, all.0).max(share(reshaped.1, all.1));
    changed.sort_by(|x, y| {
        let time = |c: &Changed| c.ns.0.max(c.ns.1);
        time(y).total_cmp(&time(x)).then_with(|| x.name.cmp(&y.name))
    });
    let sameness = match (common, reshaped) {
        (c, r) if c < OTHER || r > 1.0 - OTHER => Sameness::Other,
        (c, r) if c < SAME || r > 1.0 - SAME => Sameness::Nearly,
        _ => Sameness::Same,
    };
    Work { sameness, common, reshaped, why: String::new(), changed }
}

/// Equal up to a share of the larger.
pub(super) fn near((a, b): (f64, f64), share: f64) -> bool {
    (a - b).abs() <= share * a.max(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kernels: &[(&str, u64, u64, u64)]) -> HashMap<String, Kernels> {
        let one = |&(name, count, ns, blocks): &(&str, u64, u64, u64)| {
            (name.to_owned(), Kernels { count, ns, blocks: count * blocks, collective: false })
        };
        kernels.iter().map(one).collect()
    }

    /// Ten steps each; what B has less often counts in its share: 600 + 400 / 2 of 1000.
    #[test]
    fn the_common_share_is_that_of_the_formula() {
        let a = of(&[("gemm", 100, 600, 8), ("add", 100, 400, 8)]);
        let b = of(&[("gemm", 100, 900, 8), ("add", 50, 100, 8)]);
        let w = compare(&a, &b, (10.0, 10.0));
        assert!((w.common - 0.8).abs() < 1e-12 && w.sameness == Sameness::Other, "{w:?}");
        assert_eq!(w.changed.len(), 1);
        assert_eq!((w.changed[0].change, w.changed[0].count), (Change::Count, (10.0, 5.0)));
        // twice the steps with twice the launches are the same work
        let twice = of(&[("gemm", 200, 600, 8), ("add", 200, 400, 8)]);
        let w = compare(&a, &twice, (10.0, 20.0));
        assert_eq!((w.sameness, w.common, w.changed.len()), (Sameness::Same, 1.0, 0));
    }

    #[test]
    fn the_same_kernels_in_other_grids_are_other_work() {
        let a = of(&[("gemm", 100, 600, 64), ("add", 100, 400, 0)]);
        let b = of(&[("gemm", 100, 1200, 128), ("add", 100, 400, 9)]);
        let w = compare(&a, &b, (10.0, 10.0));
        assert_eq!((w.sameness, w.common, w.reshaped), (Sameness::Other, 1.0, 0.75));
        assert_eq!(
            (w.changed[0].change, w.changed.len()),
            (Change::Grid, 1),
            "a grid that is not known is no other"
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! What recording costs the program: estimated from what was recorded and from what CUPTI is known to cost (H200.md), and measured by
//! holding the last steps of each window against the first ones behind it.

use trace::header::sources;
use trace::{total, Total};

use super::plan::{Costs, RESIDUE_FIRST_NS, RESIDUE_NS};
use super::step_clock;
use crate::cupti::session;

/// A launch that is recorded, with all that CUPTI costs the calls around it, ns: 2.3 µs in eager PyTorch of tiny blocks (docs/run-cost.md); 1.1 in a
/// loop of launches in C++ (`gpu-check --only cost:launch`).
const LAUNCH_NS: u32 = 2300;
/// The same with CUPTI's records of waits (`cupti::streams`).
const LAUNCH_WITH_WAITS_NS: u32 = 4600;

/// What a recorded launch costs here, ns.
pub(crate) fn launch_ns() -> u32 {
    match session::source_bits() & sources::WAITS_BY_CALLS {
        0 => LAUNCH_WITH_WAITS_NS,
        _ => LAUNCH_NS,
    }
}

/// Blocks of so many steps are held against each other, so many of a window and of what follows it.
const STEPS: u64 = 12;
const BLOCKS: u64 = 8;
/// Steps left out at a switch.
const LEFT_OUT: u64 = 3;
/// Fewer pairs than this tell nothing.
const LEAST_PAIRS: usize = BLOCKS as usize;
const MOST_PAIRS: usize = 64;

/// Counts of what was recorded so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    launches: u64,
    nodes: u64,
    callback_ns: u64,
}

impl Spent {
    pub(crate) fn of(totals: &[u64; total::SLOTS], callback_ns: u64) -> Spent {
        let of = |t: Total| totals.get(t as usize).copied().unwrap_or(0);
        let launches = of(Total::Launches) + of(Total::GraphLaunches);
        // (a kernel whose call was lost is no node)
        let nodes = match of(Total::GraphLaunches) {
            0 => 0,
            _ => of(Total::Kernels).saturating_sub(of(Total::Launches)),
        };
        Spent { launches, nodes, callback_ns }
    }

    /// Launches, of kernels and graphs.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    /// ns since `before`.
    fn cost(&self, before: &Spent) -> f64 {
        (self.launches - before.launches) as f64 * f64::from(launch_ns())
            + self.nodes.saturating_sub(before.nodes) as f64 * total::RECORDED_NODE_NS as f64
            + self.callback_ns.saturating_sub(before.callback_ns) as f64
    }
}

/// What was counted while a window was open.
#[derive(Clone, Copy, Default)]
struct Open {
    time_ns: f64,
    cost_ns: f64,
    launches: f64,
    /// Nodes of graphs.
    nodes: f64,
    /// Launches that the step clock saw.
    seen: f64,
}

/// The account.
pub(crate) struct Budget {
    began: u64,
    /// This much is spent before any window is closed, ns: a run of a minute or two is recorded whole.
    free_ns: f64,
    last: u64,
    last_spent: Spent,
    last_launches: u64,
    /// All of it, ns.
    spent_ns: f64,
    open: Open,
    /// Windows were opened again: what stays of CUPTI is more from then on.
    was_reopened: bool,
    /// Step time in a window over step time behind it, less 1: of blocks, and of no window before the first that was opened again.
    pairs: Vec<f64>,
    held_at: u64,
}

impl Budget {
    pub(super) fn new(now: u64, free_ns: u64) -> Budget {
        Budget {
            began: now,
            free_ns: free_ns as f64,
            last: now,
            last_spent: Spent::default(),
            last_launches: 0,
            spent_ns: 0.0,
            open: Open::default(),
            was_reopened: false,
            pairs: Vec::new(),
            held_at: u64::MAX,
        }
    }

    /// What has come since the last look, with a window open or not; `launches`: of the step clock.
    pub(super) fn look(&mut self, now: u64, is_open: bool, spent: Spent, launches: u64) {
        let cost = spent.cost(&self.last_spent);
        self.spent_ns += cost;
        if is_open {
            let open = &mut self.open;
            open.time_ns += now.saturating_sub(self.last) as f64;
            open.cost_ns += cost;
            open.launches += (spent.launches - self.last_spent.launches) as f64;
            open.nodes += spent.nodes.saturating_sub(self.last_spent.nodes) as f64;
            open.seen += launches.saturating_sub(self.last_launches) as f64;
        } else {
            let stays = if self.was_reopened { RESIDUE_NS } else { RESIDUE_FIRST_NS };
            self.spent_ns += launches.saturating_sub(self.last_launches) as f64 * self.unseen() * stays;
        }
        (self.last, self.last_spent, self.last_launches) = (now, spent, launches);
    }

    /// Launches of the program for each that is seen without CUPTI, as it was while a window was open.
    fn unseen(&self) -> f64 {
        let Open { launches, seen, .. } = self.open;
        if seen > 0.0 {
            (launches / seen).max(1.0)
        } else {
            1.0
        }
    }

    /// Did nodes of graphs run?
    pub(super) fn has_graphs(&self) -> bool {
        self.last_spent.nodes > 0
    }

    /// A window was opened after another one. What a window costs more than what follows it is less from then on.
    pub(super) fn reopened(&mut self) {
        if !std::mem::replace(&mut self.was_reopened, true) {
            self.pairs.clear();
        }
    }

    /// Is more spent than this share of the time so far, and what is free?
    pub(super) fn is_spent(&self, now: u64, share: f64) -> bool {
        self.spent_ns > self.free_ns + share * now.saturating_sub(self.began) as f64
    }

    /// The window from step `begin` to before `step` against the steps from `since` on, when CUPTI was off, once they are there: as many blocks as
    /// lie in the window.
    pub(super) fn hold_against(&mut self, begin: u64, step: u64, since: u64) {
        let behind = since + LEFT_OUT;
        if self.held_at == step || step_clock::steps() < behind + BLOCKS * STEPS {
            return;
        }
        self.held_at = step;
        for n in blocks_within(begin, step) {
            let inside = step - LEFT_OUT - (n + 1) * STEPS;
            if let (Some(a), Some(b)) = (block(inside), block(behind + n * STEPS)) {
                if self.pairs.len() == MOST_PAIRS {
                    self.pairs.remove(0);
                }
                self.pairs.push(a / b - 1.0);
            }
        }
    }

    /// Mean of the pairs and half its 95 % interval; `None`: too few.
    fn measured(&self) -> Option<(f64, f64)> {
        let n = self.pairs.len() as f64;
        if self.pairs.len() < LEAST_PAIRS {
            return None;
        }
        let mean = self.pairs.iter().sum::<f64>() / n;
        let variance = self.pairs.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // Student's t for 7 degrees of freedom, and less for more
        Some((mean, 2.36 * (variance / n).sqrt()))
    }

    /// Shares of the program's time.
    pub(super) fn costs(&self) -> Costs {
        let Open { time_ns, cost_ns, launches, nodes, .. } = self.open;
        if time_ns == 0.0 {
            return Costs::default();
        }
        let now = if self.was_reopened { RESIDUE_NS } else { RESIDUE_FIRST_NS };
        let of = |each: f64| (launches * each + nodes * each / 3.0) / time_ns;
        let Some((mean, half)) = self.measured() else {
            return Costs { on: cost_ns / time_ns, off_once: of(now), off: of(RESIDUE_NS) };
        };
        // What a window was seen to cost more than no window, at most: where the GPU is behind, launches that take longer cost nothing, recorded or not.
        let more = (mean + half).max(0.0);
        let recorded = f64::from(launch_ns());
        let stays = |each: f64| of(each).min(more * each / (recorded - now).max(1.0));
        Costs { on: stays(now) + more, off_once: stays(now), off: stays(RESIDUE_NS) }
    }

    /// The usual step time, ns; 0: not known.
    pub(super) fn step_ns(&self) -> u64 {
        usual(step_clock::times(0, u64::MAX)).unwrap_or(0.0) as u64
    }

    /// What was measured, in words.
    pub(super) fn describe(&self) -> Option<(&'static str, String)> {
        let (mean, half) = self.measured()?;
        let [mean, low, high] = [mean, mean - half, mean + half].map(|share| share * 100.0);
        Some((
            "windows.cost",
            format!("{mean:+.2} % of a step in a window [{low:+.2}, {high:+.2}], {} pairs", self.pairs.len()),
        ))
    }
}

/// Blocks before `step`, counted backwards, that begin in the window that was open at step `begin`.
fn blocks_within(begin: u64, step: u64) -> std::ops::Range<u64> {
    let first = if begin == 0 { 0 } else { begin + LEFT_OUT };
    0..(step.saturating_sub(LEFT_OUT + first) / STEPS).min(BLOCKS)
}

/// Median of the step times of a block, where all of them are known.
fn block(from: u64) -> Option<f64> {
    let times = step_clock::times(from, from + STEPS);
    (times.len() as u64 == STEPS).then(|| median(times)).flatten()
}

/// The usual one: the middle one, or the mean where they are so uneven that the middle one says nothing (launches that run ahead, and a wait for all of them now and
/// then; a step that is counted in parts, of which one has the wait). The longest hundredth is left out: pauses.
fn usual(mut values: Vec<u64>) -> Option<f64> {
    const UNEVEN: f64 = 2.0;
    values.sort_unstable();
    values.truncate(values.len() - values.len() / 100);
    let middle = *values.get(values.len() / 2)? as f64;
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
    Some(if mean > UNEVEN * middle { mean } else { middle })
}

/// The middle one.
pub(super) fn median(mut values: Vec<u64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spent(launches: u64) -> Spent {
        Spent { launches, ..Spent::default() }
    }

    #[test]
    fn steps_that_are_counted_in_parts_take_as_long_as_they_do_on_the_whole() {
        assert_eq!(usual(vec![]), None);
        assert_eq!(usual(vec![7]), Some(7.0));
        assert_eq!(usual(vec![10, 11, 12, 13, 30]), Some(12.0), "one that took longer");
        // four parts that launch, and one that waits
        let parts = [20, 20, 20, 20, 2600].repeat(100);
        assert_eq!(usual(parts).map(f64::round), Some(515.0));
        // a pause of ten minutes among steps of 10 ms
        let mut paused = vec![10; 4000];
        paused[17] = 600_000;
        assert_eq!(usual(paused), Some(10.0));
    }

    #[test]
    fn a_run_that_launches_much_spends_its_budget_and_one_that_launches_little_never_does() {
        for (a_second, spends_after) in [(33_000, Some(14)), (500, None)] {
            let mut budget = Budget::new(0, 2 * SECOND);
            let first = (1..3600u64).find(|s| {
                budget.look(s * SECOND, true, spent(a_second * s), a_second * s);
                budget.is_spent(s * SECOND, 0.005)
            });
            assert_eq!(first, spends_after, "{a_second} launches a second");
        }
    }

    #[test]
    fn what_stays_of_cupti_counts_too() {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.look(SECOND, true, spent(1000), 1000);
        let before = budget.spent_ns;
        budget.look(2 * SECOND, false, spent(1000), 2000);
        assert_eq!(budget.spent_ns - before, 1000.0 * RESIDUE_FIRST_NS);
        budget.reopened();
        budget.look(3 * SECOND, false, spent(1000), 3000);
        assert_eq!(budget.spent_ns - before, 1000.0 * (RESIDUE_FIRST_NS + RESIDUE_NS));
    }

    #[test]
    fn blocks_are_of_the_window_alone() {
        assert_eq!(blocks_within(0, 5000), 0..8, "the first one");
        assert_eq!(blocks_within(8192, 8192 + 64), 0..4);
        assert_eq!(blocks_within(8192, 8192 + 16), 0..0);
        assert_eq!(blocks_within(8192, 8192 + 18), 0..1);
        assert_eq!(blocks_within(8192, 8192 + 4096), 0..8);
        assert_eq!(blocks_within(8192, 0), 0..0, "steps are numbered anew");
    }

    #[test]
    fn a_kernel_whose_call_was_lost_is_no_node_of_a_graph() {
        let mut totals = [0; total::SLOTS];
        for (t, n) in [(Total::Kernels, 1000), (Total::Launches, 998)] {
            totals[t as usize] = n;
        }
        assert_eq!(Spent::of(&totals, 0).nodes, 0);
        totals[Total::GraphLaunches as usize] = 1;
        assert_eq!(Spent::of(&totals, 0).nodes, 2);
    }

    #[test]
    fn launches_that_only_cupti_sees_leave_as_much_behind() {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.look(SECOND, true, spent(6000), 1000);
        let before = budget.spent_ns;
        budget.look(2 * SECOND, false, spent(6000), 2000);
        assert_eq!(budget.spent_ns - before, 6000.0 * RESIDUE_FIRST_NS);
    }

    #[test]
    fn a_window_that_was_seen_to_cost_nothing_is_not_held_to_the_estimate() {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.look(SECOND, true, spent(40_000), 40_000);
        assert!((budget.costs().on - 0.184).abs() < 1e-9);
        budget.pairs = [0.001, -0.001].repeat(8);
        let costs = budget.costs();
        assert!(costs.on < 0.001 && costs.off < 0.001, "{costs:?}");
        let plan = super::super::plan::Plan::within(0.005, costs, 32);
        assert!(plan.is_some(), "the GPU hides it: there is a second window");
        budget.pairs = [0.12, 0.13].repeat(8);
        let costs = budget.costs();
        assert!((0.12..0.14).contains(&costs.on), "{costs:?}");
        assert_eq!(
            super::super::plan::Plan::within(0.005, costs, 32),
            None,
            "what a second one leaves is over the budget: {costs:?}"
        );
    }

    #[test]
    fn what_was_seen_of_the_first_window_says_nothing_of_those_behind_it() {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.pairs = vec![0.001; 8];
        budget.reopened();
        assert_eq!(budget.measured(), None);
        budget.pairs = vec![0.001; 8];
        budget.reopened();
        assert!(budget.measured().is_some());
    }
}

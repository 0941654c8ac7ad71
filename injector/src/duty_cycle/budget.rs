// SPDX-License-Identifier: Apache-2.0
// WARM
//! What recording costs the program: as was measured the first time that it was switched off
//! ([`super::measured`]); a bound until then.

use trace::header::sources;
use trace::{total, Total};

use super::measured::{usual, Longer, Measured};
use super::plan::{Costs, RESIDUE_FIRST_NS, RESIDUE_NS};
use super::step_clock;
use crate::sources::cupti::session;

/// A launch that is recorded, with all that CUPTI costs the calls around it, ns: 2.3 µs in eager
/// PyTorch of tiny blocks (docs/run-cost.md); 1.1 in a loop of launches in C++ (`gpu-check --only
/// cost:launch`).
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

/// As long as nothing is measured, this share of the time in which everything is recorded is taken
/// to be lost to it: more than eager programs, compiled ones and graphs lost whose waits CUPTI did
/// not record (steps were longer by 1 to 23 %: docs/run-cost.md).
const BOUND: f64 = 0.3;
/// The first stretch has so many steps whose times are known (and some seconds of them), or lasts
/// so long, ns, whatever it may cost.
const STEADY_STEPS: u64 = 20;
/// For seconds of them it goes on until so many times as much is spent.
const WAITS: f64 = 1.5;
const LONGEST_FIRST: f64 = 60e9;
/// Where no moment is known at which CUPTI may be switched, recording goes on for so many times
/// what is free: a minute.
const UNSWITCHED: f64 = 30.0;

/// Where kernels run for so much of the time, and recorded steps are no longer than this, the GPU
/// is the limit: what stays of CUPTI on launches costs nothing.
const BUSY: f64 = 0.9;
const HARDLY_LONGER: f64 = 0.05;

/// Counts of what was recorded so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    launches: u64,
    nodes: u64,
    /// Kernels, copies and memsets.
    ops: u64,
    /// Sum of kernels' times, ns.
    kernel_ns: u64,
}

impl Spent {
    pub(crate) fn of(totals: &[u64; total::SLOTS]) -> Spent {
        let of = |t: Total| totals.get(t as usize).copied().unwrap_or(0);
        let launches = of(Total::Launches) + of(Total::GraphLaunches);
        // (a kernel whose call was lost is no node)
        let nodes = match of(Total::GraphLaunches) {
            0 => 0,
            _ => of(Total::Kernels).saturating_sub(of(Total::Launches)),
        };
        let ops = of(Total::Kernels) + of(Total::Copies) + of(Total::Memsets);
        Spent { launches, nodes, ops, kernel_ns: of(Total::KernelNs) }
    }

    /// Launches, of kernels and graphs.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }
}

/// What was counted while a window was open.
#[derive(Clone, Copy, Default)]
struct Open {
    time_ns: f64,
    launches: f64,
    /// Nodes of graphs.
    nodes: f64,
    /// Once steps were known: so long, and so long kernels ran, ns.
    steps_ns: f64,
    kernel_ns: f64,
    /// Launches that the step clock saw.
    seen: f64,
}

/// The account.
pub(crate) struct Budget {
    began: u64,
    /// This much is spent before recording is switched off, ns: a run that loses little is recorded
    /// whole.
    free_ns: f64,
    last: u64,
    last_spent: Spent,
    last_launches: u64,
    /// What stayed of CUPTI on launches between windows, ns.
    stayed_ns: f64,
    /// What switching took of the program's threads, ns.
    switching_ns: u64,
    open: Open,
    /// Windows were opened again: what stays of CUPTI is more from then on.
    was_reopened: bool,
    pub(super) measured: Measured,
}

impl Budget {
    pub(super) fn new(now: u64, free_ns: u64) -> Budget {
        Budget {
            began: now,
            free_ns: free_ns as f64,
            last: now,
            last_spent: Spent::default(),
            last_launches: 0,
            stayed_ns: 0.0,
            switching_ns: 0,
            open: Open::default(),
            was_reopened: false,
            measured: Measured::default(),
        }
    }

    /// What has come since the last look. `recorded`: everything was, or nothing; `None`: CUPTI was
    /// switched meanwhile. `launches`: of the step clock.
    pub(super) fn look(&mut self, now: u64, recorded: Option<bool>, spent: Spent, launches: u64) {
        if recorded != Some(false) {
            let open = &mut self.open;
            let made = spent.launches - self.last_spent.launches;
            // what does nothing on the GPU loses nothing
            if made > 0 || spent.ops > self.last_spent.ops {
                open.time_ns += now.saturating_sub(self.last) as f64;
            }
            open.launches += made as f64;
            open.nodes += spent.nodes.saturating_sub(self.last_spent.nodes) as f64;
            if self.measured.recorded_steps() > 0 {
                open.steps_ns += now.saturating_sub(self.last) as f64;
                open.kernel_ns += spent.kernel_ns.saturating_sub(self.last_spent.kernel_ns) as f64;
            }
            open.seen += launches.saturating_sub(self.last_launches) as f64;
        } else {
            let stays = if self.was_reopened { RESIDUE_NS } else { RESIDUE_FIRST_NS };
            self.stayed_ns += launches.saturating_sub(self.last_launches) as f64 * self.unseen() * stays;
        }
        (self.last, self.last_spent, self.last_launches) = (now, spent, launches);
        self.measured.look(now, recorded);
    }

    /// Launches of the program for each that is seen without CUPTI, as it was while a window was
    /// open.
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

    /// A window was opened after another one.
    pub(super) fn reopened(&mut self) {
        self.was_reopened = true;
    }

    /// The share of the time in which everything is recorded that is lost to it, at most.
    fn lost(&self) -> f64 {
        self.measured.longer().map_or(BOUND, |longer| longer.most() / (1.0 + longer.most()))
    }

    /// Switching has taken so much of the program's threads so far, ns.
    pub(super) fn switching_took(&mut self, ns: u64) {
        self.switching_ns = ns;
    }

    /// Is more spent than this share of the time so far, and what is free?
    pub(super) fn is_spent(&self, now: u64, share: f64) -> bool {
        self.is_spent_times(1.0, now, share)
    }

    /// Is half of it spent? Ranks look for a step at which all of them may end the first stretch
    /// from then on.
    pub(super) fn is_half_spent(&self, now: u64, share: f64) -> bool {
        self.is_spent_times(0.5, now, share)
    }

    /// Is so many times as much spent?
    fn is_spent_times(&self, times: f64, now: u64, share: f64) -> bool {
        let spent = self.open.time_ns * self.lost() + self.stayed_ns + self.switching_ns as f64;
        spent > times * (self.free_ns + share * now.saturating_sub(self.began) as f64)
    }

    /// Does the first stretch hold enough of steady steps, or last too long to wait for them? For
    /// three seconds of them half as much again may be spent.
    pub(super) fn holds_enough(&self, now: u64, share: f64) -> bool {
        let is_known = self.measured.recorded_steps() >= STEADY_STEPS;
        is_known && (self.measured.has_enough() || self.is_spent_times(WAITS, now, share))
            || self.open.time_ns >= LONGEST_FIRST
    }

    /// Has everything been recorded for as long as it is where CUPTI cannot be switched?
    pub(super) fn is_over(&self, now: u64, share: f64) -> bool {
        self.open.time_ns >= UNSWITCHED * self.free_ns && self.is_spent(now, share)
    }

    /// Shares of the program's time.
    pub(super) fn costs(&self) -> Costs {
        let Open { time_ns, launches, nodes, steps_ns, kernel_ns, .. } = self.open;
        if time_ns == 0.0 {
            return Costs::default();
        }
        let now = if self.was_reopened { RESIDUE_NS } else { RESIDUE_FIRST_NS };
        let of = |each: f64| (launches * each + nodes * each / 3.0) / time_ns;
        let Some(longer) = self.measured.longer() else {
            return Costs { on: BOUND, off_once: of(now), off: of(RESIDUE_NS) };
        };
        // What steps were seen to be longer, at most: where the GPU is behind, launches that take
        // longer cost nothing, recorded or not.
        let more = longer.most();
        let recorded = f64::from(launch_ns());
        let is_behind = steps_ns > 0.0 && kernel_ns >= BUSY * steps_ns && more <= HARDLY_LONGER;
        let stays = |each: f64| match is_behind {
            true => 0.0,
            false => of(each).min(more * each / (recorded - now).max(1.0)),
        };
        Costs { on: stays(now) + more, off_once: stays(now), off: stays(RESIDUE_NS) }
    }

    /// The usual step time, ns; 0: not known.
    pub(super) fn step_ns(&self) -> u64 {
        usual(step_clock::times(0, u64::MAX)).unwrap_or(0.0) as u64
    }

    /// What was measured, in words.
    pub(super) fn describe(&self) -> Option<(&'static str, String)> {
        let Longer { mean, half } = self.measured.longer()?;
        let [mean, low, high] = [mean, mean - half, mean + half].map(|share| share * 100.0);
        Some(("windows.cost", format!("{mean:+.2} % of a step in a window [{low:+.2}, {high:+.2}]")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spent(launches: u64) -> Spent {
        Spent { launches, ..Spent::default() }
    }

    /// Seconds after which it is spent, of an hour in which everything is recorded.
    fn spent_after(mut budget: Budget, a_second: u64) -> Option<u64> {
        (1..3600).find(|s| {
            budget.look(s * SECOND, Some(true), spent(a_second * s), a_second * s);
            budget.is_spent(s * SECOND, 0.005)
        })
    }

    fn measured(mean: f64, half: f64) -> Budget {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.measured = Measured::known(Longer { mean, half });
        budget
    }

    #[test]
    fn until_it_is_measured_recording_is_taken_to_cost_a_third_of_its_time_whatever_is_launched() {
        for a_second in [500, 33_000] {
            assert_eq!(spent_after(Budget::new(0, 2 * SECOND), a_second), Some(7));
        }
        assert_eq!(spent_after(Budget::new(0, 2 * SECOND), 0), None, "nothing is launched");
    }

    #[test]
    fn where_cupti_cannot_be_switched_recording_is_over_after_a_minute_of_work() {
        let mut budget = Budget::new(0, 2 * SECOND);
        let over = (1..3600).find(|s| {
            budget.look(s * SECOND, Some(true), spent(500 * s), 0);
            budget.is_over(s * SECOND, 0.005)
        });
        assert_eq!(over, Some(60));
    }

    #[test]
    fn what_was_measured_is_spent_at_its_upper_end_and_what_costs_nothing_never() {
        // 0.2 / 1.2 of the time, and 0.5 % of it are allowed beside the two seconds
        assert_eq!(spent_after(measured(0.15, 0.05), 33_000), Some(13));
        assert_eq!(spent_after(measured(0.001, 0.003), 33_000), None);
        assert_eq!(spent_after(measured(-0.02, 0.01), 33_000), None, "faster with us than without");
    }

    #[test]
    fn what_stays_of_cupti_counts_too() {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.look(SECOND, Some(true), spent(1000), 1000);
        budget.look(2 * SECOND, Some(false), spent(1000), 2000);
        assert_eq!(budget.stayed_ns, 1000.0 * RESIDUE_FIRST_NS);
        budget.reopened();
        budget.look(3 * SECOND, Some(false), spent(1000), 3000);
        assert_eq!(budget.stayed_ns, 1000.0 * (RESIDUE_FIRST_NS + RESIDUE_NS));
    }

    #[test]
    fn launches_that_only_cupti_sees_leave_as_much_behind() {
        let mut budget = Budget::new(0, 2 * SECOND);
        budget.look(SECOND, Some(true), spent(6000), 1000);
        budget.look(2 * SECOND, Some(false), spent(6000), 2000);
        assert_eq!(budget.stayed_ns, 6000.0 * RESIDUE_FIRST_NS);
    }

    #[test]
    fn a_kernel_whose_call_was_lost_is_no_node_of_a_graph() {
        let mut totals = [0; total::SLOTS];
        for (t, n) in [(Total::Kernels, 1000), (Total::Launches, 998)] {
            totals[t as usize] = n;
        }
        assert_eq!(Spent::of(&totals).nodes, 0);
        totals[Total::GraphLaunches as usize] = 1;
        assert_eq!(Spent::of(&totals).nodes, 2);
    }

    #[test]
    fn a_second_window_is_where_the_first_was_seen_to_cost_nothing() {
        use super::super::plan::Plan;
        let costs = |mean: f64, half: f64, kernel_ns: u64| {
            let mut budget = measured(mean, half);
            budget.measured.knows_steps();
            budget.look(SECOND, Some(true), Spent { kernel_ns, ..spent(40_000) }, 40_000);
            budget.costs()
        };
        let free = costs(0.0, 0.001, 0);
        assert!(free.on < 0.002 && free.off < 0.001, "{free:?}");
        assert!(Plan::within(0.005, free, 32).is_some(), "the GPU hides it");
        let behind = costs(0.01, 0.01, SECOND * 97 / 100);
        assert!(Plan::within(0.005, behind, 32).is_some(), "the GPU is the limit: {behind:?}");
        let dear = costs(0.12, 0.01, SECOND / 10);
        assert!((0.12..0.15).contains(&dear.on), "{dear:?}");
        assert_eq!(
            Plan::within(0.005, dear, 32),
            None,
            "what a second one leaves is over the budget: {dear:?}"
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! When to record: a function of the step number (or, where no steps are known, of the wall clock),
//! the same on every rank without a word between them. Windows begin at multiples of a power of two
//! and are a power of two long, so that a rank which can afford more windows records in all those
//! of the others, too: no rank is slow in a step in which the others are not.

use trace::total;

/// What recording costs, as shares of the program's time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Costs {
    /// While everything is recorded.
    pub(super) on: f64,
    /// While nothing is: what CUPTI leaves behind now (after the first time it was switched off:
    /// [`RESIDUE_FIRST_NS`]).
    pub(super) off_once: f64,
    /// ... and after it was switched on and off again.
    pub(super) off: f64,
}

/// What stays of CUPTI on a launch once its kinds, which were on when the context was created, are
/// off again, ns. H200, CUPTI 13.0, `tests/gpu/programs/residue.c`: 1,130 instructions more than
/// the 8,200 of a launch (470 of them CUPTI's).
pub(super) const RESIDUE_FIRST_NS: f64 = total::LEFT_BEHIND_FIRST_NS as f64;
/// ... once they were switched on in a context that was there already, and off: 5,440 instructions
/// more of a launch (3,735 of them CUPTI's), and more of the calls around it.
pub(super) const RESIDUE_NS: f64 = total::LEFT_BEHIND_NS as f64;

/// Windows of `length` every `every`, in steps or units of time; both powers of two (or as the user
/// set them).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) length: u64,
    pub(super) every: u64,
}

/// Windows of a budget are at most and at least this much of the run, as powers of two: recorded
/// steps are fewer than one in a hundred, so that the 99th percentile of the step time is that of a
/// step which nobody records.
const DENSEST: u32 = 7;
const SPARSEST: u32 = 10;

impl Plan {
    /// Is this step (or unit of time) recorded?
    pub(super) fn records(&self, at: u64) -> bool {
        at % self.every < self.length
    }

    /// The next step from which it is not as at `at`.
    pub(super) fn next_change(&self, at: u64) -> u64 {
        let begin = at - at % self.every;
        if self.records(at) {
            begin.saturating_add(self.length)
        } else {
            begin.saturating_add(self.every)
        }
    }

    /// The windows that keep to `budget` (a share of time), each `length` long. `None`: none do,
    /// not even one: what would stay of CUPTI after it is more than the budget, and more than what
    /// stays now.
    pub(super) fn within(budget: f64, costs: Costs, length: u64) -> Option<Plan> {
        if costs.off > budget && costs.off_once < costs.off {
            return None;
        }
        // share of the run in windows = 2^-n: on / 2^n + off * (1 - 2^-n) <= budget; where what
        // stays is beyond it, few
        let room = budget - costs.off;
        let n = if room <= 0.0 {
            SPARSEST
        } else {
            let extra = (costs.on - costs.off).max(0.0);
            ((extra / room).log2().ceil().max(0.0) as u32).clamp(DENSEST, SPARSEST)
        };
        Some(Plan { length, every: length << n })
    }
}

/// Fewest and most steps of a window.
const STEPS: (u64, u64) = (16, 1 << 16);

/// How many steps a window of `window_ns` has where one takes `step_ns`: a power of two.
pub(super) fn window_steps(step_ns: u64, window_ns: u64) -> u64 {
    (window_ns / step_ns.max(1)).clamp(STEPS.0, STEPS.1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::settings::WINDOW_NS;

    const GPT: Costs = Costs { on: 0.03, off_once: 0.002, off: 0.004 };

    #[test]
    fn a_plan_keeps_to_its_budget() {
        for budget in [0.001, 0.005, 0.01, 0.02, 0.05] {
            for on in [0.0, 0.001, 0.004, 0.01, 0.03, 0.2, 5.0] {
                for off in [0.0, 0.0005, 0.002, 0.004] {
                    // (a second window was open already)
                    let costs = Costs { on, off_once: off, off };
                    let plan = Plan::within(budget, costs, 32).expect("a plan");
                    let share = plan.length as f64 / plan.every as f64;
                    let cost = on * share + off * (1.0 - share);
                    let sparsest = plan.every == 32 << SPARSEST;
                    assert!(cost <= budget + 1e-12 || sparsest, "{costs:?} {budget} {plan:?}: {cost}");
                }
            }
        }
    }

    #[test]
    fn where_a_second_window_would_leave_too_much_behind_there_is_none() {
        assert_eq!(Plan::within(0.003, GPT, 32), None);
        assert_eq!(
            Plan::within(0.001, GPT, 32),
            None,
            "what stays now is over it, and a second window leaves more"
        );
        assert!(
            Plan::within(0.001, Costs { off_once: GPT.off, ..GPT }, 32).is_some(),
            "there was a second one"
        );
        assert_eq!(Plan::within(0.0042, GPT, 32), Some(Plan { length: 32, every: 32 * 256 }));
    }

    #[test]
    fn fewer_than_one_step_in_a_hundred_is_recorded_whatever_the_budget_allows() {
        for budget in [0.005, 0.05, 0.9] {
            let plan = Plan::within(budget, GPT, 32).expect("a plan");
            assert!(plan.length * 100 < plan.every, "{plan:?}");
        }
    }

    #[test]
    fn windows_of_a_rank_that_affords_fewer_are_windows_of_the_others() {
        let [many, few] = [Plan { length: 64, every: 256 }, Plan { length: 32, every: 2048 }];
        for step in 0..10_000 {
            assert!(!few.records(step) || many.records(step), "step {step}");
        }
    }

    #[test]
    fn the_next_change_is_the_first_step_that_differs() {
        let plan = Plan { length: 8, every: 32 };
        for step in 0..200 {
            let next = plan.next_change(step);
            assert!((step + 1..next).all(|s| plan.records(s) == plan.records(step)));
            assert_ne!(plan.records(next), plan.records(step), "step {step}");
        }
    }

    #[test]
    fn a_window_has_steps_for_about_two_seconds() {
        let all =
            [(1, 1 << 16), (1_000_000, 2048), (22_000_000, 128), (500_000_000, 16), (60_000_000_000, 16)];
        for (ns, steps) in all {
            assert_eq!(window_steps(ns, WINDOW_NS), steps, "{ns} ns");
        }
    }
}

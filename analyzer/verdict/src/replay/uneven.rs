// SPDX-License-Identifier: Apache-2.0
//! How unevenly the host dispatches. Where a fix takes a wait away, what is left is the longer of
//! the GPU's time and the host's; how long the host takes differs from step to step, and from one
//! process to the next. On an H100's virtual CPUs (2026-11-25) the same 880 launches took 9 ms in
//! some steps and 13 in others of one process, 13 in all of the next one: where the GPU needed 15
//! ms a step, the fixed form took 15.1 in one process and 17.8 in another.

use super::prepare::Prepared;

/// The host takes as long in slow steps as in the others.
pub(super) const EVEN: u64 = 1000;
/// More than this is no speed of dispatching.
const MAX_SLOWDOWN: u64 = 2 * EVEN;
/// Of fewer steps nothing is known.
const LEAST_STEPS: usize = 10;
/// The slow ones.
const SLOWEST: f64 = 0.9;

impl Prepared {
    /// What dispatching takes in the 90th percentile of the steps, permille of the mean: [`EVEN`]
    /// to [`MAX_SLOWDOWN`].
    pub(super) fn unevenness(&self) -> u64 {
        let mut steps: Vec<u64> = Vec::new();
        for item in &self.items {
            if item.first_of_step {
                steps.push(0);
            }
            if let Some(step) = steps.last_mut().filter(|_| item.may_be_captured()) {
                *step = step.saturating_add(item.think).saturating_add(item.own);
            }
        }
        steps.pop(); // what is behind the last one's launches is not in it
        let n = steps.len();
        let mean = steps.iter().sum::<u64>().checked_div(n as u64).unwrap_or(0);
        if n < LEAST_STEPS || mean == 0 {
            return EVEN;
        }
        let at = ((n as f64 * SLOWEST) as usize).min(n - 1);
        let slow = *steps.select_nth_unstable(at).1;
        (slow.saturating_mul(EVEN) / mean).clamp(EVEN, MAX_SLOWDOWN)
    }
}

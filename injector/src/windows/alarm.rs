// SPDX-License-Identifier: Apache-2.0
// WARM
//! Steps that take longer than they did, or do not come any more: reasons to record although it is no window's turn.

use super::budget::median;
use super::step_clock;

/// Steps that are slow in a row before it is said.
const IN_A_ROW: u64 = 8;
/// Steps that tell what is usual.
const USUAL: u64 = 200;
/// A step that has not come for this many usual ones, and this long, ns, hangs.
const HANGS: (u64, u64) = (20, 10_000_000_000);
/// Between two alarms, ns: what stays slow is the new usual by then.
const PAUSE: u64 = 300_000_000_000;

/// See above.
pub(super) struct Alarm {
    /// A step is slow that takes so many usual ones; 0: there is no alarm.
    factor: f64,
    last: Option<u64>,
    usual: u64,
}

impl Alarm {
    pub(super) fn new(factor: f64) -> Alarm {
        Alarm { factor, last: None, usual: 0 }
    }

    /// The usual step time when it last looked, ns.
    pub(super) fn usual_step(&self) -> u64 {
        self.usual
    }

    /// Is there a reason, now? Once in a while.
    pub(super) fn rings(&mut self, now: u64, has_steps: bool) -> bool {
        let steps = step_clock::steps();
        let is_over = self.last.is_none_or(|last| now.saturating_sub(last) >= PAUSE);
        if self.factor == 0.0 || !has_steps || !is_over || steps < USUAL / 4 + IN_A_ROW {
            return false;
        }
        let newest = step_clock::times(steps + 1 - IN_A_ROW, steps + 1);
        let usual = median(step_clock::times(steps.saturating_sub(USUAL), steps + 1 - IN_A_ROW));
        let waited = now.saturating_sub(step_clock::last_step_at());
        let Some(usual) = usual else { return false };
        self.usual = usual as u64;
        let rings = is_slow(&newest, usual, self.factor) || waited > HANGS.1.max(self.usual * HANGS.0);
        if rings {
            self.last = Some(now);
        }
        rings
    }
}

/// Do all of them take that many usual ones?
fn is_slow(newest: &[u64], usual: f64, factor: f64) -> bool {
    newest.len() as u64 >= IN_A_ROW && newest.iter().all(|ns| *ns as f64 > usual * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slow_steps_are_no_alarm_and_eight_in_a_row_are() {
        assert!(is_slow(&[160; 8], 100.0, 1.5));
        assert!(!is_slow(&[160, 160, 160, 160, 140, 160, 160, 160], 100.0, 1.5));
        assert!(!is_slow(&[160; 7], 100.0, 1.5));
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! Steps that take longer than they did, or do not come any more: reasons to record although it is
//! no window's turn, and for the flight recorder to write.

use verdict::stats::middle;

use super::step_clock;

/// Steps that are slow in a row before it is said.
pub(crate) const IN_A_ROW: u64 = 8;
/// Steps that tell what is usual.
const USUAL: u64 = 200;
/// A step that has not come for this many usual ones, and this long, ns, is missing.
const MISSING: (u64, u64) = (trace::total::HANGS.0, trace::total::HANGS.1);
/// Between two alarms, ns: what stays slow is the new usual by then.
const PAUSE: u64 = 300_000_000_000;

/// See above.
pub(super) struct Alarm {
    /// A step is slow that takes so many usual ones; 0: there is no alarm.
    factor: f64,
    /// When it rang last, and whether for a hang.
    last: Option<(u64, bool)>,
    /// Steps when the alarm rang for a missing one, and whether it was a hang: it rings once for
    /// either.
    missing_at: Option<(u64, bool)>,
    usual: u64,
}

/// Why it rings; ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The newest steps take so long.
    Slow {
        /// Median of them.
        ns: u64,
        /// What is usual.
        usual: u64,
    },
    /// No step begins any more.
    Missing {
        /// Since so long.
        ns: u64,
        /// Nothing else happened either (no launch, no end of a synchronizing call) for so long.
        idle: u64,
        /// What is usual.
        usual: u64,
    },
}

impl Reason {
    /// Nothing happens any more, for long enough to say so. (A program without steps that launches
    /// or waits by turns does something else: it evaluates, say.)
    pub(crate) fn is_hang(&self) -> bool {
        matches!(*self, Reason::Missing { idle, usual, .. } if idle > long_for(usual))
    }
}

/// A step that has not come for so long is missing, ns.
fn long_for(usual: u64) -> u64 {
    MISSING.1.max(usual.saturating_mul(MISSING.0))
}

/// Slow steps in a row, and how long that went on at least, ns, before a window is opened that
/// leaves more of CUPTI behind than the budget allows: a checkpoint or an evaluation is over by
/// then, and what stays slow loses more of each step (a third at the usual factor) than that window
/// leaves behind (docs/windows.md: 5 to 10 %).
const WORTH_IT: (u64, u64) = (64, 10_000_000_000);

/// Steps have become slow: are they still?
pub(super) struct Doubt {
    /// The first step that is looked at, and since when.
    from: u64,
    since: u64,
    usual: u64,
}

impl Doubt {
    /// `None`: no step comes. That may be a checkpoint, and a window would see nothing of it.
    pub(super) fn of(reason: Reason, steps: u64, now: u64) -> Option<Doubt> {
        match reason {
            Reason::Missing { .. } => None,
            Reason::Slow { usual, .. } => Some(Doubt { from: steps + 1, since: now, usual }),
        }
    }

    /// Whether it was worth it, once that is known.
    pub(super) fn is_over(&self, factor: f64, now: u64) -> Option<bool> {
        if step_clock::steps() + 1 < self.from {
            return Some(false); // steps are numbered anew: another anchor
        }
        self.judge(&step_clock::times(self.from, u64::MAX), factor, now)
    }

    fn judge(&self, times: &[u64], factor: f64, now: u64) -> Option<bool> {
        if times.iter().any(|ns| *ns as f64 <= self.usual as f64 * factor) {
            return Some(false);
        }
        let lasts = now.saturating_sub(self.since) >= WORTH_IT.1 && times.len() as u64 >= WORTH_IT.0;
        lasts.then_some(true)
    }
}

impl Alarm {
    pub(super) fn new(factor: f64) -> Alarm {
        Alarm { factor, last: None, missing_at: None, usual: 0 }
    }

    /// A step is slow that takes so many usual ones.
    pub(super) fn factor(&self) -> f64 {
        self.factor
    }

    /// The usual step time when it last looked, ns.
    pub(super) fn usual_step(&self) -> u64 {
        self.usual
    }

    /// Is there a reason, now? Once in a while. `active_at`: when the program did anything last.
    pub(super) fn rings(&mut self, now: u64, has_steps: bool, active_at: u64) -> Option<Reason> {
        let steps = step_clock::steps();
        if self.factor == 0.0 || !has_steps || steps < USUAL / 4 + IN_A_ROW {
            return None;
        }
        let newest = step_clock::times(steps + 1 - IN_A_ROW, steps + 1);
        let usual = middle(&mut step_clock::times(steps.saturating_sub(USUAL), steps + 1 - IN_A_ROW))?;
        self.usual = usual;
        let waited = now.saturating_sub(step_clock::last_step_at());
        let reason = self.reason(&newest, usual as f64, (steps, waited), now.saturating_sub(active_at))?;
        if !self.may_ring(now, reason) {
            return None;
        }
        if let Reason::Missing { .. } = reason {
            self.missing_at = Some((steps, reason.is_hang()));
        }
        self.last = Some((now, reason.is_hang()));
        Some(reason)
    }

    /// Not twice within [`PAUSE`]; but what it rang for may be why the program hangs now.
    fn may_ring(&self, now: u64, reason: Reason) -> bool {
        self.last
            .is_none_or(|(at, was_hang)| now.saturating_sub(at) >= PAUSE || reason.is_hang() && !was_hang)
    }

    fn reason(&self, newest: &[u64], usual: f64, (steps, waited): (u64, u64), idle: u64) -> Option<Reason> {
        let usual_ns = usual as u64;
        if waited > long_for(usual_ns) {
            let missing = Reason::Missing { ns: waited, idle, usual: usual_ns };
            let was_told =
                self.missing_at.is_some_and(|(at, hang)| at == steps && (hang || !missing.is_hang()));
            return (!was_told).then_some(missing);
        }
        let ns = middle(&mut newest.to_vec())?;
        is_slow(newest, usual, self.factor).then_some(Reason::Slow { ns, usual: usual_ns })
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

    #[test]
    fn steps_that_stay_slow_are_worth_a_dear_window_and_a_checkpoint_is_not() {
        let s = 1_000_000_000;
        let slow = Reason::Slow { ns: 200_000_000, usual: 100_000_000 };
        let doubt = Doubt::of(slow, 500, 100 * s).expect("in doubt");
        assert_eq!(doubt.judge(&[200_000_000; 63], 1.5, 113 * s), None, "not yet");
        assert_eq!(doubt.judge(&[200_000_000; 64], 1.5, 113 * s), Some(true));
        assert_eq!(doubt.judge(&[200_000_000; 400], 1.5, 109 * s), None, "for 9 s");
        assert_eq!(
            doubt.judge(&[200_000_000, 200_000_000, 100_000_000], 1.5, 101 * s),
            Some(false),
            "it is over"
        );
        let missing = Reason::Missing { ns: 20 * s, idle: 20 * s, usual: 100_000_000 };
        assert!(Doubt::of(missing, 500, 0).is_none(), "it hangs, or writes a checkpoint");
    }

    #[test]
    fn a_step_is_missing_once_and_once_more_where_the_program_hangs() {
        let mut alarm = Alarm::new(1.5);
        let (usual, s) = (100_000_000.0, 1_000_000_000);
        let mut rings = |steps, waited, idle| {
            let reason = alarm.reason(&[100_000_000; 8], usual, (steps, waited), idle);
            if let Some(reason) = reason {
                alarm.missing_at = Some((steps, reason.is_hang()));
            }
            reason
        };
        assert_eq!(rings(500, 10 * s, 3), None, "not yet");
        let missing = |ns, idle| Some(Reason::Missing { ns, idle, usual: 100_000_000 });
        assert_eq!(rings(500, 11 * s, 3), missing(11 * s, 3), "an evaluation");
        assert_eq!(rings(500, 40 * s, 9 * s), None, "the same one");
        assert_eq!(rings(500, 42 * s, 11 * s), missing(42 * s, 11 * s), "it hangs in it");
        assert_eq!(rings(500, 400 * s, 369 * s), None, "told");
        assert_eq!(rings(501, 12 * s, 12 * s), missing(12 * s, 12 * s), "another one");
        let long = Alarm::new(1.5);
        let slow = |waited| (500, waited);
        assert_eq!(long.reason(&[s; 8], s as f64, slow(19 * s), 0), None, "a step of a second");
        assert!(long.reason(&[s; 8], s as f64, slow(21 * s), 0).is_some());
    }

    #[test]
    fn a_hang_rings_behind_an_evaluation_and_not_behind_another_hang() {
        let s = 1_000_000_000;
        let missing = |idle| Reason::Missing { ns: 20 * s, idle, usual: 100_000_000 };
        let (evaluation, hang) = (missing(3), missing(12 * s));
        let rung = |was_hang| Alarm { last: Some((500 * s, was_hang)), ..Alarm::new(1.5) };
        assert!(rung(false).may_ring(520 * s, hang) && !rung(false).may_ring(520 * s, evaluation));
        assert!(!rung(true).may_ring(520 * s, hang) && rung(true).may_ring(800 * s, hang));
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! Pauses between windows: a step that does not come (a checkpoint, a collection, a stall). Nothing
//! of CUPTI is on then, and none is needed: the sampler looks where the program stands meanwhile.

use trace::event::Event;
use trace::Loss;

use crate::platform::losses;

/// A step that has not come for so many usual ones, and so long, ns, is a pause: a look that finds
/// it within the next 50 ms sees what most of it is.
const OVERDUE: (u64, u64) = (3, 100_000_000);
/// So many samples of a thread in one pause are kept, then one in so many: what goes on for hours
/// is told by few.
const OF_ONE: u32 = 200;
const THEN_ONE_IN: u32 = 4;
/// ... and so many of all of them: 1 MB.
const OF_ALL: u32 = 16_384;

/// The latest pause, and how much was told of all.
#[derive(Default)]
pub(crate) struct Pauses {
    /// From the step that lasts to the next, ns; 0: none yet.
    since: u64,
    until: u64,
    /// Samples in it, by thread: of all threads together those of one might be the ones that are
    /// left out.
    seen: Vec<(u32, u32)>,
    /// The end of its first sample, ns.
    first: u64,
    /// Samples kept of all pauses.
    kept: u32,
}

impl Pauses {
    /// Once a round while nothing is recorded. `since`: from when on nothing is; `step`: when the
    /// last step began (0: not known), and how long one takes, ns.
    pub(super) fn look(&mut self, now: u64, since: u64, (began, usual): (u64, u64)) {
        let is_overdue = began > 0
            && usual > 0
            && now.saturating_sub(began) >= OVERDUE.1.max(usual.saturating_mul(OVERDUE.0));
        if is_overdue && self.since != began.max(since) {
            let kept = self.kept;
            *self = Pauses { since: began.max(since), until: u64::MAX, kept, ..Pauses::default() };
        } else if !is_overdue {
            self.end(now);
        }
    }

    /// Steps come again, or everything is recorded.
    pub(super) fn end(&mut self, now: u64) {
        self.until = self.until.min(now);
    }

    /// Since when there is one, ns, while there is.
    pub(crate) fn on_since(&self) -> Option<u64> {
        (self.until == u64::MAX).then_some(self.since)
    }

    /// Is this sample of a thread to be kept? Those of the first look at a pause stand for the time
    /// before it, too.
    pub(crate) fn takes(&mut self, tid: u32, sample: &mut Event) -> bool {
        if sample.start < self.since || sample.end > self.until {
            return false;
        }
        if self.kept >= OF_ALL {
            losses::add(Loss::PausesFull, 1);
            return false;
        }
        if self.seen.is_empty() {
            self.first = sample.end;
        }
        let known = self.seen.iter().position(|s| s.0 == tid);
        let at = known.unwrap_or_else(|| {
            self.seen.push((tid, 0));
            self.seen.len() - 1
        });
        let Some((_, seen)) = self.seen.get_mut(at) else { return false };
        *seen = seen.saturating_add(1);
        if *seen > OF_ONE && *seen % THEN_ONE_IN != 0 {
            return false;
        }
        if *seen == 1 && sample.start <= self.first {
            sample.start = self.since;
        }
        self.kept += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::event::Kind;

    const MS: u64 = 1_000_000;

    fn sample(from: u64, to: u64) -> Event {
        Event::new(Kind::Sample, from * MS, to * MS)
    }

    #[test]
    fn a_step_that_does_not_come_is_a_pause_until_the_next_one() {
        let mut pauses = Pauses::default();
        pauses.look(1_050 * MS, 500 * MS, (1_000 * MS, 10 * MS));
        assert_eq!(pauses.on_since(), None);
        pauses.look(1_100 * MS, 500 * MS, (1_000 * MS, 10 * MS));
        assert!(pauses.on_since().is_some());
        assert!(!pauses.takes(1, &mut sample(990, 1_010)), "before it");
        let mut first = sample(1_110, 1_120);
        assert!(pauses.takes(1, &mut first));
        assert_eq!(first.start, 1_000 * MS, "stands for what was not looked at, too");
        let mut next = sample(1_120, 1_130);
        assert!(pauses.takes(1, &mut next) && next.start == 1_120 * MS);
        let mut beside = sample(1_111, 1_121);
        assert!(pauses.takes(2, &mut beside) && beside.start == 1_000 * MS, "the same look");
        let mut late = sample(1_400, 1_410);
        assert!(pauses.takes(3, &mut late) && late.start == 1_400 * MS, "a thread that came later");
        pauses.look(1_500 * MS, 500 * MS, (1_490 * MS, 10 * MS));
        assert_eq!(pauses.on_since(), None);
        assert!(pauses.takes(1, &mut sample(1_480, 1_490)), "it was on its way");
        assert!(!pauses.takes(1, &mut sample(1_490, 1_510)), "steps come again");
    }

    #[test]
    fn slow_steps_are_none_and_nor_is_anything_where_no_steps_are_known() {
        let mut pauses = Pauses::default();
        pauses.look(2_400 * MS, 0, (2_000 * MS, 200 * MS));
        assert_eq!(pauses.on_since(), None, "two usual steps");
        pauses.look(2_600 * MS, 0, (2_000 * MS, 200 * MS));
        assert!(pauses.on_since().is_some());
        let mut unknown = Pauses::default();
        unknown.look(9_000 * MS, 0, (0, 0));
        assert_eq!(unknown.on_since(), None);
    }

    #[test]
    fn of_each_thread_as_many_are_kept() {
        let mut pauses = Pauses::default();
        pauses.look(1_100 * MS, 0, (1_000 * MS, 10 * MS));
        let mut kept = [0; 2];
        for n in 0..1_000 {
            for (tid, kept) in (0..).zip(&mut kept) {
                *kept += u32::from(pauses.takes(tid, &mut sample(1_100 + 10 * n, 1_110 + 10 * n)));
            }
        }
        assert_eq!(kept, [400; 2]);
    }

    #[test]
    fn what_goes_on_for_hours_is_told_by_few() {
        let mut pauses = Pauses::default();
        pauses.look(1_100 * MS, 0, (1_000 * MS, 10 * MS));
        let hour = (0..360_000u64).map(|n| sample(1_100 + 10 * n, 1_110 + 10 * n));
        let kept = hour.filter(|s| pauses.takes(1, &mut s.clone())).count();
        assert_eq!(kept, OF_ALL as usize);
    }
}

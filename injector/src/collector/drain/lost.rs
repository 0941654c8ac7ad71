// SPDX-License-Identifier: Apache-2.0
// WARM
//! When events were lost, of those losses that are counted as they happen: a recording keeps the
//! newest part of a run, and is judged by what is missing there.

use trace::{Event, Kind, Loss};

use crate::platform::{clock, losses};
use crate::store::Store;

/// Events of the program's threads. (What CUPTI or a late decoder loses is counted later, and its
/// time is not known.)
const TIMED: [Loss; 2] = [Loss::HostRingFull, Loss::OverflowRingFull];
/// Between two looks, ns.
const PERIOD: u64 = 250_000_000;
/// Once something was lost a mark says so at least this often, ns, if with nothing new in it: older
/// marks are overwritten with what they stand among, and what no mark tells of counts as lost where
/// it matters.
const REMINDER: u64 = 1_000_000_000;

/// What the recording has been told so far.
pub(super) struct Lost {
    told: [u64; TIMED.len()],
    looked_at: u64,
    reminded_at: u64,
}

impl Lost {
    pub(super) fn since(now: u64) -> Lost {
        Lost { told: [0; TIMED.len()], looked_at: now, reminded_at: now }
    }

    /// A mark for what was lost since the last look, where that is due.
    pub(super) fn look(&mut self, now: u64, store: &mut Store) {
        if now.saturating_sub(self.looked_at) >= PERIOD {
            let reminds = now.saturating_sub(self.reminded_at) >= REMINDER;
            self.mark(reminds, store);
        }
    }

    /// A mark for what was lost since the last look, or what was lost before that.
    pub(super) fn mark(&mut self, reminds: bool, store: &mut Store) {
        // (what is lost between these two lines lies in this mark's time and in the next one's)
        let since = std::mem::replace(&mut self.looked_at, clock::monotonic());
        let lost = TIMED.map(losses::get);
        let until = clock::monotonic();
        if reminds {
            self.reminded_at = until;
        }
        for ((loss, lost), told) in TIMED.iter().zip(lost).zip(&mut self.told) {
            let count = u32::try_from(lost.saturating_sub(*told)).unwrap_or(u32::MAX);
            if count == 0 && !(reminds && *told > 0) {
                continue;
            }
            let mut mark = Event::new(Kind::LossMark, since, until);
            (mark.a, mark.b) = (u32::from(loss.code()), count);
            mark.c = u32::try_from(*told).unwrap_or(u32::MAX);
            store.add_recorder(&mark);
            *told = told.saturating_add(u64::from(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::image::Image;
    use trace::reader::Recording;

    #[test]
    fn each_look_tells_what_was_lost_since_the_last_one() {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let now = clock::monotonic();
        let mut lost = Lost::since(now);
        lost.look(now + PERIOD, &mut store);
        losses::add(Loss::HostRingFull, 7);
        lost.look(now + PERIOD, &mut store); // not due
        lost.mark(false, &mut store);
        losses::add(Loss::HostRingFull, 5);
        losses::add(Loss::OverflowRingFull, 1);
        losses::add(Loss::CuptiDropped, 3);
        lost.mark(false, &mut store);
        lost.mark(false, &mut store);
        lost.look(clock::monotonic() + REMINDER, &mut store);
        let (segments, segments_used) = (store.image.segments(), store.begun());
        store.image.put_header(&trace::Header { segments, segments_used, ..Default::default() }.encode());
        let mut marks = Vec::new();
        let mut recording = Recording::open(&store.image).unwrap();
        recording.for_each_event(&store.image, |_, e| marks.push((e.a, e.b, e.c, e.start <= e.end)));
        let (ring, shared) = (u32::from(Loss::HostRingFull.code()), u32::from(Loss::OverflowRingFull.code()));
        let new = [(ring, 7, 0, true), (ring, 5, 7, true), (shared, 1, 0, true)];
        let reminders = [(ring, 0, 12, true), (shared, 0, 1, true)];
        assert_eq!(marks, [new.as_slice(), reminders.as_slice()].concat());
    }
}

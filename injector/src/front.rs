// SPDX-License-Identifier: Apache-2.0
// WARM
//! The front of what is recorded again (a window opened, another profiler gave CUPTI back): the GPU still works on what was launched while
//! nothing was recorded. Until it begins what was launched since, nothing is known of it, and it must not be taken for idle.
//!
//! Launches tell which op that is, not the op's own time: a host that runs ahead has launched ops of the window before that begin
//! after this one opened, with unrecorded ones behind them. (A stream runs in the order of launching. What other streams still do is not
//! known: the first op of any ends the front.)

use trace::event::{Event, Kind, Unobserved};
use trace::header::sources;

use crate::cupti::session;
use crate::store::Store;

/// The front of what is recorded, while it lasts. Its records may come when recording has ended again.
#[derive(Default)]
pub(crate) struct Front {
    blind: Option<Blind>,
}

#[derive(Clone, Copy)]
struct Blind {
    since: u64,
    /// Where recording ended again before anything was known.
    until: Option<u64>,
}

impl Front {
    /// Everything that is launched from `since` on is recorded.
    pub(crate) fn begin(&mut self, since: u64, first: &mut FirstOp, store: &mut Store) {
        self.end(since, store);
        let is_without_launches = session::source_bits() & sources::NO_LAUNCHES != 0;
        *first = FirstOp { since: Some(since), launch: is_without_launches.then_some(Launch::Any), at: None };
        self.blind = Some(Blind { since, until: None });
    }

    /// Nothing is recorded from `now` on.
    pub(crate) fn cut(&mut self, now: u64) {
        if let Some(blind) = &mut self.blind {
            blind.until.get_or_insert(now);
        }
    }

    /// After buffers were decoded: is it known when the first op began?
    pub(crate) fn settle(&mut self, first: &mut FirstOp, store: &mut Store) {
        if let Some(at) = first.at.take() {
            *first = FirstOp::default();
            self.end(at, store);
        }
    }

    /// It is over at `at` the latest.
    pub(crate) fn end(&mut self, at: u64, store: &mut Store) {
        let Some(blind) = self.blind.take() else { return };
        let mut e = Event::new(Kind::Unobserved, blind.since, blind.until.map_or(at, |u| u.min(at)));
        if e.start < e.end {
            e.a = Unobserved::Front as u32;
            store.add_recorder(&e);
        }
    }

    /// Up to when what the GPU did is known; `None`: no limit.
    pub(crate) fn known_to(&self) -> Option<u64> {
        self.blind.map(|b| b.since)
    }
}

/// Watches for the first op that was launched after a moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct FirstOp {
    since: Option<u64>,
    launch: Option<Launch>,
    at: Option<u64>,
}

/// What an op is launched by that counts.
#[derive(Clone, Copy)]
enum Launch {
    /// A call that is recorded: from this correlation id on.
    From(u32),
    /// Any: launches are not recorded.
    Any,
}

impl FirstOp {
    /// A call was recorded.
    #[inline]
    pub(crate) fn called(&mut self, start: u64, correlation: u32) {
        if self.since.is_some_and(|s| start >= s) {
            match self.launch {
                Some(Launch::Any) => {}
                Some(Launch::From(first)) if !is_before(correlation, first) => {}
                _ => self.launch = Some(Launch::From(correlation)),
            }
        }
    }

    /// An op was recorded that may end the front.
    #[inline]
    pub(crate) fn ran(&mut self, start: u64, correlation: u32) {
        let is_new = match self.launch {
            None => false,
            Some(Launch::Any) => true,
            Some(Launch::From(first)) => !is_before(correlation, first),
        };
        if is_new && self.since.is_some_and(|s| start >= s) {
            self.at = Some(self.at.map_or(start, |a| a.min(start)));
        }
    }
}

/// Correlation ids count up, and wrap.
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::image::Image;

    fn front_of(calls: &[(u64, u32)], ops: &[(u64, u32)], is_without_launches: bool) -> Option<u64> {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let (mut front, mut first) = (Front::default(), FirstOp::default());
        front.begin(100, &mut first, &mut store);
        if is_without_launches {
            first.launch = Some(Launch::Any);
        }
        calls.iter().for_each(|c| first.called(c.0, c.1));
        ops.iter().for_each(|o| first.ran(o.0, o.1));
        let at = first.at;
        front.settle(&mut first, &mut store);
        assert_eq!(front.known_to(), if at.is_some() { None } else { Some(100) });
        at
    }

    #[test]
    fn what_was_launched_before_does_not_end_it() {
        let late = [(90, 5), (110, 6), (120, 7)];
        assert_eq!(front_of(&[(80, 5), (85, 6), (90, 7)], &late, false), None);
        assert_eq!(
            front_of(&[(90, 7), (105, 12), (108, 13)], &[&late[..], &[(150, 13), (140, 12)]].concat(), false),
            Some(140)
        );
        assert_eq!(front_of(&[], &late, false), None, "nothing is launched");
        assert_eq!(front_of(&[], &late, true), Some(110), "launches are not recorded");
        assert_eq!(front_of(&[(105, 3)], &[(110, u32::MAX - 1), (130, 3)], false), Some(130), "ids wrap");
    }
}

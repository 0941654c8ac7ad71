// SPDX-License-Identifier: Apache-2.0
// WARM
//! The front of what is recorded again (a window opened, another profiler gave CUPTI back): the GPU
//! still works on what was launched while nothing was recorded. Until it begins what was launched
//! since, nothing is known of it, and it must not be taken for idle.
//!
//! Launches tell which op that is, not the op's own time: a host that runs ahead has launched ops
//! of the window before that begin after this one opened, with unrecorded ones behind them. A
//! stream runs in the order of launching. It ends with the first such kernel of each device that
//! ran kernels since the front before; with the first copy only in programs without kernels: copies
//! have streams of their own, on which they begin at once. Not known, and a limit of it: what other
//! streams of the device still do behind that first kernel.

use trace::event::{Event, Kind, Unobserved};
use trace::header::sources;

use crate::sources::cupti::session;
use crate::store::Store;

/// The front of what is recorded, while it lasts. Its records may come when recording has ended
/// again.
#[derive(Default)]
pub(crate) struct Front {
    blind: Option<Unrecorded>,
}

#[derive(Clone, Copy)]
struct Unrecorded {
    since: u64,
    /// Where recording ended again before anything was known.
    until: Option<u64>,
}

impl Front {
    /// Everything that is launched from `since` on is recorded.
    pub(crate) fn begin(&mut self, since: u64, first: &mut FirstOp, store: &mut Store) {
        self.end(since, store);
        first.watch(since, has_no_launches(session::source_bits()));
        self.blind = Some(Unrecorded { since, until: None });
    }

    /// Nothing is recorded from `now` on.
    pub(crate) fn cut(&mut self, now: u64) {
        if let Some(blind) = &mut self.blind {
            blind.until.get_or_insert(now);
        }
    }

    /// After buffers were decoded: is it known when the first op began? Where nothing was launched
    /// since, what was launched before is over after [`LONGEST`].
    pub(crate) fn settle(&mut self, now: u64, first: &mut FirstOp, store: &mut Store) {
        let over = self.blind.filter(|_| first.launch.is_none()).map(|b| b.since.saturating_add(LONGEST));
        if let Some(at) = first.ended().or(over.filter(|over| *over <= now)) {
            first.forget();
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

/// Longer than what a host has launched ahead takes (its queue holds about a thousand launches),
/// ns.
const LONGEST: u64 = 10_000_000_000;
/// A device that begins so much later than the others did nothing: it is not waited for, ns.
const TOGETHER: u64 = 1_000_000_000;

/// Are launches not recorded at all, nor were they ever?
fn has_no_launches(bits: u32) -> bool {
    bits & sources::NO_LAUNCHES != 0 && bits & (sources::CALL_FILTER | sources::CALL_KINDS) == 0
}

/// Watches for the first op of each device that was launched after a moment.
#[derive(Clone, Default)]
pub(crate) struct FirstOp {
    since: Option<u64>,
    launch: Option<Launch>,
    /// Devices that ran kernels since the moment before, a bit each, and those of them that are
    /// waited for.
    active: u64,
    awaited: u64,
    /// When the first one of each device began.
    begun: Vec<(u32, u64)>,
    /// Begin of the newest one.
    newest: u64,
    /// Some kernel was recorded, ever.
    has_kernels: bool,
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
    fn watch(&mut self, since: u64, is_without_launches: bool) {
        self.since = Some(since);
        self.launch = is_without_launches.then_some(Launch::Any);
        self.awaited = std::mem::take(&mut self.active);
        self.begun.clear();
        self.newest = 0;
    }

    fn forget(&mut self) {
        self.since = None;
        self.launch = None;
        self.begun.clear();
    }

    /// When the last of the devices had begun, once all that are waited for have.
    fn ended(&self) -> Option<u64> {
        let (earliest, latest) =
            (self.begun.iter().map(|b| b.1).min()?, self.begun.iter().map(|b| b.1).max()?);
        let come = self.begun.iter().fold(0, |come, b| come | bit(b.0));
        (self.awaited & !come == 0 || self.latest_seen(earliest)).then_some(latest)
    }

    /// Has so much been seen behind the first one that who has not begun will not?
    fn latest_seen(&self, earliest: u64) -> bool {
        self.newest.saturating_sub(earliest) > TOGETHER
    }

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

    /// An op was recorded.
    #[inline]
    pub(crate) fn ran(&mut self, start: u64, correlation: u32, device: u32, is_kernel: bool) {
        if is_kernel {
            self.has_kernels = true;
            self.active |= bit(device);
        }
        let Some(since) = self.since else { return };
        let is_new = match self.launch {
            None => false,
            Some(Launch::Any) => true,
            Some(Launch::From(first)) => !is_before(correlation, first),
        };
        if !is_new || start < since || (self.has_kernels && !is_kernel) {
            return;
        }
        self.newest = self.newest.max(start);
        match self.begun.iter_mut().find(|b| b.0 == device) {
            Some(begun) => begun.1 = begun.1.min(start),
            None => self.begun.push((device, start)),
        }
    }
}

fn bit(device: u32) -> u64 {
    1u64.checked_shl(device).unwrap_or(0)
}

/// Correlation ids count up, and wrap.
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::image::Image;

    fn store() -> Store {
        Store::new(Image::map(64 * 32 * 1024).unwrap())
    }

    fn front_of(calls: &[(u64, u32)], ops: &[(u64, u32)], is_without_launches: bool) -> Option<u64> {
        let (mut store, mut front, mut first) = (store(), Front::default(), FirstOp::default());
        front.begin(100, &mut first, &mut store);
        if is_without_launches {
            first.launch = Some(Launch::Any);
        }
        calls.iter().for_each(|c| first.called(c.0, c.1));
        ops.iter().for_each(|o| first.ran(o.0, o.1, 0, true));
        let at = first.ended();
        front.settle(200, &mut first, &mut store);
        assert_eq!(front.known_to(), if at.is_some() { None } else { Some(100) });
        at
    }

    #[test]
    fn what_was_launched_before_does_not_end_it() {
        let late = [(90, 5), (110, 6), (120, 7)];
        assert_eq!(front_of(&[(80, 5), (85, 6), (90, 7)], &late, false), None);
        let new = [&late[..], &[(150, 13), (140, 12)]].concat();
        assert_eq!(front_of(&[(90, 7), (105, 12), (108, 13)], &new, false), Some(140));
        assert_eq!(front_of(&[], &late, false), None, "nothing is launched");
        assert_eq!(front_of(&[], &late, true), Some(110), "launches are not recorded");
        assert_eq!(front_of(&[(105, 3)], &[(110, u32::MAX - 1), (130, 3)], false), Some(130), "ids wrap");
    }

    #[test]
    fn a_device_that_ran_before_is_waited_for() {
        let (mut store, mut front, mut first) = (store(), Front::default(), FirstOp::default());
        let ran = |first: &mut FirstOp, start, device| first.ran(start, start as u32, device, true);
        [(10, 0), (20, 1)].iter().for_each(|&(start, device)| ran(&mut first, start, device));
        front.begin(100, &mut first, &mut store);
        first.called(105, 105);
        ran(&mut first, 110, 1);
        front.settle(200, &mut first, &mut store);
        assert_eq!(front.known_to(), Some(100), "the other one still works on what it was given before");
        ran(&mut first, 150, 0);
        assert_eq!(first.ended(), Some(150));
        front.settle(200, &mut first, &mut store);
        assert_eq!(front.known_to(), None);
        // but not for ever
        front.begin(300, &mut first, &mut store);
        first.called(305, 305);
        ran(&mut first, 310, 1);
        ran(&mut first, 400, 1);
        assert_eq!(first.ended(), None);
        ran(&mut first, 311 + TOGETHER, 1);
        assert_eq!(first.ended(), Some(310));
    }

    #[test]
    fn copies_end_it_where_there_are_no_kernels_and_time_where_nothing_is_launched() {
        let (mut store, mut front, mut first) = (store(), Front::default(), FirstOp::default());
        front.begin(100, &mut first, &mut store);
        first.called(105, 5);
        first.ran(110, 5, 0, false);
        assert_eq!(first.ended(), Some(110));
        first.ran(90, 1, 0, true);
        front.begin(200, &mut first, &mut store);
        first.called(205, 7);
        first.ran(210, 7, 0, false);
        assert_eq!(first.ended(), None, "kernels of before may still run");
        front.begin(300, &mut first, &mut store);
        front.settle(300 + LONGEST - 1, &mut first, &mut store);
        assert_eq!(front.known_to(), Some(300));
        front.settle(300 + LONGEST, &mut first, &mut store);
        assert_eq!(front.known_to(), None);
    }

    #[test]
    fn launches_that_were_recorded_once_are_recorded() {
        use trace::header::sources::{CALLBACKS, CALL_FILTER, CALL_KINDS, NO_LAUNCHES};
        assert!(has_no_launches(NO_LAUNCHES | CALLBACKS));
        assert!([0, CALL_FILTER, NO_LAUNCHES | CALL_KINDS, NO_LAUNCHES | CALL_FILTER]
            .iter()
            .all(|b| !has_no_launches(*b)));
    }
}

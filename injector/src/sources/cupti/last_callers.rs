// SPDX-License-Identifier: Apache-2.0
// WARM
//! The threads that called CUDA last: those are sampled.

/// So many of them.
pub(crate) const CALLERS_KEPT: usize = 16;

/// A thread, and when its last call ended, ns; all zero is none.
pub(crate) type Caller = (u32, u64);

/// See above.
#[derive(Default)]
pub(crate) struct LastCallers {
    callers: [Caller; CALLERS_KEPT],
    /// Place of the thread that called last.
    last: usize,
}

impl LastCallers {
    /// A thread made a call that ended at `time`.
    #[inline]
    pub(super) fn called(&mut self, tid: u32, time: u64) {
        match self.callers.get_mut(self.last) {
            Some((t, last)) if *t == tid => *last = time.max(*last),
            _ => self.other_called(tid, time),
        }
    }

    fn other_called(&mut self, tid: u32, time: u64) {
        let known = self.callers.iter().position(|c| c.0 == tid);
        let oldest = || (0..CALLERS_KEPT).min_by_key(|n| self.callers.get(*n).map_or(0, |c| c.1));
        self.last = known.or_else(oldest).unwrap_or(0);
        if let Some(place) = self.callers.get_mut(self.last) {
            *place = (tid, if place.0 == tid { place.1.max(time) } else { time });
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> [Caller; CALLERS_KEPT] {
        self.callers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_called_last_are_kept() {
        let mut last = LastCallers::default();
        for n in 1..=20u32 {
            last.called(n, u64::from(n) * 10);
            last.called(7, u64::from(n) * 10 + 1);
        }
        let mut tids: Vec<u32> = last.callers.iter().map(|c| c.0).collect();
        tids.sort_unstable();
        assert_eq!(tids, (5..=20).collect::<Vec<_>>(), "the last sixteen, 7 among them");
        assert!(last.callers.contains(&(7, 201)) && last.callers.contains(&(20, 200)));
    }
}

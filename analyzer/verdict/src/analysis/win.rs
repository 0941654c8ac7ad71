// SPDX-License-Identifier: Apache-2.0
//! What a fix wins, and what is promised of it.
//!
//! A [`Win`] has a [`Bound`], the time that the fix can change: idle time, or time of copies,
//! collectives or kernels that the cause tells apart. It cannot be made without one, nor above it,
//! and a [`Promise`] is made of a win. A range of the program is no bound: what goes on in it need
//! not keep the GPU waiting.

use super::{Bucket, Buckets};

/// The time that a fix can change at most, a share of the time that counts, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bound(f64);

impl Bound {
    /// The time in some of these buckets, `of_ns` in all; not of computing, see [`Bound::kernels`].
    pub(crate) fn idle(time: &Buckets, of_ns: u64, buckets: &[Bucket]) -> Bound {
        let buckets = buckets.iter().filter(|&&b| b != Bucket::Compute);
        Bound(buckets.map(|&b| super::share(time.get(b), of_ns)).sum())
    }

    /// Kernels that are told apart, by name or length: `share` of the time.
    pub(crate) fn kernels(time: &Buckets, share: f64) -> Bound {
        Bound(time.share(Bucket::Compute)).at_most(share)
    }

    /// As much of it as that, 0 at least.
    pub(crate) fn at_most(self, share: f64) -> Bound {
        Bound(self.0.min(share).max(0.0))
    }

    /// Both.
    pub(crate) fn and(self, other: Bound) -> Bound {
        Bound(self.0 + other.0)
    }

    /// The half of it.
    pub(crate) fn half(self) -> Bound {
        Bound(self.0 / 2.0)
    }
}

/// What a fix wins, a share of the step (without steps: of the time that counts), 0 to 1. By
/// default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Win(f64);

impl Win {
    /// So much, and no more than `bound`.
    pub(crate) fn within(share: f64, bound: Bound) -> Win {
        Win(share.min(bound.0).max(0.0))
    }

    /// This part of it, 0 to 1.
    pub(crate) fn part(self, part: f64) -> Win {
        Win(self.0 * part.clamp(0.0, 1.0))
    }

    /// Share of the step, 0 to 1.
    pub fn share(self) -> f64 {
        self.0
    }
}

/// What a step takes once a fix is in (without steps: the time that counts).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    ns: f64,
    error_ns: f64,
}

impl Promise {
    /// Of a step of `step_ns`. `None` where nothing is won, or all of it.
    pub(crate) fn new(step_ns: f64, win: Win, error_ns: f64) -> Option<Promise> {
        let ns = step_ns * (1.0 - win.0);
        (win.0 > 0.0 && ns > 0.0).then_some(Promise { ns, error_ns })
    }

    /// ns, above 0.
    pub fn ns(&self) -> f64 {
        self.ns
    }

    /// ± of it, ns.
    pub fn error_ns(&self) -> f64 {
        self.error_ns
    }

    /// With this ±, ns.
    pub(crate) fn give_or_take(self, error_ns: f64) -> Promise {
        Promise { error_ns, ..self }
    }

    /// Nothing below `least` (ns) can be: where time and ± reach below, the middle of what is left.
    /// Less than half of the time says nothing of it; and where the ± is more than the time, the
    /// line says what it is at most.
    pub(crate) fn at_least(self, least: f64) -> Promise {
        let error_ns = self.error_ns;
        let ns = self.ns.max(least);
        if error_ns >= ns || ns - error_ns >= least || least * 2.0 < ns {
            return Promise { ns, error_ns };
        }
        let most = ns + error_ns;
        Promise { ns: (least + most) / 2.0, error_ns: (most - least) / 2.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_won_beyond_what_the_fix_can_change() {
        let mut time = Buckets::default();
        for (bucket, ns) in [(Bucket::Compute, 990), (Bucket::Host, 6), (Bucket::Sync, 4)] {
            time.add(bucket, ns);
        }
        // a range's time that is called a cause, on a GPU that is busy 99 % of the time
        let range = 0.95;
        let host = Bound::idle(&time, 1000, &[Bucket::Host]);
        let all = Bound::idle(&time, 1000, &Bucket::ALL);
        assert_eq!(Win::within(range, host).share(), 0.006);
        assert!((Win::within(range, all).share() - 0.01).abs() < 1e-12);
        assert_eq!(Win::within(range, Bound::kernels(&time, 0.2)).share(), 0.2);
        assert_eq!(Win::within(-1.0, all), Win::default());
        assert_eq!(Promise::new(3.8e6, Win::default(), 0.0), None);
    }

    #[test]
    fn a_time_that_cannot_be_is_no_part_of_a_promise() {
        let bounded = |(ns, error_ns), least| {
            let found = Promise { ns, error_ns }.at_least(least);
            (found.ns, found.error_ns)
        };
        assert_eq!(bounded((8.0, 1.0), 3.0), (8.0, 1.0));
        assert_eq!(bounded((8.0, 1.0), 7.5), (8.25, 0.75));
        assert_eq!(bounded((8.0, 1.0), 10.0), (10.5, 0.5));
        // "9 at most" says no lower end
        assert_eq!(bounded((2.0, 7.0), 1.0), (2.0, 7.0));
        assert_eq!(bounded((2.0, 7.0), 5.0), (5.0, 7.0));
        assert_eq!(bounded((8.0, 7.0), 3.0), (8.0, 7.0));
    }
}

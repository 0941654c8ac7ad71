// SPDX-License-Identifier: Apache-2.0
//! What the program's other threads did at the moments at which a launching thread was looked at:
//! who held Python's lock, who computed, and, where it waited for somebody, whether anybody worked
//! at all. Threads that call CUDA are looked at, and who holds that lock.

use std::collections::HashMap;

use trace::event::sample::HOLDS_GIL;

use crate::run::{Run, Sample};
use crate::sites::activity::{doing, sleeps_by_select, stands_on_futex, Activity, MOSTLY_PERMILLE};
use crate::sites::frames::Frames;

/// Samples of one look end this close to each other, ns: a look at sixteen threads takes about as
/// long (50 µs each).
pub(super) const ONE_LOOK_NS: u64 = 1_000_000;

/// The others, while the launching thread waited for another thread or process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// Samples in which it waited.
    waits: u32,
    /// Of these, in which another thread worked (had a CPU or wanted one, read or wrote a file), or
    /// another process was waited for.
    work: u32,
    /// Of these, in which none worked and one waited for requests.
    wait_for_requests: u32,
}

impl Others {
    /// `waiting`: samples of threads (by index) that wait for another one.
    pub(super) fn of<'a>(run: &Run, waiting: impl Iterator<Item = (usize, &'a Sample)>) -> Others {
        let selects_to_sleep = sleeps_by_select(run);
        let mut frames: HashMap<u32, Frames> = HashMap::new();
        let mut others = Others::default();
        for (thread, sample) in waiting {
            // (another process may come and go without being seen)
            let (mut works, mut waits_for_requests) = (!stands_on_futex(sample), false);
            for (_, s) in of_this_look(run, thread, sample.span.end) {
                let frames = *frames.entry(s.stack).or_insert_with(|| Frames::of(run, s.stack));
                let does = doing(s, frames, selects_to_sleep);
                works |= does.is_work();
                waits_for_requests |= does == Activity::Idles;
            }
            others.waits += 1;
            others.work += u32::from(works);
            others.wait_for_requests += u32::from(waits_for_requests && !works);
        }
        others
    }

    /// None of them works on what is waited for: at less than a tenth of the moments any did.
    pub fn hardly_work(&self) -> bool {
        self.work * 10 < self.waits
    }

    /// One of them waits for requests, at half of the moments or more.
    pub fn wait_for_requests(&self) -> bool {
        self.waits > 0 && self.wait_for_requests * 2 >= self.waits
    }
}

/// The samples of other threads (by index) by the same look as the one that ended at this time.
/// (One of another look tells who held Python's lock 10 ms before or after: it changes hands every
/// 5 ms.)
fn of_this_look(run: &Run, but: usize, at: u64) -> impl Iterator<Item = (usize, &Sample)> {
    let others = run.threads.iter().enumerate().filter(move |(t, _)| *t != but);
    others.flat_map(move |(thread, t)| {
        let from = t.samples.partition_point(|s| s.span.end + ONE_LOOK_NS < at);
        let near = t.samples.get(from..).unwrap_or(&[]).iter();
        near.take_while(move |s| s.span.end <= at + ONE_LOOK_NS).map(move |s| (thread, s))
    })
}

/// The sample of the thread that held Python's lock at this time.
pub(super) fn holder(run: &Run, but: usize, at: u64) -> Option<&Sample> {
    let holds = of_this_look(run, but, at).map(|s| s.1).filter(|s| s.bits & HOLDS_GIL != 0);
    holds.min_by_key(|s| s.span.end.abs_diff(at))
}

/// The sample of the thread that had a CPU for most of the time, half of it at least, and is
/// blocked in nothing.
pub(super) fn computes(run: &Run, but: usize, at: u64) -> Option<(usize, &Sample)> {
    let busy = of_this_look(run, but, at)
        .filter(|(_, s)| s.stack != 0 && s.syscall.is_none() && s.on_cpu >= MOSTLY_PERMILLE);
    busy.max_by_key(|s| s.1.on_cpu)
}

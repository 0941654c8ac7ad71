// SPDX-License-Identifier: Apache-2.0
//! What a DataLoader's workers wait for while they fetch: the time below their fetching in which
//! the kernel said that the worker's main thread was blocked until data came.
//!
//! The samples of a worker lie end to end, each from the look before: what none of them covers it
//! spent blocked in something else (a lock, a sleep, a process of its own), and counts against it.

use std::collections::HashMap;

use trace::event::sample::PIPE;
use trace::event::PAGE_FAULT;

use super::workers::Workers;
use super::Case;
use crate::analysis::{Fact, Figure};
use crate::gaps::sample_index::{common, LEAST_SAMPLES};
use crate::sites::workers::works;
use crate::sites::{Site, Sites};

/// System calls of x86-64 Linux that receive from a socket, or wait until something can be
/// received.
const SOCKET: [u32; 12] = [42, 45, 47, 299, 7, 271, 23, 270, 232, 281, 441, 43];

/// Of the workers that are waited for, in the steady state.
#[derive(Default)]
pub(super) struct Waited {
    /// Samples of fetching or collating, of these waiting for data from elsewhere than another
    /// process's pipe, of these for a socket, and for a page.
    fetching: u32,
    waiting: u32,
    sockets: u32,
    pages: u32,
    /// The time that fetching and waiting samples stand for, and that no sample stands for, ns.
    fetching_ns: f64,
    waiting_ns: f64,
    unseen_ns: f64,
    /// The time that all samples stand for, ns.
    covered_ns: f64,
    /// The line or function of the program that most of those who wait stand in.
    site: Option<Site>,
}

impl Waited {
    pub(super) fn of(case: &Case, workers: &Workers) -> Waited {
        let (run, steady) = (case.run, case.analysis.steady);
        let mut known = HashMap::new();
        let mut found = Waited::default();
        let mut stacks = Vec::new();
        for s in run.child_samples.iter().filter(|s| workers.pids.contains(&s.pid)) {
            let ns = s.span.clip(steady).ns() as f64;
            if ns == 0.0 {
                continue;
            }
            found.covered_ns += ns;
            let work = *known.entry(s.stack).or_insert_with(|| works(run, s.stack).map(|w| w.waits));
            let Some(for_others) = work else { continue };
            found.fetching += 1;
            found.fetching_ns += ns;
            let Some(call) = s.waits.filter(|_| !for_others && s.bits & PIPE == 0) else { continue };
            found.waiting += 1;
            found.waiting_ns += ns;
            found.sockets += u32::from(SOCKET.contains(&call));
            found.pages += u32::from(call == PAGE_FAULT);
            stacks.push(s.stack);
        }
        found.unseen_ns = (workers.seen_ns - found.covered_ns).max(0.0);
        found.site = common(&mut Sites::new(run), stacks.into_iter()).map(|s| s.0);
        found
    }

    /// Is it in waiting for data that they spend most of their fetching?
    pub(super) fn is_storage(&self) -> bool {
        self.waiting >= LEAST_SAMPLES && self.waiting_ns * 2.0 >= self.fetching_ns + self.unseen_ns
    }

    /// The part of their time that they fetch, 0 to 1; `None` where that tells nothing of how many
    /// would keep up: pages are waited for where there is too little memory, too.
    pub(super) fn fetch_share(&self) -> Option<f64> {
        (self.pages * 2 < self.waiting).then(|| self.fetching_ns / self.covered_ns.max(1.0))
    }

    /// ", waiting for a socket in 43 of 50 samples of their fetching, most at storage.py:52 in
    /// read".
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        let what = match () {
            () if self.sockets * 2 >= self.waiting => "a socket",
            () if self.pages * 2 >= self.waiting => {
                "pages of memory (of a mapped file, or too little memory)"
            }
            () => "a file",
        };
        let waits = Fact::new(", waiting for {what} in {waiting} of {fetching} samples of their fetching")
            .with("what", Figure::Word(what))
            .with("waiting", self.waiting)
            .with("fetching", self.fetching);
        let most = self.site.as_ref().map(|site| Fact::new(", most at {waits_at}").with("waits_at", site));
        [waits].into_iter().chain(most)
    }
}

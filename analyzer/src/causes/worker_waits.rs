// SPDX-License-Identifier: Apache-2.0
//! What a DataLoader's workers wait for while they fetch: of the looks at them below their fetching, those in which the kernel said that
//! the worker's main thread was blocked until data came.

use std::collections::HashMap;

use trace::event::sample::PIPE;
use trace::event::PAGE_FAULT;

use super::Case;
use crate::gaps::standing::{common, LEAST_SAMPLES};
use crate::sites::workers::works;
use crate::sites::{Site, Sites};

/// System calls of x86-64 Linux that receive from a socket, or wait until something can be received.
const SOCKET: [u32; 12] = [42, 45, 47, 299, 7, 271, 23, 270, 232, 281, 441, 43];

/// In the steady state.
#[derive(Default)]
pub(super) struct Waited {
    /// Looks at workers that fetch or collate.
    pub(super) fetching: u32,
    /// Of these, in how many the worker waited for data from elsewhere than another process's pipe.
    pub(super) waiting: u32,
    /// Of these, for a socket.
    sockets: u32,
    /// Looks at all workers.
    looks: u32,
    /// The line or function of the program that most of those who wait stand in, and how many do.
    pub(super) site: Option<(Site, u32)>,
}

impl Waited {
    pub(super) fn of(case: &Case) -> Waited {
        let (run, steady) = (case.run, case.analysis.steady);
        let mut known = HashMap::new();
        let mut found = Waited::default();
        let mut stacks = Vec::new();
        for s in run.child_samples.iter().filter(|s| s.stack != 0 && s.span.clip(steady).ns() > 0) {
            let (is_worker, fetches) = *known.entry(s.stack).or_insert_with(|| {
                let works = works(run, s.stack);
                (crate::sites::workers::is_worker(run, s.stack), works.map(|w| w.waits))
            });
            found.looks += u32::from(is_worker);
            let Some(for_others) = fetches else { continue };
            found.fetching += 1;
            let Some(call) = s.waits.filter(|_| !for_others && s.bits & PIPE == 0) else { continue };
            found.waiting += 1;
            found.sockets += u32::from(SOCKET.contains(&call) && call != PAGE_FAULT);
            stacks.push(s.stack);
        }
        found.site = common(&mut Sites::new(run), stacks.into_iter());
        found
    }

    /// Is it in waiting for data that they spend most of their fetching?
    pub(super) fn is_storage(&self) -> bool {
        self.waiting >= LEAST_SAMPLES && self.waiting * 2 >= self.fetching
    }

    /// The part of their time that they fetch, 0 to 1.
    pub(super) fn fetch_share(&self) -> f64 {
        f64::from(self.fetching) / f64::from(self.looks.max(1))
    }

    /// "`, 43 of 50 looks at them waiting for a socket, most at storage.py:52 in read`".
    pub(super) fn say(&self) -> String {
        let what = if self.sockets * 2 >= self.waiting { "a socket" } else { "a file" };
        let site = self.site.as_ref().map_or_else(String::new, |(site, _)| format!(", most at {site}"));
        format!(
            ", waiting for {what} in {} of {} samples of their fetching{site}",
            self.waiting, self.fetching
        )
    }
}

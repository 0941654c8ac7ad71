// SPDX-License-Identifier: Apache-2.0
//! What the host did in its long stretches (GP105 HOST): half a step's sleep and half a step's
//! Python are two things to mend, and mending one wins no more than its part.

use super::{
    compile, file_io, gc, gil, lock, logging, native_cpu, network, no_work, sleep, starved, sync, Case,
    NAMED_WIN,
};
use super::{shown, workers};
use crate::gaps::sample_index::{HostActivity, ALL_OF_IT, LEAST_SAMPLES};
use crate::sites::activity::Activity;

/// A part of the host's time.
pub(super) struct Part {
    /// The cause of its own that this is; `None`: no other than HOST.
    pub(super) code: Option<&'static str>,
    /// What more of its samples show than anything else.
    pub(super) doing: Activity,
    pub(super) samples: u32,
    /// Share of the host's time, 0 to 1.
    pub(super) part: f64,
}

impl Part {
    /// What at least half of its samples show, if they are enough.
    pub(super) fn main(&self, stood: &HostActivity) -> Option<Activity> {
        let n = stood.count(|d| d == self.doing);
        (self.samples >= LEAST_SAMPLES && n * 2 >= self.samples).then_some(self.doing)
    }
}

/// Nobody of the process is seen to work on what its launching thread waits for: no thread that
/// calls CUDA, and no child.
pub(super) fn nobody_works(case: &Case) -> bool {
    case.device.host.others.hardly_work() && !workers::any_works(case)
}

/// The cause that doing this is, where it is one of its own. `for_requests`: who waits for another
/// thread waits for one that waits for requests.
fn code_of(doing: Activity, for_requests: bool) -> Option<&'static str> {
    Some(match doing {
        Activity::WaitsForDevice => sync::CODE,
        Activity::Collects => gc::CODE,
        Activity::WaitsForGil => gil::CODE,
        Activity::Saves | Activity::Writes => file_io::CODE,
        Activity::Logs => logging::CODE,
        Activity::Compiles => compile::CODE,
        Activity::Starves => starved::CODE,
        Activity::Sleeps => sleep::CODE,
        Activity::Waits if for_requests => no_work::CODE,
        Activity::Waits => lock::CODE,
        Activity::Talks => network::CODE,
        Activity::Idles => no_work::CODE,
        Activity::ComputesNatively => native_cpu::CODE,
        _ => return None,
    })
}

/// By samples: the thing that half of them or more show, first, with all of the time from
/// [`ALL_OF_IT`] on; and others of which there are enough samples and that are worth a word,
/// of a time whose end wins `win`. What is too little stays with HOST. Empty where nothing is that
/// common, or its part too small to be named where the whole is not: but a thread that is given no
/// CPU does something else in the samples between, so that this has its part beside any number of
/// others.
pub(super) fn parts(case: &Case, win: f64) -> Vec<Part> {
    let stood = &case.device.host;
    let for_requests = stood.others.wait_for_requests() && nobody_works(case);
    let mut all: Vec<Part> = Vec::new();
    for &(doing, n) in &stood.doings {
        let code = code_of(doing, for_requests);
        match all.iter_mut().find(|p| p.code == code) {
            Some(same) => same.samples += n,
            None => all.push(Part { code, doing, samples: n, part: 0.0 }),
        }
    }
    all.sort_by_key(|p| std::cmp::Reverse(p.samples));
    for p in &mut all {
        p.part = shown::part(p.samples, stood.samples);
    }
    let is_worth = |p: &Part| p.samples >= LEAST_SAMPLES && win * p.part >= NAMED_WIN;
    let Some(first) = all.first().filter(|p| p.part >= 0.5 && stood.samples >= LEAST_SAMPLES) else {
        if !all.iter().any(|p| p.code == Some(starved::CODE) && is_worth(p)) {
            return Vec::new();
        }
        all.retain(|p| (p.code.is_none() || p.code == Some(starved::CODE)) && is_worth(p));
        return all;
    };
    if shown::is_too_little(win, first.part) {
        return Vec::new();
    }
    // (whoever waits for requests most of the time is asked nothing about the rest)
    if first.part >= ALL_OF_IT || first.code == Some(no_work::CODE) {
        all.truncate(1);
        return all;
    }
    let mut is_first = true;
    all.retain(|p| std::mem::take(&mut is_first) || is_worth(p));
    let others: f64 = all.iter().skip(1).map(|p| p.part).sum();
    if let Some(first) = all.first_mut().filter(|p| p.code.is_none()) {
        first.part = 1.0 - others;
    }
    all
}

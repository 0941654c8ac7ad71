// SPDX-License-Identifier: Apache-2.0
//! Where the launching threads stood while the device waited for launches, by samples of their
//! stacks.
//!
//! Launches carry no call site: there are too many of them. A sample says where its thread stood at
//! one moment, the end of its span; where the device was idle for a launch at that moment, it is a
//! vote. Autograd's own threads have no Python frames: for them speaks the thread that stands in
//! `backward()` then. What stands behind a vote is the program's line, and what kind of dispatching
//! it is.

use std::collections::HashMap;

use trace::event::sample::OUTER;

use super::sample_index::{common, LEAST_SAMPLES};
use crate::run::{Run, Sample, Thread};
use crate::sites::dispatch::{Break, Dispatch, Way};
use crate::sites::frames::Frames;
use crate::sites::{Site, Sites};
use crate::timeline::buckets::{Bucket, IdleSlice};
use crate::timeline::Observed;

/// One look of the sampler at all threads takes less than this, ns: samples closer to each other
/// show one moment. (H200: 50 to 80 µs a look with everything.)
const ONE_LOOK_NS: u64 = 1_000_000;

/// The samples taken while the device waited for launches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatched {
    /// How many.
    pub samples: u32,
    /// The line, or the function (then without a line), where at least half of them stand, and how
    /// many do.
    pub site: Option<(Site, u32)>,
    /// Where there is none: the innermost line below which at least half of them stand, and how
    /// many do.
    pub below: Option<(Site, u32)>,
    /// How many stand in an optimizer that takes one tensor after the other, in one that takes many
    /// at once, and somewhere else in an optimizer's step.
    pub optimizer: [u32; 3],
    /// How many stand inside of a compiled function.
    pub compiled: u32,
    /// Of those whose whole stack is known: inside of a compiled function, and of these behind a
    /// break of its graph.
    pub whole: [u32; 2],
    /// How many stand behind a break of a compiled graph, and neither in `backward()` nor in an
    /// optimizer's step that it calls there (these are no pieces of it),
    pub broken: u32,
    /// where most of these breaks are, and how many of them.
    pub break_at: Option<(Site, u32)>,
}

/// Of the samples inside of a compiled function this part stands behind a break at least, where its
/// graph falls apart: the rest are the pieces in front of it and the way from one to the next.
/// (H200 and CPU, 30 blocks with a break in the middle of each: 0.30 and 0.35.)
const BEHIND: f64 = 0.2;
/// ... and more of them than would be there by chance, were it one of ten: so many standard
/// deviations (one time in twenty).
const BY_CHANCE: f64 = 0.1;
const DEVIATIONS: f64 = 1.64;
/// (A short run whose inner frames move too fast has few stacks that are known whole: 9 of 57 on an
/// H100, 4 of them behind a break.)
const LEAST_BEHIND: f64 = 3.0;

impl Dispatched {
    /// Does the device wait for a compiled function that falls apart?
    pub fn falls_apart(&self) -> bool {
        let [compiled, broken] = self.whole;
        let all = f64::from(compiled);
        let by_chance = BY_CHANCE * all + DEVIATIONS * (BY_CHANCE * (1.0 - BY_CHANCE) * all).sqrt();
        let least = LEAST_BEHIND.max(by_chance).max(BEHIND * all);
        let inside =
            self.compiled * 2 >= self.samples && compiled >= LEAST_SAMPLES && f64::from(broken) >= least;
        inside || (self.broken >= LEAST_SAMPLES && self.broken * 2 >= self.samples)
    }
}

impl Dispatched {
    /// Of the LAUNCH time of a device in what counts.
    pub fn new(run: &Run, slices: &[IdleSlice], counts: &Observed) -> Dispatched {
        if run.threads.iter().all(|t| t.samples.is_empty()) {
            return Dispatched::default();
        }
        let is_late = |s: &&IdleSlice| s.bucket == Bucket::Launch && counts.measure(s.span()) > 0;
        let late: Vec<&IdleSlice> = slices.iter().filter(is_late).collect();
        let mut stacks: Vec<(u32, bool)> = Vec::new();
        for (t, thread) in run.threads.iter().enumerate() {
            let has_stacks = thread.samples.iter().any(|s| s.stack != 0);
            for sample in &thread.samples {
                let at = sample.span.end;
                let next = late.partition_point(|s| s.end <= at);
                let slice = late.get(next).filter(|s| s.start <= at);
                let launches = slice.and_then(|s| run.call(s.call)).is_some_and(|(by, _)| by == t);
                if !launches {
                    continue;
                }
                stacks.push(match has_stacks {
                    true => (sample.stack, sample.bits & OUTER != 0),
                    false => (waits_in_backward(run, t, at), false),
                });
            }
        }
        Dispatched::of(run, &stacks)
    }

    /// Of samples: stack, and whether its inner frames are left out.
    fn of(run: &Run, stacks: &[(u32, bool)]) -> Dispatched {
        let mut sites = Sites::new(run);
        let site = common(&mut sites, stacks.iter().map(|s| s.0));
        let below = if site.is_none() { below(&mut sites, stacks) } else { None };
        let mut found = Dispatched { samples: stacks.len() as u32, site, below, ..Dispatched::default() };
        let mut known: HashMap<u32, Dispatch> = HashMap::new();
        let mut breaks: HashMap<Break, u32> = HashMap::new();
        for &(stack, is_outer) in stacks {
            let dispatch = known.entry(stack).or_insert_with(|| Dispatch::of(run, stack));
            let [single, many, other] = &mut found.optimizer;
            match dispatch.optimizer {
                Some(Way::OneByOne) => *single += 1,
                Some(Way::Together) => *many += 1,
                Some(Way::Unknown) => *other += 1,
                None => {}
            }
            found.compiled += u32::from(dispatch.compiled);
            found.whole[0] += u32::from(dispatch.compiled && !is_outer);
            let is_piece = dispatch.optimizer.is_none() && Frames::of(run, stack) != Frames::Backward;
            if let Some(at) = dispatch.broken_at.as_ref().filter(|_| is_piece) {
                found.whole[1] += u32::from(!is_outer);
                found.broken += 1;
                *breaks.entry(at.clone()).or_default() += 1;
            }
        }
        let most = breaks.into_iter().max_by(|x, y| x.1.cmp(&y.1).then_with(|| y.0.cmp(&x.0)));
        found.break_at = most.map(|(at, n)| (Sites::new(run).at_break(&at), n));
        found
    }
}

/// The innermost of the program's lines that at least half of the stacks have in them; and how many
/// do.
fn below(sites: &mut Sites<'_>, stacks: &[(u32, bool)]) -> Option<(Site, u32)> {
    let (line, n) = sites.below(stacks.iter().map(|s| (s.0, 1)))?;
    let enough = stacks.len() as u32 >= LEAST_SAMPLES;
    Some((sites.get(line)?.clone(), n as u32)).filter(|_| enough)
}

/// The stack of the thread that waits in `backward()` at this time, 0 where none does.
fn waits_in_backward(run: &Run, but: usize, at: u64) -> u32 {
    let nearest = |t: &Thread| -> Option<Sample> {
        let next = t.samples.partition_point(|s| s.span.end < at);
        let near = [next.checked_sub(1), Some(next)].into_iter().flatten().filter_map(|i| t.samples.get(i));
        near.filter(|s| s.span.end.abs_diff(at) <= ONE_LOOK_NS)
            .min_by_key(|s| s.span.end.abs_diff(at))
            .copied()
    };
    let others = run.threads.iter().enumerate().filter(|(t, _)| *t != but);
    let stacks = others.filter_map(|(_, t)| nearest(t)).map(|s| s.stack);
    stacks.filter(|&s| s != 0).find(|&s| Frames::of(run, s) == Frames::Backward).unwrap_or(0)
}

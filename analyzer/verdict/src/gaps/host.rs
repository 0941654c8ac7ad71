// SPDX-License-Identifier: Apache-2.0
//! The host side of a device: stretches between launches over the union of the threads that launch
//! to it (main and autograd threads hand over to each other), and the calls that held a thread
//! until the device had drained.

use trace::call::Class;
use trace::Kind;

use super::input::Fetching;
use super::launch_owner::LaunchOwner;
use super::sample_index::{SampleIndex, Stretch};
use super::{LAUNCH_LONGEST_NS, LAUNCH_MEDIANS, LAUNCH_STRETCH_NS, SMALL_COPY_BYTES};
use crate::run::merge::Merge;
use crate::run::{Call, Device, Op, Run, Span, NONE};
use crate::stats::middle;
use crate::timeline::buckets::Bucket;
use crate::timeline::Observed;

/// What dispatching a launch takes where nothing else was recorded, ns: eager PyTorch on an H100's
/// host, 8 to 12 us with the call.
const DISPATCH_NS: u64 = 10_000;

/// What held the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// A synchronizing call, or a small blocking copy (`.item()`): waited for the device.
    Sync,
    /// An allocating or freeing call.
    Alloc,
    /// A blocking copy: the first `drain` ns waited for earlier work, the rest was the transfer.
    Copy {
        /// ns of waiting for earlier work.
        drain: u64,
    },
}

/// A call that held its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocker {
    /// When the call began, ns.
    pub start: u64,
    /// When it returned, ns.
    pub end: u64,
    /// When its own op ended (0 without one): a pageable copy's call may return a little before.
    pub done: u64,
    /// Flat call number.
    pub call: u32,
    /// What it waited for.
    pub hold: Hold,
}

/// The host as one device sees it.
#[derive(Clone, Debug, Default)]
pub struct HostView {
    /// By flat call number: ns between the end of the launch before (on any launching thread) and
    /// this one's begin, less the time blocked or not observed; saturated. Only launching calls of
    /// launching threads have one.
    stretch: Vec<u32>,
    /// By flat call number, as `stretch`: at least half of it went into fetching data.
    fetched: Vec<bool>,
    /// Where there are several devices: long stretches, by begin of the launches behind them: when
    /// each began, and the launch's flat number. To whatever device that went, the host was
    /// elsewhere.
    away: Vec<(u64, u32)>,
    /// Of another tool's trace: launches before which none had returned, sorted. What the host did
    /// in front of them has no stretch; that it launched nothing is known all the same.
    first: Vec<u32>,
    /// By return time.
    pub blockers: Vec<Blocker>,
    /// Median stretch, ns.
    pub median: u64,
    /// A longer stretch is HOST, ns.
    pub limit: u64,
    /// What is left of a stretch once nothing but launching is done in it, ns: the median of those
    /// up to `limit`; where every one is longer (one graph launch a step, behind the step's input),
    /// [`LAUNCH_STRETCH_NS`].
    pub usual: u64,
    /// When the host's threads fetched data.
    pub fetching: Fetching,
    /// What they did otherwise, by samples.
    pub standing: SampleIndex,
    /// Indices of the threads that launch to the device, and of those that only wait for it in
    /// their turn.
    pub threads: Vec<usize>,
    /// By thread: it does something small beside ([`mod@super::aside`]).
    aside: Vec<bool>,
}

impl HostView {
    /// Looks at all calls once.
    pub fn new(run: &Run, device: &Device) -> HostView {
        HostView::of(run, device, &LaunchOwner::new(run))
    }

    /// The same where [`LaunchOwner`] is known already.
    pub fn of(run: &Run, device: &Device, whose: &LaunchOwner) -> HostView {
        let mut launches = vec![false; run.threads.len()];
        let mut copies = Vec::new();
        for s in &device.streams {
            let mut before = 0; // end of the op before on the stream
            let mut last = NONE;
            for op in &s.ops {
                if op.call != last || op.kind == Kind::Memcpy {
                    last = op.call;
                    if let Some((t, c)) = run.call(op.call) {
                        if let Some(l) = launches.get_mut(t) {
                            *l = true;
                        }
                        if op.kind == Kind::Memcpy
                            && c.class == Some(Class::Copy)
                            && held(c, op)
                            && !whose.is_aside(t)
                        {
                            copies.push(copy_blocker(op.call, c, op, before));
                        }
                    }
                }
                before = before.max(op.end);
            }
        }
        let mut view = HostView {
            stretch: vec![0; run.threads.iter().map(|t| t.calls.len()).sum()],
            fetched: vec![false; run.threads.iter().map(|t| t.calls.len()).sum()],
            threads: (0..launches.len())
                .filter(|&t| launches.get(t) == Some(&true) && !whose.is_aside(t))
                .collect(),
            aside: (0..launches.len()).map(|t| whose.is_aside(t)).collect(),
            blockers: copies,
            ..HostView::default()
        };
        let index = run.devices.iter().position(|d| d.ordinal == device.ordinal).unwrap_or(0);
        let holds = |t: usize, i: usize, c: &Call| whose.concerns(index, t, run.flat(t, i), c);
        view.add_holding_calls(run, &holds);
        let idle = |t: usize| !whose.launches(t);
        view.add_waiting_threads(run, &idle, &holds);
        let fetching = Fetching::new(run, &view);
        let stretches = view.measure_stretches(run, &fetching);
        view.fetching = fetching;
        if !stretches.is_empty() {
            view.standing = SampleIndex::new(run, device, &stretches, |flat| view.is_long(flat));
            view.fetching.paced |= view.standing.paced;
            view.usual_without_elsewhere(&stretches);
        }
        if run.devices.len() > 1 {
            view.find_away(run);
        }
        view
    }

    /// Indices of `threads`, and of those that launch to the device and that it does not wait for.
    #[cfg(feature = "readers")]
    pub fn all_that_launch(&self) -> impl Iterator<Item = usize> + '_ {
        let aside = (0..self.aside.len()).filter(|&t| self.aside.get(t) == Some(&true));
        self.threads.iter().copied().chain(aside)
    }

    /// Was this launched by a thread that the device does not wait for?
    pub(super) fn is_aside(&self, run: &Run, op: &Op) -> bool {
        self.aside.contains(&true) && run.call(op.call).is_some_and(|(t, _)| self.aside.get(t) == Some(&true))
    }

    /// Threads that launch nothing but wait for the device while nobody launches (a main thread in
    /// front of a launching one, waits known from CUPTI's records alone) belong to the host's chain
    /// too. A monitor that waits while others launch does not.
    fn add_waiting_threads(
        &mut self,
        run: &Run,
        idle: &dyn Fn(usize) -> bool,
        holds: &dyn Fn(usize, usize, &Call) -> bool,
    ) {
        let mut starts: Vec<u64> = Vec::new();
        let waits = |t: usize| {
            let calls = run.threads.get(t).map_or(&[][..], |t| &t.calls).iter().enumerate();
            let waits = move |(i, c): &(usize, &Call)| c.class == Some(Class::Sync) && holds(t, *i, c);
            calls.filter(waits).map(|(_, c)| c)
        };
        let others: Vec<usize> =
            (0..run.threads.len()).filter(|&t| idle(t) && waits(t).next().is_some()).collect();
        if others.is_empty() {
            return;
        }
        for t in self.threads.iter().filter_map(|&t| run.threads.get(t)) {
            starts.extend(t.calls.iter().filter(|c| c.launches()).map(|c| c.start));
        }
        starts.sort_unstable();
        for t in others {
            let (mut alone, mut all) = (0, 0);
            for c in waits(t) {
                let from = starts.partition_point(|&s| s <= c.start);
                alone += usize::from(starts.get(from).is_none_or(|&s| s >= c.end));
                all += 1;
            }
            if alone * 10 >= all * 8 {
                self.threads.push(t);
            }
        }
        self.threads.sort_unstable();
    }

    fn add_holding_calls(&mut self, run: &Run, holds: &dyn Fn(usize, usize, &Call) -> bool) {
        for (t, thread) in run.threads.iter().enumerate() {
            for (i, c) in thread.calls.iter().enumerate() {
                let hold = match c.class {
                    Some(Class::Sync) => Hold::Sync,
                    Some(Class::Alloc | Class::Free) => Hold::Alloc,
                    _ => continue,
                };
                if !holds(t, i, c) {
                    continue;
                }
                let call = run.flat(t, i);
                self.blockers.push(Blocker { start: c.start, end: c.end, done: 0, call, hold });
            }
        }
        self.blockers.sort_by_key(|b| (b.end, b.start));
        self.blockers.dedup_by_key(|b| b.call); // one copy call, several records
    }

    /// The launching calls of its threads, by begin, each with the latest return of those before
    /// (0: none).
    fn launches<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = (u64, u32, &'a Call)> + 'a {
        let lists = self.threads.iter().filter_map(|&t| run.threads.get(t)).map(|t| t.calls.as_slice());
        let calls = Merge::new(lists.collect(), |c: &Call| c.start).filter(|(_, _, c)| c.launches());
        let mut returns = Returns::default();
        calls.map(move |(list, i, c)| {
            let before = returns.before(c.start).unwrap_or(0);
            returns.push(c.end);
            (before, self.threads.get(list).map_or(NONE, |&t| run.flat(t, i)), c)
        })
    }

    fn find_away(&mut self, run: &Run) {
        let long = self.launches(run).filter(|(before, flat, _)| *before > 0 && self.is_long(*flat));
        self.away = long.map(|(before, flat, _)| (before, flat)).collect();
    }

    /// The parts of `span` in which the host was elsewhere, in order: each with the launch that
    /// came late by it.
    pub fn away<'a>(&'a self, run: &'a Run, span: Span) -> impl Iterator<Item = (Span, u32)> + 'a {
        let begin = move |flat: u32| run.call(flat).map_or(0, |(_, c)| c.start);
        let from = self.away.partition_point(|a| begin(a.1) <= span.start);
        let near = self.away.get(from..).unwrap_or(&[]).iter().take_while(move |a| a.0 < span.end);
        near.map(move |a| (Span::new(a.0, begin(a.1)).clip(span), a.1)).filter(|a| a.0.ns() > 0)
    }

    /// Gives the stretches back where there are samples that could stand in them.
    fn measure_stretches(&mut self, run: &Run, fetching: &Fetching) -> Vec<Stretch> {
        let sampled = run.threads.iter().any(|t| !t.samples.is_empty());
        let mut stretches = Vec::new();
        let lists: Vec<&[Call]> =
            self.threads.iter().filter_map(|&t| run.threads.get(t)).map(|t| t.calls.as_slice()).collect();
        let blocking: Vec<u32> = {
            let mut b: Vec<u32> = self.blockers.iter().map(|b| b.call).collect();
            b.sort_unstable();
            b
        };
        let observed = Observed::of(run);
        let mut returns = Returns::default();
        let mut before = 0; // who launched last
        let mut blocked = 0u64;
        let mut lengths: Vec<u32> = Vec::new();
        for (list, i, c) in Merge::new(lists, |c: &Call| c.start) {
            let flat = self.threads.get(list).map_or(NONE, |&t| run.flat(t, i));
            let last_end = returns.before(c.start);
            if c.launches() {
                if let Some(end) = last_end {
                    let ns = observed.measure(Span::new(end, c.start)).saturating_sub(blocked);
                    let fetched = fetching.within(end, c.start) * 2 >= ns.max(1);
                    let ns = u32::try_from(ns).unwrap_or(u32::MAX);
                    if let Some(s) = self.stretch.get_mut(flat as usize) {
                        *s = ns;
                    }
                    if let Some(f) = self.fetched.get_mut(flat as usize) {
                        *f = fetched;
                    }
                    lengths.push(ns);
                    if sampled {
                        stretches.push(Stretch { span: Span::new(end.min(c.start), c.start), flat, before });
                    }
                } else if run.foreign {
                    self.first.push(flat);
                }
                returns.push(c.end);
                before = self.threads.get(list).copied().unwrap_or(0);
                blocked = 0;
            } else if blocking.binary_search(&flat).is_ok() {
                let from = c.start.max(last_end.unwrap_or(0));
                blocked += c.end.saturating_sub(from);
            }
        }
        self.first.sort_unstable();
        self.median = middle(&mut lengths).map_or(0, u64::from);
        self.limit = LAUNCH_STRETCH_NS.max((LAUNCH_MEDIANS * self.median).min(LAUNCH_LONGEST_NS));
        lengths.retain(|&ns| u64::from(ns) <= self.limit);
        self.usual = middle(&mut lengths).map_or(LAUNCH_STRETCH_NS, u64::from);
        stretches
    }

    /// Short stretches in which no launching was done are not usual ones.
    fn usual_without_elsewhere(&mut self, stretches: &[Stretch]) {
        if self.standing.elsewhere.is_empty() {
            return;
        }
        let launching = stretches.iter().filter(|s| !self.is_long(s.flat));
        let mut lengths: Vec<u64> = launching.map(|s| self.stretch(s.flat)).collect();
        self.usual = middle(&mut lengths).unwrap_or(self.usual.min(DISPATCH_NS));
    }

    /// The host's own time before this launching call, ns (4.29 s at most; 0 for other calls).
    pub fn stretch(&self, flat: u32) -> u64 {
        self.stretch.get(flat as usize).map_or(0, |&s| u64::from(s))
    }

    /// Did others, or the clock, end the stretch in front of this launch, by samples of it or of
    /// its like?
    pub fn waits_for_others(&self, flat: u32) -> bool {
        self.standing.waiting.contains(&flat)
    }

    /// The host's own time before this launching call was, for the most part, fetching data.
    pub fn is_fetch(&self, flat: u32) -> bool {
        self.fetched.get(flat as usize) == Some(&true) || self.standing.fetched.contains(&flat)
    }

    /// The host's own time before launches of what counts that was, for the most part, fetching
    /// data, ns.
    pub fn fetched_ns(&self, run: &Run, counts: &Observed) -> u64 {
        let threads = self.threads.iter().filter_map(|&t| Some((t, run.threads.get(t)?)));
        let calls = threads.flat_map(|(t, thread)| {
            let inside =
                thread.calls.iter().enumerate().filter(|(_, c)| c.launches() && counts.contains(c.start));
            inside.map(move |(i, _)| run.flat(t, i))
        });
        calls.filter(|&flat| self.is_fetch(flat)).map(|flat| self.stretch(flat)).sum()
    }

    /// What the host did from `from` on in front of the first launch of a trace, while the device
    /// had no work: it fetched data, or was elsewhere. `None` for other launches, and for a short
    /// while.
    pub(super) fn in_front_of_first(&self, flat: u32, span: Span) -> Option<Bucket> {
        self.first.binary_search(&flat).ok().filter(|_| span.ns() > self.limit)?;
        Some(self.elsewhere(span))
    }

    /// Is the host seen to do something in this time, in which it launches nothing: by samples in
    /// front of the launch that ends it, or of its like; or by ranges that begin and end in it, of
    /// one thread, over half of it? (One that began before is of anything.)
    pub(super) fn is_seen_elsewhere(&self, run: &Run, flat: u32, span: Span) -> bool {
        if self.standing.seen.contains(&flat) {
            return true;
        }
        self.threads.iter().filter_map(|&t| run.threads.get(t)).any(|t| {
            let from = t.ranges.partition_point(|r| r.span.start < span.start);
            let ranges = t.ranges.get(from..).unwrap_or(&[]).iter();
            let inside = ranges.take_while(|r| r.span.start < span.end).filter(|r| r.span.end <= span.end);
            let (ns, _) = inside.fold((0u64, span.start), |(ns, reach), r| {
                (ns + r.span.end.saturating_sub(r.span.start.max(reach)), reach.max(r.span.end))
            });
            ns * 2 >= span.ns().max(1)
        })
    }

    /// Time in which the host launched nothing: fetching data, if that is half of it.
    pub(super) fn elsewhere(&self, span: Span) -> Bucket {
        match self.fetching.within(span.start, span.end) * 2 >= span.ns().max(1) {
            true => Bucket::Input,
            false => Bucket::Host,
        }
    }

    /// The host was busy with something other than launching before this call: for long, or as
    /// samples tell.
    pub fn is_long(&self, flat: u32) -> bool {
        self.stretch(flat) > self.limit || self.standing.elsewhere.contains(&flat)
    }
}

/// When launching calls returned, of calls that come by their begins. One that stands (its queue is
/// full; a kernel is compiled) ends no stretch of other threads before it returns.
#[derive(Default)]
struct Returns {
    latest: Option<u64>,
    /// Of calls that had not returned when the last one began.
    standing: Vec<u64>,
}

impl Returns {
    fn push(&mut self, end: u64) {
        self.standing.push(end);
    }

    /// The latest return up to `at`, which never goes back.
    fn before(&mut self, at: u64) -> Option<u64> {
        let latest = &mut self.latest;
        self.standing.retain(|&end| {
            let returned = end <= at;
            if returned {
                *latest = Some(latest.map_or(end, |l| l.max(end)));
            }
            !returned
        });
        self.latest
    }
}

/// The call stood until its copy was done, or, from or to pageable memory, for most of it: the
/// driver stages such copies on the calling thread, and the last piece may still be on its way at
/// the return.
pub(crate) fn held(c: &Call, op: &Op) -> bool {
    c.end >= op.end || (op.copy().is_pageable() && (c.end - c.start) * 2 >= op.end - op.start)
}

fn copy_blocker(flat: u32, c: &Call, op: &Op, before: u64) -> Blocker {
    let hold = if op.bytes() <= SMALL_COPY_BYTES {
        Hold::Sync
    } else {
        Hold::Copy { drain: before.clamp(c.start, c.end.max(c.start)) - c.start }
    };
    Blocker { start: c.start, end: c.end, done: op.end, call: flat, hold }
}

// SPDX-License-Identifier: Apache-2.0
//! What the launching threads were doing in front of launches that came late, by samples of their
//! stacks.
//!
//! A sample says where its thread stood at one moment, the end of its span; samples are about 10 ms
//! apart, most stretches are shorter. So launches of the same kernel are one group, over all steps,
//! and vote together; a stretch with samples enough of its own (a checkpoint) votes by itself.
//! Fewer than [`LEAST_SAMPLES`], or no half of them agreeing, say nothing.

use std::collections::{HashMap, HashSet};

use trace::call::Class;
use trace::event::sample::{HOLDS_GIL, RUNNABLE, WAITS_GIL};
use trace::Kind;

use super::concurrent_work::ConcurrentWork;
use super::others::{computes, holder, Others, ONE_LOOK_NS};
use crate::run::{Call, Device, Op, Run, Sample, Span, Thread};
use crate::sites::activity::{
    blocked_natively, blocked_reading, doing, sleeps_by_select, stands_on_futex, waits_for_its_turn, Activity,
};
use crate::sites::frames::Frames;
use crate::sites::{Site, Sites};
use crate::timeline::buckets::{Bucket, IdleSlice};
use crate::timeline::Observed;

/// From this share of the samples on a kind is charged with all of the time: the rest are its ends.
pub const ALL_OF_IT: f64 = 0.9;

/// Fewer samples than this say nothing.
pub const LEAST_SAMPLES: u32 = 5;

/// A launch this soon after a copy's end, ns, or within a tenth of the stretch, comes of it.
const SOON_NS: u64 = 200_000;

/// Samples by what was done.
type Tally = HashMap<Activity, u32>;

/// Enough to say something.
fn is_enough(tally: &Tally) -> bool {
    tally.values().sum::<u32>() >= LEAST_SAMPLES
}

/// Half of them or more, and enough.
fn most(tally: &Tally, is: impl Fn(Activity) -> bool) -> bool {
    let all: u32 = tally.values().sum();
    let those: u32 = tally.iter().filter(|t| is(*t.0)).map(|t| t.1).sum();
    all >= LEAST_SAMPLES && those * 2 >= all
}

/// A stretch in front of a launching call: from the end of the launch before to the call's begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) span: Span,
    pub(super) flat: u32,
    /// Index of the thread that launched before.
    pub(super) before: usize,
}

/// A sample that stands in a stretch.
#[derive(Clone, Copy, Debug)]
struct Placed {
    flat: u32,
    thread: u32,
    sample: u32,
    doing: Activity,
}

/// The samples in the stretches of a device, and what follows of them.
#[derive(Clone, Debug, Default)]
pub struct SampleIndex {
    placed: Vec<Placed>,
    /// Launching calls whose stretch fetched data.
    pub(super) fetched: HashSet<u32>,
    /// Launching calls after short stretches in which something else than dispatching was done.
    pub(super) elsewhere: HashSet<u32>,
    /// Launching calls after long stretches in which others were waited for.
    pub(super) waiting: HashSet<u32>,
    /// Launching calls after stretches in which it is known what else was done, and it was no wait
    /// for the device.
    pub(super) seen: HashSet<u32>,
    /// The loader's workers are waited for.
    pub(super) paced: bool,
}

impl SampleIndex {
    /// `stretches` by begin of their calls; `is_long`: longer than launching takes.
    pub(super) fn new(
        run: &Run,
        device: &Device,
        stretches: &[Stretch],
        is_long: impl Fn(u32) -> bool,
    ) -> SampleIndex {
        let mut placed = place(run, device, stretches);
        let computes = |p: &&mut Placed| {
            !is_long(p.flat) && matches!(p.doing, Activity::Computes | Activity::ComputesNatively)
        };
        let mut beside = None; // all samples are looked at for it: where it is asked for
        for p in placed.iter_mut().filter(computes) {
            let sample = run.threads.get(p.thread as usize).and_then(|t| t.samples.get(p.sample as usize));
            let beside = beside.get_or_insert_with(|| ConcurrentWork::new(run));
            if sample.is_some_and(|s| beside.has(s)) {
                p.doing = Activity::ComputesBeside;
            }
        }
        let mut own: HashMap<u32, Tally> = HashMap::new();
        for p in &placed {
            *own.entry(p.flat).or_default().entry(p.doing).or_default() += 1;
        }
        // groups: by what is launched, long stretches apart from short ones
        let mut groups: HashMap<(u64, bool), Tally> = HashMap::new();
        let mut last = crate::run::NONE;
        for op in device.streams.iter().flat_map(|s| &s.ops) {
            if op.call == last {
                continue; // of a graph the first node speaks
            }
            last = op.call;
            // what has samples enough speaks for itself alone: a pause of ten seconds before the
            // first step is no vote on the others
            if let Some(tally) = own.get(&op.call).filter(|t| !is_enough(t)) {
                let group = groups.entry((key(op), is_long(op.call))).or_default();
                for (&doing, n) in tally {
                    *group.entry(doing).or_default() += n;
                }
            }
        }
        let mut standing = SampleIndex::default();
        let mut last = crate::run::NONE;
        for op in device.streams.iter().flat_map(|s| &s.ops).filter(|_| !groups.is_empty()) {
            if std::mem::replace(&mut last, op.call) == op.call {
                continue;
            }
            let long = is_long(op.call);
            let alone = own.get(&op.call).filter(|t| is_enough(t));
            let Some(tally) = alone.or_else(|| groups.get(&(key(op), long))) else { continue };
            if long && most(tally, Activity::waits_for_others) {
                standing.waiting.insert(op.call);
            }
            if long && most(tally, Activity::is_fetching) {
                standing.fetched.insert(op.call);
            } else if !long && Activity::ALL.iter().any(|&d| d.is_no_dispatch() && most(tally, |x| x == d)) {
                standing.elsewhere.insert(op.call);
            }
            let is_known = |d| !matches!(d, Activity::Unknown | Activity::WaitsForDevice);
            if (long || standing.elsewhere.contains(&op.call)) && most(tally, is_known) {
                standing.seen.insert(op.call);
            }
        }
        let (mut workers, mut fetching) = (0u32, 0u32);
        for p in placed.iter().filter(|p| p.doing.is_fetching()) {
            fetching += 1;
            workers += u32::from(p.doing == Activity::FetchesFromWorkers);
        }
        standing.paced = fetching >= LEAST_SAMPLES && workers * 2 >= fetching;
        standing.placed = placed;
        standing
    }

    /// Late launching calls by flat number, and the stack that most samples in front of each show.
    pub fn stacks(&self, run: &Run) -> Vec<(u32, u32)> {
        let mut each: HashMap<u32, HashMap<u32, u32>> = HashMap::new();
        for p in &self.placed {
            let sample = run.threads.get(p.thread as usize).and_then(|t| t.samples.get(p.sample as usize));
            if let Some(stack) = sample.map(|s| s.stack).filter(|s| *s != 0) {
                *each.entry(p.flat).or_default().entry(stack).or_default() += 1;
            }
        }
        let most = |stacks: HashMap<u32, u32>| stacks.into_iter().max_by_key(|s| (s.1, u32::MAX - s.0));
        let mut all: Vec<(u32, u32)> =
            each.into_iter().filter_map(|(flat, s)| Some((flat, most(s)?.0))).collect();
        all.sort_unstable();
        all
    }

    /// The samples behind the device's idle time of one kind in what counts.
    pub fn stood(&self, run: &Run, slices: &[IdleSlice], bucket: Bucket, counts: &Observed) -> HostActivity {
        if self.placed.is_empty() {
            return HostActivity::default();
        }
        let idle = slices.iter().filter(|s| s.bucket == bucket && counts.measure(s.span()) > 0);
        let late: HashSet<u32> = idle.filter_map(IdleSlice::call).collect();
        let samples: Vec<(Activity, usize, &Sample)> = self
            .placed
            .iter()
            .filter(|p| late.contains(&p.flat))
            .filter_map(|p| {
                Some((
                    p.doing,
                    p.thread as usize,
                    run.threads.get(p.thread as usize)?.samples.get(p.sample as usize)?,
                ))
            })
            .collect();
        HostActivity::new(run, &samples)
    }
}

/// What is launched: the kernel, or the kind of operation.
fn key(op: &Op) -> u64 {
    match op.kind {
        Kind::Kernel => u64::from(op.a),
        kind => (kind as u64) << 32 | u64::from(op.copy().direction),
    }
}

/// Samples in their stretches: of the thread that launches then, and of the one that launched
/// before, for one may hand over to the other (the main thread to autograd's). A thread that waits
/// for its turn, blocked without any frame of the program, says nothing, nor does one in a call
/// that blocks.
fn place(run: &Run, device: &Device, stretches: &[Stretch]) -> Vec<Placed> {
    let copies = copies_to_host(device);
    let selects_to_sleep = sleeps_by_select(run);
    let mut frames: HashMap<u32, Frames> = HashMap::new();
    let mut placed = Vec::new();
    // whose the lock was could be read: a thread without it is known to be without it
    let samples = || run.threads.iter().flat_map(|t| &t.samples);
    let knows_lock = samples().any(|s| s.bits & (HOLDS_GIL | WAITS_GIL) != 0);
    for (t, thread) in run.threads.iter().enumerate() {
        // a Python thread whose frames moved while they were read: what it did then is not known
        let has_stacks = thread.samples.iter().any(|s| s.stack != 0);
        for (s, sample) in thread.samples.iter().enumerate().filter(|(_, s)| s.stack != 0 || !has_stacks) {
            let at = sample.span.end;
            let next = stretches.partition_point(|x| x.span.end <= at);
            let Some(stretch) = stretches.get(next).filter(|x| x.span.start <= at) else { continue };
            if waits_for_its_turn(sample) || is_held(thread, at) {
                continue;
            }
            let launches = run.call(stretch.flat).is_some_and(|(launching, _)| launching == t);
            if !launches && stretch.before != t {
                continue;
            }
            let frames = *frames.entry(sample.stack).or_insert_with(|| Frames::of(run, sample.stack));
            let (thread, sample_) = (t as u32, s as u32);
            let doing = match blocked_natively(sample, frames) && ends_with_copy(&copies, at, stretch.span) {
                true => Activity::WaitsForDevice,
                false => match doing(sample, frames, selects_to_sleep) {
                    Activity::Computes if knows_lock && is_native(sample) => Activity::ComputesNatively,
                    doing => doing,
                },
            };
            placed.push(Placed { flat: stretch.flat, thread, sample: sample_, doing });
        }
    }
    one_side(run, placed)
}

/// Of two threads that hand the launching to each other one waits while the other works: the one
/// that works says what is done. (Who waits for another process waits for none of them.)
fn one_side(run: &Run, placed: Vec<Placed>) -> Vec<Placed> {
    let sample = |p: &Placed| run.threads.get(p.thread as usize)?.samples.get(p.sample as usize);
    let works = |p: &&Placed| p.doing.is_work();
    let mut working: Vec<(u64, u32, u32)> =
        placed.iter().filter(works).filter_map(|p| Some((sample(p)?.span.end, p.thread, p.flat))).collect();
    working.sort_unstable();
    let is_waited_for = |p: &Placed| {
        let Some(own) = sample(p).filter(|s| stands_on_futex(s)) else { return false };
        let at = own.span.end;
        let from = working.partition_point(|w| w.0 + ONE_LOOK_NS < at);
        let mut near = working.iter().skip(from).take_while(|w| w.0 <= at + ONE_LOOK_NS);
        near.any(|w| w.1 != p.thread && w.2 == p.flat)
    };
    placed.into_iter().filter(|p| p.doing != Activity::Waits || !is_waited_for(p)).collect()
}

/// Below a line of Python, without Python's lock: no bytecode runs.
fn is_native(sample: &Sample) -> bool {
    sample.stack != 0 && sample.bits & HOLDS_GIL == 0
}

/// Ends of copies to the host, sorted.
fn copies_to_host(device: &Device) -> Vec<u64> {
    let copies = device.streams.iter().flat_map(|s| &s.ops).filter(|o| o.is_copy_to_host());
    let mut ends: Vec<u64> = copies.map(|o| o.end).collect();
    ends.sort_unstable();
    ends
}

/// The thread that is blocked at `at` went on to its next launch shortly after a copy to the host
/// had ended.
fn ends_with_copy(copies: &[u64], at: u64, stretch: Span) -> bool {
    let before = copies.partition_point(|&end| end <= stretch.end);
    let last = before.checked_sub(1).and_then(|i| copies.get(i));
    let soon = (stretch.ns() / 10).max(SOON_NS);
    last.is_some_and(|&end| end > at && stretch.end - end <= soon)
}

/// The thread stands in a call that waits, copies or allocates.
fn is_held(thread: &Thread, at: u64) -> bool {
    let holds = |c: &Call| matches!(c.class, Some(Class::Sync | Class::Copy | Class::Alloc | Class::Free));
    thread.call_at(at).is_some_and(holds)
}

/// What was done while the device waited, all samples together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostActivity {
    /// How many.
    pub samples: u32,
    /// Of those that read data in this thread: blocked reading, or on no CPU for no reason seen (a
    /// page that is not there).
    pub reading: u32,
    /// Of the time of those that fetch data in this thread, the part on a CPU or waiting for one, 0
    /// to 1.
    pub here_on_cpu: f64,
    /// By what was done, most first.
    pub doings: Vec<(Activity, u32)>,
    /// The line, or the function (then without a line), where at least half of them stand; of those
    /// alone that do what most do, where most do one thing.
    pub site: Option<Site>,
    /// The same of each thing that is done, as `doings`, where enough samples show it.
    sites: Vec<Option<Site>>,
    /// The line of the thread that held Python's lock in at least half of those that waited for it;
    /// then the time is this line's, and `site` only waits.
    pub holder: Option<Site>,
    /// The line in which another thread of the program computed in at least half of those that
    /// waited for somebody or slept (of those that wait in a loader that works in this thread,
    /// too).
    pub meanwhile: Option<Site>,
    /// That thread, by its index.
    pub meanwhile_thread: Option<usize>,
    /// What the others did in those that waited for another thread or process.
    pub others: Others,
}

impl HostActivity {
    fn new(run: &Run, samples: &[(Activity, usize, &Sample)]) -> HostActivity {
        let mut tally: Tally = HashMap::new();
        for s in samples {
            *tally.entry(s.0).or_default() += 1;
        }
        let mut doings: Vec<(Activity, u32)> = tally.into_iter().collect();
        doings.sort_by_key(|d| (std::cmp::Reverse(d.1), d.0));
        let reads = |s: &&(Activity, usize, &Sample)| s.0.is_fetching_here() && blocked_reading(s.2);
        let reading = samples.iter().filter(reads).count() as u32;
        let mut stood =
            HostActivity { samples: samples.len() as u32, reading, doings, ..HostActivity::default() };
        let here: Vec<f64> =
            samples.iter().filter(|s| s.0.is_fetching_here()).map(|s| wants_cpu(s.2)).collect();
        stood.here_on_cpu = here.iter().sum::<f64>() / (here.len() as f64).max(1.0);
        let mut sites = Sites::new(run);
        let mut site = |of: Option<Activity>| {
            let stacks = samples.iter().filter(|s| of.is_none_or(|d| d == s.0)).map(|s| s.2.stack);
            common(&mut sites, stacks).map(|c| c.0)
        };
        stood.sites = stood.doings.iter().map(|d| site(Some(d.0))).collect();
        stood.site = match stood.main() {
            Some(main) => stood.site_of(Some(main)).cloned(),
            None => site(None),
        };
        let waits = samples.iter().filter(|s| s.0 == Activity::WaitsForGil);
        let holders = waits.map(|s| holder(run, s.1, s.2.span.end).map_or(0, |h| h.stack));
        stood.holder = common(&mut sites, holders).map(|c| c.0);
        let is_away = |s: &&(Activity, usize, &Sample)| {
            matches!(s.0, Activity::Waits | Activity::Sleeps)
                || (s.0.is_fetching_here() && stands_on_futex(s.2))
        };
        let others: Vec<Option<(usize, &Sample)>> =
            samples.iter().filter(is_away).map(|s| computes(run, s.1, s.2.span.end)).collect();
        stood.meanwhile = common(&mut sites, others.iter().map(|o| o.map_or(0, |o| o.1.stack))).map(|c| c.0);
        let mut threads: HashMap<usize, u32> = HashMap::new();
        for (thread, _) in others.iter().flatten() {
            *threads.entry(*thread).or_default() += 1;
        }
        let most = threads.into_iter().max_by_key(|t| (t.1, std::cmp::Reverse(t.0)));
        stood.meanwhile_thread = most.map(|t| t.0).filter(|_| stood.meanwhile.is_some());
        let waiting = samples.iter().filter(|s| s.0 == Activity::Waits);
        stood.others = Others::of(run, waiting.map(|s| (s.1, s.2)));
        stood
    }

    /// What at least half of them do, if they are enough.
    pub fn main(&self) -> Option<Activity> {
        let &(doing, n) = self.doings.first()?;
        (self.samples >= LEAST_SAMPLES && n * 2 >= self.samples).then_some(doing)
    }

    /// Where those stand that do this, or (`None`) as `site`.
    pub fn site_of(&self, doing: Option<Activity>) -> Option<&Site> {
        let Some(doing) = doing else { return self.site.as_ref() };
        let at = self.doings.iter().position(|d| d.0 == doing)?;
        self.sites.get(at)?.as_ref()
    }

    /// How many do this.
    pub fn count(&self, is: impl Fn(Activity) -> bool) -> u32 {
        self.doings.iter().filter(|d| is(d.0)).map(|d| d.1).sum()
    }

    /// At least half of enough samples.
    pub fn mostly(&self, is: impl Fn(Activity) -> bool) -> bool {
        self.samples >= LEAST_SAMPLES && self.count(is) * 2 >= self.samples
    }
}

/// The part of a sample's time in which its thread had a CPU or waited for one, 0 to 1.
fn wants_cpu(sample: &Sample) -> f64 {
    let permille =
        if sample.bits & RUNNABLE != 0 { 1000 } else { sample.on_cpu.saturating_add(sample.run_queue) };
    f64::from(permille.min(1000)) / 1e3
}

/// The line in which at least half of the stacks stand, else the function; and how many do.
pub(crate) fn common(sites: &mut Sites<'_>, stacks: impl Iterator<Item = u32>) -> Option<(Site, u32)> {
    let mut lines: HashMap<u32, u32> = HashMap::new();
    let mut all = 0;
    for stack in stacks {
        all += 1;
        if let Some(site) = sites.of(stack) {
            *lines.entry(site).or_default() += 1;
        }
    }
    let enough = |n: u32| all >= LEAST_SAMPLES && n * 2 >= all;
    let (&line, &n) = lines.iter().max_by_key(|l| (*l.1, u32::MAX - l.0))?;
    if enough(n) {
        return Some((sites.get(line)?.clone(), n));
    }
    let mut functions: HashMap<(&str, &str), (u32, &Site)> = HashMap::new();
    for (&line, n) in &lines {
        if let Some(site) = sites.get(line).filter(|s| !s.function.is_empty()) {
            functions.entry((&site.path, &site.function)).or_insert((0, site)).0 += n;
        }
    }
    let (n, site) = functions.into_values().max_by_key(|f| f.0)?;
    enough(n).then(|| (Site { line: 0, via: None, ..site.clone() }, n))
}

/// Samples of threads in a loader.
pub(super) struct Fetched {
    /// The spans they stand for.
    pub(super) spans: Vec<Span>,
    /// Whether workers do the work.
    pub(super) workers: Option<bool>,
    /// Of the threads that were seen in one, nearly every sample could be read: the spans are all
    /// of its time.
    pub(super) complete: bool,
}

/// A thread of which more than this share of the samples have no stack was in the loader for longer
/// than they tell.
const UNREAD_SHARE: f64 = 0.1;

/// Time of any thread in a loader, by samples.
pub(super) fn fetching(run: &Run) -> Fetched {
    let mut frames: HashMap<u32, Frames> = HashMap::new();
    let mut spans = Vec::new();
    let (mut workers, mut here, mut complete) = (0, 0, true);
    // (a thread without any call was looked at only because it held Python's lock)
    for thread in run.threads.iter().filter(|t| !t.calls.is_empty()) {
        let before = spans.len();
        for s in &thread.samples {
            let stack = *frames.entry(s.stack).or_insert_with(|| Frames::of(run, s.stack));
            if let Frames::Loader(doing) = stack {
                spans.push(s.span);
                workers += u32::from(doing == Activity::FetchesFromWorkers);
                here += u32::from(doing.is_fetching_here());
            }
        }
        let unread = thread.samples.iter().filter(|s| s.stack == 0).count() as f64;
        complete &= spans.len() == before || unread <= UNREAD_SHARE * thread.samples.len() as f64;
    }
    let all = spans.len() as u32;
    let who = match () {
        () if all < LEAST_SAMPLES => None,
        () if workers * 2 >= all => Some(true),
        () if here * 2 >= all => Some(false),
        () => None,
    };
    Fetched { spans, workers: who, complete }
}

// SPDX-License-Identifier: Apache-2.0
//! Recorded calls and ops of one device -> items and edges for the model. No absolute time
//! survives.
//!
//! Here: the types, and what is replayed of a recording. `calls.rs`: the host's side; `ops.rs`: the
//! device's; `waits.rs`: what calls waited for.

use trace::call::Class;
use trace::header::sources;

use super::Model;
use super::{Fixes, Slowed, LAUNCH_NS, MAX_OPS, RECORDER_SLOWS, RECORDER_SLOWS_WITH_WAITS};
use crate::gaps::HostView;
use crate::run::{Call, Device, Run, Span, NONE};
use crate::stats::middle;
use crate::steps::Step;
use crate::timeline::buckets::Bucket;
use crate::timeline::Observed;

/// What a call does in the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Puts ops into streams.
    Launch,
    /// Waits for the device.
    Sync,
    /// A copy that holds the host; small ones count as [`Role::Sync`].
    Copy,
    /// Allocates or frees.
    Alloc,
}

/// One host call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Host time before it: since the end of everything earlier (`overlaps`: since the begin of the
    /// item before).
    pub think: u64,
    /// The same if the host did nothing but launch ([`super::Fix::Host`], [`super::Fix::Input`]).
    pub shrunk: u64,
    /// The call's own time without waiting, ns.
    pub own: u64,
    /// Op whose end it waits for, or [`NONE`], and the time from that end to the return.
    pub wait: u32,
    pub back: u32,
    /// Its ops: from here to the next item's.
    pub first_op: u32,
    /// Flat number of the call.
    pub call: u32,
    pub chain: u16,
    pub role: Role,
    /// Waits for everything launched to the device, not for one op alone.
    pub whole_device: bool,
    /// A copy to the host, or from or to pageable memory: no graph holds it.
    pub for_host: bool,
    /// An optimizer's launch that no graph holds (`graphs.rs`).
    pub stays: bool,
    /// A large copy to the host that holds it, or the synchronize behind one: the host goes on with
    /// what was copied.
    pub values: bool,
    /// The same, to pageable memory: what it takes behind its transfer goes with that.
    pub staged: bool,
    /// The first of a row of small copies to the host, or the wait behind it: that one stays.
    pub stands: bool,
    /// One more of a row of small copies that one line makes, or the wait behind it (`rows.rs`).
    pub again: bool,
    /// The same, and a long stretch of the host's follows: work on these values, which takes its
    /// copy along wherever it goes.
    pub with_stretch: bool,
    /// Launches the first op of a step.
    pub first_of_step: bool,
    pub overlaps: bool,
    /// The host did something else than launching before it.
    pub long: bool,
    /// It follows a wait that ends at its own pace (workers' data; `pace.rs`): no sooner than this
    /// after the item that followed the wait before, ns.
    pub pace: Option<u64>,
    /// The stretch it belongs to is one of fetching data.
    pub fetch: bool,
}

/// One op of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub start: u64,
    pub duration: u64,
    /// From the begin of the call to the earliest start.
    pub latency: u32,
    /// From the end of the op before on the stream (negative: dependent launches overlap).
    pub spacing: i32,
    /// Op of another stream it waits for, or [`NONE`].
    pub edge: u32,
    /// From that op's end to its start.
    pub edge_spacing: u32,
    /// What it stood launched on an idle device, ns, its stream told to wait for an event: of what
    /// is not recorded, and no fix wins that.
    pub stall: u32,
    /// Time the copy would take from pinned memory, in one with others, ns; other ops 0.
    pub pinned: u32,
    /// Flat number of the call.
    pub call: u32,
    /// Id of a kernel's definition; 0: it is none.
    pub kernel: u32,
    /// See [`crate::run::Op::captured`].
    pub captured: u32,
    pub stream: u16,
    pub bucket: Bucket,
    pub small: bool,
    pub big_copy: bool,
    /// One of those, from the device to the host.
    pub to_host: bool,
}

/// A device's steady span, ready to be replayed.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    pub(super) items: Vec<Item>,
    pub(super) works: Vec<Work>,
    pub(super) chains: usize,
    pub(super) streams: usize,
    /// Long host stretches, those that do not fetch data and those that do: how many, and the
    /// longest, ns.
    pub(crate) stretches: [(u64, u64); 2],
    /// The shortest kernels' duration (10th percentile): the fixed cost of a kernel, ns.
    pub(super) floor: u64,
    /// A usual stretch of the host before a launch, and a usual launch call, ns.
    pub(super) usual: u64,
    pub(super) usual_call: u64,
    pub(super) slowed: Slowed,
    /// So many times as long as in the mean takes dispatching in slow steps, permille
    /// (`uneven.rs`).
    pub(super) uneven: u64,
    /// The longest host time of a step ends at a time that is given from outside, by the times
    /// alone.
    pub(crate) ends_from_outside: bool,
    /// Measured length of what is replayed, ns, and whether it began in front of an idle device.
    pub(super) measured: u64,
    pub(super) from_idle: bool,
}

/// An op and the item that launched it.
pub(super) struct Placed {
    pub item: u32,
    pub stream: u16,
    pub index: u32,
    pub start: u64,
}

impl Prepared {
    /// Reads the part of the steady span that is replayed: its latest [`MAX_OPS`] operations. O(n
    /// log n).
    pub fn new(
        run: &Run,
        device: &Device,
        host: &HostView,
        collectives: &[u32],
        span: (&[Step], Span),
    ) -> Prepared {
        Prepared::latest(MAX_OPS, run, device, host, collectives, span)
    }

    /// The same of the latest `most` operations.
    pub(crate) fn latest(
        most: usize,
        run: &Run,
        device: &Device,
        host: &HostView,
        collectives: &[u32],
        (steps, steady): (&[Step], Span),
    ) -> Prepared {
        let slowed = if run.slowed_host {
            Slowed::ByProfiler
        } else if run.foreign {
            Slowed::Unknown
        } else if run.header.sources & sources::WAITS_BY_CALLS != 0 {
            Slowed::ByRecorder(RECORDER_SLOWS)
        } else {
            Slowed::ByRecorder(RECORDER_SLOWS_WITH_WAITS)
        };
        let mut p =
            Prepared { streams: device.streams.len(), usual: host.usual, slowed, ..Prepared::default() };
        let window = window(run, device, steady, most);
        let mut item_of = vec![NONE; host_calls(run)];
        let calls = p.take_calls(run, host, window, steady.end, &mut item_of);
        let mut placed = Vec::new();
        for (s, stream) in device.streams.iter().enumerate().take(usize::from(u16::MAX)) {
            for (i, op) in stream.ops.iter().enumerate() {
                if let Some(&item) = item_of.get(op.call as usize).filter(|&&i| i != NONE) {
                    placed.push(Placed { item, stream: s as u16, index: i as u32, start: op.start });
                }
            }
        }
        drop(item_of);
        placed.sort_by_key(|w| (w.item, w.start));
        p.take_ops(run, device, collectives, &placed);
        p.take_steps(run, steps, &placed);
        p.take_usual_ends();
        p.take_paces(run, host);
        p.usual_call = usual_call(run, &calls, &p.items);
        p.link_waits(run, device, host, &calls, &placed);
        p.tie_copies_to_stretches();
        p.find_rows(run, device, &placed);
        p.measure(run, device, host, &calls, &placed);
        p.uneven = p.unevenness();
        if let Some([longer, ..]) = run.header.longer() {
            p.calibrate(longer);
        }
        p
    }

    /// Which items launch the first op of a step: the one that begins there, or, where the program
    /// marks its steps, what is launched first behind the mark (what was launched before it may
    /// begin later).
    fn take_steps(&mut self, run: &Run, steps: &[Step], placed: &[Placed]) {
        let called = |i: &Item| run.call(i.call).map_or(0, |(_, c)| c.start);
        let mut by_start: Vec<(u64, u32)> = placed.iter().map(|w| (w.start, w.item)).collect();
        by_start.sort_unstable();
        for step in steps {
            let at = by_start.partition_point(|w| w.0 < step.span.start);
            let first = by_start.get(at).filter(|w| w.0 < step.span.end);
            let begins = step.host == step.span && first.is_some_and(|w| w.0 == step.span.start);
            let first = match first.filter(|_| begins) {
                Some(w) => Some(w.1 as usize),
                None => {
                    let from = self.items.partition_point(|i| called(i) < step.host.start);
                    let launch = self.items.iter().skip(from).position(|i| i.role == Role::Launch);
                    launch.map(|n| from + n)
                }
            };
            if let Some(item) = first.and_then(|n| self.items.get_mut(n)) {
                item.first_of_step = true;
            }
        }
    }

    /// The first and the last step as the others are: what lies before the first item may be a
    /// pause or the file's begin, what comes behind the last launch may be the program's end, which
    /// waits for everything once.
    fn take_usual_ends(&mut self) {
        let mut begins: Vec<usize> = (1..self.items.len()).filter(|&n| self.begins_step(n)).collect();
        begins.sort_by_key(|&n| self.items.get(n).map(|i| i.think));
        let Some(&n) = begins.get(begins.len() / 2) else { return };
        let waits = self.items.iter().take(n).rev().take_while(|i| i.role != Role::Launch).count();
        let launches = self.items.iter().rposition(|i| i.role == Role::Launch).map_or(0, |last| last + 1);
        self.items.truncate(launches + waits);
        if let (Some(usual), Some(first)) = (self.items.get(n).copied(), self.items.first_mut()) {
            // what is left of the step before (launched before the mark, begun behind it) has its
            // own time
            if !first.first_of_step && first.think <= usual.think {
                return;
            }
            (first.think, first.shrunk, first.overlaps) = (usual.think, usual.shrunk, usual.overlaps);
            (first.long, first.fetch, first.pace) = (usual.long, usual.fetch, usual.pace);
        }
    }

    fn begins_step(&self, n: usize) -> bool {
        self.items.get(n).is_some_and(|i| i.first_of_step)
    }

    /// As [`Prepared::play`] counts: from when all that was launched before the first item was
    /// done, and its thread came back to launching, to when all is done.
    fn measure(&mut self, run: &Run, device: &Device, host: &HostView, calls: &[u32], placed: &[Placed]) {
        let first = calls.first().and_then(|&f| run.call(f)).map_or(0, |(_, c)| c.start);
        let ops = device.streams.iter().flat_map(|s| &s.ops);
        let earlier = ops.filter(|o| run.call(o.call).is_some_and(|(_, c)| c.start < first)).map(|o| o.end);
        let threads = host.threads.iter().filter_map(|&t| run.threads.get(t));
        let before = threads.flat_map(|t| &t.calls).filter(|c| c.start < first && takes_part(c).is_some());
        let think = self.items.first().map_or(0, |i| i.think);
        let idle = first.saturating_sub(think);
        let from = earlier.chain(before.map(|c| c.end)).fold(idle, u64::max);
        self.from_idle = from == idle;
        let ends = placed.iter().filter_map(|w| op(device, w)).map(|o| o.end).max().unwrap_or(0);
        let calls = calls.get(..self.items.len()).unwrap_or(calls);
        let returns = calls.iter().filter_map(|&f| run.call(f)).map(|(_, c)| c.end).max().unwrap_or(0);
        self.measured = Observed::of(run).measure(Span::new(from, ends.max(returns)));
        self.unblock_full_queue(device, calls, placed, run);
    }

    /// Operations that are replayed.
    pub fn ops(&self) -> usize {
        self.works.len()
    }

    /// The model's error: measured against replayed with nothing changed.
    pub fn model(&self) -> Model {
        let (first, second) = self.twice(Fixes::default(), &|_| true);
        Model {
            measured_ns: self.measured as f64,
            replayed_ns: if self.from_idle { first } else { second } as f64,
            ops: self.works.len() as u64,
        }
    }
}

pub(super) fn op<'a>(device: &'a Device, w: &Placed) -> Option<&'a crate::run::Op> {
    device.streams.get(usize::from(w.stream))?.ops.get(w.index as usize)
}

pub(super) fn clamp32(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(NONE - 1)
}

/// What a call does in the model; `None`: it takes no part.
pub(super) fn takes_part(c: &Call) -> Option<Role> {
    Some(match c.class? {
        Class::Launch | Class::GraphLaunch | Class::Memset | Class::Copy => Role::Launch,
        Class::Sync => Role::Sync,
        Class::Alloc | Class::Free => Role::Alloc,
        _ => return None,
    })
}

/// Median time of a call that launches one kernel, ns: what a copy takes the host once nobody waits
/// for it.
fn usual_call(run: &Run, calls: &[u32], items: &[Item]) -> u64 {
    let launch = |(flat, item): (&u32, &Item)| {
        let (_, c) = run.call(*flat)?;
        (item.role == Role::Launch && c.class == Some(Class::Launch)).then_some(item.own)
    };
    let mut seen: Vec<u64> = calls.iter().zip(items).filter_map(launch).collect();
    middle(&mut seen).unwrap_or(LAUNCH_NS)
}

fn host_calls(run: &Run) -> usize {
    run.threads.iter().map(|t| t.calls.len()).sum()
}

/// Host time in which the calls of the replayed ops begin: the latest `most` ops of the steady
/// span.
fn window(run: &Run, device: &Device, steady: Span, most: usize) -> Span {
    let inside = |o: &&crate::run::Op| o.start >= steady.start && o.start < steady.end;
    let mut calls: Vec<u64> = device
        .streams
        .iter()
        .flat_map(|s| s.ops.iter().filter(inside))
        .filter_map(|o| run.call(o.call))
        .map(|(_, c)| c.start)
        .collect();
    if calls.len() > most {
        let from = calls.len() - most;
        calls.select_nth_unstable(from);
        calls.drain(..from);
    }
    let first = calls.iter().copied().min().unwrap_or(0);
    let last = calls.iter().copied().max().unwrap_or(0);
    Span::new(first, last)
}

// SPDX-License-Identifier: Apache-2.0
//! The model: host chains issue calls, streams are queues, waits and edges are what holds either
//! up. One pass in the order of simulated time over the chains; an op's times are known when it is
//! launched, because all it can wait for was launched before it.

use super::graphs::Part;
use super::prepare::{Item, Prepared, Role, Work};
use super::rows::GATHER_NS;
use super::uneven::EVEN;
use super::{
    Fix, Fixes, RecorderSlows, Slowed, GRAPH_NODES, GRAPH_QUEUE, LAUNCH_NS, LAUNCH_QUEUE, NODE_NS,
    PROFILER_SLOWS, SPACING_NS,
};
use crate::gaps::KERNEL_GAP_NS;
use crate::run::NONE;
use crate::timeline::buckets::Bucket;

/// From the end of a copy to pinned memory to the return of what waits for it, ns: what a wait
/// takes to wake up. To pageable memory the CPU copies once more behind it (H200: 80 us for a
/// megabyte whose transfer takes 22).
const PINNED_BACK_NS: u64 = 10_000;

/// A host chain while it is played.
#[derive(Clone, Default)]
struct Chain {
    /// Items still to come, as positions.
    next: usize,
    began: u64,
    ended: u64,
    /// When the latest batch of workers' data had come.
    batch: Option<u64>,
}

impl Prepared {
    /// Plays everything with `fixes` applied; returns how long it takes, ns. O(n) for a few chains.
    ///
    /// It is played twice, one after the other, and the second time counts, from all done to all
    /// done: in the recording the queue was as full at the first call as the program had made it by
    /// then, and after a fix it would be as full as the fixed program makes it. The first time is
    /// there to fill it.
    pub fn play(&self, fixes: Fixes) -> u64 {
        self.play_at(fixes, &|_| true)
    }

    /// The same, where of waits, blocking copies and allocations ([`Fix::Sync`], [`Fix::Copy`],
    /// [`Fix::Alloc`]) only the calls are changed for which `at` says so; it is given flat call
    /// numbers ([`crate::Run::call`]).
    pub fn play_at(&self, fixes: Fixes, at: &dyn Fn(u32) -> bool) -> u64 {
        self.twice(fixes, at).1
    }

    /// The same with kernels that take `slower` times as long as recorded (a GPU that no longer
    /// waits lowers its clock).
    pub fn play_slower(&self, fixes: Fixes, at: &dyn Fn(u32) -> bool, slower: f64) -> u64 {
        let takes = |k: Kernel| if slower > 1.0 { (k.ns as f64 * slower) as u64 } else { k.ns };
        self.twice_as(fixes, at, &takes, self.slowed).1
    }

    /// The same with kernels that take as long as `takes` says, ns.
    pub fn play_kernels(&self, takes: &dyn Fn(Kernel) -> u64) -> u64 {
        self.twice_as(Fixes::default(), &|_| true, takes, self.slowed).1
    }

    /// What it takes, ns, once nobody records it, if recording slows host and graphs by so much.
    pub(crate) fn play_unrecorded(&self, slows: RecorderSlows) -> u64 {
        let fixes = Fixes::of(&[Fix::FasterHost]);
        self.twice_as(fixes, &|_| true, &as_recorded, Slowed::ByRecorder(slows)).1
    }

    /// What the first time takes, in front of an idle device, and the second.
    pub(super) fn twice(&self, fixes: Fixes, at: &dyn Fn(u32) -> bool) -> (u64, u64) {
        self.twice_as(fixes, at, &as_recorded, self.slowed)
    }

    fn twice_as(
        &self,
        fixes: Fixes,
        at: &dyn Fn(u32) -> bool,
        takes: &dyn Fn(Kernel) -> u64,
        slowed: Slowed,
    ) -> (u64, u64) {
        let mut by_chain: Vec<Vec<u32>> = vec![Vec::new(); self.chains.max(1)];
        if self.chains > 1 {
            for (n, i) in self.items.iter().enumerate() {
                if let Some(list) = by_chain.get_mut(usize::from(i.chain)) {
                    list.push(n as u32);
                }
            }
        }
        let mut chains = vec![Chain::default(); self.chains.max(1)];
        let mut p = Playing {
            prepared: self,
            fixes,
            at,
            graphs: if fixes.has(Fix::Launch) { self.graphs(fixes, at) } else { Vec::new() },
            starts: vec![0; self.works.len()],
            ends: vec![0; self.works.len()],
            streams: vec![0; self.streams.max(1)],
            ahead: [0; 2],
            last: 0,
            bound_copy: [0; 2],
            bound_comm: 0,
            takes,
            slowed,
            queues: [(1, LAUNCH_QUEUE), (GRAPH_NODES, GRAPH_QUEUE)]
                .map(|(nodes, room)| self.queue(nodes, room)),
        };
        p.once(&mut chains, &by_chain);
        let from = p.last;
        (p.bound_copy, p.bound_comm) = ([0; 2], 0);
        p.once(&mut chains, &by_chain);
        let [to_device, to_host] = p.bound_copy;
        (from, (p.last - from).max(to_device).max(to_host).max(p.bound_comm))
    }

    /// A queue with room for so many launches of so many nodes and more.
    fn queue(&self, of_nodes: u64, room: usize) -> Queue {
        let ends = self.items.iter().skip(1).map(|i| i.first_op).chain([self.works.len() as u32]);
        let nodes = self.items.iter().zip(ends).map(|(i, end)| u64::from(end.saturating_sub(i.first_op)));
        let launches = nodes.filter(|n| *n >= of_nodes).count();
        Queue { of_nodes, room, begun: vec![0; launches], next: 0 }
    }

    /// Is this call not made, with these fixes?
    pub(super) fn is_left_out(item: &Item, fixes: Fixes, at: &dyn Fn(u32) -> bool) -> bool {
        let fixed = match item.role {
            Role::Sync => fixes.has(Fix::Sync) && !item.stands,
            // from pinned memory the values come sooner, and they are waited for as before
            Role::Copy => {
                (fixes.has(Fix::Copy) && !item.values) || (fixes.has(Fix::Host) && item.with_stretch)
            }
            Role::Alloc => fixes.has(Fix::Alloc),
            Role::Launch => false,
        };
        fixed && at(item.call)
    }
}

/// What the driver takes before a launching call stands.
struct Queue {
    /// Launches of so many nodes and more are in it.
    of_nodes: u64,
    room: usize,
    /// When each launch of a time began on the device: of this time up to `next`, behind it of the
    /// time before.
    begun: Vec<u64>,
    next: usize,
}

impl Queue {
    /// When the launch that stood a whole queue before the next one has begun.
    fn has_room(&self) -> u64 {
        let launches = self.begun.len();
        let before = (self.next + launches).checked_sub(self.room).filter(|_| self.room < launches);
        before.and_then(|n| self.begun.get(n % launches)).copied().unwrap_or(0)
    }

    fn launched(&mut self, begun: u64) {
        if let Some(slot) = self.begun.get_mut(self.next) {
            *slot = begun;
        }
        self.next = (self.next + 1) % self.begun.len().max(1);
    }
}

/// A kernel that computes, as it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Id of its definition; 0: it is a graph as a whole.
    pub id: u32,
    /// When it began, ns.
    pub start: u64,
    /// See [`crate::run::Op::captured`].
    pub captured: u32,
    /// Flat number of the call that launched it.
    pub call: u32,
    /// How long it took, ns.
    pub ns: u64,
}

/// It takes what it took.
fn as_recorded(kernel: Kernel) -> u64 {
    kernel.ns
}

struct Playing<'a> {
    prepared: &'a Prepared,
    fixes: Fixes,
    at: &'a dyn Fn(u32) -> bool,
    /// With [`super::Fix::Launch`]: what becomes of each item.
    graphs: Vec<Part>,
    starts: Vec<u64>,
    ends: Vec<u64>,
    streams: Vec<u64>,
    /// With [`Fix::Copy`]: when the streams of the copies on streams of their own are through, to
    /// the device and to the host.
    ahead: [u64; 2],
    last: u64,
    bound_copy: [u64; 2],
    bound_comm: u64,
    /// How long kernels take that compute, ns.
    takes: &'a dyn Fn(Kernel) -> u64,
    slowed: Slowed,
    queues: [Queue; 2],
}

impl Playing<'_> {
    fn once(&mut self, chains: &mut [Chain], by_chain: &[Vec<u32>]) {
        if let [chain] = chains {
            for n in 0..self.prepared.items.len() {
                self.item(n, chain);
            }
            return;
        }
        chains.iter_mut().for_each(|c| c.next = 0);
        // the chain whose next call begins first goes on
        while let Some((c, n)) = self.earliest(chains, by_chain) {
            let Some(chain) = chains.get_mut(c) else { break };
            self.item(n, chain);
            chain.next += 1;
        }
    }

    fn earliest(&self, chains: &[Chain], by_chain: &[Vec<u32>]) -> Option<(usize, usize)> {
        let mut best: Option<(u64, usize, usize)> = None;
        for (c, (chain, list)) in chains.iter().zip(by_chain).enumerate() {
            let Some(&n) = list.get(chain.next) else { continue };
            let Some(item) = self.prepared.items.get(n as usize) else { continue };
            let at = self.begin(item, self.part(n as usize), chain);
            if best.is_none_or(|b| at < b.0) {
                best = Some((at, c, n as usize));
            }
        }
        best.map(|(_, c, n)| (c, n))
    }

    fn part(&self, n: usize) -> Part {
        self.graphs.get(n).copied().unwrap_or(Part::None)
    }

    /// Time of the host's own, ns.
    fn host_time(&self, ns: u64) -> u64 {
        if self.fixes.has(Fix::SlowerHost) {
            return ns.saturating_mul(self.prepared.uneven) / EVEN;
        }
        let without = |(slow, fast): (u64, u64)| ns.saturating_mul(fast) / slow;
        match self.slowed {
            _ if !self.fixes.has(Fix::FasterHost) => ns,
            Slowed::Unknown => ns,
            Slowed::ByProfiler => without(PROFILER_SLOWS),
            Slowed::ByRecorder(slows) => {
                let (calls, of) = slows.most_calls;
                let most = self.prepared.usual_call.saturating_mul(calls) / of;
                without(slows.by).max(ns.saturating_sub(most))
            }
        }
    }

    /// Is this copied with others, in the call of the first of them?
    fn is_put_together(&self, item: &Item) -> bool {
        item.again && self.fixes.has(Fix::Sync) && (self.at)(item.call)
    }

    /// From the end of what a call waits for to its return.
    fn back(&self, item: &Item) -> u64 {
        let back = u64::from(item.back);
        match item.staged && self.fixes.has(Fix::Copy) && (self.at)(item.call) {
            true => back.min(PINNED_BACK_NS),
            false => back,
        }
    }

    /// When a call begins.
    fn begin(&self, item: &Item, part: Part, chain: &Chain) -> u64 {
        let shrinks = self.fixes.has(if item.fetch { Fix::Input } else { Fix::Host });
        let mut think = if shrinks { item.shrunk } else { item.think };
        if self.is_put_together(item) {
            think = think.min(GATHER_NS);
        }
        if item.may_be_captured() {
            // a profiler slows what dispatches: what is too long for that is not its doing
            think = self.host_time(think);
            think = match part {
                Part::Inner => 0,
                // what is too long for one launch goes with the graph before it
                _ if item.long && !item.stays && self.fixes.has(Fix::Launch) => {
                    think.min(self.prepared.usual)
                }
                _ => think,
            };
        }
        let ready = if item.overlaps { chain.began + think } else { chain.ended + think };
        match (item.pace, chain.batch) {
            // asking earlier does not bring the batch earlier
            (Some(pace), Some(batch)) if !shrinks => ready.max(batch + pace),
            _ => ready,
        }
    }

    fn item(&mut self, n: usize, chain: &mut Chain) {
        let prepared = self.prepared;
        let Some(item) = prepared.items.get(n) else { return };
        let part = self.part(n);
        let began = self.begin(item, part, chain);
        let left_out = Prepared::is_left_out(item, self.fixes, self.at);
        let first = item.first_op as usize;
        let to = prepared.items.get(n + 1).map_or(prepared.works.len(), |i| i.first_op as usize);
        let nodes = to.saturating_sub(first) as u64;
        for w in first..to {
            if let Some(work) = prepared.works.get(w) {
                self.work(w, work, item, (began, part), nodes >= GRAPH_NODES);
            }
        }
        let own = match part {
            Part::First => LAUNCH_NS + nodes * NODE_NS,
            Part::Inner => nodes * NODE_NS,
            // nobody waits: the synchronize is not made, the copy is launched like anything else
            Part::None if left_out && nodes == 0 => 0,
            Part::None if self.is_put_together(item) => 0,
            Part::None => self.host_time(item.own),
        };
        let mut ended = began + own;
        if !left_out && item.wait != NONE {
            let mut done = self.ends.get(item.wait as usize).copied().unwrap_or(0);
            if item.whole_device {
                done =
                    self.streams.iter().copied().fold(done.max(self.ahead[0]).max(self.ahead[1]), u64::max);
            }
            ended = ended.max(done + self.back(item));
        }
        let begun = self.starts.get(first).copied().unwrap_or(0);
        for queue in self.queues.iter_mut().filter(|q| nodes >= q.of_nodes) {
            if item.role == Role::Launch && part == Part::None {
                ended = ended.max(queue.has_room());
            }
            queue.launched(begun);
        }
        chain.began = began;
        if item.pace.is_some() {
            chain.batch = Some(began);
        }
        chain.ended = chain.ended.max(ended);
        self.last = self.last.max(ended);
    }

    /// `is_node`: one call launches it with others, as a graph.
    fn work(&mut self, n: usize, w: &Work, item: &Item, (began, part): (u64, Part), is_node: bool) {
        let mut duration = match w.bucket == Bucket::Compute {
            true => (self.takes)(Kernel {
                id: w.kernel,
                start: w.start,
                captured: w.captured,
                call: w.call,
                ns: w.duration,
            }),
            false => w.duration,
        };
        let mut spacing = i64::from(w.spacing);
        if let Slowed::ByRecorder(slows) = self.slowed {
            if is_node && self.fixes.has(Fix::FasterHost) {
                spacing = (spacing - slows.node_ns as i64).max(spacing.min(0));
            }
        }
        let latency = match part {
            // a graph's first node begins while the call still stands
            Part::First => LAUNCH_NS,
            Part::Inner => 0,
            Part::None => self.host_time(u64::from(w.latency)),
        };
        if self.is_put_together(item) {
            (duration, spacing) = (u64::from(w.pinned), 0);
        }
        let copied = w.big_copy && self.fixes.has(Fix::Copy) && (self.at)(w.call);
        if copied || (item.with_stretch && self.fixes.has(Fix::Host)) {
            return self.copy_aside(n, w, began + latency, began);
        }
        if w.bucket == Bucket::Comm && self.fixes.has(Fix::Comm) {
            self.bound_comm += duration;
            duration = 0;
        }
        if w.small && self.fixes.has(Fix::Fuse) {
            duration -= duration.min(self.prepared.floor) / 2;
            spacing = spacing.min(spacing.max(0) / 2);
        }
        if self.fixes.has(Fix::DeviceWait) && spacing > KERNEL_GAP_NS as i64 {
            spacing = SPACING_NS;
        }
        let Some(stream) = self.streams.get_mut(usize::from(w.stream)) else { return };
        let free = if *stream == 0 { 0 } else { stream.saturating_add_signed(spacing) };
        let mut start = (began + latency).max(free);
        if w.edge != NONE && !self.fixes.has(Fix::DeviceWait) {
            let edge = self.ends.get(w.edge as usize).copied().unwrap_or(0);
            start = start.max(edge + u64::from(w.edge_spacing));
        }
        start += u64::from(w.stall);
        let end = start + duration;
        *stream = (*stream).max(end);
        self.last = self.last.max(end);
        self.times(n, start, end);
    }

    /// A copy on a stream of its own, from or to pinned memory; the link must carry all of them. To
    /// the device: a step ahead, so only who waits for the whole device waits for it. To the host:
    /// behind what its stream has been given so far.
    fn copy_aside(&mut self, n: usize, w: &Work, ready: u64, began: u64) {
        let pinned = u64::from(w.pinned);
        let [ahead, behind] = &mut self.ahead;
        if let Some(bound) = self.bound_copy.get_mut(usize::from(w.to_host)) {
            *bound += pinned;
        }
        if !w.to_host {
            *ahead = ready.max(*ahead) + pinned;
            return self.times(n, began, began);
        }
        let given = self.streams.get(usize::from(w.stream)).copied().unwrap_or(0);
        let start = ready.max(*behind).max(given);
        *behind = start + pinned;
        self.last = self.last.max(start + pinned);
        self.times(n, start, start + pinned);
    }

    fn times(&mut self, n: usize, start: u64, end: u64) {
        if let (Some(s), Some(e)) = (self.starts.get_mut(n), self.ends.get_mut(n)) {
            (*s, *e) = (start, end);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Recorded calls and ops of one device -> items and edges for the model. No absolute time survives.

use trace::call::Class;
use trace::Kind;

use super::{AHEAD_NS, CALL_NS, LAUNCH_NS, MAX_OPS, NODE_NS, SPACING_NS};
use crate::analysis::{Bucket, Model};
use crate::gaps::{HostView, KERNEL_GAP_NS, SMALL_COPY_BYTES, SMALL_KERNEL_NS};
use crate::merge::Merge;
use crate::run::{Call, Device, Run, Span, NONE};
use crate::timeline::class;

/// Latency from launch call to start that is assumed where the recording shows none, ns (H200: 8.7–9.3 µs).
const DEFAULT_LATENCY_NS: u64 = 9_000;
/// An op that starts this soon after another stream's op ended is taken to have waited for it, ns.
const EDGE_NS: u64 = 10_000;

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
    /// Host time before it: since the end of everything earlier (`overlaps`: since the begin of the item before).
    pub think: u64,
    /// The call's own time without waiting, ns.
    pub own: u64,
    /// Op whose end it waits for, or [`NONE`], and the time from that end to the return.
    pub wait: u32,
    pub back: u32,
    /// Its ops: from here to the next item's.
    pub first_op: u32,
    pub chain: u16,
    pub role: Role,
    pub overlaps: bool,
    /// The host did something else than launching before it.
    pub long: bool,
}

/// One op of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub duration: u64,
    /// From the begin of the call to the earliest start.
    pub latency: u32,
    /// From the end of the op before on the stream (negative: dependent launches overlap).
    pub spacing: i32,
    /// Op of another stream it waits for, or [`NONE`].
    pub edge: u32,
    /// From that op's end to its start.
    pub edge_spacing: u32,
    /// Time the copy would take from pinned memory, ns; other ops 0.
    pub pinned: u32,
    pub stream: u16,
    pub bucket: Bucket,
    pub small: bool,
    pub big_copy: bool,
}

/// A device's steady span, ready to be replayed.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    pub(super) items: Vec<Item>,
    pub(super) works: Vec<Work>,
    pub(super) chains: usize,
    pub(super) streams: usize,
    /// The usual host stretch before a launch, ns.
    pub(super) usual_stretch: u64,
    /// The shortest kernels' duration (10th percentile): the fixed cost of a kernel, ns.
    pub(super) floor: u64,
    /// Measured length of what is replayed, ns.
    pub(super) measured: u64,
}

struct Placed {
    item: u32,
    stream: u16,
    index: u32,
    start: u64,
}

impl Prepared {
    /// Reads the part of the steady span that is replayed. O(n log n).
    pub fn new(run: &Run, device: &Device, host: &HostView, collectives: &[u32], steady: Span) -> Prepared {
        let mut p =
            Prepared { streams: device.streams.len(), usual_stretch: host.median, ..Prepared::default() };
        let window = window(run, device, steady);
        let mut item_of = vec![NONE; host_calls(run)];
        let calls = p.take_calls(run, host, window, &mut item_of);
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
        p.link_waits(run, device, host, &calls, &placed);
        p.measure(run, device, &calls, &placed);
        p
    }

    /// Items from the calls in the window; returns their flat numbers.
    fn take_calls(&mut self, run: &Run, host: &HostView, window: Span, item_of: &mut [u32]) -> Vec<u32> {
        let chains = chains(run, host);
        self.chains = 1 + chains.iter().copied().max().unwrap_or(0) as usize;
        let lists: Vec<&[Call]> =
            host.threads.iter().filter_map(|&t| run.threads.get(t)).map(|t| t.calls.as_slice()).collect();
        let mut last: Vec<(u64, u64)> = vec![(0, 0); self.chains]; // begin of the item before, latest end
        let mut flats = Vec::new();
        for (list, i, c) in Merge::new(lists, |c: &Call| c.start) {
            if c.start < window.start || c.start > window.end {
                continue;
            }
            let role = match c.class {
                Some(Class::Launch | Class::GraphLaunch | Class::Memset | Class::Copy) => Role::Launch,
                Some(Class::Sync) => Role::Sync,
                Some(Class::Alloc | Class::Free) => Role::Alloc,
                _ => continue,
            };
            let flat = host.threads.get(list).map_or(NONE, |&t| run.flat(t, i));
            let chain = chains.get(list).copied().unwrap_or(0);
            let Some(before) = last.get_mut(usize::from(chain)) else { continue };
            if before.1 == 0 {
                *before = (window.start, window.start);
            }
            let overlaps = c.start < before.1;
            let think = if overlaps { c.start - before.0 } else { c.start - before.1 };
            *before = (c.start, before.1.max(c.end));
            if let Some(slot) = item_of.get_mut(flat as usize) {
                *slot = self.items.len() as u32;
            }
            flats.push(flat);
            self.items.push(Item {
                think,
                own: c.end - c.start,
                wait: NONE,
                back: 0,
                first_op: 0,
                chain,
                role,
                overlaps,
                long: host.is_long(flat),
            });
        }
        flats
    }

    fn take_ops(&mut self, run: &Run, device: &Device, collectives: &[u32], placed: &[Placed]) {
        let latency = usual_latency(run, device, placed);
        let mut durations: Vec<u64> = Vec::new();
        // the op that ended last before each op starts, over all streams: candidates for edges
        let mut by_end: Vec<(u64, u32)> = Vec::new();
        if self.streams > 1 {
            by_end =
                placed.iter().enumerate().filter_map(|(n, w)| Some((op(device, w)?.end, n as u32))).collect();
            by_end.sort_unstable();
        }
        self.works.reserve_exact(placed.len());
        let mut item = 0;
        for (n, w) in placed.iter().enumerate() {
            while let Some(i) = self.items.get_mut(item).filter(|_| item <= w.item as usize) {
                i.first_op = n as u32;
                item += 1;
            }
            let (Some(o), Some((_, c))) = (op(device, w), op(device, w).and_then(|o| run.call(o.call)))
            else {
                continue;
            };
            let before = (w.index as usize)
                .checked_sub(1)
                .and_then(|i| device.streams.get(usize::from(w.stream))?.ops.get(i))
                .map_or(0, |b| b.end);
            let bucket = class(o, collectives);
            let begin = c.start.min(o.start);
            let mut work = Work {
                duration: o.end - o.start,
                latency: clamp32(o.start - begin),
                spacing: SPACING_NS as i32,
                edge: NONE,
                edge_spacing: 0,
                pinned: 0,
                stream: w.stream,
                bucket,
                small: bucket == Bucket::Compute
                    && o.kind == Kind::Kernel
                    && o.end - o.start < SMALL_KERNEL_NS,
                big_copy: o.kind == Kind::Memcpy && o.bytes() > SMALL_COPY_BYTES && o.copy().direction != 8,
            };
            if work.big_copy {
                let pinned = o.bytes() / super::PINNED_BYTES_PER_NS;
                work.pinned = clamp32(pinned.min(work.duration));
            }
            if o.kind == Kind::Kernel && bucket == Bucket::Compute {
                durations.push(work.duration);
            }
            let gap = o.start as i64 - before as i64;
            let near = gap <= KERNEL_GAP_NS as i64;
            let queued = c.end <= before;
            if before > begin && (near || queued) {
                // the stream was still busy when it was launched: the stream is what it waited for
                work.latency = work.latency.min(clamp32(latency));
                work.spacing = gap.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            }
            if (!near || before <= begin) && o.start - begin > 2 * latency {
                if let Some((edge, end)) = edge(&by_end, placed, w, o.start, begin) {
                    work.edge = edge;
                    work.edge_spacing = clamp32(o.start - end);
                    work.latency = work.latency.min(clamp32(latency));
                    work.spacing = work.spacing.min(SPACING_NS as i32);
                }
            }
            self.works.push(work);
        }
        while let Some(i) = self.items.get_mut(item) {
            i.first_op = self.works.len() as u32;
            item += 1;
        }
        let tenth = durations.len() / 10;
        if tenth < durations.len() {
            self.floor = *durations.select_nth_unstable(tenth).1;
        }
    }

    /// What synchronizing, allocating and copying calls waited for.
    fn link_waits(&mut self, run: &Run, device: &Device, host: &HostView, calls: &[u32], placed: &[Placed]) {
        let mut by_end: Vec<(u64, u32)> =
            placed.iter().enumerate().filter_map(|(n, w)| Some((op(device, w)?.end, n as u32))).collect();
        by_end.sort_unstable();
        let blocking: std::collections::HashSet<u32> = host.blockers.iter().map(|b| b.call).collect();
        let count = self.items.len();
        for n in 0..count {
            let next_op = self.items.get(n + 1).map_or(self.works.len() as u32, |i| i.first_op);
            let Some(item) = self.items.get_mut(n) else { continue };
            let Some((_, c)) = calls.get(n).and_then(|&f| run.call(f)) else { continue };
            let flat = calls.get(n).copied().unwrap_or(NONE);
            match item.role {
                Role::Launch if c.class == Some(Class::Copy) && blocking.contains(&flat) => {
                    let last = (item.first_op..next_op).next_back();
                    let Some(end) = last.and_then(|l| Some(op(device, placed.get(l as usize)?)?.end)) else {
                        continue;
                    };
                    item.wait = last.unwrap_or(NONE);
                    item.back = clamp32(c.end.saturating_sub(end));
                    let big = last.and_then(|l| self.works.get(l as usize)).is_some_and(|w| w.big_copy);
                    item.role = if big { Role::Copy } else { Role::Sync };
                    item.own = CALL_NS.min(c.end - c.start);
                }
                Role::Sync | Role::Alloc => {
                    let to = by_end.partition_point(|e| e.0 <= c.end);
                    let recent = by_end.get(to.saturating_sub(64)..to).unwrap_or(&[]);
                    let waited = recent
                        .iter()
                        .rev()
                        .take_while(|e| e.0 >= c.start)
                        .find(|e| placed.get(e.1 as usize).is_some_and(|p| (p.item as usize) < n));
                    if let Some(&(end, w)) = waited {
                        let running = by_end.get(to..).unwrap_or(&[]).first();
                        let running = running
                            .and_then(|e| op(device, placed.get(e.1 as usize)?))
                            .is_some_and(|o| o.start < c.end);
                        if item.role == Role::Sync || !running {
                            // the synchronize behind a blocking copy is part of it
                            if item.role == Role::Sync
                                && self.works.get(w as usize).is_some_and(|w| w.big_copy)
                            {
                                item.role = Role::Copy;
                            }
                            item.wait = w;
                            item.back = clamp32(c.end - end);
                            item.own = match item.role {
                                Role::Alloc => u64::from(item.back),
                                _ => CALL_NS.min(c.end - c.start),
                            };
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn measure(&mut self, run: &Run, device: &Device, calls: &[u32], placed: &[Placed]) {
        let first = calls.first().and_then(|&f| run.call(f)).map_or(0, |(_, c)| c.start);
        let ends = placed.iter().filter_map(|w| op(device, w)).map(|o| o.end).max().unwrap_or(0);
        let returns = calls.iter().filter_map(|&f| run.call(f)).map(|(_, c)| c.end).max().unwrap_or(0);
        self.measured = ends.max(returns).saturating_sub(first);
        self.unblock_full_queue(device, calls, placed, run);
    }

    /// A launch made far ahead of the device may have stood because a queue was full (1,024 kernels, or the driver's
    /// own limit of graph launches): it must not stand a second time in the model. Its own time does not matter to
    /// what was measured, since the device was busy with earlier work.
    fn unblock_full_queue(&mut self, device: &Device, calls: &[u32], placed: &[Placed], run: &Run) {
        for n in 0..self.items.len() {
            let to = self.items.get(n + 1).map_or(placed.len(), |i| i.first_op as usize);
            let Some(item) = self.items.get_mut(n) else { continue };
            let nodes = to.saturating_sub(item.first_op as usize) as u64;
            if item.role != Role::Launch || item.wait != NONE || nodes == 0 {
                continue;
            }
            let start = placed.get(item.first_op as usize).and_then(|w| op(device, w)).map_or(0, |o| o.start);
            let back = calls.get(n).and_then(|&f| run.call(f)).map_or(u64::MAX, |(_, c)| c.end);
            if start > back.saturating_add(AHEAD_NS) {
                item.own = item.own.min(LAUNCH_NS + if nodes > 1 { nodes * NODE_NS } else { 0 });
            }
        }
    }

    /// The model's error: measured against replayed with nothing changed.
    pub fn model(&self) -> Model {
        Model {
            measured_ns: self.measured as f64,
            replayed_ns: self.play(super::Fixes::default()) as f64,
            ops: self.works.len() as u64,
        }
    }
}

/// The op of another stream that ended just before `start` and was launched no later than this one.
fn edge(by_end: &[(u64, u32)], placed: &[Placed], me: &Placed, start: u64, begin: u64) -> Option<(u32, u64)> {
    let to = by_end.partition_point(|e| e.0 <= start);
    let recent = by_end.get(to.saturating_sub(8)..to)?;
    let found = recent.iter().rev().take_while(|e| e.0 + EDGE_NS >= start && e.0 > begin);
    found
        .filter_map(|&(end, n)| Some((n, end, placed.get(n as usize)?)))
        .find(|(_, _, p)| p.stream != me.stream && p.item <= me.item)
        .map(|(n, end, _)| (n, end))
}

fn op<'a>(device: &'a Device, w: &Placed) -> Option<&'a crate::run::Op> {
    device.streams.get(usize::from(w.stream))?.ops.get(w.index as usize)
}

fn clamp32(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(NONE - 1)
}

fn host_calls(run: &Run) -> usize {
    run.threads.iter().map(|t| t.calls.len()).sum()
}

/// Host time in which the calls of the replayed ops lie: the latest [`MAX_OPS`] ops of the steady span.
fn window(run: &Run, device: &Device, steady: Span) -> Span {
    let inside = |o: &&crate::run::Op| o.start >= steady.start && o.start < steady.end;
    let mut calls: Vec<u64> = device
        .streams
        .iter()
        .flat_map(|s| s.ops.iter().filter(inside))
        .filter_map(|o| run.call(o.call))
        .map(|(_, c)| c.start)
        .collect();
    if calls.len() > MAX_OPS {
        let from = calls.len() - MAX_OPS;
        calls.select_nth_unstable(from);
        calls.drain(..from);
    }
    let first = calls.iter().copied().min().unwrap_or(0);
    let last = calls.iter().copied().max().unwrap_or(0);
    // synchronizes after the last launch belong to the span too
    Span::new(first, last.max(steady.end))
}

/// Which host chain each launching thread belongs to. Threads that launch kernels hand over to each other: one
/// chain. A thread that only copies (a prefetcher) runs on its own.
fn chains(run: &Run, host: &HostView) -> Vec<u16> {
    let mut next = 0;
    let kernels = |t: usize| {
        run.threads.get(t).is_some_and(|t| {
            t.calls.iter().any(|c| matches!(c.class, Some(Class::Launch | Class::GraphLaunch)))
                || !t.calls.iter().any(|c| c.launches())
        })
    };
    host.threads
        .iter()
        .map(|&t| {
            if kernels(t) {
                0
            } else {
                next = u16::min(next + 1, 63);
                next
            }
        })
        .collect()
}

/// Median of launch call to start where the stream was empty, ns.
fn usual_latency(run: &Run, device: &Device, placed: &[Placed]) -> u64 {
    let mut seen = Vec::new();
    for w in placed {
        let Some(o) = op(device, w) else { continue };
        let Some((_, c)) = run.call(o.call) else { continue };
        let before = (w.index as usize)
            .checked_sub(1)
            .and_then(|i| device.streams.get(usize::from(w.stream))?.ops.get(i))
            .map_or(0, |b| b.end);
        if c.start >= before && o.start >= c.start && !o.is_graph_node() {
            seen.push(o.start - c.start);
        }
    }
    let middle = seen.len() / 2;
    match seen.len() {
        0 => DEFAULT_LATENCY_NS,
        _ => *seen.select_nth_unstable(middle).1,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The device's side of a recording: ops -> works, each with what it waited for on the device.

use std::collections::HashSet;

use trace::call::Class;
use trace::Kind;

use super::graphs;
use super::prepare::{clamp32, op, Placed, Prepared, Work};
use super::SPACING_NS;
use crate::gaps::{KERNEL_GAP_NS, SMALL_COPY_BYTES, SMALL_KERNEL_NS, STARTS_WITHIN_NS};
use crate::run::{Device, Op, Run, NONE, TO_HOST};
use crate::stats::middle;
use crate::timeline::buckets::Bucket;
use crate::timeline::class;

/// Latency from launch call to start that is assumed where the recording shows none, ns (H200:
/// 8.7–9.3 µs).
const DEFAULT_LATENCY_NS: u64 = 9_000;
/// By so much longer is the device's spacing before or behind a memset, where the recording shows
/// none, ns. H200, pairs of slow and mended form, 2026-11-22: 1.5 to 1.7 us beside 1.0 to 1.15 us
/// between kernels.
const MEMSET_NS: i64 = 500;
/// An op that starts this soon after another stream's op ended is taken to have waited for it, ns.
const EDGE_NS: u64 = 10_000;
/// A launch that was made this many usual latencies before the stream came free had arrived by
/// then.
const SURELY: u64 = 2;

impl Prepared {
    /// Works from the placed ops, and the first op of each item.
    pub(super) fn take_ops(&mut self, run: &Run, device: &Device, collectives: &[u32], placed: &[Placed]) {
        let usual = usual(run, device, placed);
        let latency = usual.latency;
        let mut durations: Vec<u64> = Vec::new();
        // the op that ended last before each op starts, over all streams: candidates for edges
        let mut by_end: Vec<(u64, u32)> = Vec::new();
        if self.streams > 1 {
            by_end =
                placed.iter().enumerate().filter_map(|(n, w)| Some((op(device, w)?.end, n as u32))).collect();
            by_end.sort_unstable();
        }
        let told = Told::new(run, device, placed);
        let kernels: HashSet<u32> = placed
            .iter()
            .filter_map(|w| op(device, w))
            .filter(|o| o.kind == Kind::Kernel)
            .map(|o| o.a)
            .collect();
        let stay = graphs::stay(kernels.iter().map(|&id| (id, run.definitions.kernel_name(id))));
        self.works.reserve_exact(placed.len());
        let mut busy = None;
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
            if let Some(item) = self.items.get_mut(w.item as usize) {
                item.for_host |= o.copy().is_pageable() || o.copy().direction == TO_HOST;
                item.stays |= o.kind == Kind::Kernel && stay.contains(&o.a);
            }
            let last = before(device, w);
            let (before, node) = last.map_or((0, false), |b| (b.end, b.call == o.call));
            let spacing = usual.spacing(last, o);
            let bucket = class(o, collectives);
            let begin = c.start.min(o.start);
            let mut work = Work {
                start: o.start,
                duration: o.end - o.start,
                latency: clamp32(o.start - begin),
                spacing: spacing as i32,
                edge: NONE,
                edge_spacing: 0,
                stall: 0,
                pinned: 0,
                call: o.call,
                kernel: if o.kind == Kind::Kernel { o.a } else { 0 },
                captured: o.captured,
                stream: w.stream,
                bucket,
                small: bucket == Bucket::Compute
                    && o.kind == Kind::Kernel
                    && o.end - o.start < SMALL_KERNEL_NS,
                big_copy: o.kind == Kind::Memcpy && o.bytes() > SMALL_COPY_BYTES && o.copy().direction != 8,
                to_host: false,
            };
            work.to_host = work.big_copy && o.copy().direction == TO_HOST;
            if o.kind == Kind::Memcpy {
                let pinned = o.bytes() / super::PINNED_BYTES_PER_NS;
                work.pinned = clamp32(pinned.min(work.duration));
            }
            if o.kind == Kind::Kernel && bucket == Bucket::Compute {
                durations.push(work.duration);
            }
            let gap = o.start as i64 - before as i64;
            let near = gap <= KERNEL_GAP_NS as i64;
            if before > begin && ((node && near) || begin + SURELY * latency <= before) {
                // it had arrived when the stream came free: the stream is what it waited for
                work.latency = work.latency.min(clamp32(latency));
                work.spacing = clamp_i32(gap);
            } else if before > begin {
                // on its way: the launch may be what held it up, so the stream is not charged with
                // more than is usual
                work.spacing = clamp_i32(gap.min(spacing));
            }
            if (!near || before <= begin) && o.start - begin > 2 * latency {
                if let Some((edge, end)) = edge(&by_end, placed, w, o.start, begin) {
                    work.edge = edge;
                    work.edge_spacing = clamp32(o.start - end);
                    work.latency = work.latency.min(clamp32(latency));
                    work.spacing = work.spacing.min(spacing as i32);
                }
            }
            if let Some((edge, end)) = told.before(device, placed, n).filter(|_| work.edge == NONE) {
                (work.edge, work.edge_spacing) = (edge, clamp32(spacing.max(0) as u64));
                if begin + SURELY * latency <= before && !near && end > before {
                    // the stream was free, and stood: for this, whatever else came between
                    work.edge_spacing = clamp32(o.start - end);
                    work.spacing = work.spacing.min(spacing as i32);
                }
            }
            let launched = c.end.saturating_add(STARTS_WITHIN_NS);
            let is_free = work.edge == NONE && before <= begin;
            if is_free && o.start > launched && !is_graph(o) && waits_for_event(run, o.call) {
                let idle = busy.get_or_insert_with(|| Busy::new(device)).idle_before(o.start);
                work.stall = clamp32(idle.min((o.start - begin).saturating_sub(latency)));
                work.latency -= work.stall;
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
}

fn is_graph(o: &Op) -> bool {
    o.is_graph_node() || o.kind == Kind::GraphTrace
}

/// Has a stream been told to wait for an event since the thread's launch before this one?
fn waits_for_event(run: &Run, launch: u32) -> bool {
    let Some((thread, _)) = run.call(launch) else { return false };
    let calls = run.threads.get(thread).map_or(&[][..], |t| &t.calls);
    let before = calls.get(..(launch - run.flat(thread, 0)) as usize).unwrap_or(&[]);
    let since = before.iter().rev().take_while(|c| !c.launches());
    since.take(LOOK_BACK).any(|c| c.class == Some(Class::StreamWait))
}

/// When the device is idle.
struct Busy {
    /// By begin: begin of an op, and the latest end of all that began by then.
    ends: Vec<(u64, u64)>,
}

impl Busy {
    fn new(device: &Device) -> Busy {
        let ops = device.streams.iter().flat_map(|s| &s.ops);
        let mut ends: Vec<(u64, u64)> = ops.map(|o| (o.start, o.end)).collect();
        ends.sort_unstable();
        let mut latest = 0;
        for (_, end) in &mut ends {
            latest = latest.max(*end);
            *end = latest;
        }
        Busy { ends }
    }

    /// How long the device has had nothing to do at `time`, when an op begins, ns.
    fn idle_before(&self, time: u64) -> u64 {
        let begun = self.ends.partition_point(|e| e.0 < time);
        let until = begun.checked_sub(1).and_then(|n| self.ends.get(n)).map_or(0, |e| e.1);
        time.saturating_sub(until)
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

/// Streams that the host told to wait for an event. What else was slow may have hidden that they
/// did: the event was past by the time the stream came to it. Once that is mended it holds the
/// stream up.
struct Told {
    /// By stream: when it was told, ns.
    times: Vec<Vec<u64>>,
    /// By placed op: when it was launched, ns.
    launched: Vec<u64>,
}

/// CUPTI's number for a stream that waits for an event.
const STREAM_WAITS: u32 = 2;
/// Ops looked at for the one of another stream that was launched last.
const LOOK_BACK: usize = 64;

impl Told {
    fn new(run: &Run, device: &Device, placed: &[Placed]) -> Told {
        let mut times = vec![Vec::new(); device.streams.len()];
        for w in run.waits.iter().filter(|w| w.what == STREAM_WAITS) {
            let stream = device.streams.iter().position(|s| s.stream == w.stream);
            if let Some(list) = stream.and_then(|s| times.get_mut(s)) {
                list.push(w.span.start);
            }
        }
        let launch = |w| run.call(op(device, w)?.call).map(|(_, c)| c.start);
        let launched = match times.iter().all(Vec::is_empty) {
            true => Vec::new(),
            false => placed.iter().map(|w| launch(w).unwrap_or(0)).collect(),
        };
        Told { times, launched }
    }

    /// What the `n`th op was told to wait for, if nothing was launched to its stream since: which
    /// of the other streams is meant is not recorded, so it is the op launched last to any of them
    /// that was done by then; with its end, ns.
    fn before(&self, device: &Device, placed: &[Placed], n: usize) -> Option<(u32, u64)> {
        let (me, launch) = (placed.get(n)?, *self.launched.get(n)?);
        let times = self.times.get(usize::from(me.stream))?;
        let told = *times.get(times.partition_point(|&t| t <= launch).checked_sub(1)?)?;
        let recent = |from: usize| (from.saturating_sub(LOOK_BACK)..from).rev();
        let since = recent(n).take_while(|&i| self.launched.get(i).is_some_and(|&l| l > told));
        if since.filter_map(|i| placed.get(i)).any(|p| p.stream == me.stream) {
            return None;
        }
        let from = self.launched.partition_point(|&l| l <= told).min(n);
        let start = op(device, me)?.start;
        let others = recent(from).filter_map(|i| Some((i, placed.get(i)?)));
        let mut others = others.filter(|(_, p)| p.stream != me.stream);
        others.find_map(|(i, p)| {
            let end = op(device, p)?.end;
            (end <= start).then_some((i as u32, end))
        })
    }
}

/// The op before on the stream.
pub(super) fn before<'a>(device: &'a Device, w: &Placed) -> Option<&'a Op> {
    let i = (w.index as usize).checked_sub(1)?;
    device.streams.get(usize::from(w.stream))?.ops.get(i)
}

fn clamp_i32(ns: i64) -> i32 {
    ns.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// What the recording shows of the device.
struct Usual {
    /// Median of launch call to start where the stream was empty, ns.
    latency: u64,
    /// Medians of the gaps up to [`KERNEL_GAP_NS`] in front of ops that were surely queued, ns: a
    /// memset among the two ops, or none.
    memset: i64,
    others: i64,
}

impl Usual {
    /// The gap between `last` and `next` on a stream that has both, ns.
    fn spacing(&self, last: Option<&Op>, next: &Op) -> i64 {
        if has_memset(last, next) {
            self.memset
        } else {
            self.others
        }
    }
}

fn has_memset(last: Option<&Op>, next: &Op) -> bool {
    next.kind == Kind::Memset || last.is_some_and(|l| l.kind == Kind::Memset)
}

fn usual(run: &Run, device: &Device, placed: &[Placed]) -> Usual {
    let single = |w| Some((op(device, w)?, before(device, w)));
    let ops = || placed.iter().filter_map(single).filter(|(o, _)| !o.is_graph_node());
    let calls = || ops().filter_map(|(o, last)| Some((o, last, run.call(o.call)?.1)));
    let end = |last: Option<&Op>| last.map_or(0, |b| b.end);
    let mut seen: Vec<u64> = calls()
        .filter(|(o, last, c)| c.start >= end(*last) && o.start >= c.start)
        .map(|(o, _, c)| o.start - c.start)
        .collect();
    let latency = middle(&mut seen).unwrap_or(DEFAULT_LATENCY_NS);
    let (mut with_memset, mut without) = (Vec::new(), Vec::new());
    for (o, last, c) in calls() {
        let before = end(last);
        if c.start + SURELY * latency <= before && o.start < before + KERNEL_GAP_NS {
            let gaps = if has_memset(last, o) { &mut with_memset } else { &mut without };
            gaps.push(o.start as i64 - before as i64);
        }
    }
    let spacing = |gaps: &mut Vec<i64>| middle(gaps).map(|ns| ns.max(0));
    let others = spacing(&mut without).unwrap_or(SPACING_NS);
    Usual { latency, memset: spacing(&mut with_memset).unwrap_or(others + MEMSET_NS), others }
}

// SPDX-License-Identifier: Apache-2.0
//! The device's side of a recording: ops -> works, each with what it waited for on the device.

use trace::Kind;

use super::prepare::{clamp32, op, Placed, Prepared, Work};
use super::SPACING_NS;
use crate::analysis::Bucket;
use crate::gaps::{KERNEL_GAP_NS, SMALL_COPY_BYTES, SMALL_KERNEL_NS};
use crate::run::{Device, Run, NONE};
use crate::timeline::class;

/// Latency from launch call to start that is assumed where the recording shows none, ns (H200: 8.7–9.3 µs).
const DEFAULT_LATENCY_NS: u64 = 9_000;
/// An op that starts this soon after another stream's op ended is taken to have waited for it, ns.
const EDGE_NS: u64 = 10_000;

impl Prepared {
    /// Works from the placed ops, and the first op of each item.
    pub(super) fn take_ops(&mut self, run: &Run, device: &Device, collectives: &[u32], placed: &[Placed]) {
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

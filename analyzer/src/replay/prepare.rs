// SPDX-License-Identifier: Apache-2.0
//! Recorded calls and ops of one device -> items and edges for the model. No absolute time survives.
//!
//! Here: the types, and what is replayed of a recording. `calls.rs`: the host's side; `ops.rs`: the device's;
//! `waits.rs`: what calls waited for.

use super::MAX_OPS;
use crate::analysis::{Bucket, Model};
use crate::gaps::HostView;
use crate::run::{Device, Run, Span, NONE};
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
    /// Host time before it: since the end of everything earlier (`overlaps`: since the begin of the item before).
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
    pub chain: u16,
    pub role: Role,
    pub overlaps: bool,
    /// The host did something else than launching before it.
    pub long: bool,
    /// It follows a wait for workers' data, which come at their own pace: no sooner than this after the item that followed
    /// the wait before, ns (the first: 0).
    pub pace: Option<u64>,
    /// The stretch it belongs to is one of fetching data.
    pub fetch: bool,
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
    /// Long host stretches, those that do not fetch data and those that do: how many, and the longest, ns.
    pub(crate) stretches: [(u64, u64); 2],
    /// The shortest kernels' duration (10th percentile): the fixed cost of a kernel, ns.
    pub(super) floor: u64,
    /// Measured length of what is replayed, ns.
    pub(super) measured: u64,
}

/// An op and the item that launched it.
pub(super) struct Placed {
    pub item: u32,
    pub stream: u16,
    pub index: u32,
    pub start: u64,
}

impl Prepared {
    /// Reads the part of the steady span that is replayed. O(n log n).
    pub fn new(run: &Run, device: &Device, host: &HostView, collectives: &[u32], steady: Span) -> Prepared {
        let mut p = Prepared { streams: device.streams.len(), ..Prepared::default() };
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

    fn measure(&mut self, run: &Run, device: &Device, calls: &[u32], placed: &[Placed]) {
        let first = calls.first().and_then(|&f| run.call(f)).map_or(0, |(_, c)| c.start);
        let ends = placed.iter().filter_map(|w| op(device, w)).map(|o| o.end).max().unwrap_or(0);
        let returns = calls.iter().filter_map(|&f| run.call(f)).map(|(_, c)| c.end).max().unwrap_or(0);
        self.measured = Observed::of(run).measure(Span::new(first, ends.max(returns)));
        self.unblock_full_queue(device, calls, placed, run);
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

pub(super) fn op<'a>(device: &'a Device, w: &Placed) -> Option<&'a crate::run::Op> {
    device.streams.get(usize::from(w.stream))?.ops.get(w.index as usize)
}

pub(super) fn clamp32(ns: u64) -> u32 {
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

// SPDX-License-Identifier: Apache-2.0
//! What calls waited for: the edges from the device back to the host.

use trace::call::Class;

use super::ops::before;
use super::prepare::{clamp32, op, Placed, Prepared, Role};
use super::{Fix, LAUNCH_NS, NODE_NS};
use crate::gaps::{HostView, SMALL_COPY_BYTES};
use crate::run::{Call, Device, Run, NONE, TO_HOST};
use crate::steps::behind::AHEAD_NS;

/// Ops looked at for the one that a call waited for: later ones ran beside it, on other streams or
/// as a graph's nodes.
const LOOK_BACK: usize = 64;

/// So long after a call's return an op must have gone on for the call not to have waited for it,
/// ns: the clocks of host and device agree to some microseconds.
const BESIDE_NS: u64 = 5_000;

impl Prepared {
    /// What synchronizing, allocating and copying calls waited for.
    ///
    /// A call that waits and found nothing to wait for waits in the model for the last op that had
    /// ended by then: in the recording an earlier wait, or the host's own time, had drained the
    /// queue for it; with that gone it is the next to stand (a synchronize in front of a `cudaFree`
    /// wins nothing). What it really waits for ended no later.
    pub(super) fn link_waits(
        &mut self,
        run: &Run,
        device: &Device,
        host: &HostView,
        calls: &[u32],
        placed: &[Placed],
    ) {
        let mut by_end: Vec<(u64, u32)> =
            placed.iter().enumerate().filter_map(|(n, w)| Some((op(device, w)?.end, n as u32))).collect();
        by_end.sort_unstable();
        let streams = synchronized_streams(run, device);
        let blocking: std::collections::HashSet<u32> = host.blockers.iter().map(|b| b.call).collect();
        // when the last of the ops launched so far ends
        let mut latest = 0;
        let usual_call = self.usual_call;
        // the call before this one
        let mut before = None;
        for (n, &flat) in calls.iter().enumerate() {
            let next_op = self.items.get(n + 1).map_or(self.works.len() as u32, |i| i.first_op);
            let Some(item) = self.items.get_mut(n) else { continue };
            let Some((_, c)) = run.call(flat) else { continue };
            let copied = before.replace((flat, c)).filter(|_| !item.whole_device);
            let is_of = |w: u32| {
                let same =
                    |of: &Call| of.site == c.site || run.python_stack(of.site) == run.python_stack(c.site);
                copied.is_some_and(|(flat, of)| flat == w && same(of))
            };
            match item.role {
                Role::Launch if c.class == Some(Class::Copy) && blocking.contains(&flat) => {
                    let last = (item.first_op..next_op).next_back();
                    let copy = last.and_then(|l| placed.get(l as usize)).filter(|w| holds(run, device, w, c));
                    if let Some(end) = copy.and_then(|w| Some(op(device, w)?.end)) {
                        item.wait = last.unwrap_or(NONE);
                        item.back = clamp32(c.end.saturating_sub(end));
                        let big = last.and_then(|l| self.works.get(l as usize)).is_some_and(|w| w.big_copy);
                        item.role = if big { Role::Copy } else { Role::Sync };
                        item.values =
                            last.and_then(|l| self.works.get(l as usize)).is_some_and(|w| w.to_host);
                        let pageable = |w| op(device, w).is_some_and(|o| o.copy().is_pageable());
                        item.staged = item.values && copy.is_some_and(pageable);
                        item.own = usual_call.min(c.end - c.start);
                    }
                }
                Role::Sync | Role::Alloc => {
                    let stream = streams.get(&c.correlation).copied();
                    let found = waited_for(placed, &by_end, n, c, stream);
                    // allocating does not wait by itself: what ended while it was at work need not
                    // have been waited for, and nothing was where what had been launched before it
                    // was not done when it returned
                    let worked = |end: u64| c.class == Some(Class::Alloc) && c.end - end > end - c.start;
                    let beside = item.role == Role::Alloc && latest > c.end + BESIDE_NS;
                    if let Some((end, w)) = found.filter(|&(end, _)| !beside && !worked(end)) {
                        // the synchronize behind a blocking copy is part of it
                        if let Some(work) = self
                            .works
                            .get(w as usize)
                            .filter(|w| item.role == Role::Sync && w.big_copy && is_of(w.call))
                        {
                            (item.role, item.values) = (Role::Copy, work.to_host);
                        }
                        item.wait = w;
                        item.back = clamp32((c.end - end).min(item.own)); // less what was not observed
                        item.own = match item.role {
                            Role::Alloc => u64::from(item.back),
                            _ => 0,
                        };
                    } else if c.class == Some(Class::Sync)
                        // one that returned beside a busy device does not wait for it
                        // (cudaFreeAsync)
                        || (c.class == Some(Class::Free) && latest <= c.start)
                    {
                        let to = by_end.partition_point(|e| e.0 <= c.start);
                        if let Some((_, w)) = last_launched_before(
                            placed,
                            by_end.get(..to),
                            n,
                            streams.get(&c.correlation).copied(),
                        ) {
                            item.wait = w;
                            item.back = clamp32(item.own);
                        }
                    }
                }
                _ => {}
            }
            let own = placed.get(item.first_op as usize..next_op as usize).unwrap_or(&[]);
            latest = own.iter().filter_map(|p| Some(op(device, p)?.end)).fold(latest, u64::max);
        }
    }

    /// Copies to the host right in front of a long stretch: what is written to a file is fetched
    /// first. Once that is done elsewhere, it is fetched elsewhere as well (a snapshot on the
    /// device, a stream and a thread of its own).
    pub(super) fn tie_copies_to_stretches(&mut self) {
        let mut open: Vec<Vec<usize>> = vec![Vec::new(); self.chains.max(1)];
        for n in 0..self.items.len() {
            let Some(item) = self.items.get(n) else { continue };
            let (role, values) = (item.role, item.values);
            let away = item.long && !item.fetch;
            let Some(open) = open.get_mut(usize::from(item.chain)) else { continue };
            let launch = role == Role::Launch || (role == Role::Copy && self.op_of(n).is_some());
            if launch {
                for n in open.drain(..).filter(|_| away) {
                    if let Some(copy) = self.items.get_mut(n) {
                        copy.with_stretch = true;
                    }
                }
            }
            if values {
                open.push(n);
            }
        }
    }

    /// Does this fix take copies off the launching thread that are not its own?
    pub(crate) fn takes_copies_along(&self, fix: Fix) -> bool {
        fix == Fix::Host && self.items.iter().any(|i| i.with_stretch)
    }

    /// The first op that an item launched.
    fn op_of(&self, n: usize) -> Option<usize> {
        let first = self.items.get(n)?.first_op as usize;
        let to = self.items.get(n + 1).map_or(self.works.len(), |i| i.first_op as usize);
        (first < to).then_some(first)
    }

    /// A launch made far ahead of the device may have stood because a queue was full (1,024
    /// kernels, or the driver's own limit of graph launches): it must not stand a second time in
    /// the model. Its own time does not matter to what was measured, since the device was busy with
    /// earlier work.
    pub(super) fn unblock_full_queue(
        &mut self,
        device: &Device,
        calls: &[u32],
        placed: &[Placed],
        run: &Run,
    ) {
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
}

/// CUPTI's number for a call that waits for one stream.
const WAITS_FOR_STREAM: u32 = 3;

/// By correlation id: the stream (as in [`Placed`]) that a call waited for alone. What ended on
/// another stream while it stood did not let it return.
fn synchronized_streams(run: &Run, device: &Device) -> std::collections::HashMap<u32, u16> {
    let of = |stream: u32| device.streams.iter().position(|s| s.stream == stream);
    let one = run.waits.iter().filter(|w| w.what == WAITS_FOR_STREAM && w.correlation != 0);
    one.filter_map(|w| Some((w.correlation, u16::try_from(of(w.stream)?).ok()?))).collect()
}

/// Did this copy hold its call, or was it only through by the return because the device was idle?
/// It held it where it had work queued before it; else by what CUDA says of such copies: those
/// between device and pageable memory, but for small ones to the device (staged at once), and those
/// of the calls that are not `Async`, but for those on a device.
fn holds(run: &Run, device: &Device, w: &Placed, c: &Call) -> bool {
    const ON_DEVICE: u8 = 8;
    let Some(o) = op(device, w) else { return false };
    let copy = o.copy();
    let queued = before(device, w).is_some_and(|b| b.end > c.start);
    let staged = copy.direction != TO_HOST && copy.bytes <= SMALL_COPY_BYTES;
    let blocking = !run.call_name(c).contains("Async") && copy.direction != ON_DEVICE;
    queued || blocking || (copy.is_pageable() && !staged)
}

/// End and number of the op whose end let item `n`, a call that waits, return: the last that ended
/// while it stood and was launched before it.
fn waited_for(
    placed: &[Placed],
    by_end: &[(u64, u32)],
    n: usize,
    c: &Call,
    stream: Option<u16>,
) -> Option<(u64, u32)> {
    let to = by_end.partition_point(|e| e.0 <= c.end);
    last_launched_before(placed, by_end.get(..to), n, stream).filter(|e| e.0 >= c.start)
}

/// The last of these ops (by end) that was launched before item `n`, on this stream where one is
/// given; only the last few are looked at.
fn last_launched_before(
    placed: &[Placed],
    by_end: Option<&[(u64, u32)]>,
    n: usize,
    stream: Option<u16>,
) -> Option<(u64, u32)> {
    let fits = |p: &Placed| (p.item as usize) < n && stream.is_none_or(|s| s == p.stream);
    let launched = |e: &&(u64, u32)| placed.get(e.1 as usize).is_some_and(fits);
    by_end?.iter().rev().take(LOOK_BACK).find(launched).copied()
}

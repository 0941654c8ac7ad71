// SPDX-License-Identifier: Apache-2.0
//! The model: host chains issue calls, streams are queues, waits and edges are what holds either up.
//! One pass in the order of simulated time over the chains; an op's times are known when it is launched, because all
//! it can wait for was launched before it.

use super::prepare::{Item, Prepared, Role, Work};
use super::{Fix, Fixes, CALL_NS, CAPTURABLE_NS, LAUNCH_NS, LAUNCH_QUEUE, PROFILER_SLOWS, SPACING_NS};
use crate::analysis::Bucket;
use crate::gaps::KERNEL_GAP_NS;
use crate::run::NONE;

/// A host chain while it is played.
#[derive(Clone, Default)]
struct Chain {
    /// Items still to come, as positions.
    next: usize,
    began: u64,
    ended: u64,
    /// A call that had to wait came last: the next launch begins a new graph.
    fresh: bool,
    /// When the latest batch of workers' data had come.
    batch: u64,
}

impl Prepared {
    /// Plays everything with `fixes` applied; returns how long it takes, ns. O(n) for a few chains.
    pub fn play(&self, fixes: Fixes) -> u64 {
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
            starts: vec![0; self.works.len()],
            ends: vec![0; self.works.len()],
            streams: vec![0; self.streams.max(1)],
            launched: 0,
            last: 0,
            bound_copy: 0,
            bound_comm: 0,
        };
        if self.chains <= 1 {
            let mut chain = Chain::default();
            for n in 0..self.items.len() {
                p.item(n, &mut chain);
            }
        } else {
            // the chain whose next call begins first goes on
            while let Some((c, n)) = earliest(self, fixes, &chains, &by_chain) {
                let Some(chain) = chains.get_mut(c) else { break };
                p.item(n, chain);
                chain.next += 1;
            }
        }
        p.last.max(p.bound_copy).max(p.bound_comm)
    }
}

fn earliest(
    prepared: &Prepared,
    fixes: Fixes,
    chains: &[Chain],
    by_chain: &[Vec<u32>],
) -> Option<(usize, usize)> {
    let mut best: Option<(u64, usize, usize)> = None;
    for (c, (chain, list)) in chains.iter().zip(by_chain).enumerate() {
        let Some(&n) = list.get(chain.next) else { continue };
        let Some(item) = prepared.items.get(n as usize) else { continue };
        let at = begin(fixes, item, chain);
        if best.is_none_or(|b| at < b.0) {
            best = Some((at, c, n as usize));
        }
    }
    best.map(|(_, c, n)| (c, n))
}

/// Time of the host's own, ns.
fn host_time(fixes: Fixes, ns: u64) -> u64 {
    match fixes.has(Fix::FasterHost) {
        true => ns.saturating_mul(PROFILER_SLOWS.1) / PROFILER_SLOWS.0,
        false => ns,
    }
}

/// When a call begins.
fn begin(fixes: Fixes, item: &Item, chain: &Chain) -> u64 {
    let shrinks = fixes.has(if item.fetch { Fix::Input } else { Fix::Host });
    let mut think = if shrinks { item.shrunk } else { item.think };
    if item.think <= CAPTURABLE_NS {
        // a profiler pays for each operator: what is too long to be dispatch is not its doing
        think = host_time(fixes, think);
    }
    let dispatch = !item.long || item.think <= CAPTURABLE_NS;
    if dispatch && item.role == Role::Launch && fixes.has(Fix::Launch) {
        think = 0;
    }
    let ready = if item.overlaps { chain.began + think } else { chain.ended + think };
    match item.pace {
        // asking earlier does not bring the batch earlier
        Some(pace) if pace > 0 && !fixes.has(Fix::Input) => ready.max(chain.batch + pace),
        _ => ready,
    }
}

struct Playing<'a> {
    prepared: &'a Prepared,
    fixes: Fixes,
    starts: Vec<u64>,
    ends: Vec<u64>,
    streams: Vec<u64>,
    launched: usize,
    last: u64,
    bound_copy: u64,
    bound_comm: u64,
}

impl Playing<'_> {
    fn item(&mut self, n: usize, chain: &mut Chain) {
        let prepared = self.prepared;
        let Some(item) = prepared.items.get(n) else { return };
        let began = begin(self.fixes, item, chain);
        let mut own = host_time(self.fixes, item.own);
        let launch = item.role == Role::Launch;
        if launch && self.fixes.has(Fix::Launch) {
            // no graph spans a call whose value the host needs: behind it, one launch begins the next
            own = if chain.fresh { own.min(LAUNCH_NS) } else { 0 };
        }
        let to = prepared.items.get(n + 1).map_or(prepared.works.len(), |i| i.first_op as usize);
        let mut held = 0;
        for w in item.first_op as usize..to {
            if let Some(work) = prepared.works.get(w) {
                self.work(w, work, began, chain.fresh);
                self.launched = w;
            }
        }
        if launch && to > item.first_op as usize && to - (item.first_op as usize) < 8 {
            if let Some(first) = (item.first_op as usize).checked_sub(LAUNCH_QUEUE) {
                held = self.starts.get(first).copied().unwrap_or(0);
            }
        }
        let skipped = match item.role {
            Role::Sync => self.fixes.has(Fix::Sync),
            Role::Copy => self.fixes.has(Fix::Copy),
            Role::Alloc => self.fixes.has(Fix::Alloc),
            Role::Launch => false,
        };
        let ended = if skipped {
            began + own.min(CALL_NS)
        } else {
            let waited = match item.wait {
                NONE => 0,
                w => self.ends.get(w as usize).map_or(0, |e| e + u64::from(item.back)),
            };
            (began + own).max(waited).max(held)
        };
        chain.fresh = if launch { false } else { chain.fresh || (!skipped && item.wait != NONE) };
        chain.began = began;
        if item.pace.is_some() {
            chain.batch = began;
        }
        chain.ended = chain.ended.max(ended);
        self.last = self.last.max(ended);
    }

    fn work(&mut self, n: usize, w: &Work, began: u64, fresh: bool) {
        let mut duration = w.duration;
        let mut spacing = i64::from(w.spacing);
        let mut latency = host_time(self.fixes, u64::from(w.latency));
        if w.big_copy && self.fixes.has(Fix::Copy) {
            // on a stream of its own, a step ahead: nobody waits for it, the link must carry all of them
            self.bound_copy += u64::from(w.pinned);
            if let (Some(s), Some(e)) = (self.starts.get_mut(n), self.ends.get_mut(n)) {
                (*s, *e) = (began, began);
            }
            return;
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
        if self.fixes.has(Fix::Launch) && !fresh {
            latency = 0;
        }
        let Some(stream) = self.streams.get_mut(usize::from(w.stream)) else { return };
        let free = if *stream == 0 { 0 } else { stream.saturating_add_signed(spacing) };
        let mut start = (began + latency).max(free);
        if w.edge != NONE && !self.fixes.has(Fix::DeviceWait) {
            let edge = self.ends.get(w.edge as usize).copied().unwrap_or(0);
            start = start.max(edge + u64::from(w.edge_spacing));
        }
        let end = start + duration;
        *stream = (*stream).max(end);
        self.last = self.last.max(end);
        if let (Some(s), Some(e)) = (self.starts.get_mut(n), self.ends.get_mut(n)) {
            *s = start;
            *e = end;
        }
    }
}

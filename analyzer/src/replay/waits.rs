// SPDX-License-Identifier: Apache-2.0
//! What calls waited for: the edges from the device back to the host.

use trace::call::Class;

use super::prepare::{clamp32, op, Placed, Prepared, Role};
use super::{AHEAD_NS, CALL_NS, LAUNCH_NS, NODE_NS};
use crate::gaps::HostView;
use crate::run::{Device, Run, NONE};

impl Prepared {
    /// What synchronizing, allocating and copying calls waited for.
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

    /// A launch made far ahead of the device may have stood because a queue was full (1,024 kernels, or the driver's
    /// own limit of graph launches): it must not stand a second time in the model. Its own time does not matter to
    /// what was measured, since the device was busy with earlier work.
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

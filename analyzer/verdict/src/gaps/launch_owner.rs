// SPDX-License-Identifier: Apache-2.0
//! Which device a call that held its thread was about, where a recording holds several: a wait for
//! one GPU does not keep the host from launching to another, unless the same thread launches there
//! too.
//!
//! A thread's waits are about the devices it launches to at that time, from its first launch there
//! to its last. A call outside of that (a thread that only waits) is about the device that let it
//! return: the one that fell idle last before it did.

use std::collections::HashMap;

use trace::call::Class;

use super::aside::aside;
use crate::run::{Call, Run, Span, NONE};

/// What each thread launches to, and what the calls outside of it waited for.
#[derive(Clone, Debug, Default)]
pub struct LaunchOwner {
    /// Fewer than two devices: all of it is about the one.
    alone: bool,
    /// By thread: index of a device, and the host's time from the first launch to it to the last.
    uses: Vec<Vec<(usize, Span)>>,
    /// By flat number, for holding calls outside of those times: index of the device.
    others: HashMap<u32, usize>,
    /// See [`LaunchOwner::is_aside`].
    aside: Vec<bool>,
}

impl LaunchOwner {
    /// Looks at all operations once, and sorts their ends where some call needs it.
    pub fn new(run: &Run) -> LaunchOwner {
        let (uses, aside) = (vec![Vec::new(); run.threads.len()], aside(run));
        let mut whose = LaunchOwner { uses, aside, ..LaunchOwner::default() };
        for (d, device) in run.devices.iter().enumerate() {
            for s in &device.streams {
                let mut last = NONE;
                for op in s.ops.iter().filter(|o| std::mem::replace(&mut last, o.call) != o.call) {
                    let Some((t, c)) = run.call(op.call) else { continue };
                    if let Some(uses) = whose.uses.get_mut(t) {
                        extend(uses, d, c.start);
                    }
                }
            }
        }
        whose.alone = run.devices.len() < 2;
        if !whose.alone {
            whose.find_others(run);
        }
        whose
    }

    /// Does this thread only do something small beside the program's work ([`mod@super::aside`])?
    pub(super) fn is_aside(&self, thread: usize) -> bool {
        self.aside.get(thread) == Some(&true)
    }

    fn find_others(&mut self, run: &Run) {
        let mut open: Vec<(u32, u64)> = Vec::new();
        for (t, thread) in run.threads.iter().enumerate() {
            let holds = |c: &Call| matches!(c.class, Some(Class::Sync | Class::Alloc | Class::Free));
            for (i, c) in thread.calls.iter().enumerate().filter(|(_, c)| holds(c)) {
                if self.used_at(t, c.start).next().is_none() {
                    open.push((run.flat(t, i), c.end));
                }
            }
        }
        if open.is_empty() {
            return;
        }
        let ends: Vec<Vec<u64>> = run
            .devices
            .iter()
            .map(|d| {
                let mut ends: Vec<u64> = d.streams.iter().flat_map(|s| &s.ops).map(|o| o.end).collect();
                ends.sort_unstable();
                ends
            })
            .collect();
        for (flat, end) in open {
            let before = |ends: &Vec<u64>| {
                ends.partition_point(|&e| e <= end).checked_sub(1).and_then(|i| ends.get(i).copied())
            };
            let latest = ends.iter().enumerate().filter_map(|(d, ends)| Some((before(ends)?, d))).max();
            if let Some((_, d)) = latest {
                self.others.insert(flat, d);
            }
        }
    }

    fn used_at(&self, thread: usize, at: u64) -> impl Iterator<Item = usize> + '_ {
        let uses = self.uses.get(thread).map_or(&[][..], Vec::as_slice);
        uses.iter().filter(move |u| u.1.start <= at && at <= u.1.end).map(|u| u.0)
    }

    /// Whether a thread launches to any device at all.
    pub fn launches(&self, thread: usize) -> bool {
        self.uses.get(thread).is_some_and(|u| !u.is_empty())
    }

    /// Whether this call, which held its thread, is about the device of this index. One that came
    /// before anything ran is about any.
    pub fn concerns(&self, device: usize, thread: usize, flat: u32, call: &Call) -> bool {
        let mut used = self.used_at(thread, call.start).peekable();
        match used.peek() {
            _ if self.alone => true,
            Some(_) => used.any(|d| d == device),
            None => self.others.get(&flat).is_none_or(|&d| d == device),
        }
    }
}

/// A launch to a device at `at`.
fn extend(uses: &mut Vec<(usize, Span)>, device: usize, at: u64) {
    match uses.iter_mut().find(|u| u.0 == device) {
        Some((_, span)) => (span.start, span.end) = (span.start.min(at), span.end.max(at)),
        None => uses.push((device, Span::new(at, at))),
    }
}

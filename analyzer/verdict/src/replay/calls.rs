// SPDX-License-Identifier: Apache-2.0
//! The host's side of a recording: calls -> items, each with the host's own time before it. What
//! was not observed is not replayed: the time before it and behind it lies side by side.

use super::prepare::{takes_part, Item, Prepared, Role};
use crate::gaps::HostView;
use crate::run::merge::Merge;
use crate::run::{Call, Run, Span, NONE};
use crate::timeline::Observed;

impl Prepared {
    /// Items from the calls in the window, and from those up to `end` that wait for what was
    /// launched in it; returns their flat numbers.
    pub(super) fn take_calls(
        &mut self,
        run: &Run,
        host: &HostView,
        window: Span,
        end: u64,
        item_of: &mut [u32],
    ) -> Vec<u32> {
        let chains = chains(run, host);
        self.chains = 1 + chains.iter().copied().max().unwrap_or(0) as usize;
        let lists: Vec<&[Call]> =
            host.threads.iter().filter_map(|&t| run.threads.get(t)).map(|t| t.calls.as_slice()).collect();
        let observed = Observed::of(run);
        let mut last: Vec<(u64, u64)> = vec![(0, 0); self.chains]; // begin of the item before, latest end
        let mut flats = Vec::new();
        let mut batch: Vec<Option<u64>> = vec![None; self.chains]; // when the batch before had come
        for (list, i, c) in Merge::new(lists, |c: &Call| c.start) {
            let Some(role) = takes_part(c) else { continue };
            if c.start > window.end && (role == Role::Launch || c.start > end) {
                break; // the next step's launches, made ahead
            }
            let flat = host.threads.get(list).map_or(NONE, |&t| run.flat(t, i));
            let chain = chains.get(list).copied().unwrap_or(0);
            let Some(before) = last.get_mut(usize::from(chain)) else { continue };
            if c.start < window.start {
                *before = (c.start, before.1.max(c.end));
                continue;
            }
            if before.1 == 0 {
                *before = (window.start, window.start);
            }
            let overlaps = c.start < before.1;
            let think = observed.measure(Span::new(if overlaps { before.0 } else { before.1 }, c.start));
            *before = (c.start, before.1.max(c.end));
            if let Some(slot) = item_of.get_mut(flat as usize) {
                *slot = self.items.len() as u32;
            }
            flats.push(flat);
            let waited =
                role == Role::Launch && host.fetching.paced && host.is_long(flat) && host.is_fetch(flat);
            let pace = waited.then(|| {
                let before = batch.get_mut(usize::from(chain)).and_then(|b| b.replace(c.start));
                before.map_or(0, |b| c.start.saturating_sub(b))
            });
            self.items.push(Item {
                pace,
                think,
                shrunk: think,
                own: observed.measure(c.span()),
                wait: NONE,
                back: 0,
                first_op: 0,
                call: flat,
                chain,
                role,
                whole_device: role == Role::Alloc || (role == Role::Sync && is_device_wide(run.call_name(c))),
                for_host: false,
                stays: false,
                values: false,
                staged: false,
                stands: false,
                again: false,
                with_stretch: false,
                first_of_step: false,
                overlaps,
                long: host.is_long(flat),
                fetch: host.is_fetch(flat),
            });
        }
        self.forget_pauses(run, window);
        self.shrink_stretches(host.usual);
        flats
    }

    /// A thread's first item comes when it came after the window's begin. What lay before it may be
    /// seconds of loading, compiling or of another thread's turn (a pool of XLA's fetches a JAX
    /// program's results: one thread paused 18 s in front of the steps), and played it would be
    /// time between this item and the thread's last.
    fn forget_pauses(&mut self, run: &Run, window: Span) {
        let mut seen = vec![false; self.chains];
        for (n, item) in self.items.iter_mut().enumerate() {
            let Some(seen) = seen.get_mut(usize::from(item.chain)) else { continue };
            if !std::mem::replace(seen, true) && n > 0 {
                let start = run.call(item.call).map_or(0, |(_, c)| c.start);
                item.think = item.think.min(start.saturating_sub(window.start));
                item.shrunk = item.think;
            }
        }
    }

    /// What is left of each item's time once the host does nothing but launch. A stretch goes from
    /// launch to launch; calls between them (a synchronize, an allocation) cut it into pieces, and
    /// all of them are the stretch: host work that stands in front of a wait is host work. Each
    /// piece keeps the same part of its length.
    fn shrink_stretches(&mut self, usual: u64) {
        let mut pieces: Vec<Vec<usize>> = vec![Vec::new(); self.chains];
        for n in 0..self.items.len() {
            let Some(item) = self.items.get(n) else { continue };
            let (launch, long, fetch) = (item.role == Role::Launch, item.long, item.fetch);
            let Some(stretch) = pieces.get_mut(usize::from(item.chain)) else { continue };
            if !item.overlaps {
                stretch.push(n);
            }
            if !launch {
                continue;
            }
            let whole: u64 = stretch.iter().filter_map(|&n| self.items.get(n)).map(|i| i.think).sum();
            if let Some(seen) = self.stretches.get_mut(usize::from(fetch)).filter(|_| long) {
                *seen = (seen.0 + 1, seen.1.max(whole));
            }
            for n in stretch.drain(..).filter(|_| long && whole > usual) {
                if let Some(piece) = self.items.get_mut(n) {
                    piece.shrunk = (u128::from(piece.think) * u128::from(usual) / u128::from(whole)) as u64;
                    piece.fetch = fetch;
                }
            }
        }
    }
}

/// Does a synchronizing call of this name wait for all streams?
fn is_device_wide(name: &str) -> bool {
    // CUDA's and HIP's; behind the name a version may stand
    let calls = ["DeviceSynchronize", "ThreadSynchronize", "CtxSynchronize"];
    ["cuda", "cu", "hip", "syn"].iter().any(|runtime| {
        name.strip_prefix(runtime).is_some_and(|call| calls.iter().any(|c| call.starts_with(c)))
    })
}

/// Which host chain each launching thread belongs to. Threads that launch kernels hand over to each
/// other: one chain. A thread that only copies (a prefetcher) runs on its own. One without Python
/// beside threads that run it is a library's, and copies when one of those asks for it (XLA's pool
/// does so for a JAX program): it belongs to their chain, and the time before its copies is theirs.
fn chains(run: &Run, host: &HostView) -> Vec<u16> {
    let mut next = 0;
    let runs_python = |t: usize| {
        run.threads.get(t).is_some_and(|t| {
            t.samples.iter().any(|s| s.stack != 0) || t.calls.iter().any(|c| run.python_stack(c.site) != 0)
        })
    };
    let kernels = |t: usize| {
        run.threads
            .get(t)
            .is_some_and(|t| t.calls.iter().any(Call::is_launch) || !t.calls.iter().any(|c| c.launches()))
    };
    let python = host.threads.iter().any(|&t| kernels(t) && runs_python(t));
    host.threads
        .iter()
        .map(|&t| {
            if kernels(t) || (python && !runs_python(t)) {
                0
            } else {
                next = u16::min(next + 1, 63);
                next
            }
        })
        .collect()
}

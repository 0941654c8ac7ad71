// SPDX-License-Identifier: Apache-2.0
//! Waits for the device that no CUDA call shows: an array of JAX is read (`float(loss)`), a thread
//! of the runtime's own copies it to the host, and the program's thread is blocked until that has
//! ended.
//!
//! Recorded on an H200 (JAX 0.11): the Python thread makes no call for 2.1 ms, a pool's thread
//! makes the copy near the end of them. Samples show the first one blocked below
//! `jax/_src/array.py`; they are 10 ms apart, steps shorter: so gaps between two calls in which a
//! small copy to the host ended vote together by what is launched behind them. Where most of the
//! samples in such gaps are blocked reading an array, each of these gaps is a call that waits,
//! until its copy had ended; and the copy is part of that wait, no launch of its own.

use std::collections::{HashMap, HashSet};

use trace::call::Class;
use trace::event::FROM_RECORD;
use trace::{Definition, Kind};

use crate::gaps::sample_index::ALL_OF_IT;
use crate::gaps::sample_index::LEAST_SAMPLES;
use crate::gaps::SMALL_COPY_BYTES;
use crate::run::{Call, Op, Run, Sample, Span, Thread, NAMED_CALL};
use crate::sites::activity::stands_on_futex;
use crate::sites::frames::Frames;

/// What such a wait is called where a CUDA call has its name.
pub const NAME: &str = "reading an array (no CUDA call)";
/// First id tried for that name, above those of recordings and within what a call's number holds.
const NAME_ID: u32 = 0xf0_0000;
/// No thread goes on sooner after what it waited for has ended, ns.
const WAKES_NS: u64 = 5_000;

/// A gap between two calls of a thread in which a copy to the host ended.
struct Gap {
    /// From the end of the call before to when the copy had ended and the thread was awake.
    span: Span,
    /// Correlation of the call behind it, and what that launched (0: nothing that is known).
    next: u32,
    launched: u64,
}

/// What samples in gaps say.
#[derive(Default)]
struct Votes {
    all: u32,
    reading: u32,
    stacks: HashMap<u32, u32>,
}

/// Adds a call for each such wait; calls are sorted by thread already, and not numbered yet.
pub(crate) fn find(run: &mut Run) {
    let reads = arrays_read(run);
    if !reads.is_empty() {
        let copies = copies_to_host(run);
        let found: Vec<(usize, Vec<Call>)> = run
            .threads
            .iter()
            .enumerate()
            .map(|(t, thread)| (t, waits(run, thread, &reads, &copies)))
            .filter(|f| !f.1.is_empty())
            .collect();
        if !found.is_empty() {
            let packed = name(run);
            for (t, calls) in found {
                let Some(thread) = run.threads.get_mut(t) else { continue };
                thread.calls.extend(calls.into_iter().map(|c| Call { packed, ..c }));
                thread.calls.sort_by_key(|c| (c.start, c.end));
            }
        }
    }
}

/// Stacks below which an array is read.
fn arrays_read(run: &Run) -> HashSet<u32> {
    let stacks: HashSet<u32> =
        run.threads.iter().flat_map(|t| &t.samples).map(|s| s.stack).filter(|s| *s != 0).collect();
    stacks.into_iter().filter(|&s| Frames::of(run, s) == Frames::Array).collect()
}

fn is_small_copy_to_host(op: &Op) -> bool {
    op.is_copy_to_host() && op.bytes() <= SMALL_COPY_BYTES
}

/// Ends of small copies to the host, sorted.
fn copies_to_host(run: &Run) -> Vec<u64> {
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let mut ends: Vec<u64> = ops.filter(|o| is_small_copy_to_host(o)).map(|o| o.end).collect();
    ends.sort_unstable();
    ends
}

fn waits(run: &Run, thread: &Thread, reads: &HashSet<u32>, copies: &[u64]) -> Vec<Call> {
    let is_reading = |s: &Sample| reads.contains(&s.stack) && stands_on_futex(s);
    if !thread.samples.iter().any(is_reading) {
        return Vec::new();
    }
    let mut gaps = gaps(thread, copies);
    name_launches(run, &mut gaps);
    let mut votes: HashMap<u64, Votes> = HashMap::new();
    for sample in &thread.samples {
        let at = sample.span.end;
        let next = gaps.partition_point(|g| g.span.end <= at);
        let Some(gap) = gaps.get(next).filter(|g| g.span.start <= at) else { continue };
        let vote = votes.entry(gap.launched).or_default();
        vote.all += 1;
        if is_reading(sample) {
            vote.reading += 1;
            *vote.stacks.entry(sample.stack).or_default() += 1;
        }
    }
    let wait = |gap: &Gap| {
        let vote = votes.get(&gap.launched)?;
        if vote.reading < LEAST_SAMPLES || vote.reading * 2 < vote.all {
            return None;
        }
        let part = f64::from(vote.reading) / f64::from(vote.all);
        let ns = if part >= ALL_OF_IT { gap.span.ns() } else { (gap.span.ns() as f64 * part) as u64 };
        let site = vote.stacks.iter().max_by_key(|s| (*s.1, u32::MAX - s.0)).map_or(0, |s| *s.0);
        Some(Call {
            start: gap.span.end - ns,
            end: gap.span.end,
            correlation: 0,
            packed: 0,
            result: 0,
            site,
            class: Some(Class::Sync),
            flags: FROM_RECORD,
        })
    };
    gaps.iter().filter_map(wait).collect()
}

fn gaps(thread: &Thread, copies: &[u64]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut reached = 0;
    for c in &thread.calls {
        if c.start > reached && reached > 0 {
            let to = copies.partition_point(|&end| end < c.start);
            let last = to.checked_sub(1).and_then(|n| copies.get(n));
            if let Some(&end) = last.filter(|&&end| end > reached) {
                let back = c.start.min(end + WAKES_NS);
                gaps.push(Gap { span: Span::new(reached, back), next: c.correlation, launched: 0 });
            }
        }
        reached = reached.max(c.end);
    }
    gaps
}

/// By correlation: ops have no calls yet. An id that came again stands for the kernel of its last
/// use, and votes apart.
fn name_launches(run: &Run, gaps: &mut [Gap]) {
    let wanted: HashSet<u32> = gaps.iter().map(|g| g.next).filter(|n| *n != 0).collect();
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let kernels: HashMap<u32, u64> = ops
        .filter(|o| wanted.contains(&o.correlation))
        .map(|o| {
            (o.correlation, (o.kind as u64) << 32 | u64::from(if o.kind == Kind::Kernel { o.a } else { 0 }))
        })
        .collect();
    for gap in gaps {
        gap.launched = kernels.get(&gap.next).copied().unwrap_or(0);
    }
}

/// The number of a call of that name.
fn name(run: &mut Run) -> u32 {
    let free = (NAME_ID..1 << 24).find(|&id| run.definitions.string(id).is_none_or(|s| s == NAME));
    let id = free.unwrap_or(NAME_ID);
    run.definitions.insert(id, Definition::String(NAME.as_bytes()));
    NAMED_CALL | id
}

/// Copies that another thread made within such a wait are made for it: they launch nothing. For
/// runs whose ops are joined.
pub(crate) fn take_copies(run: &mut Run) {
    let mut spans: Vec<Span> = Vec::new();
    for t in &run.threads {
        let waits =
            t.calls.iter().filter(|c| c.packed & NAMED_CALL == NAMED_CALL && run.call_name(c) == NAME);
        spans.extend(waits.map(|c| c.span()));
    }
    if spans.is_empty() {
        return;
    }
    spans.sort_unstable();
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let small: HashSet<u32> = ops.filter(|o| is_small_copy_to_host(o)).map(|o| o.correlation).collect();
    for c in run.threads.iter_mut().flat_map(|t| &mut t.calls) {
        if c.class != Some(Class::Copy) || !small.contains(&c.correlation) {
            continue;
        }
        let next = spans.partition_point(|s| s.end < c.start);
        if spans.get(next).is_some_and(|s| s.start <= c.start) {
            c.class = None;
        }
    }
}

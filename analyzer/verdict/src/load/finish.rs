// SPDX-License-Identifier: Apache-2.0
//! What is done once every event is there: lists are sorted, ops joined to their launching calls.

use std::collections::HashMap;

use trace::call::Class;
use trace::event::FROM_RECORD;

use super::{array_waits, autograd, captured, clock_drift, damaged_calls};
use crate::gaps::pauses;
use crate::run::{Call, Range, Run, Thread, CLOCK_SLACK_NS, NONE};

/// Records of shorter synchronizations are not made into calls, ns.
const SHORTEST_WAIT_NS: u64 = 1_000;

/// Sorts everything and joins ops to calls.
pub fn finish(run: &mut Run) {
    run.devices.sort_by_key(|d| d.ordinal);
    for d in &mut run.devices {
        d.info = run.definitions.device(d.ordinal).copied().unwrap_or_default();
        d.streams.sort_by_key(|s| (s.context, s.stream));
        for s in &mut d.streams {
            sort(&mut s.ops, |o| (o.start, o.end));
        }
    }
    run.waits.sort_by_key(|w| w.span);
    take_unseen_waits(run);
    qualify(run);
    run.threads.sort_by_key(|t| t.tid);
    for t in &mut run.threads {
        sort(&mut t.calls, |c| (c.start, c.end));
        if t.ranges.iter().any(Range::is_moment) {
            let (moments, ranges) = std::mem::take(&mut t.ranges).into_iter().partition(Range::is_moment);
            (t.moments, t.ranges) = (moments, ranges);
        }
        t.ranges.sort_by_key(|r| (r.span.start, r.depth));
        t.moments.sort_by_key(|m| m.span);
        t.marks.sort_by_key(|m| m.span);
        t.samples.sort_by_key(|s| s.span);
    }
    if run.foreign {
        autograd::tell_by_ranges(run);
    } else {
        damaged_calls::cut(run);
    }
    array_waits::find(run);
    let mut base = 0u32;
    run.call_base.push(0);
    for t in &run.threads {
        base = base.saturating_add(t.calls.len() as u32);
        run.call_base.push(base);
    }
    run.clocks.push((run.header.start_monotonic, run.header.start_realtime));
    run.clocks.retain(|c| c.1 != 0);
    run.clocks.sort_unstable();
    run.clocks.dedup();
    run.children.sort_by_key(|c| c.span);
    run.child_samples.sort_by_key(|s| s.span);
    run.readings.sort_by_key(|r| r.span);
    run.blind.sort_by_key(|b| b.span);
    run.loss_marks.sort_by_key(|m| m.span);
    pauses::set_apart(run);
    join(run);
    captured::find(run);
    if !run.foreign {
        clock_drift::mark(run);
    }
    array_waits::take_copies(run);
}

/// Ranges of an NVTX domain are called as nsys calls them, `domain:name`: so they are in every
/// table and text, and are never taken for a range of the program's own that has the same name.
fn qualify(run: &mut Run) {
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    let mut next = QUALIFIED;
    let definitions = &mut run.definitions;
    for r in run.threads.iter_mut().flat_map(|t| &mut t.ranges).filter(|r| r.domain != 0) {
        r.name = *known.entry((r.domain, r.name)).or_insert_with(|| {
            let domain = definitions.string(r.domain).filter(|d| !d.is_empty());
            let Some(domain) = domain else { return r.name };
            let name = format!("{domain}:{}", definitions.string(r.name).unwrap_or(""));
            while definitions.string(next).is_some() {
                next += 1;
            }
            definitions.insert(next, trace::Definition::String(name.as_bytes()));
            next
        });
    }
}

/// Ids of names that we make, above those of recordings.
const QUALIFIED: u32 = 1 << 31;

/// Sorts what is usually sorted already: the library's sort takes memory for half of the list
/// before it looks.
fn sort<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    if !list.is_sorted_by_key(&key) {
        list.sort_by_key(key);
    }
}

/// Synchronizations that only CUPTI's own records show (the subscription was given up, or never
/// had) become calls of thread 0: a record names no thread.
fn take_unseen_waits(run: &mut Run) {
    if run.waits.is_empty() {
        return;
    }
    let mut seen: Vec<u32> =
        run.threads.iter().flat_map(|t| &t.calls).filter(|c| !c.is_launch()).map(|c| c.correlation).collect();
    seen.sort_unstable();
    let mut calls = Vec::new();
    for w in &run.waits {
        let id = match w.what {
            1 => 137,
            3 => 131,
            4 => 165,
            _ => continue,
        };
        if w.span.ns() >= SHORTEST_WAIT_NS && seen.binary_search(&w.correlation).is_err() {
            calls.push(Call {
                start: w.span.start,
                end: w.span.end,
                correlation: w.correlation,
                packed: trace::call::pack(trace::call::RUNTIME, id),
                result: 0,
                site: 0,
                class: Some(Class::Sync),
                flags: FROM_RECORD,
            });
        }
    }
    if calls.is_empty() {
        return;
    }
    match run.threads.iter_mut().find(|t| t.tid == 0) {
        Some(t) => t.calls.append(&mut calls),
        None => run.threads.push(Thread { calls, ..Thread::default() }),
    }
}

/// A launching call, as small as it can be: there is one for every op.
#[derive(Clone, Copy)]
struct Launch {
    correlation: u32,
    flat: u32,
}

/// Gives each op its launching call: same correlation id, the latest begin not after the op (the id
/// is 32 bits and wraps, so the time decides between equal ids).
fn join(run: &mut Run) {
    let launching = |c: &Call| c.correlation != 0 && c.launches();
    let count = run.threads.iter().flat_map(|t| &t.calls).filter(|c| launching(c)).count();
    let mut launches: Vec<Launch> = Vec::new();
    launches.reserve_exact(count);
    for (t, &base) in run.threads.iter().zip(&run.call_base) {
        for (i, c) in t.calls.iter().enumerate().filter(|(_, c)| launching(c)) {
            launches.push(Launch { correlation: c.correlation, flat: base.saturating_add(i as u32) });
        }
    }
    let (devices, run_threads, base) = (&mut run.devices, &run.threads, &run.call_base);
    let start = |l: &Launch| {
        let thread = base.partition_point(|&b| b <= l.flat).checked_sub(1);
        let call = thread.and_then(|t| run_threads.get(t)?.calls.get((l.flat - base.get(t)?) as usize));
        call.map_or(0, |c| c.start)
    };
    sort(&mut launches, |l| (l.correlation, l.flat));
    // by begin within the few that share an id: flat numbers rise with time within a thread alone
    for same in launches.chunk_by_mut(|a, b| a.correlation == b.correlation) {
        if same.len() > 1 {
            same.sort_by_key(start);
        }
    }
    let mut unjoined = 0;
    for s in devices.iter_mut().flat_map(|d| &mut d.streams) {
        let mut cursor = 0;
        for op in &mut s.ops {
            op.call = find_call(&launches, &mut cursor, op.correlation, op.start, start).unwrap_or(NONE);
            unjoined += u64::from(op.call == NONE);
        }
    }
    run.unjoined = unjoined;
}

fn find_call(
    launches: &[Launch],
    cursor: &mut usize,
    correlation: u32,
    at: u64,
    start: impl Fn(&Launch) -> u64,
) -> Option<u32> {
    if correlation == 0 {
        return None;
    }
    // ops of a stream come in rising correlation: look a little ahead before searching
    let ahead =
        launches.get(*cursor..).unwrap_or(&[]).iter().take(8).position(|l| l.correlation == correlation);
    let first = |at: usize| {
        at.checked_sub(1).and_then(|b| launches.get(b)).is_none_or(|l| l.correlation != correlation)
    };
    let from = match ahead {
        Some(n) if first(*cursor + n) => *cursor + n,
        _ => launches.partition_point(|l| l.correlation < correlation),
    };
    let rest = launches.get(from..)?;
    // mostly one alone
    let count = match rest.get(1) {
        Some(l) if l.correlation == correlation => rest.partition_point(|l| l.correlation == correlation),
        _ => usize::from(rest.first()?.correlation == correlation),
    };
    let limit = at.saturating_add(CLOCK_SLACK_NS);
    let n = rest.get(..count)?.partition_point(|l| start(l) <= limit).checked_sub(1)?;
    let best = rest.get(n)?;
    *cursor = from + n;
    Some(best.flat)
}

// SPDX-License-Identifier: Apache-2.0
//! CUPTI's clock behind another profiler: it converts the GPU's time to the host's by what it
//! measures now and then, and begins anew where another client has registered its clock and we
//! register ours again. Seen behind torch.profiler (H100 and H200, CUPTI 13.0, 2026-11-26,
//! `gpu-check --only neighbours:torch_long`): in about every second case the GPU's times run away
//! from the host's by 25 to 110 us, earlier or later, for up to 1.5 s, and are right again from one
//! moment to the next. What lies there says nothing of launches: it is not observed.

use trace::event::Unobserved;

use crate::run::{Run, Span, UnobservedSpan};

/// So long at most after another profiler has given CUPTI back, ns: twice what was seen.
const SETTLES: u64 = 3_000_000_000;
/// What is looked at before that, ns, for how soon after its launch an operation begins where
/// nothing is in its way.
const BEFORE: u64 = 1_000_000_000;
/// Of each so many ns the operation that begins soonest after its launch.
const SLICE: u64 = 50_000_000;
/// Usually 4 to 6 us where a host is the limit; where the soonest takes longer than this, ns,
/// something always is in the way and nothing can be told.
const SOON: i64 = 20_000;
/// So much later than usual is the clock's, ns; much later than that is a queue before it.
const LATER: (i64, i64) = (10_000, 100_000);
/// Usual is what so many tenths of the slices are at most: where fewer have an operation that
/// nothing is in the way of, nothing can be told.
const USUAL: usize = 9;

/// Fewer slices than these tell nothing: of what is usual, of a clock that runs away.
const LEAST: (usize, usize) = (5, 3);

/// Marks what lies there as unobserved.
pub(crate) fn mark(run: &mut Run) {
    let away: Vec<Span> =
        run.blind.iter().filter(|b| b.reason == Unobserved::Yielded as u32).map(|b| b.span).collect();
    let mut found: Vec<UnobservedSpan> = Vec::new();
    let (mut usual, mut right_from) = (None, 0);
    for (n, span) in away.iter().enumerate() {
        let next = away.get(n + 1).map_or(u64::MAX, |s| s.start);
        // (not what a wrong clock gave behind the one before)
        let before = Span::new(span.start.saturating_sub(BEFORE).max(right_from).min(span.start), span.start);
        usual = usually(soonest(run, before)).or(usual);
        let until = Span::new(span.end, span.end.saturating_add(SETTLES).min(next).max(span.end));
        let is_later = |ns: i64, usual: i64| (usual + LATER.0..usual + LATER.1).contains(&ns);
        let is_wrong = |ns: i64| ns < 0 || usual.is_some_and(|usual| is_later(ns, usual));
        right_from = span.end;
        let wrong: Vec<u64> =
            soonest(run, until).into_iter().filter(|s| is_wrong(s.1)).map(|s| s.0).collect();
        if let Some(at) = wrong.last().filter(|_| wrong.len() >= LEAST.1) {
            let end = (at + SLICE).min(until.end);
            right_from = end;
            found.push(UnobservedSpan { span: Span::new(span.end, end), reason: Unobserved::Clock as u32 });
        }
    }
    run.blind.extend(found);
    run.blind.sort_by_key(|b| b.span);
}

/// Begins of the slices of a span in which operations begin, and how soon the soonest of each does
/// after its launch began, ns.
fn soonest(run: &Run, span: Span) -> Vec<(u64, i64)> {
    let mut slices = vec![None::<i64>; span.ns().min(SETTLES).div_ceil(SLICE) as usize];
    for stream in run.devices.iter().flat_map(|d| &d.streams) {
        let first = stream.ops.partition_point(|o| o.start < span.start);
        for op in stream.ops.iter().skip(first).take_while(|o| o.start < span.end) {
            let Some((_, call)) = run.call(op.call) else { continue };
            let after = op.start as i64 - call.start as i64;
            if let Some(slice) = slices.get_mut(((op.start - span.start) / SLICE) as usize) {
                *slice = Some(slice.map_or(after, |least| least.min(after)));
            }
        }
    }
    let begins = (0..).map(|n| span.start + n * SLICE);
    begins.zip(slices).filter_map(|(at, least)| Some((at, least?))).collect()
}

/// How soon operations begin at most, but for a tenth of the slices; `None` where that is not soon.
fn usually(slices: Vec<(u64, i64)>) -> Option<i64> {
    let mut all: Vec<i64> = slices.into_iter().map(|s| s.1).collect();
    all.sort_unstable();
    let found = all.get(all.len() * USUAL / 10).filter(|_| all.len() >= LEAST.0);
    found.copied().filter(|ns| (0..=SOON).contains(ns))
}

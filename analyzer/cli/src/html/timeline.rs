// SPDX-License-Identifier: Apache-2.0
//! One step in detail: what each stream ran, which calls the launching threads made, why the device
//! was idle.
//!
//! Times are ns from the window's begin. A row's items are lists of numbers, to keep the page
//! small: begin, length, number of the name, kind, how many slices it stands for, time inside of
//! them.

use serde_json::{json, Value};
use trace::call::Class;
use verdict::analysis::IdleSlice;
use verdict::gaps::HostView;
use verdict::run::{Call, Span};
use verdict::timeline::class;

use super::drawn::{thin, Item};
use super::names::{clean, Texts};
use super::{buckets, series, Shown};
use crate::tables::steps::Part;

/// Items of all stream rows together at most, and of all host rows. Rows beyond these have one
/// each.
const MOST_OPS: usize = 4_000;
const MOST_CALLS: usize = 3_000;
/// Idle slices at most: the longest.
const MOST_SLICES: usize = 2_000;
/// Streams and threads at most: those with the most time in the window.
const MOST_ROWS: usize = 12;
/// Without steps: so many operations around the middle one.
const AROUND: usize = 2_000;

/// Kinds of calls, by number; the page colours by them.
const KINDS: [&str; 5] = ["launch", "copy", "blocking", "allocation", "other"];

/// The window and its rows; `null` where the device ran nothing.
pub(super) fn figures(shown: Shown<'_>, parts: &[Part]) -> Option<Value> {
    let drawn = series::drawn(shown, parts);
    let window = match &drawn {
        Some(drawn) => drawn.step.span,
        None => around_the_middle(shown)?,
    };
    let mut texts = Texts::default();
    let (streams, ops) = streams(shown, window, &mut texts);
    let (threads, calls) = threads(shown, window, &mut texts);
    let (idle, hidden, hidden_ns) = idle(shown, window, &mut texts);
    Some(json!({
        "step": drawn.as_ref().map(|d| d.step.number),
        "rare": drawn.and_then(|d| d.rare).map(|r| json!({"bucket": buckets::place(r.bucket), "steps": r.steps})),
        "length_ns": window.ns(),
        "from_ns": window.start.saturating_sub(shown.analysis.valid.start),
        "streams": streams,
        "streams_drawn_as_one_below_ns": ops.resolution,
        "streams_left_out": ops.left_out,
        "threads": threads,
        "threads_drawn_as_one_below_ns": calls.resolution,
        "threads_left_out": calls.left_out,
        "call_kinds": KINDS,
        "idle": idle,
        "idle_left_out": hidden,
        "idle_left_out_ns": hidden_ns,
        "names": texts.into_all(),
    }))
}

/// Without steps: the operations around the middle one in the order of their begins, over all
/// streams.
fn around_the_middle(shown: Shown<'_>) -> Option<Span> {
    let steady = shown.analysis.steady;
    let mut starts: Vec<u64> = shown.device.streams.iter().flat_map(|s| &s.ops).map(|o| o.start).collect();
    starts.retain(|&s| s >= steady.start && s < steady.end);
    starts.sort_unstable();
    let from = (starts.len() / 2).saturating_sub(AROUND / 2);
    let span = match starts.get(from + AROUND) {
        Some(&end) => Span::new(*starts.get(from)?, end),
        None => Span::new(*starts.get(from)?, steady.end),
    };
    (span.ns() > 0).then_some(span)
}

/// What of the rows is not as it was.
struct Less {
    resolution: u64,
    left_out: usize,
}

/// A row before it is written.
struct Row {
    name: String,
    items: Vec<Item>,
}

/// Rows with the most time in them, in their first order, thinned to `most` items.
fn written(mut rows: Vec<Row>, most: usize, window: Span) -> (Vec<Value>, Less) {
    rows.retain(|r| !r.items.is_empty());
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let time = |r: &Row| r.items.iter().map(|i| i.inside).fold(0, u64::saturating_add);
    order.sort_by_key(|&i| std::cmp::Reverse(rows.get(i).map_or(0, time)));
    order.truncate(MOST_ROWS);
    let left_out = rows.len() - order.len();
    let mut number = 0;
    rows.retain(|_| {
        number += 1;
        order.contains(&(number - 1))
    });
    let (names, items): (Vec<String>, Vec<Vec<Item>>) = rows.into_iter().map(|r| (r.name, r.items)).unzip();
    let counts: Vec<u64> = items.iter().map(|r| r.len() as u64).collect();
    let (items, resolution) = thin(items, most);
    let rows = names.into_iter().zip(items).zip(counts);
    let written = rows.map(|((name, items), count)| {
        let items: Vec<Value> = items
            .iter()
            .map(|i| {
                let start = i.span.start - window.start;
                json!([start, i.span.ns(), i.what.0, i.what.1, i.count, i.inside])
            })
            .collect();
        json!({"name": name, "count": count, "items": items})
    });
    (written.collect(), Less { resolution, left_out })
}

fn streams(shown: Shown<'_>, window: Span, texts: &mut Texts) -> (Vec<Value>, Less) {
    let rows = shown.device.streams.iter().map(|stream| {
        let ops = stream.ops.iter().filter(|o| o.start < window.end && o.end > window.start);
        let items = ops.map(|o| {
            let kind = buckets::place(class(o, shown.collectives));
            Item::new(o.span().clip(window), (texts.op(shown.run, o), kind))
        });
        Row { name: format!("stream {}", stream.stream), items: items.collect() }
    });
    written(rows.collect(), MOST_OPS, window)
}

fn threads(shown: Shown<'_>, window: Span, texts: &mut Texts) -> (Vec<Value>, Less) {
    let host = HostView::new(shown.run, shown.device);
    let threads = host.all_that_launch().filter_map(|t| shown.run.threads.get(t));
    let rows = threads.map(|thread| {
        let calls = thread.calls.iter().filter(|c| c.start < window.end && c.end > window.start);
        let items = calls.map(|c| {
            let name = texts.number(shown.run.call_name(c));
            Item::new(c.span().clip(window), (name, kind(c)))
        });
        let name = shown.run.definitions.string(thread.name).filter(|n| !n.is_empty());
        let tid = thread.tid.to_string();
        let name = match name {
            // torch.profiler's names hold the number: "thread 616 (python3)"
            Some(name) if name.contains(&tid) => clean(name),
            Some(name) => format!("thread {tid} ({})", clean(name)),
            None => format!("thread {tid}"),
        };
        Row { name, items: items.collect() }
    });
    written(rows.collect(), MOST_CALLS, window)
}

/// Place in [`KINDS`].
fn kind(call: &Call) -> usize {
    match call.class {
        Some(Class::Launch | Class::GraphLaunch | Class::Memset) => 0,
        Some(Class::Copy) => 1,
        Some(Class::Sync) => 2,
        Some(Class::Alloc | Class::Free) => 3,
        _ => 4,
    }
}

/// Begin, length, bucket, number of the blamed call's name or `null`; and how many are left out,
/// their time.
fn idle(shown: Shown<'_>, window: Span, texts: &mut Texts) -> (Vec<Value>, usize, u64) {
    let inside = |s: &&IdleSlice| s.start < window.end && s.end > window.start;
    let mut slices: Vec<&IdleSlice> = shown.found.slices.iter().filter(inside).collect();
    slices.sort_by_key(|s| std::cmp::Reverse(s.span().clip(window).ns()));
    let hidden = slices.split_off(slices.len().min(MOST_SLICES));
    let hidden_ns = hidden.iter().map(|s| s.span().clip(window).ns()).sum();
    slices.sort_by_key(|s| s.start);
    let written = slices.iter().map(|s| {
        let span = s.span().clip(window);
        let call = s.call().and_then(|c| shown.run.call(c));
        let call = call.map(|(_, c)| texts.number(shown.run.call_name(c)));
        json!([span.start - window.start, span.ns(), buckets::place(s.bucket), call])
    });
    (written.collect(), hidden.len(), hidden_ns)
}

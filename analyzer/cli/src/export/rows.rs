// SPDX-License-Identifier: Apache-2.0
//! One row an event: what the GPU did, what the host called, why the GPU was idle. How rows are
//! written: `csv.rs`, `parquet.rs`.

use std::collections::HashMap;

use trace::Kind;

use verdict::analysis::Analysis;
use verdict::output::chrome::document::first_time;
use verdict::run::{Op, Run};
use verdict::text::kernel_name::demangled;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// Names.
    Texts,
    /// Whole numbers.
    Numbers,
}

/// A column.
pub(super) struct Column {
    /// With the unit.
    pub(super) name: &'static str,
    pub(super) holds: Holds,
    /// Every kind of event has it.
    pub(super) always: bool,
}

const fn column(name: &'static str, holds: Holds, always: bool) -> Column {
    Column { name, holds, always }
}

/// The columns, in the order of [`EventRow::cells`].
pub(super) const COLUMNS: [Column; 10] = [
    column("kind", Holds::Texts, true),
    column("name", Holds::Texts, false),
    column("device", Holds::Numbers, false),
    column("stream", Holds::Numbers, false),
    column("thread", Holds::Numbers, false),
    column("start_ns", Holds::Numbers, true),
    column("duration_ns", Holds::Numbers, true),
    column("correlation", Holds::Numbers, false),
    column("bytes", Holds::Numbers, false),
    column("cause", Holds::Texts, false),
];

/// What stands in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cell<'a> {
    Nothing,
    Text(&'a str),
    Number(u64),
}

/// An event; what does not apply to its kind is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EventRow<'a> {
    /// kernel, copy, memset, graph, call, range, idle.
    pub(super) kind: &'static str,
    /// The kernel, call or range; of idle time the call that is blamed.
    pub(super) name: Option<&'a str>,
    /// Ordinal of the device.
    pub(super) device: Option<u64>,
    /// CUPTI's stream id.
    pub(super) stream: Option<u64>,
    /// Kernel thread id.
    pub(super) thread: Option<u64>,
    /// ns from the earliest event: the time of the Chrome trace.
    pub(super) start_ns: u64,
    /// ns.
    pub(super) duration_ns: u64,
    /// CUPTI's correlation id.
    pub(super) correlation: Option<u64>,
    /// Copied or set.
    pub(super) bytes: Option<u64>,
    /// Why the GPU was idle.
    pub(super) cause: Option<&'static str>,
}

impl<'a> EventRow<'a> {
    /// In the order of [`COLUMNS`].
    pub(super) fn cells(&self) -> [Cell<'a>; 10] {
        let text = |t: Option<&'a str>| t.map_or(Cell::Nothing, Cell::Text);
        let number = |n: Option<u64>| n.map_or(Cell::Nothing, Cell::Number);
        [
            Cell::Text(self.kind),
            text(self.name),
            number(self.device),
            number(self.stream),
            number(self.thread),
            Cell::Number(self.start_ns),
            Cell::Number(self.duration_ns),
            number(self.correlation),
            number(self.bytes),
            text(self.cause),
        ]
    }
}

/// Hands out all events: by device and stream, then by thread, then the idle time. Ends with the
/// first error of `each`.
pub(super) fn rows<E>(
    run: &Run,
    analysis: &Analysis,
    mut each: impl FnMut(EventRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let begin = first_time(run, analysis);
    let at = |time: u64| time.saturating_sub(begin);
    let mut names: HashMap<u32, String> = HashMap::new();
    for d in &run.devices {
        for s in &d.streams {
            for o in &s.ops {
                let name = match o.kind {
                    Kind::Kernel => some(
                        names
                            .entry(o.a)
                            .or_insert_with(|| demangled(run.definitions.kernel_name(o.a)))
                            .as_str(),
                    ),
                    _ => None,
                };
                each(EventRow {
                    kind: kind(o),
                    name,
                    device: Some(d.ordinal.into()),
                    stream: Some(s.stream.into()),
                    start_ns: at(o.start),
                    duration_ns: o.span().ns(),
                    correlation: Some(o.correlation.into()),
                    bytes: Some(o.bytes()).filter(|&b| b > 0),
                    ..EventRow::default()
                })?;
            }
        }
    }
    for t in &run.threads {
        let thread = Some(t.tid.into());
        for c in &t.calls {
            each(EventRow {
                kind: "call",
                name: some(run.call_name(c)),
                thread,
                start_ns: at(c.start),
                duration_ns: c.span().ns(),
                correlation: Some(c.correlation.into()),
                ..EventRow::default()
            })?;
        }
        for r in &t.ranges {
            each(EventRow {
                kind: "range",
                name: run.definitions.string(r.name).and_then(some),
                thread,
                start_ns: at(r.span.start),
                duration_ns: r.span.ns(),
                ..EventRow::default()
            })?;
        }
    }
    for d in &analysis.devices {
        for s in &d.slices {
            each(EventRow {
                kind: "idle",
                name: s.call().and_then(|c| run.call(c)).and_then(|(_, c)| some(run.call_name(c))),
                device: Some(d.ordinal.into()),
                start_ns: at(s.start),
                duration_ns: s.span().ns(),
                cause: Some(s.bucket.label()),
                ..EventRow::default()
            })?;
        }
    }
    Ok(())
}

/// A name; an empty one is none.
fn some(name: &str) -> Option<&str> {
    Some(name).filter(|n| !n.is_empty())
}

fn kind(o: &Op) -> &'static str {
    match o.kind {
        Kind::Kernel => "kernel",
        Kind::Memcpy => "copy",
        Kind::Memset => "memset",
        _ => "graph",
    }
}

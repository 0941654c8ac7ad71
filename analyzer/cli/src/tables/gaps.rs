// SPDX-License-Identifier: Apache-2.0
//! The GPU's idle time, slice by slice: how long, why, between which operations, and the call
//! blamed. The longest first.
//!
//! A gap may have several slices: part of it a blocking call's, the rest the launching's. Gap is
//! the length of the whole one; Start counts from the time zero of the trace and of `gapprobe
//! export`: the first thing that is drawn.
//!
//! All that was recorded: the time before the first operation and behind the last one too. A
//! device's `idle_ns`, `gaps` and `max_gap_ns` in `--json` are of its first operation's start to
//! its last one's end: `max_gap_ns` is the longest Gap of a row that has an operation Before and
//! After.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use trace::Kind;
use verdict::analysis::{Bucket, DeviceAnalysis, IdleSlice};
use verdict::output::chrome::document::first_time;
use verdict::run::NONE;

use super::cuda_gpu_mem_time_sum::operation;
use super::table::{naming, ns, percent, percent_of, row, text, Cell, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "gaps",
    title: "GPU Idle Time, of all that was recorded",
    what: "every stretch of idle time: length, cause, kernel before and after, the call blamed",
    needs: "idle time",
    usual: false,
    shown: 50,
    columns: &[
        percent("Idle", "idle_pct"),
        ns("Length", "length_ns"),
        ns("Gap", "gap_ns"),
        ns("Start", "start_ns"),
        naming("DevId", "device"),
        text("Cause", "cause"),
        text("Call", "call"),
        text("Before", "before"),
        text("After", "after"),
    ],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, analysis, kernels) = (source.run, source.analysis(), source.kernels());
    let all: u128 = analysis.devices.iter().flat_map(|d| &d.slices).map(|s| u128::from(s.span().ns())).sum();
    // as many rows as gaps, few texts: each is made once
    let mut texts: HashMap<&str, Rc<str>> = HashMap::new();
    let mut known = |text| Cell::from(&*texts.entry(text).or_insert_with_key(|t| (*t).into()));
    let mut name = |device: usize, stream: u16, op: u32| {
        let Some(op) = (op != NONE).then(|| run.op(device, stream, op)).flatten() else {
            return Cell::Nothing;
        };
        match (op.kind, operation(op)) {
            (_, Some(memory)) => known(memory),
            (Kind::Kernel, _) => kernels.name(kernels.number(op.a)).into(),
            _ => Cell::Text(format!("[CUDA graph {}]", op.graph).into()),
        }
    };
    let begin = first_time(run, analysis);
    let mut calls: HashMap<u32, Cell> = HashMap::new();
    let causes = Bucket::ALL.map(|b| Cell::from(b.label()));
    let of_device = |(d, a): (usize, &'_ DeviceAnalysis)| -> Vec<(usize, IdleSlice, u64)> {
        let gaps = a.slices.chunk_by(|a, b| a.end == b.start);
        let whole = |gap: &[IdleSlice]| gap.iter().map(|s| s.span().ns()).sum::<u64>();
        gaps.flat_map(|gap| gap.iter().map(move |s| (d, *s, whole(gap)))).collect()
    };
    let slices = analysis.devices.iter().enumerate().flat_map(of_device);
    // rows in the order of time, which is that of the events in memory; then sorted
    let rows = slices.map(|(d, s, gap)| {
        let call = run.call(s.call).map_or(Cell::Nothing, |(_, c)| {
            calls.entry(c.packed).or_insert_with(|| run.call_name(c).into()).clone()
        });
        let start = s.start.saturating_sub(begin);
        let device = run.devices.get(d).map(|d| d.ordinal);
        let length = s.span().ns();
        let (before, after) = (name(d, s.before_stream, s.before), name(d, s.after_stream, s.after));
        let cells = row![
            percent_of(length.into(), all),
            length,
            gap,
            start,
            device,
            causes.get(s.bucket as usize).cloned().unwrap_or(Cell::Nothing),
            call,
            before,
            after
        ];
        ((std::cmp::Reverse(length), s.start, d), cells)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|r| r.0);
    rows.into_iter().map(|r| r.1).collect()
}

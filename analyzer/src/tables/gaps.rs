// SPDX-License-Identifier: Apache-2.0
//! The GPU's idle time, slice by slice: how long, why, between which operations, and the call blamed. The longest first.
//!
//! A gap may have several slices: part of it a blocking call's, the rest the launching's. Start counts from the begin of
//! the recording.

use super::cuda_gpu_mem_time_sum::operation;
use super::table::{ns, number, percent, percent_of, row, text, Cell, Row};
use super::{Report, Source};
use crate::run::NONE;
use trace::Kind;

pub(super) static REPORT: Report = Report {
    name: "gaps",
    title: "GPU Idle Time",
    what: "every stretch of idle time: length, cause, kernel before and after, the call blamed",
    needs: "idle time",
    usual: false,
    shown: 50,
    columns: &[
        percent("Idle", "idle_pct"),
        ns("Length", "length_ns"),
        ns("Start", "start_ns"),
        number("DevId", "device"),
        text("Cause", "cause"),
        text("Call", "call"),
        text("Before", "before"),
        text("After", "after"),
    ],
    rows,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, analysis, kernels) = (source.run, source.analysis(), source.kernels());
    let all: u128 = analysis.devices.iter().flat_map(|d| &d.slices).map(|s| u128::from(s.span().ns())).sum();
    let name = |device: usize, stream: u16, op: u32| {
        let op = (op != NONE).then(|| run.op(device, stream, op)).flatten()?;
        Some(match (op.kind, operation(op)) {
            (_, Some(memory)) => Cell::from(memory),
            (Kind::Kernel, _) => Cell::from(kernels.name(kernels.number(op.a))),
            _ => Cell::Text(format!("[CUDA graph {}]", op.graph)),
        })
    };
    let mut slices: Vec<_> =
        analysis.devices.iter().enumerate().flat_map(|(d, a)| a.slices.iter().map(move |s| (d, s))).collect();
    slices.sort_by_key(|(d, s)| (std::cmp::Reverse(s.span().ns()), s.start, *d));
    let rows = slices.into_iter().map(|(d, s)| {
        let call = run.call(s.call).map(|(_, c)| run.call_name(c));
        let start = s.start.saturating_sub(run.header.start_monotonic);
        let device = run.devices.get(d).map(|d| d.ordinal);
        let length = s.span().ns();
        let (before, after) = (name(d, s.before_stream, s.before), name(d, s.after_stream, s.after));
        row![percent_of(length.into(), all), length, start, device, s.bucket.label(), call, before, after]
    });
    rows.collect()
}

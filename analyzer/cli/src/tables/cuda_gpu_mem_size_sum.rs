// SPDX-License-Identifier: Apache-2.0
//! Copies and memsets by operation: how many, how much they moved. MB are 10^6 bytes, as nsys has
//! them.

use super::cuda_gpu_mem_time_sum::operation;
use super::groups::{by_total, Groups};
use super::table::{megabytes, number, row, text, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "cuda_gpu_mem_size_sum",
    title: "CUDA GPU MemOps Summary (by Size)",
    what: "copies and memsets by operation: size",
    needs: "copies or memsets",
    usual: true,
    shown: 0,
    columns: &[
        megabytes("Total", "total_mb"),
        number("Count", "count"),
        megabytes("Avg", "avg_mb"),
        megabytes("Med", "med_mb"),
        megabytes("Min", "min_mb"),
        megabytes("Max", "max_mb"),
        megabytes("StdDev", "stddev_mb"),
        text("Operation", "operation"),
    ],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let mut groups = Groups::new();
    for (_, op) in source.ops() {
        if let Some(name) = operation(op) {
            groups.add(name, op.bytes());
        }
    }
    let mb = |bytes: f64| bytes / 1e6;
    let rows = groups
        .stats()
        .into_iter()
        .map(|(name, s)| {
            let head = row![
                mb(s.total as f64),
                s.count,
                mb(s.avg),
                mb(s.med),
                mb(s.min as f64),
                mb(s.max as f64),
                mb(s.stddev),
            ];
            (s.total, head, row![name])
        })
        .collect();
    by_total(rows)
}

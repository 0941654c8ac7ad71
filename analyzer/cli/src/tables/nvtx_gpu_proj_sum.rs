// SPDX-License-Identifier: Apache-2.0
//! Named ranges projected onto the GPU: from the first begin to the last end of what was launched
//! in them (kernels, copies, memsets; `nvtx_kern_sum` says what "in" is). Ranges that launched
//! nothing are left out.
//!
//! Proj figures are of these projections, Total Range Time is on the host. Avg Range Lvl: named
//! ranges around it; Avg Num Child: named ranges directly in it, with GPU work or not.

use super::groups::{by_total, Groups};
use super::ranges::unnumbered;
use super::table::{five, ns, number, row, text, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "nvtx_gpu_proj_sum",
    title: "NVTX GPU Projection Summary",
    what: "named ranges projected onto the GPU: first begin to last end of what they launched",
    needs: "named ranges with GPU operations launched in them",
    usual: false,
    shown: 0,
    columns: &[
        text("Range", "range"),
        text("Style", "style"),
        ns("Total Proj Time", "total_proj_ns"),
        ns("Total Range Time", "total_range_ns"),
        number("Range Instances", "range_instances"),
        ns("Proj Avg", "proj_avg_ns"),
        ns("Proj Med", "proj_med_ns"),
        ns("Proj Min", "proj_min_ns"),
        ns("Proj Max", "proj_max_ns"),
        ns("Proj StdDev", "proj_stddev_ns"),
        number("Total GPU Ops", "total_gpu_ops"),
        number("Avg GPU Ops", "avg_gpu_ops"),
        number("Avg Range Lvl", "avg_range_level"),
        number("Avg Num Child", "avg_children"),
    ],
    rows,
    each: None,
};

#[derive(Clone, Copy, Default)]
struct Part {
    host_ns: u128,
    ops: u64,
    levels: u64,
    children: u64,
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let launches = source.launches();
    let mut groups = Groups::new();
    let mut parts: Vec<Part> = Vec::new();
    for range in source.ranges() {
        let nothing = (u64::MAX, 0, 0u64);
        let (first, last, ops) = range
            .ops(source.run, launches)
            .fold(nothing, |(first, last, n), (_, o)| (first.min(o.start), last.max(o.end), n + 1));
        if ops == 0 {
            continue;
        }
        let number =
            groups.add((unnumbered(source.string(range.name)), range.style), last.saturating_sub(first));
        if number == parts.len() {
            parts.push(Part::default());
        }
        if let Some(p) = parts.get_mut(number) {
            p.host_ns += u128::from(range.span.ns());
            p.ops += ops;
            p.levels += u64::from(range.level);
            p.children += u64::from(range.children);
        }
    }
    let rows = groups
        .stats()
        .into_iter()
        .zip(parts)
        .map(|(((name, style), s), p)| {
            let mean = |sum: u64| sum as f64 / s.count as f64;
            let mut cells = row![name, style, s.total, p.host_ns, s.count];
            cells.extend(five(&s));
            cells.extend(row![p.ops, mean(p.ops), mean(p.levels), mean(p.children)]);
            (s.total, Row::new(), cells)
        })
        .collect();
    by_total(rows)
}

// SPDX-License-Identifier: Apache-2.0
//! Kernels under named ranges. A kernel is in a range if the call that launched it is, on its
//! thread, from begin to return; in nested ranges it counts for each of them (up to 64 levels). It
//! may run after the range has ended.
//!
//! NVTX Inst: ranges of that name that hold such a kernel.

use trace::Kind;

use super::cuda_gpu_kern_sum::{CLASS, FLAGS, OCCUPANCY, REGISTERS, WAVES};
use super::groups::{by_total, Groups};
use super::occupancy::Filling;
use super::ranges::unnumbered;
use super::table::{five, number, row, text, Row, AVG, MAX, MED, MIN, STDDEV, TOTAL};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "nvtx_kern_sum",
    title: "NVTX Range Kernel Summary",
    what: "kernels under each named range that was open when they were launched",
    needs: "kernels launched in named ranges",
    usual: false,
    shown: 0,
    columns: &[
        text("NVTX Range", "range"),
        text("Style", "style"),
        number("PID", "pid"),
        number("TID", "tid"),
        number("NVTX Inst", "range_instances"),
        number("Kern Inst", "kernel_instances"),
        TOTAL,
        AVG,
        MED,
        MIN,
        MAX,
        STDDEV,
        text("Kernel Name", "kernel_name"),
        CLASS,
        WAVES,
        OCCUPANCY,
        REGISTERS,
        FLAGS,
    ],
    rows,
    each: None,
};

/// What a row is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    range: &'a str,
    style: &'static str,
    thread: usize,
    kernel: usize,
}

#[derive(Default)]
struct Part {
    /// Ranges that held the kernel, and the number of the last of them.
    ranges: u64,
    last: Option<usize>,
    filling: Filling,
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, kernels, fits, launches) = (source.run, source.kernels(), source.fits(), source.launches());
    let mut groups = Groups::new();
    let mut parts: Vec<Part> = Vec::new();
    for (n, range) in source.ranges().iter().enumerate() {
        let name = unnumbered(source.string(range.name));
        for (device, op) in range.ops(run, launches).filter(|(_, o)| o.kind == Kind::Kernel) {
            let key =
                Key { range: name, style: range.style, thread: range.thread, kernel: kernels.number(op.a) };
            let number = groups.add(key, op.span().ns());
            if number == parts.len() {
                parts.push(Part::default());
            }
            let Some(p) = parts.get_mut(number) else { continue };
            p.ranges += u64::from(p.last != Some(n));
            p.last = Some(n);
            p.filling.add(fits, device, op);
        }
    }
    let rows = groups
        .stats()
        .into_iter()
        .zip(parts)
        .map(|((key, s), p)| {
            let tid = run.threads.get(key.thread).map(|t| t.tid);
            let mut head = row![key.range, key.style, source.pid(), tid, p.ranges, s.count, s.total];
            head.extend(five(&s));
            let mut tail = kernels.cells(key.kernel);
            tail.extend(p.filling.cells());
            (s.total, head, tail)
        })
        .collect();
    by_total(rows)
}

// SPDX-License-Identifier: Apache-2.0
//! Operators by name, and by name and shapes: how often, their time and memory on the host and on
//! the GPU, with what is in them and to themselves; the figures of torch.profiler's
//! `key_averages()`, which gives its rows of kernels and calls as well (here: cuda_gpu_kern_sum,
//! cuda_api_sum). Where the number of a call outside of operators, or of the profiler's own work,
//! is by chance that of an operator, torch.profiler counts this one's GPU time twice; here it is
//! counted once. And it takes calls without an operator for calls of the thread that stops it.

use std::cmp::Reverse;

use foldhash::{HashMap, HashMapExt};

use super::operators::{operators, Spent, What};
use super::table::{megabytes, ns, number, row, text, Cell, Column, Row};
use super::{Report, Source};

const CALLS: Column = number("Calls", "calls");
const SELF_GPU: Column = ns("Self GPU", "self_gpu_ns");
const GPU: Column = ns("GPU Total", "gpu_ns");
const SELF_CPU: Column = ns("Self CPU", "self_cpu_ns");
const CPU: Column = ns("CPU Total", "cpu_ns");
const SELF_GPU_MEMORY: Column = Column { spare: true, ..megabytes("Self GPU Mem", "self_gpu_mb") };
const GPU_MEMORY: Column = Column { spare: true, ..megabytes("GPU Mem", "gpu_mb") };
const SELF_CPU_MEMORY: Column = Column { spare: true, ..megabytes("Self CPU Mem", "self_cpu_mb") };
const CPU_MEMORY: Column = Column { spare: true, ..megabytes("CPU Mem", "cpu_mb") };
const NAME: Column = text("Name", "name");

static COLUMNS: [Column; 11] = [
    SELF_GPU,
    GPU,
    SELF_CPU,
    CPU,
    CALLS,
    SELF_GPU_MEMORY,
    GPU_MEMORY,
    SELF_CPU_MEMORY,
    CPU_MEMORY,
    NAME,
    text("Input Shapes", "shapes"),
];
/// All but the shapes.
static BY_NAME_COLUMNS: &[Column] = COLUMNS.split_at(COLUMNS.len() - 1).0;

const NEEDS: &str = "operators or named ranges: torch.profiler records operators with ProfilerActivity.CPU";

pub(super) static BY_NAME: Report = Report {
    name: "ops",
    title: "Operator Summary",
    what: "operators and named ranges: CPU and GPU time, self and total, memory, as key_averages()",
    needs: NEEDS,
    usual: false,
    shown: 0,
    columns: BY_NAME_COLUMNS,
    rows: |source| rows(source, false),
    each: None,
};

pub(super) static BY_SHAPES: Report = Report {
    name: "ops_shapes",
    title: "Operator Summary by Input Shapes",
    what: "the same by the shapes of their inputs (record_shapes=True)",
    needs: NEEDS,
    usual: false,
    shown: 0,
    columns: &COLUMNS,
    rows: |source| rows(source, true),
    each: None,
};

/// What no operator allocated or freed, as torch.profiler calls it.
const ELSEWHERE: What<'_> = What { name: "[memory]", is_named: false, shapes: 0, types: 0, values: 0 };

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    total: Spent,
    own: Spent,
}

fn rows(source: &Source<'_>, by_shapes: bool) -> Vec<Row> {
    let mut sums: HashMap<What<'_>, Sum> = HashMap::new();
    let (times, bytes) = operators(source, |operator| {
        let shapes = if by_shapes { operator.what.shapes } else { 0 };
        let what = What { shapes, types: 0, values: 0, ..operator.what };
        let sum = sums.entry(what).or_default();
        sum.calls += 1;
        sum.total += operator.total;
        sum.own += operator.own;
    });
    if times > 0 {
        let spent = Spent { memory: bytes, ..Spent::default() };
        sums.insert(ELSEWHERE, Sum { calls: times, total: spent, own: spent });
    }
    let mut sums: Vec<(What<'_>, Sum)> = sums.into_iter().collect();
    let text = |what: &What<'_>| source.string(what.shapes);
    sums.sort_by_key(|(what, s)| (Reverse((s.own.gpu, s.own.cpu)), what.name, what.is_named, text(what)));
    let is_told = !source.operators.memory.is_empty();
    let row = |(what, s): (What<'_>, Sum)| {
        let mut row = row![s.own.gpu, s.total.gpu, s.own.cpu, s.total.cpu, s.calls];
        let (own, total) = (s.own.memory, s.total.memory);
        let mb = |bytes: i64| Cell::from(is_told.then_some(bytes as f64 / 1e6));
        row.extend([own.gpu, total.gpu, own.host, total.host].map(mb));
        row.push(what.name.into());
        if by_shapes {
            row.push(text(&what).into());
        }
        row
    };
    sums.into_iter().map(row).collect()
}

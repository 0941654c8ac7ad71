// SPDX-License-Identifier: Apache-2.0
//! Kernels and memory operations ranked together. Graphs recorded as a whole (no record a node)
//! stand here too, as nothing else shows their time.

use super::cuda_gpu_mem_time_sum::operation;
use super::groups::Groups;
use super::table::{number, row, summary, text, Row};
use super::{Report, Source};
use trace::Kind;

pub(super) static REPORT: Report = Report {
    name: "cuda_gpu_sum",
    title: "CUDA GPU Summary (Kernels/MemOps)",
    what: "kernels, copies and memsets ranked together",
    needs: "GPU operations",
    usual: false,
    shown: 0,
    columns: summary![number("Instances", "instances"); text("Category", "category"), text("Operation", "operation")],
    rows,
    each: None,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Kernel(usize),
    Memory(&'static str),
    Graph(u32),
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let kernels = source.kernels();
    let mut groups = Groups::new();
    for (_, op) in source.ops() {
        let what = match (op.kind, operation(op)) {
            (_, Some(name)) => What::Memory(name),
            (Kind::Kernel, _) => What::Kernel(kernels.number(op.a)),
            _ => What::Graph(op.graph),
        };
        groups.add(what, op.span().ns());
    }
    groups.rows(|what| match what {
        What::Kernel(k) => row!["CUDA_KERNEL", kernels.name(k)],
        What::Memory(name) => row!["MEMORY_OPER", name],
        What::Graph(id) => row!["CUDA_GRAPH", format!("[CUDA graph {id}]").as_str()],
    })
}

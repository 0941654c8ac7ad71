// SPDX-License-Identifier: Apache-2.0
//! Copies and memsets by operation: how often, how long they took on the GPU.

use verdict::run::Op;

use super::groups::Groups;
use super::table::{number, row, summary, text, Row};
use super::{Report, Source};
use trace::Kind;

pub(super) static REPORT: Report = Report {
    name: "cuda_gpu_mem_time_sum",
    title: "CUDA GPU MemOps Summary (by Time)",
    what: "copies and memsets by operation: time on the GPU",
    needs: "copies or memsets",
    usual: true,
    shown: 0,
    columns: summary![number("Count", "count"); text("Operation", "operation")],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let mut groups = Groups::new();
    for (_, op) in source.ops() {
        if let Some(name) = operation(op) {
            groups.add(name, op.span().ns());
        }
    }
    groups.rows(|name| row![name])
}

/// nsys's name of a copy or memset; `None` for kernels.
pub(super) fn operation(op: &Op) -> Option<&'static str> {
    match op.kind {
        Kind::Memset => Some("[CUDA memset]"),
        Kind::Memcpy if op.is_unified() => Some(match op.copy().direction {
            1 => "[CUDA memcpy Unified Host-to-Device]",
            2 => "[CUDA memcpy Unified Device-to-Host]",
            _ => "[CUDA memcpy Unified Device-to-Device]",
        }),
        Kind::Memcpy => Some(match op.copy().direction {
            1 => "[CUDA memcpy Host-to-Device]",
            2 => "[CUDA memcpy Device-to-Host]",
            3 => "[CUDA memcpy Host-to-Array]",
            4 => "[CUDA memcpy Array-to-Host]",
            5 => "[CUDA memcpy Array-to-Array]",
            6 => "[CUDA memcpy Array-to-Device]",
            7 => "[CUDA memcpy Device-to-Array]",
            8 => "[CUDA memcpy Device-to-Device]",
            9 => "[CUDA memcpy Host-to-Host]",
            10 => "[CUDA memcpy Peer-to-Peer]",
            _ => "[CUDA memcpy Unknown]",
        }),
        _ => None,
    }
}

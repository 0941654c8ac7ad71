// SPDX-License-Identifier: Apache-2.0
//! Kernels by name: how often, how long they ran on the GPU.
//!
//! Behind nsys's columns: the class by name (`kernel_class.rs`), waves and theoretical occupancy
//! (`occupancy.rs`; means of the row's kernels, weighted by time), and the most registers a thread,
//! marked above 128.

use super::groups::Groups;
use super::occupancy::Filling;
use super::table::{number, percent, summary, text, Column, Row};
use super::{Report, Source};
use trace::Kind;

/// What gapprobe says of kernels beyond nsys.
pub(super) const CLASS: Column = text("Class", "class");
/// See `occupancy.rs`.
pub(super) const WAVES: Column = Column { decimals: 2, ..number("Waves", "waves_per_sm") };
/// See `occupancy.rs`.
pub(super) const OCCUPANCY: Column = percent("Occup", "occupancy_pct");
/// Registers a thread.
pub(super) const REGISTERS: Column = number("Regs", "registers");
/// Remarks.
pub(super) const FLAGS: Column = text("Flags", "flags");

pub(super) static REPORT: Report = Report {
    name: "cuda_gpu_kern_sum",
    title: "CUDA GPU Kernel Summary",
    what: "kernels by name: time on the GPU, class, waves, occupancy, registers",
    needs: "kernels",
    usual: true,
    shown: 0,
    columns: summary![number("Instances", "instances"); text("Name", "name"), CLASS, WAVES, OCCUPANCY, REGISTERS, FLAGS],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (kernels, fits) = (source.kernels(), source.fits());
    let mut groups = Groups::new();
    let mut filling: Vec<Filling> = vec![Filling::default(); kernels.all().len()];
    for (device, op) in source.ops().filter(|(_, o)| o.kind == Kind::Kernel) {
        let kernel = kernels.number(op.a);
        groups.add(kernel, op.span().ns());
        if let Some(f) = filling.get_mut(kernel) {
            f.add(fits, device, op);
        }
    }
    groups.rows(|kernel| {
        let mut tail = kernels.cells(kernel);
        tail.extend(filling.get(kernel).copied().unwrap_or_default().cells());
        tail
    })
}

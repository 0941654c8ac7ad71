// SPDX-License-Identifier: Apache-2.0
//! Named ranges (NVTX, `record_function`, `gapprobe_range`) by name: how often, how long on the
//! host. A range's time includes that of the ranges in it, so Time adds up to more than there was.
//!
//! Ranges of `emit_nvtx` lose the numbers behind the operator's name, which make a row of each of
//! them in nsys's table.

use super::groups::Groups;
use super::ranges::unnumbered;
use super::table::{number, row, summary, text, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "nvtx_sum",
    title: "NVTX Range Summary",
    what: "named ranges: time on the host",
    needs: "named ranges",
    usual: true,
    shown: 0,
    columns: summary![number("Instances", "instances"); text("Style", "style"), text("Range", "range")],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let mut groups = Groups::new();
    for r in source.ranges() {
        groups.add((r.style, unnumbered(source.string(r.name))), r.span.ns());
    }
    groups.rows(|(style, name)| row![style, name])
}

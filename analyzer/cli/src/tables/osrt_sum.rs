// SPDX-License-Identifier: Apache-2.0
//! Calls into the operating system's libraries by function, where a trace has them: nsys's, taken
//! with `--trace=osrt`.

use super::groups::Groups;
use super::table::{number, row, summary, text, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "osrt_sum",
    title: "OS Runtime Summary",
    what: "calls into the operating system, where the trace has them",
    needs: "OS runtime calls",
    usual: true,
    shown: 0,
    columns: summary![number("Num Calls", "num_calls"); text("Name", "name")],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let mut groups = Groups::new();
    for c in source.os_calls {
        groups.add(source.string(c.name), c.span.ns());
    }
    groups.rows(|name| row![if name.is_empty() { "(unknown call)" } else { name }])
}

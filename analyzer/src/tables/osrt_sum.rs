// SPDX-License-Identifier: Apache-2.0
//! Calls of the operating system's library by function, where a trace has them. No reader of `formats/` takes them into
//! a `Run` (nsys's OSRT_API is the only source there is, and no cause needs it), so the table says that there are none.

use super::table::{number, text, AVG, MAX, MED, MIN, STDDEV, TIME, TOTAL};
use super::Report;

pub(super) static REPORT: Report = Report {
    name: "osrt_sum",
    title: "OS Runtime Summary",
    what: "calls of the operating system's library, where the trace has them",
    needs: "OS runtime calls",
    usual: false,
    shown: 0,
    columns: &[
        TIME,
        TOTAL,
        number("Num Calls", "num_calls"),
        AVG,
        MED,
        MIN,
        MAX,
        STDDEV,
        text("Name", "name"),
    ],
    rows: |_| Vec::new(),
};

// SPDX-License-Identifier: Apache-2.0
//! CUDA API calls by function: how often, how long they took on the host.
//!
//! Time is the share in the sum of all rows, not in the wall time. A recording of gapprobe holds
//! the calls that launch, copy, wait or allocate; traces of other tools hold what they hold.

use foldhash::{HashMap, HashMapExt};

use super::groups::Groups;
use super::table::{number, row, summary, text, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "cuda_api_sum",
    title: "CUDA API Summary",
    what: "CUDA API calls by function: time on the host",
    needs: "CUDA API calls",
    usual: true,
    shown: 0,
    columns: summary![number("Num Calls", "num_calls"); text("Name", "name")],
    rows,
    each: None,
};

fn rows(source: &Source<'_>) -> Vec<Row> {
    let mut names: HashMap<u32, &str> = HashMap::new();
    let mut groups: Groups<&str> = Groups::new();
    for c in source.run.threads.iter().flat_map(|t| &t.calls) {
        let name = *names.entry(c.packed).or_insert_with(|| source.run.call_name(c));
        groups.add(name, c.span().ns());
    }
    groups.rows(|name| row![name])
}

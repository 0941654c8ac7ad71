// SPDX-License-Identifier: Apache-2.0
//! Purpose: nsys's SQLite exports, old and new, are read to the nanosecond and row by row; what
//! cannot be read is counted or said. Here: what the tests of all parts use.

#[path = "nsys/files.rs"]
mod files;
#[path = "nsys/fixture.rs"]
mod fixture;
#[path = "nsys/hostile.rs"]
mod hostile;
#[path = "nsys/order.rs"]
mod order;
#[path = "nsys/others.rs"]
mod others;
#[path = "nsys/processes.rs"]
mod processes;
#[path = "nsys/tables.rs"]
mod tables;
#[path = "nsys/truth.rs"]
mod truth;

use fixture::Kept;
use formats::{Input, ReadError};

fn read(file: &Kept) -> Result<Input, ReadError> {
    formats::read(&file.0, &Default::default())
}

/// Busy and idle ns by the union of intervals.
fn union(mut spans: Vec<(i64, i64)>) -> (u64, u64) {
    spans.sort_unstable();
    let (first, mut reach) = (spans[0].0, spans[0].0);
    let mut busy = 0;
    for (start, end) in spans {
        busy += (end - start.max(reach)).max(0);
        reach = reach.max(end);
    }
    (busy as u64, (reach - first - busy) as u64)
}

/// (ordinal, busy, idle) of all devices, as the analyzer has them.
fn measured(input: &Input) -> Vec<(u32, (u64, u64))> {
    verdict::analyze(&input.run).devices.iter().map(|d| (d.ordinal, (d.busy_ns, d.idle_ns))).collect()
}

// SPDX-License-Identifier: Apache-2.0
//! One row an event, as `tables/csv.rs` writes texts: RFC 4180, no formulas. Times are ns from the begin of the recording.

use std::io::{self, Write};

use super::rows::{rows, COLUMNS};
use crate::analysis::Analysis;
use crate::run::Run;
use crate::tables::csv::name;

/// Writes all events: by device and stream, then by thread, then the idle time.
pub fn csv(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}\r\n", COLUMNS.join(","))?;
    rows(run, analysis, |row| {
        write!(out, "{},{}", row.kind, name(row.name.unwrap_or("")))?;
        let (start, ns) = (Some(row.start_ns), Some(row.duration_ns));
        for number in [row.device, row.stream, row.thread, start, ns, row.correlation, row.bytes] {
            match number {
                Some(n) => write!(out, ",{n}")?,
                None => out.write_all(b",")?,
            }
        }
        write!(out, ",{}\r\n", row.cause.unwrap_or(""))
    })
}

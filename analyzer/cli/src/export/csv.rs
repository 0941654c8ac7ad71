// SPDX-License-Identifier: Apache-2.0
//! One row an event, as `tables/csv.rs` writes texts: RFC 4180, no formulas. Times are ns from the
//! earliest event, as in the Chrome trace.

use std::io::{self, Write};

use verdict::analysis::Analysis;
use verdict::run::Run;

use super::rows::{rows, Cell, COLUMNS};
use crate::tables::csv::name;

/// Writes all events: by device and stream, then by thread, then the idle time.
pub fn csv(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}\r\n", COLUMNS.map(|c| c.name).join(","))?;
    rows(run, analysis, |row| {
        for (i, cell) in row.cells().into_iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            match cell {
                Cell::Nothing => {}
                Cell::Text(text) => out.write_all(name(text).as_bytes())?,
                Cell::Number(n) => write!(out, "{n}")?,
            }
        }
        out.write_all(b"\r\n")
    })
}

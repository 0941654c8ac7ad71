// SPDX-License-Identifier: Apache-2.0
//! Rows of the tables by the names of their columns.

use crate::tables::{self, Cell, Report, Row, Source};

/// A table, and how its columns are found.
pub(super) struct Rows {
    report: &'static Report,
    rows: Vec<Row>,
}

impl Rows {
    /// The table of this name; without such a report, no rows.
    pub(super) fn of(source: &Source<'_>, name: &str) -> Option<Rows> {
        let report = tables::find(name)?;
        Some(Rows { report, rows: report.table(source).rows })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Fields<'_>> {
        self.rows.iter().map(|row| Fields { report: self.report, row })
    }
}

/// One row.
pub(super) struct Fields<'a> {
    report: &'static Report,
    row: &'a Row,
}

impl<'a> Fields<'a> {
    fn cell(&self, key: &str) -> &'a Cell {
        self.report.column(key).and_then(|c| self.row.get(c)).unwrap_or(&Cell::Nothing)
    }

    /// A number; 0 where there is none.
    pub(super) fn number(&self, key: &str) -> f64 {
        match self.cell(key) {
            Cell::Whole(n) => *n as f64,
            Cell::Real(x) => *x,
            _ => 0.0,
        }
    }

    /// A text; empty where there is none.
    pub(super) fn text(&self, key: &str) -> &'a str {
        match self.cell(key) {
            Cell::Text(t) => t,
            _ => "",
        }
    }
}

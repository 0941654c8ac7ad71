// SPDX-License-Identifier: Apache-2.0
//! A table row by row into what is being put together.

use rusqlite::Connection;
use verdict::run::Span;

use super::devices::Devices;
use super::ids::Ids;
use super::names::Names;
use super::open::refused;
use super::schema::{Cells, Schema, Table, Wanted};
use crate::assemble::Assembly;
use crate::{OsCall, Progress, ReadError, Refused};

/// Times are at most so far from the export's zero, ns; put behind it while reading, since they may
/// be negative: what was before the capture began.
pub(super) const ZERO: i64 = 1 << 60;

/// The progress is told each time so many rows were read.
const ROWS_BETWEEN: u64 = 1 << 16;

/// What rows become.
pub(super) struct Sink<'c> {
    pub(super) assembly: Assembly,
    pub(super) names: Names<'c>,
    pub(super) ids: Ids<'c>,
    pub(super) devices: Devices,
    pub(super) refused: Refused,
    pub(super) notes: Vec<String>,
    pub(super) os_calls: Vec<OsCall>,
}

impl Sink<'_> {
    /// The span of columns 0 and 1. What has none is counted.
    #[inline]
    pub(super) fn span(&mut self, cells: &Cells<'_, '_>) -> Option<Span> {
        let (start, end) = (time(cells.whole(0)), time(cells.whole(1)));
        let Some((start, end)) = start.zip(end) else {
            self.refused.no_time += 1;
            return None;
        };
        if end < start {
            self.refused.negative += 1;
            return None;
        }
        Some(Span { start, end })
    }

    /// The run's string for the first of these numbers that `StringIds` has; 0, and counted, if it
    /// has none of them.
    #[inline]
    pub(super) fn name<const N: usize>(&mut self, numbers: [Option<i64>; N]) -> Result<u32, ReadError> {
        for number in numbers.into_iter().flatten() {
            if let Some(found) = self.names.id(number, &mut self.assembly)? {
                return Ok(found);
            }
        }
        self.refused.orphans += 1;
        Ok(0)
    }
}

/// A time of the export, moved by [`ZERO`].
#[inline]
pub(super) fn time(ns: Option<i64>) -> Option<u64> {
    ns.filter(|t| (-ZERO..ZERO).contains(t)).and_then(|t| u64::try_from(t + ZERO).ok())
}

/// Goes through tables.
pub(super) struct Reader<'c> {
    pub(super) connection: &'c Connection,
    pub(super) schema: &'c Schema,
    pub(super) sink: Sink<'c>,
    /// Rows read.
    pub(super) rows: u64,
    /// Rows that there are in the tables that are read.
    expected: u64,
    progress: &'c Progress,
    bytes: u64,
}

impl<'c> Reader<'c> {
    /// Nothing read yet.
    pub(super) fn new(
        connection: &'c Connection,
        schema: &'c Schema,
        progress: &'c Progress,
        bytes: u64,
    ) -> Result<Reader<'c>, ReadError> {
        let mut assembly = Assembly::default();
        let names = Names::new(connection, schema, &mut assembly)?;
        let devices = Devices::read(connection, schema, &mut assembly)?;
        let sink = Sink {
            assembly,
            names,
            devices,
            ids: Ids::new(connection, schema),
            refused: Refused::default(),
            notes: Vec::new(),
            os_calls: Vec::new(),
        };
        let expected = super::work::TABLES.iter().chain(&super::host::TABLES).flat_map(|w| schema.find(w));
        let expected = expected.map(|t| most_rows(connection, t)).sum();
        Ok(Reader { connection, schema, sink, rows: 0, expected, progress, bytes })
    }

    /// Calls `take` for each row of the tables, and returns how many rows there were.
    pub(super) fn each(
        &mut self,
        wanted: &'static Wanted,
        mut take: impl FnMut(&mut Sink<'c>, &Cells<'_, '_>) -> Result<(), ReadError>,
    ) -> Result<u64, ReadError> {
        let before = self.rows;
        for table in self.schema.find(wanted) {
            let error = |e: rusqlite::Error| refused(&e, &table.name);
            let mut select = self.connection.prepare(&table.select(wanted.columns)).map_err(error)?;
            let mut rows = select.query([]).map_err(error)?;
            while let Some(row) = rows.next().map_err(error)? {
                take(&mut self.sink, &Cells(row))?;
                self.rows += 1;
                if self.rows % ROWS_BETWEEN == 0 {
                    let part = u128::from(self.bytes) * u128::from(self.rows)
                        / u128::from(self.expected.max(self.rows));
                    self.progress.at(part as u64);
                }
            }
        }
        Ok(self.rows - before)
    }
}

/// Rows of a table, at most: the highest number that one has, which SQLite finds at once.
fn most_rows(connection: &Connection, table: &Table) -> u64 {
    let highest = connection.query_row(&table.select_highest(), [], |r| r.get::<_, Option<i64>>(0));
    highest.ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

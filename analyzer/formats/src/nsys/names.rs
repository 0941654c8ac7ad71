// SPDX-License-Identifier: Apache-2.0
//! Texts by their number in `StringIds`, each looked up once, when it is first used: the table also
//! holds whole files.

use foldhash::{HashMap, HashMapExt};
use rusqlite::{Connection, Statement};

use super::open::refused;
use super::schema::{Cells, Schema};
use crate::assemble::Assembly;
use crate::ReadError;

/// The table of texts.
pub(super) struct Names<'c> {
    /// `None`: there is no such table, or all of it is in `known` already.
    lookup: Option<Statement<'c>>,
    /// The run's string by number; `None`: the table has no such number.
    known: HashMap<i64, Option<u32>>,
}

impl<'c> Names<'c> {
    /// Prepares looking up.
    pub(super) fn new(
        connection: &'c Connection,
        schema: &Schema,
        assembly: &mut Assembly,
    ) -> Result<Names<'c>, ReadError> {
        let mut names = Names { lookup: None, known: HashMap::new() };
        let Some(table) = schema.table("StringIds").filter(|t| t.column("id").is_some()) else {
            return Ok(names);
        };
        let error = |e: rusqlite::Error| refused(&e, &table.name);
        if table.is_key("id") {
            let sql = format!("{} WHERE id = ?1", table.select(&["value"]));
            names.lookup = Some(connection.prepare(&sql).map_err(error)?);
            return Ok(names);
        }
        // a copy of an export that lost its keys: each look would go through the whole table
        let mut all = connection.prepare(&table.select(&["id", "value"])).map_err(error)?;
        let mut rows = all.query([]).map_err(error)?;
        while let Some(row) = rows.next().map_err(error)? {
            let cells = Cells(row);
            if let Some(id) = cells.whole(0) {
                names.known.insert(id, Some(assembly.string(cells.text(1).unwrap_or(b""))));
            }
        }
        Ok(names)
    }

    /// The run's string for a number; `None` where the file has no such text.
    #[inline]
    pub(super) fn id(&mut self, number: i64, assembly: &mut Assembly) -> Result<Option<u32>, ReadError> {
        if let Some(&known) = self.known.get(&number) {
            return Ok(known);
        }
        let found = self.look_up(number, assembly).map_err(|e| refused(&e, "StringIds"))?;
        self.known.insert(number, found);
        Ok(found)
    }

    fn look_up(&mut self, number: i64, assembly: &mut Assembly) -> rusqlite::Result<Option<u32>> {
        let Some(lookup) = &mut self.lookup else { return Ok(None) };
        let mut rows = lookup.query([number])?;
        Ok(rows.next()?.map(|row| assembly.string(Cells(row).text(0).unwrap_or(b""))))
    }
}

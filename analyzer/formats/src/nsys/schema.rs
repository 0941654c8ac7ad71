// SPDX-License-Identifier: Apache-2.0
//! Which tables and columns an export has. They came and went over the releases, and nsys leaves
//! out a table that it has nothing for, so nothing is taken for granted: a column that is not there
//! reads as NULL.

use std::fmt::Write;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

/// A table that is looked for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Under which names it is known. All of these that are there are read.
    pub(super) names: &'static [&'static str],
    /// Columns, in the order in which they are read.
    pub(super) columns: &'static [&'static str],
    /// The first so many of them must be there.
    pub(super) needed: usize,
}

/// A table that is there.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name as the file has it.
    pub(super) name: String,
    columns: Vec<String>,
    /// The column that is the table's key, if it is one alone: a row is found by it at once.
    key: Option<String>,
}

impl Table {
    /// Whether a row is found at once by this column.
    pub(super) fn is_key(&self, column: &str) -> bool {
        self.key.as_ref().is_some_and(|k| k.eq_ignore_ascii_case(column))
    }

    /// The first of the needed columns that is not there.
    pub(super) fn lacks(&self, wanted: &Wanted) -> Option<&'static str> {
        wanted.columns.iter().take(wanted.needed).find(|c| self.column(c).is_none()).copied()
    }

    /// A column's name as the file has it.
    pub(super) fn column(&self, name: &str) -> Option<&str> {
        self.columns.iter().map(String::as_str).find(|c| c.eq_ignore_ascii_case(name))
    }

    /// `SELECT` of the columns in this order.
    pub(super) fn select(&self, columns: &[&str]) -> String {
        let mut sql = String::from("SELECT ");
        for (i, name) in columns.iter().enumerate() {
            sql.push_str(if i == 0 { "" } else { ", " });
            match self.column(name) {
                Some(column) => sql.push_str(&quoted(column)),
                None => sql.push_str("NULL"),
            }
        }
        let _ = write!(sql, " FROM {}", quoted(&self.name));
        sql
    }

    /// `SELECT` of the lowest whole number but 0 in a column, if there is one of this name.
    pub(super) fn select_least(&self, column: &str) -> Option<String> {
        let column = quoted(self.column(column)?);
        let table = quoted(&self.name);
        Some(format!(
            "SELECT min({column}) FROM {table} WHERE typeof({column}) = 'integer' AND {column} <> 0"
        ))
    }

    /// `SELECT` of the highest row number.
    pub(super) fn select_highest(&self) -> String {
        format!("SELECT max(rowid) FROM {}", quoted(&self.name))
    }
}

/// All tables of a file. Views are none: what they do is for the file to say.
#[derive(Debug)]
pub(super) struct Schema {
    tables: Vec<Table>,
}

impl Schema {
    /// Reads the list of tables.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Schema> {
        // a root page of 0: a virtual table
        let mut list =
            connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")?;
        let names = list.query_map([], |r| r.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            let mut info = connection.prepare(&format!("PRAGMA table_info({})", quoted(&name)))?;
            let mut rows = info.query([])?;
            let (mut columns, mut keys) = (Vec::new(), Vec::new());
            while let Some(row) = rows.next()? {
                let column: String = row.get(1)?;
                if row.get::<_, i64>(5)? != 0 {
                    keys.push(column.clone());
                }
                columns.push(column);
            }
            let key = if keys.len() == 1 { keys.pop() } else { None };
            tables.push(Table { name, columns, key });
        }
        Ok(Schema { tables })
    }

    /// The table of this name.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|t| t.name.eq_ignore_ascii_case(name))
    }

    /// All tables that are wanted under one of their names.
    pub(super) fn find<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = &'a Table> {
        wanted.names.iter().filter_map(|n| self.table(n))
    }

    /// Names of all tables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|t| t.name.as_str())
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The values of a row, by position. SQLite lets any value stand in any column: one of another type
/// than expected reads as if there were none.
pub(super) struct Cells<'a, 'r>(pub(super) &'a Row<'r>);

impl Cells<'_, '_> {
    /// A whole number.
    #[inline]
    pub(super) fn whole(&self, at: usize) -> Option<i64> {
        match self.0.get_ref(at) {
            Ok(ValueRef::Integer(n)) => Some(n),
            _ => None,
        }
    }

    /// A whole number that fits.
    #[inline]
    pub(super) fn small(&self, at: usize) -> Option<u32> {
        self.whole(at).and_then(|n| u32::try_from(n).ok())
    }

    /// The same, 0 where there is none.
    #[inline]
    pub(super) fn number(&self, at: usize) -> u32 {
        self.small(at).unwrap_or(0)
    }

    /// A text, `None` where it is empty.
    #[inline]
    pub(super) fn text(&self, at: usize) -> Option<&[u8]> {
        match self.0.get_ref(at) {
            Ok(ValueRef::Text(t) | ValueRef::Blob(t)) if !t.is_empty() => Some(t),
            _ => None,
        }
    }
}

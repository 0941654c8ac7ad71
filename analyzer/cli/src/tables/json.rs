// SPDX-License-Identifier: Apache-2.0
//! A table as an array of objects; keys name the unit (`total_ns`), what is not known is `null`.

use std::io::{self, Write};

use serde_json::Value;
use verdict::text::escape::visible_json;

use super::table::{Cell, Column, Row};

/// Writes the array, one row a line, without a line break behind it.
pub(super) fn write(columns: &[Column], rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"[")?;
    for (i, row) in rows.iter().enumerate() {
        out.write_all(if i > 0 { b",\n " } else { b"\n " })?;
        for (j, (column, cell)) in columns.iter().zip(row).enumerate() {
            let before = if j > 0 { ", " } else { "{" };
            write!(out, "{before}\"{}\": {}", column.key, visible_json(&value(cell).to_string()))?;
        }
        out.write_all(b"}")?;
    }
    out.write_all(if rows.is_empty() { b"]" } else { b"\n]" })
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing => Value::Null,
        // a sum of more than 584 years is none that a clock gave
        Cell::Whole(n) => u64::try_from(*n).map_or_else(|_| Value::from(*n as f64), Value::from),
        Cell::Real(x) => Value::from(*x),
        Cell::Text(t) => Value::from(&**t),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table::{ns, row, text};

    #[test]
    fn the_array_is_json_with_the_keys_of_the_columns() {
        let columns = [ns("Total Time", "total_ns"), ns("Avg", "avg_ns"), text("Name", "name")];
        let rows = [row![u64::MAX, 0.5, "a \"b\"\n"], row![1u64, None::<f64>, ""]];
        let mut out = Vec::new();
        write(&columns, &rows, &mut out).unwrap();
        let read: Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!([
            {"total_ns": u64::MAX, "avg_ns": 0.5, "name": "a \"b\"\n"},
            {"total_ns": 1, "avg_ns": null, "name": ""},
        ]);
        assert_eq!(read, expected);
        out.clear();
        write(&columns, &[], &mut out).unwrap();
        assert_eq!(out, b"[]");
    }
}

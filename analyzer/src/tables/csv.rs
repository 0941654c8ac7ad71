// SPDX-License-Identifier: Apache-2.0
//! A table as RFC 4180 has it: lines end with CR LF, a text with a comma, a quote or a line break is quoted. Fractions
//! have all their digits (the shortest that give the same double back).

use std::borrow::Cow;
use std::io::{self, Write};

use super::table::{Cell, Column, Row};

/// Writes heading and rows.
pub(super) fn write(columns: &[Column], rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    record(columns.iter().map(|c| Cow::Owned(c.heading())), out)?;
    for row in rows {
        record(row.iter().map(field), out)?;
    }
    Ok(())
}

fn record<'a>(fields: impl Iterator<Item = Cow<'a, str>>, out: &mut dyn Write) -> io::Result<()> {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        if field.contains(['"', ',', '\r', '\n']) {
            write!(out, "\"{}\"", field.replace('"', "\"\""))?;
        } else {
            out.write_all(field.as_bytes())?;
        }
    }
    out.write_all(b"\r\n")
}

fn field(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Nothing => Cow::Borrowed(""),
        Cell::Whole(n) => Cow::Owned(n.to_string()),
        Cell::Real(x) => Cow::Owned(x.to_string()),
        Cell::Text(t) => Cow::Borrowed(t),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table::{number, row, text};

    #[test]
    fn fields_are_quoted_where_the_rfc_asks_for_it() {
        let columns = [number("N", "n"), text("Name, whole", "name")];
        let rows = [row![0.1, "f<int, 4>(\"x\")"], row![3u64, "plain"], row![None::<u64>, "a\nb"]];
        let mut out = Vec::new();
        write(&columns, &rows, &mut out).unwrap();
        let expected = "N,\"Name, whole\"\r\n0.1,\"f<int, 4>(\"\"x\"\")\"\r\n3,plain\r\n,\"a\nb\"\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

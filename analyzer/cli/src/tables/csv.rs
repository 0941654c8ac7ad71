// SPDX-License-Identifier: Apache-2.0
//! A table as RFC 4180 has it: lines end with CR LF, a text with a comma, a quote or a line break
//! is quoted. Fractions have all their digits (the shortest that give the same double back).
//!
//! Texts are names that others chose, and spreadsheets take one that begins with `=` for a formula
//! and run it. Such a text is written behind a single quote, which makes it a text everywhere
//! (OWASP, CSV injection). Other bytes stay.

use std::borrow::Cow;
use std::io::{self, Write};

use super::table::{Cell, Column, Row};

/// Writes heading and rows.
pub(super) fn write(columns: &[Column], rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    record(columns.iter().map(|c| Cow::Owned(c.heading())), out)?;
    rows.iter().try_for_each(|r| row(r, out))
}

/// Writes one row.
pub(super) fn row(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    record(row.iter().map(field), out)
}

fn record<'a>(fields: impl Iterator<Item = Cow<'a, str>>, out: &mut dyn Write) -> io::Result<()> {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        out.write_all(quoted(&field).as_bytes())?;
    }
    out.write_all(b"\r\n")
}

/// A field; quoted where it must be.
fn quoted(field: &str) -> Cow<'_, str> {
    match field.bytes().any(|b| matches!(b, b'"' | b',' | b'\r' | b'\n')) {
        true => Cow::Owned(format!("\"{}\"", field.replace('"', "\"\""))),
        false => Cow::Borrowed(field),
    }
}

/// A name as a field: never a formula, quoted where it must be.
#[cfg(feature = "command")]
pub(crate) fn name(text: &str) -> Cow<'_, str> {
    match plain(text) {
        Cow::Borrowed(text) => quoted(text),
        Cow::Owned(text) => Cow::Owned(quoted(&text).into_owned()),
    }
}

/// A text that no spreadsheet takes for a formula.
fn plain(text: &str) -> Cow<'_, str> {
    // some strip leading blanks before they look; the wide forms count as = + - @ where they are
    // usual
    let first = text.trim_start_matches(|c: char| c.is_whitespace() && !matches!(c, '\t' | '\r' | '\n'));
    match first.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

fn field(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Nothing => Cow::Borrowed(""),
        Cell::Whole(n) => Cow::Owned(n.to_string()),
        Cell::Real(x) => Cow::Owned(x.to_string()),
        Cell::Text(t) => plain(t),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table::{number, row, text};

    #[test]
    fn a_text_that_would_be_a_formula_is_a_text() {
        for (text, field) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-k", "'-k"),
            ("@SUM(1,2)", "\"'@SUM(1,2)\""),
            ("\tx", "'\tx"),
            ("\rx", "\"'\rx\""),
            ("＝1", "'＝1"),
            (" =1", "' =1"),
            ("\u{a0} @x", "'\u{a0} @x"),
            (" a=b", " a=b"),
            ("a=b", "a=b"),
            ("'=1", "'=1"),
            ("", ""),
        ] {
            assert_eq!(name(text), field);
        }
        let columns = [text("Name", "name"), number("N", "n")];
        let mut out = Vec::new();
        write(&columns, &[row!["=x", -0.5]], &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "Name,N\r\n'=x,-0.5\r\n", "numbers are none");
    }

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

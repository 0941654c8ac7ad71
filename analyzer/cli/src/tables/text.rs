// SPDX-License-Identifier: Apache-2.0
//! A table for people, in columns: numbers right, thousands set apart, rounded as nsys rounds them.

use std::borrow::Cow;
use std::io::{self, Write};

use verdict::text::escape::visible;

use super::table::{Cell, Column, Row};
use crate::terminal_width;
use crate::terminal_width::Wanted;

/// Writes heading and rows, in lines of at most `most` columns (`None`: as wide as they are).
/// `keep`: the column that is left out last. Returns how many columns are.
pub(super) fn write(
    columns: &[Column],
    rows: &[Row],
    most: Option<usize>,
    keep: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let empty = |n: usize| rows.iter().all(|r| !r.get(n).is_some_and(says));
    if let Some(n) = (0..columns.len()).find(|&n| columns.get(n).is_some_and(|c| c.spare) && empty(n)) {
        let without =
            |row: &Row| row.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, c)| c.clone()).collect();
        let rows: Vec<Row> = rows.iter().map(without).collect();
        let mut columns = columns.to_vec();
        columns.remove(n);
        let keep = keep.filter(|k| *k != n).map(|k| if k > n { k - 1 } else { k });
        return write(&columns, &rows, most, keep, out);
    }
    let headings: Vec<String> = columns.iter().map(Column::heading).collect();
    let mut wanted: Vec<Wanted> = columns
        .iter()
        .zip(&headings)
        .enumerate()
        .map(|(n, (column, heading))| {
            let heading = terminal_width::width(heading);
            Wanted {
                width: heading,
                heading,
                text: column.text,
                says: false,
                keep: keep == Some(n),
                weight: 0,
            }
        })
        .collect();
    let differs = |n: usize| rows.iter().any(|r| r.get(n) != rows.first().and_then(|first| first.get(n)));
    for (n, column) in columns.iter().enumerate().filter(|(_, c)| c.names) {
        if let Some(wanted) = wanted.get_mut(n) {
            // last to go, and of the parts none goes later
            (wanted.keep, wanted.weight) = match differs(n) {
                true => (true, u128::MAX),
                false => (wanted.keep, wanted.weight),
            };
        }
        debug_assert!(!column.part);
    }
    for row in rows {
        for ((wanted, column), cell) in wanted.iter_mut().zip(columns).zip(row) {
            wanted.width = wanted.width.max(terminal_width::width(&shown(column, cell)));
            wanted.says |= says(cell);
            if let (true, Cell::Whole(n)) = (column.part, cell) {
                wanted.weight = wanted.weight.saturating_add(*n);
            }
        }
    }
    let widths = terminal_width::layout(&wanted, most);
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = Cow<'_, str>>| {
        text.clear();
        let cells = columns.iter().zip(&widths).zip(cells);
        terminal_width::line(&mut text, cells.map(|((column, width), cell)| (column.text, *width, cell)));
        out.write_all(text.as_bytes())
    };
    line(&mut headings.iter().map(|h| Cow::Borrowed(h.as_str())))?;
    line(&mut widths.iter().map(|w| Cow::Owned("-".repeat(w.unwrap_or(0)))))?;
    for row in rows {
        line(&mut columns.iter().zip(row).map(|(column, cell)| shown(column, cell)))?;
    }
    Ok(widths.iter().filter(|w| w.is_none()).count())
}

fn says(cell: &Cell) -> bool {
    match cell {
        Cell::Nothing => false,
        Cell::Whole(n) => *n > 0,
        Cell::Real(x) => *x != 0.0,
        Cell::Text(t) => !t.is_empty(),
    }
}

fn shown<'a>(column: &Column, cell: &'a Cell) -> Cow<'a, str> {
    match cell {
        Cell::Nothing => Cow::Borrowed(""),
        Cell::Whole(n) => Cow::Owned(thousands(&n.to_string())),
        Cell::Real(x) => Cow::Owned(thousands(&fixed(*x, column.decimals))),
        Cell::Text(t) => visible(t),
    }
}

/// `x` with so many decimals, halves away from zero: SQL's ROUND, of the double as it is (`{:.1}`
/// rounds 0.25 to 0.2).
pub(super) fn fixed(x: f64, decimals: u8) -> String {
    // a double lies in the middle of two decimals only where its odd part ends right there
    let scaled = x.abs() * (2u64 << decimals.min(32)) as f64; // exact: a power of two
    let middle = scaled < 9e15 && scaled % 2.0 == 1.0;
    let x = if middle { f64::from_bits(x.to_bits() + 1) } else { x };
    format!("{x:.*}", usize::from(decimals))
}

/// Sets thousands apart: `1234567.8` becomes `1,234,567.8`.
fn thousands(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let digits = whole.trim_start_matches('-').len();
    let mut out = String::with_capacity(number.len() + digits / 3);
    for (i, c) in whole.chars().enumerate() {
        let left = whole.len() - i;
        if c != '-' && left < digits && left % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table::{number, row, text};

    #[test]
    fn numbers_are_rounded_as_sql_does() {
        for (x, decimals, expected) in [
            (0.25, 1, "0.3"),
            (0.75, 1, "0.8"),
            (2.5, 0, "3"),
            (12.35, 1, "12.3"), // the double lies below
            (0.05, 1, "0.1"),
            (0.0625, 3, "0.063"),
            (-0.25, 1, "-0.3"),
            (0.24999, 1, "0.2"),
            (7.0, 1, "7.0"),
            (0.0, 1, "0.0"),
            (1e15, 1, "1000000000000000.0"),
        ] {
            assert_eq!(fixed(x, decimals), expected, "{x}");
        }
    }

    #[test]
    fn thousands_stand_apart() {
        for (plain, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("123456", "123,456"),
            ("1234567.1234", "1,234,567.1234"),
            ("-1000.5", "-1,000.5"),
            ("-100", "-100"),
        ] {
            assert_eq!(thousands(plain), expected);
        }
    }

    fn lines(columns: &[Column], rows: &[Row], most: Option<usize>, left_out: usize) -> Vec<String> {
        let mut out = Vec::new();
        assert_eq!(write(columns, rows, most, None, &mut out).unwrap(), left_out);
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn columns_stand_under_their_headings_and_texts_are_one_line() {
        let columns = [number("Count", "count"), text("Name", "name"), number("Last", "last")];
        let long = "ä".repeat(150);
        let rows = [row![1234u64, "a\nb", 0.5], row![None::<u64>, long.as_str(), 1u64]];
        let whole = lines(&columns, &rows, None, 0);
        assert_eq!(whole.len(), 4);
        assert_eq!(whole[0], format!("  Count  Name{}  Last", " ".repeat(146)));
        assert_eq!(whole[2], format!("  1,234  a\\nb{}   0.5", " ".repeat(146)));
        assert_eq!(whole[3], format!("         {long}     1"), "without a limit nothing is shortened");
        let short = lines(&columns, &rows, Some(40), 0);
        assert_eq!(short[0], format!("  Count  Name{}  Last", " ".repeat(21)));
        assert_eq!(short[3], format!("         {}…{}     1", "ä".repeat(12), "ä".repeat(12)));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let columns = [text("Name", "name"), number("N", "n")];
        let all = lines(&columns, &[row!["行列", 1u64], row!["abcd", 2u64]], None, 0);
        assert_eq!(all[1..], ["  ----  -", "  行列  1", "  abcd  2"]);
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_and_counted() {
        let columns = [
            number("First", "first"),
            number("Empty", "empty"),
            number("Third", "third"),
            text("Name", "name"),
        ];
        let rows = [row![1u64, 0u64, 3u64, "some kernel"]];
        assert_eq!(lines(&columns, &rows, Some(30), 1)[0], "  First  Third  Name");
        assert_eq!(lines(&columns, &rows, Some(20), 2)[0], "  First  Name");
    }
}

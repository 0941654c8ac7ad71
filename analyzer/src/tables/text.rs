// SPDX-License-Identifier: Apache-2.0
//! A table for people, in columns: numbers right, thousands set apart, rounded as nsys rounds them.

use std::io::{self, Write};

use super::table::{Cell, Column, Row};
use crate::visible::visible;

/// Longest text shown, characters; csv and json have all of it.
const LONGEST: usize = 100;

/// Writes heading and rows.
pub(super) fn write(columns: &[Column], rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let headings: Vec<String> = columns.iter().map(Column::heading).collect();
    let mut widths: Vec<usize> = headings.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for ((width, column), cell) in widths.iter_mut().zip(columns).zip(row) {
            *width = (*width).max(shown(column, cell).chars().count());
        }
    }
    line(columns, &widths, headings.iter().cloned(), out)?;
    line(columns, &widths, widths.iter().map(|&w| "-".repeat(w)), out)?;
    for row in rows {
        line(columns, &widths, columns.iter().zip(row).map(|(c, cell)| shown(c, cell)), out)?;
    }
    Ok(())
}

fn line(
    columns: &[Column],
    widths: &[usize],
    words: impl Iterator<Item = String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = String::new();
    for ((column, width), word) in columns.iter().zip(widths).zip(words) {
        let gap = width.saturating_sub(word.chars().count());
        text.push_str("  ");
        if column.text {
            text.push_str(&word);
            text.extend(std::iter::repeat_n(' ', gap));
        } else {
            text.extend(std::iter::repeat_n(' ', gap));
            text.push_str(&word);
        }
    }
    writeln!(out, "{}", text.trim_end())
}

fn shown(column: &Column, cell: &Cell) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Whole(n) => thousands(&n.to_string()),
        Cell::Real(x) => thousands(&fixed(*x, column.decimals)),
        Cell::Text(t) => cut(t),
    }
}

/// A text of one line that is not too long.
fn cut(text: &str) -> String {
    let shown = visible(text);
    let mut plain = shown.chars();
    let mut out: String = plain.by_ref().take(LONGEST).collect();
    if plain.next().is_some() {
        out.pop();
        out.push('…');
    }
    out
}

/// `x` with so many decimals, halves away from zero: SQL's ROUND, of the double as it is (`{:.1}` rounds 0.25 to 0.2).
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

    #[test]
    fn columns_stand_under_their_headings_and_texts_are_one_line() {
        let columns = [number("Count", "count"), text("Name", "name"), number("Last", "last")];
        let long = "ä".repeat(LONGEST + 1);
        let rows = [row![1234u64, "a\nb", 0.5], row![None::<u64>, long.as_str(), 1u64]];
        let mut out = Vec::new();
        write(&columns, &rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], format!("  Count  Name{}  Last", " ".repeat(LONGEST - 4)));
        assert_eq!(lines[2], format!("  1,234  a\\nb{}   0.5", " ".repeat(LONGEST - 4)));
        assert_eq!(lines[3], format!("         {}…     1", "ä".repeat(LONGEST - 1)));
    }
}

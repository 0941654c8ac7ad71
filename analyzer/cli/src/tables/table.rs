// SPDX-License-Identifier: Apache-2.0
//! A table of values: columns with names, units and keys; rows of cells. How it is written out:
//! `text.rs`, `csv.rs`, `json.rs`.

use std::cmp::Ordering;
use std::rc::Rc;

use super::stats::Stats;

/// What the numbers of a column are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Texts, counts, plain numbers.
    None,
    /// Nanoseconds.
    Ns,
    /// Percent.
    Percent,
    /// 10^6 bytes, as nsys counts them.
    Megabytes,
}

impl Unit {
    /// Behind the column's name, as nsys has it.
    const fn suffix(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Ns => " (ns)",
            Unit::Percent => " (%)",
            Unit::Megabytes => " (MB)",
        }
    }
}

/// One column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name without unit, as nsys has it where nsys has the column.
    pub name: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Machine-readable name, the unit in it (`total_ns`).
    pub key: &'static str,
    /// Decimals of a fraction in the text form; csv and json have all.
    pub decimals: u8,
    /// Holds texts: stands left, sorts upwards.
    pub text: bool,
    /// One of the parts that others are, too: where there is no room the smallest are left out
    /// first.
    pub part: bool,
    /// Not shown to people where no row has anything in it; csv and json have it always.
    pub spare: bool,
    /// Says what a row is of: where rows differ in it, they cannot be told apart without.
    pub names: bool,
}

impl Column {
    /// Name with unit, as the heading shows it.
    pub fn heading(&self) -> String {
        format!("{}{}", self.name, self.unit.suffix())
    }

    /// Whether a user means this column: by heading, name or key, in any case of letters.
    pub fn is(&self, wanted: &str) -> bool {
        let same = |s: &str| s.eq_ignore_ascii_case(wanted);
        same(self.name) || same(self.key) || same(&self.heading())
    }
}

/// A column of texts.
pub(super) const fn text(name: &'static str, key: &'static str) -> Column {
    Column { name, unit: Unit::None, key, decimals: 0, text: true, part: false, spare: false, names: false }
}

/// A column of texts that many traces have nothing for.
pub(super) const fn spare_text(name: &'static str, key: &'static str) -> Column {
    Column { spare: true, ..text(name, key) }
}

/// A column of counts and other numbers without unit.
pub(super) const fn number(name: &'static str, key: &'static str) -> Column {
    Column { name, unit: Unit::None, key, decimals: 1, text: false, part: false, spare: false, names: false }
}

/// A column of numbers by which rows are told apart.
pub(super) const fn naming(name: &'static str, key: &'static str) -> Column {
    Column { names: true, ..number(name, key) }
}

/// A column of times.
pub(super) const fn ns(name: &'static str, key: &'static str) -> Column {
    Column { name, unit: Unit::Ns, key, decimals: 1, text: false, part: false, spare: false, names: false }
}

/// A column of times that are parts of a whole, or the whole.
pub(super) const fn part(name: &'static str, key: &'static str) -> Column {
    Column { part: true, ..ns(name, key) }
}

/// A column of shares.
pub(super) const fn percent(name: &'static str, key: &'static str) -> Column {
    Column {
        name,
        unit: Unit::Percent,
        key,
        decimals: 1,
        text: false,
        part: false,
        spare: false,
        names: false,
    }
}

/// A column of shares that many traces have nothing for.
pub(super) const fn spare_percent(name: &'static str, key: &'static str) -> Column {
    Column { spare: true, ..percent(name, key) }
}

/// A column of sizes.
pub(super) const fn megabytes(name: &'static str, key: &'static str) -> Column {
    Column {
        name,
        unit: Unit::Megabytes,
        key,
        decimals: 3,
        text: false,
        part: false,
        spare: false,
        names: false,
    }
}

/// Share of the row's total in the sum of all rows' totals.
pub(super) const TIME: Column = percent("Time", "time_pct");
/// Sum.
pub(super) const TOTAL: Column = ns("Total Time", "total_ns");
/// See [`Stats`].
pub(super) const AVG: Column = ns("Avg", "avg_ns");
/// See [`Stats`].
pub(super) const MED: Column = ns("Med", "med_ns");
/// See [`Stats`].
pub(super) const MIN: Column = ns("Min", "min_ns");
/// See [`Stats`].
pub(super) const MAX: Column = ns("Max", "max_ns");
/// See [`Stats`].
pub(super) const STDDEV: Column = ns("StdDev", "stddev_ns");

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Not known, or does not apply.
    Nothing,
    /// A whole number.
    Whole(u128),
    /// A fraction.
    Real(f64),
    /// A text; many rows may have the same.
    Text(Rc<str>),
}

impl From<u64> for Cell {
    fn from(n: u64) -> Cell {
        Cell::Whole(u128::from(n))
    }
}

impl From<u32> for Cell {
    fn from(n: u32) -> Cell {
        Cell::Whole(u128::from(n))
    }
}

impl From<usize> for Cell {
    fn from(n: usize) -> Cell {
        Cell::Whole(n as u128)
    }
}

impl From<u128> for Cell {
    fn from(n: u128) -> Cell {
        Cell::Whole(n)
    }
}

impl From<f64> for Cell {
    fn from(x: f64) -> Cell {
        Cell::Real(x)
    }
}

impl From<&str> for Cell {
    fn from(s: &str) -> Cell {
        Cell::Text(s.into())
    }
}

impl From<&Rc<str>> for Cell {
    fn from(s: &Rc<str>) -> Cell {
        Cell::Text(s.clone())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(o: Option<T>) -> Cell {
        o.map_or(Cell::Nothing, T::into)
    }
}

impl Cell {
    /// The order of a column: the largest number first, texts by the alphabet, what is not known
    /// last.
    pub(super) fn order(&self, other: &Cell) -> Ordering {
        let number = |c: &Cell| match c {
            Cell::Whole(n) => Some(*n as f64),
            Cell::Real(x) => Some(*x),
            _ => None,
        };
        match (self, other) {
            (Cell::Whole(a), Cell::Whole(b)) => b.cmp(a),
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Nothing, Cell::Nothing) => Ordering::Equal,
            (Cell::Nothing, _) => Ordering::Greater,
            (_, Cell::Nothing) => Ordering::Less,
            (a, b) => number(b).partial_cmp(&number(a)).unwrap_or(Ordering::Equal),
        }
    }
}

/// Cells in the order of the columns.
pub type Row = Vec<Cell>;

/// A row of `cells`, each of any kind.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($crate::tables::table::Cell::from($cell)),*] };
}
pub(super) use row;

/// Columns of a summary: share, sum, how many, [`five`] figures, and what the rows are of; as
/// `Groups::rows` makes them.
macro_rules! summary {
    ($count:expr; $($of:expr),+) => {{
        use $crate::tables::table::{AVG, MAX, MED, MIN, STDDEV, TIME, TOTAL};
        &[TIME, TOTAL, $count, AVG, MED, MIN, MAX, STDDEV, $($of),+]
    }};
}
pub(super) use summary;

/// Average, median, least, greatest, standard deviation.
pub(super) fn five(s: &Stats) -> [Cell; 5] {
    [s.avg.into(), s.med.into(), s.min.into(), s.max.into(), s.stddev.into()]
}

/// `part` of `whole` in percent; nothing of nothing is 0.
pub(super) fn percent_of(part: u128, whole: u128) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// Rows under columns.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// What stands in each row's cells.
    pub columns: &'static [Column],
    /// In the order of the report, or of [`Table::sort`].
    pub rows: Vec<Row>,
}

impl Table {
    /// Sorts by the column with this number: numbers from the largest down, texts by the alphabet.
    pub fn sort(&mut self, column: usize) {
        self.rows.sort_by(|a, b| match (a.get(column), b.get(column)) {
            (Some(a), Some(b)) => a.order(b),
            _ => Ordering::Equal,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_sorts_numbers_down_texts_up_and_the_unknown_last() {
        const COLUMNS: &[Column] = &[number("N", "n"), text("T", "t")];
        let rows = vec![row![2u64, "b"], row![None::<u64>, "c"], row![10.5, "a"], row![10u64, "d"]];
        let mut table = Table { columns: COLUMNS, rows };
        let texts = |t: &Table| -> String {
            t.rows
                .iter()
                .map(|r| match &r[1] {
                    Cell::Text(s) => &**s,
                    _ => "?",
                })
                .collect()
        };
        table.sort(0);
        assert_eq!(texts(&table), "adbc");
        table.sort(1);
        assert_eq!(texts(&table), "abcd");
    }

    #[test]
    fn a_column_is_known_by_heading_name_and_key() {
        for wanted in ["Total Time (ns)", "total time", "TOTAL_NS"] {
            assert!(TOTAL.is(wanted), "{wanted}");
        }
        assert!(!TOTAL.is("total"));
    }
}

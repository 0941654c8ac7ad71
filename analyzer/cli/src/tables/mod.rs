// SPDX-License-Identifier: Apache-2.0
//! Tables of a run: those of `nsys stats`, with its names, columns and figures, and gapprobe's own.
//! `gapprobe stats` prints them.
//!
//! ```text
//! one file a report   cuda_*.rs, nvtx_*.rs, osrt_sum.rs as nsys; gaps.rs, gpu_work.rs (two),
//!                     steps.rs, phases.rs, syncs.rs our own;
//!                     hta.rs as Holistic Trace Analysis, ops.rs (two) as torch.profiler
//! source.rs           the run, and what several reports need of it, made once
//! names.rs            kernels by name (their classes: ../kernel_class.rs)
//! launches.rs         what each call launched      ranges.rs     named ranges, nested
//! operators.rs        operators and ranges, nested with calls
//! gpu_stacks.rs       GPU time by what launched it, as stacks (../export, ../html)
//! occupancy.rs        waves and theoretical occupancy
//! stats.rs            average, median, deviation   groups.rs     values by name
//! table.rs            rows and columns
//! text.rs csv.rs json.rs                           how they are written
//! ```
//! Figures only: nothing here judges. Linear in events (ranges: times their depth, up to 64). Names
//! and columns are those of the Nsight Systems Post-Collection Analysis Guide
//! (docs.nvidia.com/nsight-systems/AnalysisGuide).

pub(crate) mod csv;
mod cuda_api_sum;
mod cuda_gpu_kern_sum;
mod cuda_gpu_mem_size_sum;
mod cuda_gpu_mem_time_sum;
mod cuda_gpu_sum;
mod cuda_kern_exec_sum;
mod gaps;
mod gpu_stacks;
mod gpu_work;
mod groups;
pub mod hta;
mod json;
mod launches;
mod names;
mod nvtx_gpu_proj_sum;
mod nvtx_kern_sum;
mod nvtx_sum;
pub mod occupancy;
mod operators;
mod ops;
mod osrt_sum;
mod phases;
mod ranges;
mod roofline;
mod source;
pub mod stats;
pub mod steps;
pub(crate) mod syncs;
pub mod table;
mod text;

use std::io::{self, Write};

pub use crate::kernel_class::{class_of, KernelClass};
pub(crate) use gpu_stacks::gpu_stacks;
pub(crate) use gpu_work::{gpu_time_by_line, LineTime};
pub use names::NameStyle;
pub use source::Source;
pub use table::{Cell, Column, Row, Table};

/// A report: one kind of table.
#[derive(Debug)]
pub struct Report {
    /// Name on the command line; nsys's where nsys has the report.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What it shows, one line.
    pub what: &'static str,
    /// What the trace has none of where the table has no rows.
    pub needs: &'static str,
    /// Printed where no report is asked for.
    pub usual: bool,
    /// Rows that the text form shows where no limit is asked for (0: all): one row an event is no
    /// reading.
    pub shown: usize,
    /// Columns.
    pub columns: &'static [Column],
    /// Makes the rows.
    rows: fn(&Source<'_>) -> Vec<Row>,
    /// Hands the same rows out one after the other, where there may be more than memory holds.
    each: Option<Each>,
}

/// Gives each row to a function, until that says `false`.
type Each = fn(&Source<'_>, &mut dyn FnMut(Row) -> io::Result<bool>) -> io::Result<()>;

impl Report {
    /// The table of a run.
    pub fn table(&self, source: &Source<'_>) -> Table {
        Table { columns: self.columns, rows: (self.rows)(source) }
    }

    /// Writes the first `limit` rows (0: all) of a run's table as [`Format::Csv`]; whether there
    /// are any. Of reports that can, row by row.
    pub fn write_csv(&self, source: &Source<'_>, limit: usize, out: &mut dyn Write) -> io::Result<bool> {
        let Some(each) = self.each else {
            let table = self.table(source);
            write(&table, limit, Format::Csv, out)?;
            return Ok(!table.rows.is_empty());
        };
        csv::write(self.columns, &[], out)?;
        let mut written = 0;
        each(source, &mut |row| {
            csv::row(&row, out)?;
            written += 1;
            Ok(limit == 0 || written < limit)
        })?;
        Ok(written > 0)
    }

    /// The number of a column by heading, name or key.
    pub fn column(&self, wanted: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.is(wanted))
    }
}

/// Every report, nsys's first.
pub static REPORTS: [&Report; 21] = [
    &cuda_api_sum::REPORT,
    &cuda_gpu_kern_sum::REPORT,
    &cuda_gpu_mem_time_sum::REPORT,
    &cuda_gpu_mem_size_sum::REPORT,
    &cuda_gpu_sum::REPORT,
    &cuda_kern_exec_sum::REPORT,
    &nvtx_sum::REPORT,
    &nvtx_kern_sum::REPORT,
    &nvtx_gpu_proj_sum::REPORT,
    &osrt_sum::REPORT,
    &syncs::REPORT,
    &gaps::REPORT,
    &steps::REPORT,
    &phases::REPORT,
    &hta::REPORT,
    &gpu_work::BY_LINE,
    &gpu_work::BY_MODULE,
    &gpu_work::BY_OPERATOR,
    &ops::BY_NAME,
    &ops::BY_SHAPES,
    &roofline::REPORT,
];

/// The report of this name.
pub fn find(name: &str) -> Option<&'static Report> {
    REPORTS.iter().copied().find(|r| r.name == name)
}

/// How tables are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Columns for people.
    Text,
    /// RFC 4180.
    Csv,
    /// An array of objects.
    Json,
}

/// Writes a table's first `limit` rows (0: all), without title.
pub fn write(table: &Table, limit: usize, format: Format, out: &mut dyn Write) -> io::Result<()> {
    let rows = first(table, limit);
    match format {
        Format::Text => text::write(table.columns, rows, None, None, out).map(|_| ()),
        Format::Csv => csv::write(table.columns, rows, out),
        Format::Json => json::write(table.columns, rows, out),
    }
}

/// Writes a table's first `limit` rows (0: all) for people, in lines of at most `most` columns
/// (`None`: as wide as they are). `sorted`: the column that the rows stand by. Returns how many
/// columns had to be left out.
pub fn write_fitting(
    table: &Table,
    limit: usize,
    most: Option<usize>,
    sorted: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<usize> {
    text::write(table.columns, first(table, limit), most, sorted, out)
}

fn first(table: &Table, limit: usize) -> &[Row] {
    match limit {
        0 => &table.rows,
        n => table.rows.get(..n).unwrap_or(&table.rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_are_unique_and_machine_readable() {
        let machine = |s: &str| s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        for (i, r) in REPORTS.iter().enumerate() {
            assert!(
                machine(r.name) && REPORTS.iter().position(|o| o.name == r.name) == Some(i),
                "{}",
                r.name
            );
            for (j, c) in r.columns.iter().enumerate() {
                assert!(machine(c.key), "{} {}", r.name, c.key);
                assert_eq!(r.column(c.key), Some(j), "{} {}", r.name, c.key);
                assert_eq!(r.column(&c.heading()), Some(j), "{} {}", r.name, c.name);
            }
        }
    }
}

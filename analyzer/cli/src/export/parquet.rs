// SPDX-License-Identifier: Apache-2.0
//! One row an event as Apache Parquet: rows and columns of `csv.rs`, numbers as INT64, names as
//! UTF-8 with their exact bytes, null where csv is empty. Compressed by gzip, which every reader
//! knows and this command has in it already.
//!
//! Rows are gathered in row groups of bounded size, and each group leaves as soon as it is full:
//! what is held does not grow with the trace (but for the footer, a kilobyte a group).

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, GzipLevel, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use verdict::analysis::Analysis;
use verdict::run::Run;

use super::rows::{rows, Cell, Column, EventRow, Holds, COLUMNS};

/// Rows of a group: what DuckDB and Polars share out among cores, a few MB of memory.
const GROUP_ROWS: usize = 1 << 17;
/// Names of a group, bytes: a group ends early where names are novels.
const GROUP_TEXT: usize = 32 << 20;

/// Writes all events: by device and stream, then by thread, then the idle time.
pub fn parquet(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let mut groups = Groups::new(out).map_err(other)?;
    rows(run, analysis, |row| groups.push(row)).and_then(|()| groups.finish()).map_err(other)
}

/// A writing error as it was, another one in words.
fn other(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        error => io::Error::other(error),
    }
}

/// The values of one column in the group that is being gathered.
struct Gathered {
    texts: Vec<ByteArray>,
    numbers: Vec<i64>,
    /// 1 where there is a value, 0 where there is none.
    levels: Vec<i16>,
}

/// Gathers rows, writes groups of them.
struct Groups<'a> {
    /// Into memory, from where each group goes to `out`: the library asks for a writer that can
    /// change threads.
    file: SerializedFileWriter<Vec<u8>>,
    out: &'a mut dyn Write,
    columns: Vec<Gathered>,
    rows: usize,
    text: usize,
}

impl<'a> Groups<'a> {
    fn new(out: &'a mut dyn Write) -> Result<Groups<'a>> {
        let file = SerializedFileWriter::new(Vec::new(), schema()?, properties())?;
        let empty = |_: &Column| Gathered { texts: Vec::new(), numbers: Vec::new(), levels: Vec::new() };
        Ok(Groups { file, out, columns: COLUMNS.iter().map(empty).collect(), rows: 0, text: 0 })
    }

    fn push(&mut self, row: EventRow<'_>) -> Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row.cells()) {
            column.levels.push(i16::from(cell != Cell::Nothing));
            match cell {
                Cell::Nothing => {}
                Cell::Text(text) => {
                    column.texts.push(ByteArray::from(text));
                    self.text += text.len();
                }
                // beyond 292 years, or 8 EiB, there is nothing to tell apart
                Cell::Number(n) => column.numbers.push(i64::try_from(n).unwrap_or(i64::MAX)),
            }
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.text >= GROUP_TEXT {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for (of, values) in COLUMNS.iter().zip(&mut self.columns) {
            let levels = (!of.always).then_some(values.levels.as_slice());
            let Some(mut column) = group.next_column()? else { break };
            match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(c) => c.write_batch(&values.texts, levels, None)?,
                ColumnWriter::Int64ColumnWriter(c) => c.write_batch(&values.numbers, levels, None)?,
                _ => return Err(ParquetError::General("a column of another type".to_owned())),
            };
            column.close()?;
            values.texts.clear();
            values.numbers.clear();
            values.levels.clear();
        }
        group.close()?;
        (self.rows, self.text) = (0, 0);
        self.file.flush()?;
        let bytes = std::mem::take(self.file.inner_mut());
        Ok(self.out.write_all(&bytes)?)
    }

    fn finish(mut self) -> Result<()> {
        self.write_group()?;
        let bytes = self.file.into_inner()?;
        Ok(self.out.write_all(&bytes)?)
    }
}

fn schema() -> Result<TypePtr> {
    let field = |column: &Column| {
        let need = if column.always { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        let (physical, logical) = match column.holds {
            Holds::Texts => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Holds::Numbers => (Physical::INT64, None),
        };
        let made = Type::primitive_type_builder(column.name, physical).with_repetition(need);
        Ok(Arc::new(made.with_logical_type(logical).build()?))
    };
    let fields = COLUMNS.iter().map(field).collect::<Result<Vec<TypePtr>>>()?;
    Ok(Arc::new(Type::group_type_builder("events").with_fields(fields).build()?))
}

fn properties() -> WriterPropertiesPtr {
    let mut made = WriterProperties::builder().set_compression(Compression::GZIP(GzipLevel::default()));
    // rows of a stream or thread stand in order of time: neighbours differ by little, and hardly a
    // value comes twice
    for name in ["start_ns", "correlation"] {
        let column = ColumnPath::from(name);
        made = made.set_column_dictionary_enabled(column.clone(), false);
        made = made.set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(made.build())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    /// Counts what it is given; keeps it.
    #[derive(Default)]
    struct Sink {
        bytes: Vec<u8>,
        largest: usize,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.largest = self.largest.max(bytes.len());
            self.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn groups(rows: usize, name: impl Fn(usize) -> String) -> (Sink, Vec<i64>) {
        let mut sink = Sink::default();
        let mut groups = Groups::new(&mut sink).unwrap();
        for n in 0..rows {
            let name = name(n);
            let row =
                EventRow { kind: "kernel", name: Some(&name), start_ns: n as u64, ..EventRow::default() };
            groups.push(row).unwrap();
            assert!(groups.rows < GROUP_ROWS && groups.text < GROUP_TEXT, "a full group leaves at once");
        }
        groups.finish().unwrap();
        let path = std::env::temp_dir().join(format!("gapprobe-groups-{rows}-{}", std::process::id()));
        std::fs::write(&path, &sink.bytes).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let counts = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        (sink, counts)
    }

    #[test]
    fn a_group_ends_with_so_many_rows_and_leaves() {
        let (sink, counts) = groups(2 * GROUP_ROWS + 3, |_| "k".to_owned());
        assert_eq!(counts, [GROUP_ROWS as i64, GROUP_ROWS as i64, 3]);
        assert!(sink.largest < sink.bytes.len() * 3 / 4, "not all at once");
    }

    #[test]
    fn a_group_ends_early_where_names_are_novels() {
        let novel = "n".repeat(1 << 20);
        let (_, counts) = groups(70, |n| format!("{n}{novel}"));
        // "kernel", a number, a mebibyte: 32 of them are beyond 32 MiB
        assert_eq!(counts, [32, 32, 6]);
    }

    #[test]
    fn no_rows_are_a_file_too() {
        let (sink, counts) = groups(0, |_| String::new());
        assert!(counts.is_empty() && sink.bytes.starts_with(b"PAR1") && sink.bytes.ends_with(b"PAR1"));
    }

    #[test]
    fn an_error_of_the_disk_stays_one() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (run, analysis) = (Run::default(), Analysis::default());
        let error = super::parquet(&run, &analysis, &mut Full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}

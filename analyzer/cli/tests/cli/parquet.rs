// SPDX-License-Identifier: Apache-2.0
//! `export --to parquet`: the rows of csv, typed; read by the library that wrote it and, where it
//! is there, by pyarrow.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use ::parquet::basic::{Compression, Type};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;

use crate::hostile_names::{self, FILE, NAME};
use crate::place::{code, err, out, Place};
use crate::rfc4180::records;

fn input(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path).display().to_string()
}

/// Exports a file both ways: (csv, Parquet).
fn both(place: &Place, file: &str) -> (Vec<Vec<String>>, PathBuf) {
    let csv = place.run(&["export", "--to", "csv", "-o", "-", file]);
    assert_eq!(code(&csv), 0, "{}", err(&csv));
    let output = place.run(&["export", "--force", "--format", "parquet", "-o", "events.parquet", file]);
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "events.parquet\n", ""));
    (records(&out(&csv)), place.out().join("events.parquet"))
}

/// The file as csv would have it, but for the quote in front of formulas.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns().iter();
    let mut all = vec![columns.map(|c| c.name().to_owned()).collect::<Vec<_>>()];
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let text = |field: &Field| match field {
            Field::Null => String::new(),
            Field::Str(text) => {
                assert!(!text.is_empty(), "an empty name is null");
                text.clone()
            }
            Field::Long(n) => n.to_string(),
            other => panic!("{other:?}"),
        };
        all.push(row.get_column_iter().map(|(_, field)| text(field)).collect());
    }
    all
}

fn without_quote(field: &str) -> &str {
    field.strip_prefix('\'').filter(|rest| rest.starts_with(['=', '+', '-', '@'])).unwrap_or(field)
}

#[test]
fn what_is_read_back_is_the_csv_row_by_row() {
    let place = hostile_names::place("parquet-rows");
    for file in [
        input("traces/h200_graphs.json.gz"),
        input("traces/h200_gpt.json.gz"),
        input("recordings/own_gpt_item.gprec.gz"),
        FILE.to_owned(),
    ] {
        let (csv, parquet) = both(&place, &file);
        let read = rows(&parquet);
        assert_eq!(read.len(), csv.len(), "{file}");
        assert!(csv.len() > 1000, "{file}");
        for (n, (read, csv)) in read.iter().zip(&csv).enumerate() {
            let csv: Vec<&str> = csv.iter().map(|f| without_quote(f)).collect();
            assert_eq!(*read, csv, "{file}, row {n}");
        }
    }
    // the last of them has the name as it is
    assert!(rows(&place.out().join("events.parquet")).iter().any(|r| r[0] == "kernel" && r[1] == NAME));
}

#[test]
fn columns_are_typed_and_compressed_and_what_is_always_there_is_required() {
    let place = Place::new("parquet-types");
    let (_, path) = both(&place, &input("traces/h200_graphs.json.gz"));
    let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let meta = reader.metadata();
    for column in meta.file_metadata().schema_descr().columns() {
        let text = ["kind", "name", "cause"].contains(&column.name());
        let wanted = if text { Type::BYTE_ARRAY } else { Type::INT64 };
        assert_eq!(column.physical_type(), wanted, "{}", column.name());
        assert_eq!(column.logical_type_ref().is_some(), text, "{}: a string", column.name());
        let required = ["kind", "start_ns", "duration_ns"].contains(&column.name());
        assert_eq!(column.self_type().is_optional(), !required, "{}", column.name());
    }
    for column in meta.row_groups().iter().flat_map(|g| g.columns()) {
        assert!(matches!(column.compression(), Compression::GZIP(_)), "{:?}", column.compression());
    }
    // a pipe gets the same bytes as a file
    let piped = place.run(&["export", "--to", "parquet", "-o", "-", &input("traces/h200_graphs.json.gz")]);
    assert_eq!(code(&piped), 0);
    assert!(piped.stdout == fs::read(path).unwrap());
}

/// pyarrow, where the interpreter of the tests has it.
#[test]
fn pyarrow_reads_the_same() {
    let python = std::env::var_os("GAPPROBE_PYTHON").unwrap_or_else(|| "python3".into());
    let has = Command::new(&python).args(["-c", "import pyarrow.parquet"]).output();
    if !has.is_ok_and(|o| o.status.success()) {
        // past the capturing of the test's output: nobody shall take this for passed
        let said =
            "SKIPPED parquet::pyarrow_reads_the_same: no pyarrow (GAPPROBE_PYTHON names a Python with it)\n";
        io::stderr().write_all(said.as_bytes()).unwrap();
        return;
    }
    let place = hostile_names::place("parquet-pyarrow");
    let (csv, parquet) = both(&place, FILE);
    let script = "\
import json, sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
rows = [['' if v is None else str(v) for v in row.values()] for row in table.to_pylist()]
json.dump({'types': [str(f.type) for f in table.schema], 'rows': [table.column_names] + rows}, sys.stdout)";
    let output = Command::new(&python).args(["-c", script]).arg(parquet).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (text, number) = ("string", "int64");
    let types = [text, text, number, number, number, number, number, number, number, text];
    assert_eq!(read["types"], serde_json::json!(types));
    let wanted: Vec<Vec<&str>> =
        csv.iter().map(|row| row.iter().map(|f| without_quote(f)).collect()).collect();
    assert!(read["rows"] == serde_json::json!(wanted));
}

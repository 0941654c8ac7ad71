// SPDX-License-Identifier: Apache-2.0
//! Exports of other people's programs, where they lie beside the checkout (they are never
//! committed): every row of the CUDA tables is in the run, and busy and idle are what plain SQL
//! finds in the same file.

use std::io::Read;
use std::path::PathBuf;

use rusqlite::Connection;

use super::fixture::Kept;
use super::{measured, union};

/// The file, or `None` with a word about it.
fn other(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("GAPPROBE_OTHER_TRACES").unwrap_or_default());
    let path = folder.join(name);
    if !path.is_file() {
        println!("skipped: {} is not there (GAPPROBE_OTHER_TRACES)", path.display());
        return None;
    }
    Some(path)
}

fn unpacked(path: &PathBuf) -> Kept {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    Kept::of(&bytes, ".sqlite")
}

/// Rows of a table, 0 where there is none.
fn rows(c: &Connection, table: &str) -> u64 {
    c.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get::<_, i64>(0)).map_or(0, |n| n as u64)
}

fn check(name: &str) {
    let Some(path) = other(name) else { return };
    let plain = unpacked(&path);
    let input = formats::read(&path, &Default::default()).unwrap();
    let run = &input.run;
    let c = Connection::open(&plain.0).unwrap();
    let cupti = |table: &str| rows(&c, &format!("CUPTI_ACTIVITY_KIND_{table}"));
    let work = ["KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"].map(cupti).iter().sum::<u64>();
    assert_eq!(run.devices.iter().map(|d| d.ops() as u64).sum::<u64>(), work);
    let backtraces = rows(&c, "CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass = 67");
    let calls: u64 = run.threads.iter().map(|t| t.calls.len() as u64).sum();
    assert_eq!(calls + backtraces, cupti("RUNTIME"));
    assert_eq!(run.waits.len() as u64, cupti("SYNCHRONIZATION"));
    let ranges: u64 = run.threads.iter().map(|t| t.ranges.len() as u64).sum();
    assert_eq!(ranges, rows(&c, "NVTX_EVENTS WHERE eventType IN (59, 60)"));
    assert_eq!(input.os_calls.len() as u64, rows(&c, "OSRT_API"));
    assert_eq!((input.refused.lost(), input.refused.orphans), (0, 0));
    // of operations whose call was made before the capture began
    let unjoined = ["KERNEL", "MEMCPY", "MEMSET"].map(|table| {
        cupti(&format!(
            "{table} AS o WHERE NOT EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
             WHERE r.correlationId = o.correlationId AND r.globalTid >> 24 = o.globalPid >> 24)"
        ))
    });
    assert_eq!(run.unjoined, unjoined.iter().sum::<u64>());
    assert_eq!(input.refused.duplicates, 0);
    let mut wanted = Vec::new();
    for device in 0..8 {
        let mut spans: Vec<(i64, i64)> = Vec::new();
        for table in ["KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"] {
            let sql = format!("SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table} WHERE deviceId = {device}");
            let Ok(mut select) = c.prepare(&sql) else { continue };
            let found = select.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
            spans.extend(found.map(Result::unwrap));
        }
        if !spans.is_empty() {
            wanted.push((device, union(spans)));
        }
    }
    assert_eq!(measured(&input), wanted);
    // the same without the compression
    let again = formats::read(&plain.0, &Default::default()).unwrap();
    assert_eq!((measured(&again), again.bytes), (wanted, input.bytes));
}

#[test]
fn two_processes_on_two_h100() {
    check("nsys_h100_2gpu_1s.sqlite.gz");
}

#[test]
fn an_mpi_program_of_2022_on_an_a100() {
    check("nsys_saxpy_mpi_a100.sqlite.gz");
}

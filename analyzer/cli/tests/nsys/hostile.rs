// SPDX-License-Identifier: Apache-2.0
//! Rows that cannot be, and files that are damaged: counted or refused, never a panic or a wrong
//! figure.

use rusqlite::Connection;

use super::fixture::{export, global, training, Dice, Kept, Schema, Workload, BOTH};
use super::{measured, read, union};

const INTO: &str =
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId,
    globalPid, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,
    staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId) VALUES ";

/// A row of a kernel.
fn kernel(start: &str, end: &str, device: &str, name: &str) -> String {
    let pid = global(100, 0);
    format!("{INTO} ({start}, {end}, {device}, 1, 7, 1, {pid}, {name}, {name}, 32, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1);")
}

/// Without NOT NULL, as a copy of the table by other tools is.
fn loose(c: &Connection) {
    c.execute_batch(
        "CREATE TABLE copy AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;
         ALTER TABLE copy RENAME TO CUPTI_ACTIVITY_KIND_KERNEL",
    )
    .unwrap();
}

fn whole(w: &Workload) -> Vec<(u32, (u64, u64))> {
    vec![(0, union(w.ops.iter().map(|o| (o.start, o.end)).collect()))]
}

#[test]
fn rows_that_cannot_be_are_counted_and_change_nothing() {
    let w = training(10, &[(100, &[0])], 1);
    // (row, no_time, negative, unplaced)
    let rows = [
        (kernel("NULL", "9000000", "0", "1"), (1, 0, 0)),
        (kernel("9000000", "NULL", "0", "1"), (1, 0, 0)),
        (kernel("0", "0", "0", "1"), (1, 0, 0)),
        (kernel("'soon'", "9000000", "0", "1"), (1, 0, 0)),
        (kernel("8999999.5", "9000000", "0", "1"), (1, 0, 0)),
        (kernel("9000000", "x'00'", "0", "1"), (1, 0, 0)),
        (kernel("9000000", "8999999", "0", "1"), (0, 1, 0)),
        (kernel("9223372036854775807", "-9223372036854775808", "0", "1"), (1, 0, 0)),
        (kernel("9000000", "9223372036854775807", "0", "1"), (1, 0, 0)),
        // far from all else, though not impossible
        (kernel("900000000000000000", "900000000000000001", "0", "1"), (1, 0, 0)),
        (kernel("-900000000000000000", "9000000", "0", "1"), (1, 0, 0)),
        (kernel("9000000", "9000001", "NULL", "1"), (0, 0, 1)),
        (kernel("9000000", "9000001", "-1", "1"), (0, 0, 1)),
        (kernel("9000000", "9000001", "'GPU'", "1"), (0, 0, 1)),
    ];
    let mut sums = (0, 0, 0);
    for schema in BOTH {
        for (row, wanted) in &rows {
            let input = read(&export(&w, schema, |c| {
                loose(c);
                c.execute_batch(row).unwrap();
            }))
            .unwrap();
            let r = input.refused;
            assert_eq!((r.no_time, r.negative, r.unplaced), *wanted, "{row}");
            assert_eq!((r.broken, r.duplicates, r.orphans, r.lost()), (0, 0, 0, 1), "{row}");
            assert_eq!(measured(&input), whole(&w), "{row}");
            assert_eq!(input.run.problems.bad_events, 1);
            sums = (sums.0 + wanted.0, sums.1 + wanted.1, sums.2 + wanted.2);
        }
    }
    // all at once
    let all: String = rows.iter().map(|r| r.0.as_str()).collect();
    let input = read(&export(&w, Schema::New, |c| {
        loose(c);
        c.execute_batch(&all).unwrap();
    }))
    .unwrap();
    let r = input.refused;
    assert_eq!((r.no_time * 2, r.negative * 2, r.unplaced * 2), sums);
    assert_eq!(measured(&input), whole(&w));
}

#[test]
fn a_reference_to_nothing_costs_the_name_alone() {
    let w = training(10, &[(100, &[0])], 1);
    let input = read(&export(&w, Schema::New, |c| {
        c.execute_batch("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 7777777, shortName = 7777778")
            .unwrap();
    }))
    .unwrap();
    let kernels = w.ops.iter().filter(|o| matches!(o.what, super::fixture::What::Kernel(..))).count() as u64;
    assert_eq!((input.refused.orphans, input.refused.lost()), (kernels, 0));
    assert_eq!(
        input.notes,
        [format!("{kernels} rows refer to names or processes that the file does not have")]
    );
    assert_eq!(measured(&input), whole(&w));
    // a call without a name launches nothing that we know of, and is a call
    let input =
        read(&export(&w, Schema::New, |c| c.execute_batch("DELETE FROM StringIds").unwrap())).unwrap();
    assert_eq!(measured(&input), whole(&w));
    assert_eq!(input.run.threads[0].calls.len(), w.calls.len());
    assert!(input.refused.orphans >= kernels + w.calls.len() as u64);
}

#[test]
fn an_operation_or_call_that_is_there_twice_counts_once() {
    let w = training(10, &[(100, &[0])], 1);
    for schema in BOTH {
        let input = read(&export(&w, schema, |c| {
            for table in ["KERNEL", "MEMCPY", "MEMSET", "RUNTIME"] {
                let sql = format!(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_{table} SELECT * FROM CUPTI_ACTIVITY_KIND_{table}"
                );
                c.execute_batch(&sql).unwrap();
            }
        }))
        .unwrap();
        assert_eq!(input.refused.duplicates as usize, w.ops.len() + w.calls.len());
        assert_eq!(input.run.devices[0].ops(), w.ops.len());
        assert_eq!(input.run.threads[0].calls.len(), w.calls.len());
        assert_eq!(measured(&input), whole(&w));
    }
}

/// Correlation ids have 32 bits and begin anew.
#[test]
fn correlation_ids_of_more_bits_are_joined_by_the_lower_ones() {
    let w = training(10, &[(100, &[0])], 1);
    let input = read(&export(&w, Schema::New, |c| {
        for table in ["KERNEL", "MEMCPY", "MEMSET", "RUNTIME"] {
            let sql =
                format!("UPDATE CUPTI_ACTIVITY_KIND_{table} SET correlationId = correlationId + 4294967296");
            c.execute_batch(&sql).unwrap();
        }
    }))
    .unwrap();
    assert_eq!(input.run.unjoined, 0);
}

#[test]
fn damaged_pages_are_an_error_or_change_nothing_unseen() {
    let w = training(60, &[(100, &[0])], 1);
    let bytes = std::fs::read(&export(&w, Schema::New, |_| ()).0).unwrap();
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let pages = bytes.len() / page;
    assert!(pages > 30, "{pages}");
    let (mut errors, mut read_all) = (0, 0);
    for n in 1..pages {
        let mut damaged = bytes.clone();
        damaged[n * page..(n + 1) * page].fill(0xa5);
        match read(&Kept::of(&damaged, ".sqlite")) {
            Err(e) => {
                assert!(e.to_string().contains("damaged"), "{e}");
                assert!(e.hint.contains("nsys export"), "{}", e.hint);
                errors += 1;
            }
            // a page of a table that is not read
            Ok(input) => {
                assert_eq!(measured(&input), whole(&w), "page {n}");
                read_all += 1;
            }
        }
    }
    assert!(errors > 3 * read_all, "{errors} {read_all}");
}

/// One GPU after the other that nobody has: more than there can be are damage, and cost little
/// time.
#[test]
fn a_new_device_in_each_row_is_damage() {
    let w = training(2, &[(100, &[0])], 1);
    let rows: String = (1..5000).map(|n| kernel("6000000", "6000010", &n.to_string(), "1")).collect();
    let input = read(&export(&w, Schema::New, |c| {
        c.execute_batch(&format!("BEGIN; {rows} COMMIT;")).unwrap();
    }))
    .unwrap();
    assert_eq!((input.run.devices.len(), input.refused.unplaced), (1024, 4999 - 1023));
}

/// Streams and threads without end: what is beyond the bound is refused and counted, and so there
/// is no verdict.
#[test]
fn a_new_stream_and_thread_in_each_row_is_damage() {
    let w = training(2, &[(100, &[0])], 1);
    let all = 70_000;
    let fill = |table: &str, changed: &str| {
        let counted = format!("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {all})");
        format!(
            "CREATE TABLE one AS SELECT * FROM {table} LIMIT 1; UPDATE one SET start = 6000000, end = 6000010;
             CREATE TABLE many AS {counted} SELECT one.*, i FROM n, one; UPDATE many SET {changed}; DROP TABLE one;
             ALTER TABLE many DROP COLUMN i; DROP TABLE {table}; ALTER TABLE many RENAME TO {table};"
        )
    };
    for (table, changed) in [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "streamId = i, correlationId = i"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid = i, correlationId = i"),
    ] {
        let input =
            read(&export(&w, Schema::New, |c| c.execute_batch(&fill(table, changed)).unwrap())).unwrap();
        let kept: usize = match table.ends_with("KERNEL") {
            true => input.run.devices.iter().flat_map(|d| &d.streams).filter(|s| s.stream > 20).count(),
            false => input.run.threads.iter().filter(|t| !t.calls.is_empty()).count(),
        };
        let streams_below = if table.ends_with("KERNEL") { 20 } else { 0 };
        assert!(kept < all && input.refused.unplaced > 9_000, "{table}: {kept} {:?}", input.refused);
        assert!(kept as u64 + input.refused.unplaced + streams_below >= all as u64, "{table}: {kept}");
        let verdict = verdict::analyze(&input.run).verdict;
        assert!(verdict.why_inconclusive().is_some_and(|v| v.contains("events lost")), "{verdict:?}");
    }
}

/// Two pages of a table's tree that each name the next one 580 times: 336,400 times the rows of the
/// last.
#[test]
fn pages_that_lead_in_circles_come_to_an_end() {
    let mut w = training(1, &[(100, &[0])], 1);
    w.ops.retain(|o| matches!(o.what, super::fixture::What::Kernel(..)));
    w.ops.truncate(3);
    let mut root = 0i64;
    let file = export(&w, Schema::New, |c| {
        let sql = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'";
        root = c.query_row(sql, [], |r| r.get(0)).unwrap();
    });
    let mut bytes = std::fs::read(&file.0).unwrap();
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let pages = (bytes.len() / page) as u32;
    let root = root as usize - 1;
    let leaf = bytes[root * page..(root + 1) * page].to_vec();
    // an inner page of 580 cells: the page below, and a key
    let inner = |below: u32| {
        let (cells, mut made) = (580, vec![0u8; page]);
        let content = page - cells * 5;
        made[..12].copy_from_slice(&[5, 0, 0, 2, 68, (content >> 8) as u8, content as u8, 0, 0, 0, 0, 0]);
        made[8..12].copy_from_slice(&below.to_be_bytes());
        for n in 0..cells {
            let at = content + n * 5;
            made[12 + 2 * n..14 + 2 * n].copy_from_slice(&(at as u16).to_be_bytes());
            made[at..at + 4].copy_from_slice(&below.to_be_bytes());
            made[at + 4] = 1;
        }
        made
    };
    bytes[root * page..(root + 1) * page].copy_from_slice(&inner(pages + 1));
    bytes.extend(inner(pages + 2));
    bytes.extend(leaf);
    bytes[28..32].copy_from_slice(&(pages + 2).to_be_bytes());
    let error = read(&Kept::of(&bytes, ".sqlite")).unwrap_err();
    assert!(error.to_string().contains("more rows than bytes"), "{error}");
}

#[test]
fn a_database_without_anything_is_an_error() {
    let file = Kept::new(".sqlite");
    let c = Connection::open(&file.0).unwrap();
    c.execute_batch("CREATE TABLE a (b)").unwrap();
    let error = read(&file).unwrap_err();
    assert!(
        error.to_string().contains("no nsys export") && error.to_string().contains("it has a"),
        "{error}"
    );
    c.execute_batch("DROP TABLE a").unwrap();
    drop(c);
    let error = read(&file).unwrap_err();
    assert!(error.to_string().contains("no table at all") && error.hint.contains("nsys export"), "{error}");
}

#[test]
fn a_cut_file_is_an_error() {
    let w = training(30, &[(100, &[0])], 1);
    let bytes = std::fs::read(&export(&w, Schema::Old, |_| ()).0).unwrap();
    for part in [1, 10, 50, 90, 99] {
        let error = read(&Kept::of(&bytes[..bytes.len() * part / 100], ".sqlite")).unwrap_err();
        assert!(error.to_string().contains("cut off"), "{part}%: {error}");
    }
    for length in [16, 17, 99, 100, 101, 511, 512] {
        let error = read(&Kept::of(&bytes[..length], ".sqlite")).unwrap_err();
        assert!(error.to_string().contains("SQLite"), "{length}: {error}");
    }
}

#[test]
fn any_bytes_at_any_place_do_not_break_the_reader() {
    let w = training(8, &[(100, &[0, 1]), (200, &[0])], 2);
    let bytes = std::fs::read(&export(&w, Schema::New, |_| ()).0).unwrap();
    let mut dice = Dice::new(99);
    for _ in 0..400 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + dice.roll(40) {
            let at = 16 + dice.roll(damaged.len() as u64 - 16) as usize;
            damaged[at] = dice.roll(256) as u8;
        }
        if let Ok(input) = read(&Kept::of(&damaged, ".sqlite")) {
            let _ = measured(&input);
        }
    }
}

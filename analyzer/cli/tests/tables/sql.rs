// SPDX-License-Identifier: Apache-2.0
//! An export of nsys: what the tables print is what SQL says of it, to the last digit.

use std::path::PathBuf;

use cli::tables;
use cli::tables::{Format, NameStyle, Source};
use rusqlite::{params, Connection};

use super::text_of;

const KERNELS: [&str; 4] = ["gemm", "relu", "norm", "half"];
const CALLS: [&str; 2] = ["cudaLaunchKernel", "cudaDeviceSynchronize"];
const RANGES: [&str; 2] = ["forward", "backward"];
const OS_CALLS: [&str; 2] = ["poll", "ioctl"];

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An export with rows whose lengths make halves to be rounded (means with .25 and .75), odd and
/// even counts, equal values, and groups of one.
fn export(path: &PathBuf) -> Connection {
    let c = Connection::open(path).unwrap();
    c.execute_batch(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,
            gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
            registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,
            dstKind INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
            nameId INTEGER, returnValue INTEGER);
         CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT);
         CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);",
    )
    .unwrap();
    c.execute_batch("BEGIN").unwrap(); // else each row waits for the disk
    let names = [&KERNELS[..], &CALLS, &OS_CALLS].concat();
    for (id, name) in names.iter().enumerate() {
        let name = if CALLS.contains(name) { format!("{name}_v7000") } else { (*name).to_owned() };
        c.execute("INSERT INTO StringIds VALUES (?1, ?2)", params![id as i64, name]).unwrap();
    }
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut roll = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as i64 % below as i64
    };
    let thread = (7i64 << 24 | 70) | 1 << 56;
    let process = (7i64 << 24) | 1 << 56;
    let mut at = 1_000_000i64;
    for i in 0..407i64 {
        // a launch, its kernel, and around every fifth a range
        let (kernel, call_ns) = (
            if i == 0 {
                2
            } else if i < 5 {
                3
            } else {
                roll(2)
            },
            1_000 + roll(4_000),
        );
        let insert = |table: &str, values: &[i64]| {
            let marks = vec!["?"; values.len()].join(", ");
            let values: Vec<&dyn rusqlite::ToSql> = values.iter().map(|v| v as _).collect();
            c.execute(&format!("INSERT INTO {table} VALUES ({marks})"), values.as_slice()).unwrap();
        };
        insert("CUPTI_ACTIVITY_KIND_RUNTIME", &[at, at + call_ns, thread, i + 1, 4, 0]);
        // `half`: 100, 100, 100, 101: a mean of 100.25, which lies in the middle of two decimals
        let ns = [roll(7), 1_000 + roll(3_000), 900_000_000 + roll(40), 100 + i / 4][kernel as usize];
        let begin = at + call_ns / 2 + roll(5_000);
        insert(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            &[begin, begin + ns, 0, 1, 7, i + 1, process, kernel, kernel, 8, 1, 1, 128, 1, 1, 32, 0, 0],
        );
        if i % 5 == 0 {
            c.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, ?3, ?4, ?5)",
                // the same names as ranges of push and pop, and of start and end
                params![at - 500, at + call_ns + roll(3), 59 + i / 10 % 2, thread, RANGES[(i % 2) as usize]],
            )
            .unwrap();
        }
        at += call_ns + 10_000;
        if i % 3 == 0 {
            insert("CUPTI_ACTIVITY_KIND_RUNTIME", &[at, at + roll(9), thread, 1_000 + i, 5, 0]);
            let (start, bytes) = (at + roll(9), 1 + roll(3_000_000));
            insert(
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                &[start, start + roll(1_000), 0, 1, 7, 2_000 + i, process, bytes, 1 + i % 2, 1, 2],
            );
            insert(
                "CUPTI_ACTIVITY_KIND_MEMSET",
                &[start, start + 3, 0, 1, 7, 3_000 + i, process, 62 + i % 2],
            );
            insert("OSRT_API", &[at, at + roll(50), thread, 6 + i % 2]);
        }
        at += 1_000_000;
    }
    c.execute_batch("COMMIT").unwrap();
    c
}

/// For each name in `rows` (name, value): name, count, and as printed: total, mean, median, least,
/// greatest, deviation.
fn ask(c: &Connection, rows: &str, decimals: u32, whole: u32, unit: f64) -> Vec<Vec<String>> {
    let sql = format!(
        "WITH r(name, v) AS ({rows}),
              ranked AS (SELECT name, v, ROW_NUMBER() OVER (PARTITION BY name ORDER BY v) AS i,
                                COUNT(*) OVER (PARTITION BY name) AS n FROM r),
              middle AS (SELECT name, AVG(v) AS med FROM ranked WHERE i IN ((n + 1) / 2, (n + 2) / 2) GROUP BY name),
              means AS (SELECT name, AVG(v) AS mean FROM r GROUP BY name)
         SELECT r.name, COUNT(*),
                printf('%.{whole}f', ROUND(SUM(v) / {unit:?}, {whole})),
                printf('%.{decimals}f', ROUND(AVG(v) / {unit:?}, {decimals})),
                printf('%.{decimals}f', ROUND(med / {unit:?}, {decimals})),
                printf('%.{whole}f', ROUND(MIN(v) / {unit:?}, {whole})),
                printf('%.{whole}f', ROUND(MAX(v) / {unit:?}, {whole})),
                CASE COUNT(*) WHEN 1 THEN 0.0 ELSE SUM((v - mean) * (v - mean)) / (COUNT(*) - 1) END
         FROM r JOIN middle USING (name) JOIN means USING (name) GROUP BY r.name ORDER BY SUM(v) DESC"
    );
    let mut statement = c.prepare(&sql).unwrap();
    let rows = statement.query_map([], |row| {
        let mut words: Vec<String> = vec![row.get(0)?, row.get::<_, i64>(1)?.to_string()];
        for i in 2..=6 {
            words.push(row.get(i)?);
        }
        // the bundled SQLite may be built without SQRT
        let deviation = row.get::<_, f64>(7)?.sqrt() / unit;
        let rounded: f64 = c.query_row("SELECT ROUND(?1, ?2)", params![deviation, decimals], |r| r.get(0))?;
        words.push(format!("{rounded:.*}", decimals as usize));
        Ok(words)
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// What a report prints, by columns.
fn printed(source: &Source<'_>, report: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let report = tables::find(report).unwrap();
    let table = report.table(source);
    let text = text_of(&table, Format::Text);
    let lines = text.lines().skip(2);
    let wanted: Vec<usize> = columns.iter().map(|c| report.column(c).unwrap()).collect();
    let words = |line: &str| -> Vec<String> {
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect();
        wanted.iter().map(|&i| cells[i].replace(',', "")).collect()
    };
    lines.map(words).collect()
}

#[test]
fn what_is_printed_is_what_sql_says() {
    let folder = std::env::temp_dir().join(format!("gapprobe-tables-sql-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let path = folder.0.join("export.sqlite");
    let c = export(&path);
    let input = formats::read(&path, &Default::default()).unwrap();
    assert_eq!(input.refused.lost(), 0);
    let source = Source::of(&input, NameStyle::Whole);
    let ns = |name: &str, count: &'static str| {
        let printed = printed(
            &source,
            name,
            &["name", count, "total_ns", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"],
        );
        assert!(!printed.is_empty(), "{name}");
        printed
    };
    let length = |name: &str, table: &str, id: &str| {
        format!("SELECT REPLACE({name}, '_v7000', ''), t.end - t.start FROM {table} t JOIN StringIds s ON s.id = t.{id}")
    };
    let kernels = length("value", "CUPTI_ACTIVITY_KIND_KERNEL", "demangledName");
    assert_eq!(ns("cuda_gpu_kern_sum", "instances"), ask(&c, &kernels, 1, 0, 1.0));
    let calls = length("value", "CUPTI_ACTIVITY_KIND_RUNTIME", "nameId");
    assert_eq!(ns("cuda_api_sum", "num_calls"), ask(&c, &calls, 1, 0, 1.0));
    let os_calls = length("value", "OSRT_API", "nameId");
    assert_eq!(ns("osrt_sum", "num_calls"), ask(&c, &os_calls, 1, 0, 1.0));
    let columns =
        ["style", "range", "instances", "total_ns", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"];
    let named = |style: &str| format!("CASE {style} WHEN 59 THEN 'PushPop/' ELSE 'StartEnd/' END || text");
    let ranges = format!("SELECT {}, end - start FROM NVTX_EVENTS", named("eventType"));
    let found = joined(printed(&source, "nvtx_sum", &columns));
    assert_eq!((found.len(), found), (4, ask(&c, &ranges, 1, 0, 1.0)));
    let memory = |value: &str| {
        format!(
            "SELECT CASE copyKind WHEN 1 THEN '[CUDA memcpy Host-to-Device]' ELSE '[CUDA memcpy Device-to-Host]' END, {value}
             FROM CUPTI_ACTIVITY_KIND_MEMCPY
             UNION ALL SELECT '[CUDA memset]', {value} FROM CUPTI_ACTIVITY_KIND_MEMSET"
        )
    };
    let columns = ["operation", "count", "total_ns", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"];
    let times = ask(&c, &memory("end - start"), 1, 0, 1.0);
    assert_eq!(printed(&source, "cuda_gpu_mem_time_sum", &columns), times);
    let columns = ["operation", "count", "total_mb", "avg_mb", "med_mb", "min_mb", "max_mb", "stddev_mb"];
    let sizes = ask(&c, &memory("bytes"), 3, 3, 1e6);
    assert_eq!(printed(&source, "cuda_gpu_mem_size_sum", &columns), sizes);
    // kernels under ranges
    let under = format!(
        "SELECT {} || '/' || s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
         JOIN StringIds s ON s.id = k.demangledName
         JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
         JOIN NVTX_EVENTS n ON n.globalTid = r.globalTid AND r.start >= n.start AND r.end <= n.end",
        named("eventType")
    );
    let columns = [
        "style",
        "range",
        "kernel_name",
        "kernel_instances",
        "total_ns",
        "avg_ns",
        "med_ns",
        "min_ns",
        "max_ns",
        "stddev_ns",
    ];
    let found = joined(joined(printed(&source, "nvtx_kern_sum", &columns)));
    assert_eq!(found, ask(&c, &under, 1, 0, 1.0));
    // every range holds the call of a kernel
    let columns = ["style", "range", "range_instances", "total_range_ns"];
    let mut found = joined(printed(&source, "nvtx_gpu_proj_sum", &columns));
    let mut wanted = ask(&c, &ranges, 1, 0, 1.0);
    wanted.iter_mut().for_each(|row| row.truncate(3));
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

/// The first two cells of each row as one.
fn joined(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    for row in &mut rows {
        let first = row.remove(0);
        row[0] = format!("{first}/{}", row[0]);
    }
    rows
}

// SPDX-License-Identifier: Apache-2.0
//! Tables as nsys names them, with the columns, types and values that the fuzzer's bytes ask for.
//!
//! ```text
//! a byte or two each    which tables there are, which column each lacks, how its columns are declared
//! then rows             table, and a value for each column: a tag byte, and what it needs
//! ```
//! Bytes that end early are zeros, and a tag of zero is what nsys would write there: each prefix is
//! an export.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{params_from_iter, Connection};

/// Rows at most: so many that an input of this length cannot ask for more.
const MOST_ROWS: usize = 4096;

/// A table's name, and its columns.
type Table = (&'static str, &'static [&'static str]);

/// Those of the GPU's work first.
const TABLES: [Table; 13] = [
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "contextId",
            "graphNodeId",
            "graphId",
            "demangledName",
            "shortName",
            "gridX",
            "gridY",
            "blockX",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "contextId",
            "graphNodeId",
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
            "srcDeviceId",
            "dstDeviceId",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "contextId",
            "graphNodeId",
            "bytes",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        &["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "contextId", "graphId"],
    ),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &["start", "end", "globalTid", "correlationId", "nameId", "returnValue", "eventClass"],
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        &["start", "end", "globalPid", "correlationId", "syncType", "streamId"],
    ),
    ("NVTX_EVENTS", &["start", "end", "eventType", "globalTid", "text", "textId", "domainId"]),
    ("OSRT_API", &["start", "end", "globalTid", "nameId"]),
    ("StringIds", &["id", "value"]),
    ("ThreadNames", &["globalTid", "nameId"]),
    ("TARGET_INFO_GPU", &["id", "uuid", "name", "smCount", "totalMemory"]),
    ("TARGET_INFO_CUDA_DEVICE", &["pid", "cudaId", "gpuId", "uuid"]),
    ("META_DATA_EXPORT", &["name", "value"]),
];
/// So many of them are work of a GPU.
const WORK: usize = 4;
/// Texts that mean something in these tables.
const TEXTS: [&str; 8] = [
    "cudaLaunchKernel_v7000",
    "cudaDeviceSynchronize_v3020",
    "cudaGraphLaunch_v10000",
    "cudaMemcpyAsync_v3020",
    "ProfilerStep#1",
    "EXPORT_SCHEMA_VERSION",
    "Number of events lost",
    "a\u{1}\u{1b}[2J\n\"b",
];

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// Rows of the tables of the GPU's work that the reader cannot but see.
    pub work: u64,
    /// There is no table of anything else but texts.
    pub only_work: bool,
}

/// The fuzzer's bytes, zeros behind their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn whole(&mut self, bytes: usize) -> i64 {
        (0..bytes).fold(0, |n, _| n << 8 | i64::from(self.byte()))
    }

    /// A value of any type; `usual` is what stands there in an export.
    fn value(&mut self, usual: impl FnOnce(&mut Self) -> Value) -> Value {
        match self.byte() {
            0..=127 => usual(self),
            128..=151 => Value::Integer(i64::from(self.byte())),
            152..=175 => Value::Integer(self.whole(4)),
            176..=191 => Value::Integer(self.whole(8)),
            192 => Value::Integer(i64::MAX),
            193 => Value::Integer(i64::MIN),
            194..=207 => Value::Real(f64::from_bits(self.whole(8) as u64)),
            208..=223 => Value::Text(TEXTS[usize::from(self.byte()) % TEXTS.len()].into()),
            224..=239 => {
                let length = usize::from(self.byte()).min(self.0.len());
                let (blob, rest) = self.0.split_at(length);
                self.0 = rest;
                Value::Blob(blob.to_vec())
            }
            _ => Value::Null,
        }
    }
}

/// Writes the export. An error is SQLite's.
pub fn write(path: &Path, input: &[u8]) -> rusqlite::Result<Written> {
    let mut bytes = Bytes(input);
    let c = Connection::open(path)?;
    c.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA page_size = 1024; BEGIN")?;
    let absent = bytes.whole(2);
    let lacking = bytes.byte();
    let mut tables: Vec<(usize, Vec<&str>)> = Vec::new();
    for (n, (name, columns)) in TABLES.iter().enumerate() {
        if absent >> n & 1 != 0 {
            continue;
        }
        let mut columns = columns.to_vec();
        if usize::from(lacking) % (2 * TABLES.len()) == n {
            columns.remove(usize::from(bytes.byte()) % columns.len());
        }
        c.execute_batch(&format!("CREATE TABLE {name} ({})", declared(&mut bytes, &columns)))?;
        tables.push((n, columns));
    }
    let mut written =
        Written { work: 0, only_work: tables.iter().all(|(n, _)| *n < WORK || TABLES[*n].0 == "StringIds") };
    let mut inserts = Vec::new();
    for (n, columns) in &tables {
        let marks = vec!["?"; columns.len()].join(",");
        let sql = format!("INSERT OR REPLACE INTO {} ({}) VALUES ({marks})", TABLES[*n].0, columns.join(","));
        inserts.push(c.prepare(&sql)?);
    }
    // each row later than the one before, as those of an export are
    let mut now = 1_000_000;
    for _ in 0..MOST_ROWS {
        if bytes.0.is_empty() || tables.is_empty() {
            break;
        }
        let which = usize::from(bytes.byte()) % tables.len();
        let (n, columns) = &tables[which];
        let values: Vec<Value> = columns.iter().map(|c| value(&mut bytes, c, &mut now)).collect();
        // a key of another type is refused by the table
        let done = inserts[which].execute(params_from_iter(values));
        written.work += u64::from(done.is_ok() && *n < WORK);
    }
    drop(inserts);
    c.execute_batch("COMMIT")?;
    Ok(written)
}

/// Columns with types: nsys's own, none, or one that changes what is stored in it.
fn declared(bytes: &mut Bytes<'_>, columns: &[&str]) -> String {
    let how = bytes.byte();
    let of = |c: &&str| match how % 4 {
        0 if *c == "id" => format!("{c} INTEGER PRIMARY KEY"),
        0 => format!("{c} INTEGER"),
        1 => format!("{c} TEXT"),
        2 => format!("{c} REAL"),
        _ => (*c).to_owned(),
    };
    columns.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn value(bytes: &mut Bytes<'_>, column: &str, now: &mut i64) -> Value {
    bytes.value(|bytes| match column {
        "start" => {
            *now += bytes.whole(2);
            Value::Integer(*now)
        }
        // lengths up to 65 us; the next one may begin before this one's end
        "end" => Value::Integer(*now + bytes.whole(2)),
        "deviceId" | "cudaId" | "streamId" | "contextId" | "graphId" | "domainId" => {
            Value::Integer(bytes.whole(1) & 3)
        }
        "globalPid" | "globalTid" | "pid" => Value::Integer(1 << 56 | (bytes.whole(1) & 3) << 24 | 7),
        "eventType" => Value::Integer([59, 60, 75, 34][bytes.whole(1) as usize % 4]),
        "value" | "text" | "name" => Value::Text(TEXTS[usize::from(bytes.byte()) % TEXTS.len()].into()),
        _ => Value::Integer(bytes.whole(1) & 15),
    })
}

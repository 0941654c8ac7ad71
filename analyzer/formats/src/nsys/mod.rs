// SPDX-License-Identifier: Apache-2.0
//! Exports of Nsight Systems in SQLite (`nsys export --type sqlite`), of any schema since 2.x;
//! `.gz` of them; and reports (`.nsys-rep`), where nsys is there to export them.
//!
//! ```text
//! open.rs    read-only, and nothing that the file defines is run     unpack.rs  .gz      report.rs  .nsys-rep
//! schema.rs  which tables and columns there are                      names.rs   texts by number
//! ids.rs     processes and threads                                   devices.rs which GPU it was
//! rows.rs    a table row by row                                      work.rs    what the GPUs did
//! host.rs    API calls, NVTX ranges, OS calls, threads' names        facts.rs   of the whole export
//! ```
//! Times are whole nanoseconds in the file and here. Each table is read once, front to back,
//! unsorted. Memory: that of the run, and 24 bytes an OS call.

mod devices;
mod facts;
mod host;
mod ids;
mod names;
mod open;
mod report;
mod rows;
mod schema;
mod scratch;
mod unpack;
mod work;

use std::io::Read;
use std::path::Path;

use verdict::run::Run;

use super::{OsCall, Progress, ReadError, Refused};
use rows::Reader;
use schema::Schema;
use scratch::Scratch;

pub(super) use report::MAGIC as REPORT;

/// An export as read.
#[derive(Debug)]
pub(super) struct Nsys {
    pub(super) run: Run,
    pub(super) refused: Refused,
    /// Rows of the tables that were read.
    pub(super) rows: u64,
    /// Bytes of the database.
    pub(super) bytes: u64,
    pub(super) notes: Vec<String>,
    pub(super) os_calls: Vec<OsCall>,
}

/// Reads the database at `path`.
pub(super) fn read(path: &Path, progress: &Progress) -> Result<Nsys, ReadError> {
    let bytes = path.metadata().map_err(|e| ReadError::io(&e))?.len();
    progress.of(bytes);
    let connection = open::open(path)?;
    let schema = Schema::read(&connection).map_err(|e| open::refused(&e, "its list of tables"))?;
    facts::is_nsys(&schema)?;
    let mut reader = Reader::new(&connection, &schema, progress, bytes)?;
    work::read(&mut reader)?;
    host::read(&mut reader)?;
    let mut nsys = facts::finish(reader)?;
    nsys.bytes = bytes;
    Ok(nsys)
}

/// Reads a compressed database, `packed` bytes long.
pub(super) fn read_packed(from: impl Read, packed: u64, progress: &Progress) -> Result<Nsys, ReadError> {
    let scratch = temporary()?;
    let path = unpack::unpack(from, packed, &scratch)?;
    read(&path, progress)
}

/// Has nsys export a report, and reads the export.
pub(super) fn read_report(path: &Path, progress: &Progress) -> Result<Nsys, ReadError> {
    let scratch = temporary()?;
    let path = report::export(path, &scratch)?;
    read(&path, progress)
}

fn temporary() -> Result<Scratch, ReadError> {
    Scratch::new().map_err(|e| {
        let folder = std::env::temp_dir();
        ReadError::new(
            format!("no folder can be made in {} to unpack it: {e}", folder.display()),
            "set TMPDIR to a folder that you may write",
        )
    })
}

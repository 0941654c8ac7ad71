// SPDX-License-Identifier: Apache-2.0
//! Opens a database to read and never to write: no lock, no journal, no file beside it, wherever it
//! lies.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::ReadError;

/// What to do about a file that SQLite cannot read.
const EXPORT_AGAIN: &str =
    "export it again: nsys export --type sqlite --force-overwrite true -o OUT.sqlite REPORT.nsys-rep";

/// Steps of SQLite's machine that a byte of the file may cost. A row of n columns has more than n
/// bytes and costs about n + 3 steps; columns that the file does not have cost a step too.
const STEPS_A_BYTE: i64 = 4;
/// Steps that any file may cost.
const STEPS_ANYWAY: i64 = 10_000_000;
/// They are counted in portions of so many.
const STEPS_BETWEEN: i32 = 100_000;

/// Opens the database at `path`.
pub(super) fn open(path: &Path) -> Result<Connection, ReadError> {
    let path = path.canonicalize().map_err(|e| ReadError::io(&e))?;
    let beside = |suffix: &str| {
        let mut name = path.clone().into_os_string();
        name.push(suffix);
        Path::new(&name).metadata().is_ok_and(|m| m.len() > 0)
    };
    // a log holds rows that are not in the file yet, a journal what the file looked like before:
    // both must be minded
    let unfinished = ["-wal", "-journal"].into_iter().find(|s| beside(s));
    if unfinished.is_none() {
        is_whole(&path)?;
    }
    let options = if unfinished.is_none() { "?mode=ro&immutable=1" } else { "?mode=ro" };
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let told = |e: rusqlite::Error| {
        match unfinished {
        Some(suffix) if cannot_write(&e) => ReadError::new(
            format!("an SQLite file that is being written, or was left in the middle: there is a {suffix} file beside it"),
            "wait for nsys to end; if it has ended, copy both files to a folder that you may write",
        ),
        _ => refused(&e, "its first page"),
    }
    };
    let connection = Connection::open_with_flags(uri(&path, options), flags).map_err(told)?;
    // nothing that the file itself defines (views, triggers, functions) is run
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(told)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false).map_err(told)?;
    // a page whose cells cannot be where it says is found when it is read
    connection.pragma_update(None, "cell_size_check", true).map_err(told)?;
    connection.pragma_update(None, "cache_size", -16_384).map_err(told)?;
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(())).map_err(told)?;
    bound(&connection).map_err(told)?;
    Ok(connection)
}

/// Ends what goes on for longer than the file has bytes for: the pages of a damaged table may lead
/// in circles.
fn bound(connection: &Connection) -> rusqlite::Result<()> {
    let number = |name: &str| connection.pragma_query_value(None, name, |r| r.get::<_, i64>(0));
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    let mut left = bytes.saturating_mul(STEPS_A_BYTE).saturating_add(STEPS_ANYWAY);
    let spent = move || {
        left -= i64::from(STEPS_BETWEEN);
        left < 0
    };
    connection.progress_handler(STEPS_BETWEEN, Some(spent))
}

/// The first page tells how many there are; SQLite itself takes the end of the last one for
/// granted.
fn is_whole(path: &Path) -> Result<(), ReadError> {
    let mut file = File::open(path).map_err(|e| ReadError::io(&e))?;
    let mut head = [0u8; 100];
    let told = file.read_exact(&mut head).is_ok().then(|| {
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let page = match u16::from_be_bytes([head[16], head[17]]) {
            1 => 1 << 16,
            size => u64::from(size),
        };
        // the number counts only if whoever wrote the file last knew of it
        page * u64::from(if word(24) == word(92) { word(28) } else { 0 })
    });
    let length = file.metadata().map_err(|e| ReadError::io(&e))?.len();
    match told {
        Some(told) if told <= length => Ok(()),
        told => Err(ReadError::new(
            format!("an SQLite file that is cut off: {length} of {} bytes", told.unwrap_or(100)),
            EXPORT_AGAIN,
        )),
    }
}

fn cannot_write(e: &rusqlite::Error) -> bool {
    matches!(
        e.sqlite_error_code(),
        Some(
            ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked
        )
    )
}

/// `file:` and the path, all bytes that mean something in a URI as `%XX`.
fn uri(path: &Path, options: &str) -> OsString {
    let mut out = String::from("file:");
    for &b in path.as_os_str().as_encoded_bytes() {
        if b.is_ascii_alphanumeric() || b"/._-".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out.push_str(options);
    out.into()
}

/// What SQLite says about a file, in words; `place` is what was being read.
pub(super) fn refused(e: &rusqlite::Error, place: &str) -> ReadError {
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ReadError::new(
            format!("an SQLite file that is damaged or cut off ({e}, reading {place})"),
            EXPORT_AGAIN,
        ),
        Some(ErrorCode::OperationInterrupted) => ReadError::new(
            format!("an SQLite file that is damaged (it has more rows than bytes for them, reading {place})"),
            EXPORT_AGAIN,
        ),
        Some(ErrorCode::OutOfMemory) => ReadError::new(format!("not enough memory to read {place}"), ""),
        _ => {
            ReadError::new(format!("an SQLite file that cannot be read: {e} (reading {place})"), EXPORT_AGAIN)
        }
    }
}

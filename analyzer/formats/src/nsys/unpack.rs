// SPDX-License-Identifier: Apache-2.0
//! A compressed database into a temporary file: SQLite jumps about in its file, a compressed one
//! can only be read on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::scratch::Scratch;
use crate::ReadError;

/// Exports shrink to a third to a tenth; what grows more than so many times its size (and more than
/// [`SMALL`]) is none.
const MOST_GROWTH: u64 = 200;
/// Whatever it was packed into, so much may be unpacked, bytes.
const SMALL: u64 = 64 << 20;

/// Unpacks `from`, which was `packed` bytes long, into a file of `scratch`.
pub(super) fn unpack(mut from: impl Read, packed: u64, scratch: &Scratch) -> Result<PathBuf, ReadError> {
    let path = scratch.file("export.sqlite");
    let mut to = File::create_new(&path).map_err(|e| no_room(&e, scratch, 0))?;
    let most = packed.saturating_mul(MOST_GROWTH).saturating_add(SMALL);
    let mut buffer = vec![0; 1 << 20];
    let mut written = 0u64;
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => return Ok(path),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(damaged(&e, written)),
        };
        written += got as u64;
        if written > most {
            return Err(ReadError::new(
                format!("{packed} bytes that unpack to more than {most}: no export shrinks so much"),
                "if it is one, unpack it yourself (gunzip FILE) and give the result",
            ));
        }
        let bytes = buffer.get(..got).unwrap_or(&[]);
        to.write_all(bytes).map_err(|e| no_room(&e, scratch, written))?;
    }
}

fn damaged(e: &io::Error, written: u64) -> ReadError {
    let what = match e.kind() {
        io::ErrorKind::UnexpectedEof => "the compressed file is truncated",
        _ => "damaged: the compressed file cannot be unpacked",
    };
    ReadError::new(format!("{what} (after {written} bytes of an SQLite file)"), "gzip -t FILE tells more")
}

fn no_room(e: &io::Error, scratch: &Scratch, written: u64) -> ReadError {
    ReadError::new(
        format!("cannot be unpacked to {}, {} MB so far: {e}", scratch.parent().display(), written >> 20),
        "set TMPDIR to a folder with room, or unpack it yourself (gunzip FILE)",
    )
}

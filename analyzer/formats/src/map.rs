// SPDX-License-Identifier: Apache-2.0
//! Maps a file. The one place of the analyzer's library with `unsafe`.

use std::fs::File;
use std::io;
use std::ops::Deref;

/// The bytes of a file.
pub(super) enum Map {
    Mapped(memmap2::Mmap),
    Empty,
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Map::Mapped(map) => map,
            Map::Empty => &[],
        }
    }
}

/// Maps all of a file, to be read forward.
pub(super) fn map(file: &File) -> io::Result<Map> {
    if file.metadata()?.len() == 0 {
        return Ok(Map::Empty);
    }
    // SAFETY: a private read-only mapping. Whoever changes the file meanwhile makes the text
    // change, which the readers must bear anyway (they trust no byte); whoever cuts it off ends
    // this command with SIGBUS, as any reader of mapped files. It is a command of its own, never
    // the training process, which does not link this crate.
    let map = unsafe { memmap2::Mmap::map(file)? };
    #[cfg(unix)]
    let _ = map.advise(memmap2::Advice::Sequential);
    Ok(Map::Mapped(map))
}

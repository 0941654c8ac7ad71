// SPDX-License-Identifier: Apache-2.0
//! A folder of our own under TMPDIR, for a database that has to be a file; gone when it is dropped.

use std::fs::DirBuilder;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one that nobody else can look into.
    pub(super) fn new() -> io::Result<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("gapprobe-{}-{n}", std::process::id()));
            match builder.create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                // left behind by a process of this id that was killed
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 1 << 16 => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where it is made.
    pub(super) fn parent(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

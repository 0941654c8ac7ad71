// SPDX-License-Identifier: Apache-2.0
//! A file for a reader that wants one: in memory where the system has such a folder, gone with its
//! owner.

use std::path::{Path, PathBuf};

/// The file's path; nothing is there yet.
pub struct Kept(pub PathBuf);

impl Kept {
    /// One path a process: a target looks at one file at a time.
    pub fn new() -> Kept {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let kept = Kept(folder.join(format!("gapprobe-fuzz-{}", std::process::id())));
        let _ = std::fs::remove_file(&kept.0);
        kept
    }
}

impl Default for Kept {
    fn default() -> Kept {
        Kept::new()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

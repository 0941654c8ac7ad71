// SPDX-License-Identifier: Apache-2.0
//! Files that come into being whole or not at all, and never in place of another.
//!
//! Written under a temporary name beside the final one (O_CREAT|O_EXCL|O_NOFOLLOW, mode 0600), then given its name by
//! link(2), which fails where the name is taken; so a reader never sees half a file, and no file is ever lost.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// O_NOFOLLOW, the same number on x86-64 and AArch64 Linux but for the octal digit (asm-generic, arm64).
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: i32 = 0o100_000;
#[cfg(not(target_arch = "aarch64"))]
const O_NOFOLLOW: i32 = 0o400_000;

/// A file under its temporary name; dropped without [`Fresh::publish`], it is removed.
#[derive(Debug)]
pub(super) struct Fresh {
    temporary: PathBuf,
    path: PathBuf,
    published: bool,
}

impl Fresh {
    /// Makes the file that will be `directory/name`.
    pub(super) fn create(directory: &Path, name: &str) -> io::Result<(Fresh, File)> {
        let path = directory.join(name);
        let temporary = directory.join(format!(".{name}.part"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(O_NOFOLLOW)
            .open(&temporary)?;
        Ok((Fresh { temporary, path, published: false }, file))
    }

    /// Gives the file its name and returns its path.
    ///
    /// # Errors
    /// Where the name is taken (`AlreadyExists`) or the directory does not take it.
    pub(super) fn publish(mut self) -> io::Result<PathBuf> {
        match fs::hard_link(&self.temporary, &self.path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(e),
            // a file system without links (FAT, some of FUSE): reserve the name, then put the file there
            Err(_) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .custom_flags(O_NOFOLLOW)
                    .open(&self.path)?;
                fs::rename(&self.temporary, &self.path)?;
                self.published = true;
            }
        }
        if !self.published {
            let _ = fs::remove_file(&self.temporary); // a second name of the same file: harmless
            self.published = true;
        }
        Ok(self.path.clone())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{symlink, PermissionsExt};

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("gapprobe-fresh-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_file_appears_whole_private_and_alone() {
        let dir = folder("whole");
        let (fresh, mut file) = Fresh::create(&dir, "a.json").unwrap();
        file.write_all(b"whole").unwrap();
        assert!(!dir.join("a.json").exists());
        let path = fresh.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_existing_file_a_link_and_a_dropped_file_leave_things_as_they_were() {
        let dir = folder("taken");
        fs::write(dir.join("a.json"), "old").unwrap();
        let (fresh, _file) = Fresh::create(&dir, "a.json").unwrap();
        assert_eq!(fresh.publish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(dir.join("a.json")).unwrap(), b"old");
        symlink(dir.join("a.json"), dir.join(".b.json.part")).unwrap();
        assert!(Fresh::create(&dir, "b.json").is_err(), "a link under the temporary name is not followed");
        drop(Fresh::create(&dir, "c.json").unwrap());
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".b.json.part", "a.json"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}

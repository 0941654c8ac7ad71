// SPDX-License-Identifier: Apache-2.0
//! Files that come into being whole or not at all, and never in place of another.
//!
//! Written under a temporary name beside the final one (O_CREAT|O_EXCL|O_NOFOLLOW, mode 0600), then
//! given its name by link(2), which fails where the name is taken; so a reader never sees half a
//! file, and no file is ever lost. A file that fails is removed where it is dropped. A process that
//! ends while a thread of it still writes calls [`give_up`], and has another one call
//! [`remove_unfinished`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use trace::place::unfinished_result;

use crate::{liveness, writer_lock};

/// O_NOFOLLOW, the same number on x86-64 and AArch64 Linux but for the octal digit (asm-generic,
/// arm64).
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: i32 = 0o100_000;
#[cfg(not(target_arch = "aarch64"))]
const O_NOFOLLOW: i32 = 0o400_000;

/// The temporary names of this process; `None` once it gave up writing.
static UNFINISHED: Mutex<Option<Vec<PathBuf>>> = Mutex::new(Some(Vec::new()));

/// Those that were unfinished at [`give_up`].
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// How long [`give_up`] waits for a thread that is just making or naming a file: on a disk that is
/// microseconds.
const GIVE_UP_TIMEOUT: Duration = Duration::from_millis(20);

fn unfinished() -> MutexGuard<'static, Option<Vec<PathBuf>>> {
    // what a panicking thread left is a list of names all the same
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the process ends")
}

/// From now on this process can finish no file, whichever thread is at it. Asks no file system. A
/// thread that hangs in a directory's file system while it makes or names a file holds this up for
/// [`GIVE_UP_TIMEOUT`] at most; its file is left for the next report's sweep. Returns whether there
/// is something for [`remove_unfinished`].
pub fn give_up() -> bool {
    let until = Instant::now() + GIVE_UP_TIMEOUT;
    let mut files = loop {
        match UNFINISHED.try_lock() {
            Ok(files) => break files,
            Err(TryLockError::Poisoned(p)) => break p.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(TryLockError::WouldBlock) => return false,
        }
    };
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(files) = files.take() {
        *left = files;
    }
    !left.is_empty()
}

/// Removes what was unfinished at [`give_up`]; `false` where nothing was, or another thread has
/// come first. A file system that does not answer holds this up.
pub fn remove_unfinished() -> bool {
    let files = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    for file in &files {
        let _ = fs::remove_file(file); // gone already is fine
    }
    !files.is_empty()
}

/// A file under its temporary name; dropped without [`Fresh::publish`], it is removed.
#[derive(Debug)]
pub struct Fresh {
    temporary: PathBuf,
    path: PathBuf,
}

impl Fresh {
    /// Makes the file that will be `directory/name`.
    pub fn create(directory: &Path, name: &str) -> io::Result<(Fresh, File)> {
        let path = directory.join(name);
        let temporary = directory.join(unfinished_result(name, &liveness::own()));
        let mut files = unfinished();
        let files = files.as_mut().ok_or_else(given_up)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(O_NOFOLLOW)
            .open(&temporary)?;
        files.push(temporary.clone());
        // (best effort: a process in another namespace of time takes it for a dead one's otherwise)
        writer_lock::take(&file);
        Ok((Fresh { temporary, path }, file))
    }

    /// Gives the file its name and returns its path.
    ///
    /// # Errors
    /// Where the name is taken (`AlreadyExists`), the directory does not take it, or [`give_up`]
    /// was called.
    pub fn publish(self) -> io::Result<PathBuf> {
        let files = unfinished();
        if files.is_none() {
            return Err(given_up());
        }
        match fs::hard_link(&self.temporary, &self.path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(e),
            // a file system without links (FAT, some of FUSE): reserve the name, then put the file
            // there
            Err(_) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .custom_flags(O_NOFOLLOW)
                    .open(&self.path)?;
                if let Err(e) = fs::rename(&self.temporary, &self.path) {
                    let _ = fs::remove_file(&self.path); // ours, empty
                    return Err(e);
                }
            }
        }
        // locals go before `self`: the lock is free again when that is dropped
        Ok(self.path.clone())
    }
}

impl Drop for Fresh {
    /// Takes the temporary name away: of a published file a second name, or none any more.
    fn drop(&mut self) {
        if let Some(files) = unfinished().as_mut() {
            files.retain(|f| *f != self.temporary);
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
        let taken = unfinished_result("b.json", &liveness::own());
        symlink(dir.join("a.json"), dir.join(&taken)).unwrap();
        assert!(Fresh::create(&dir, "b.json").is_err(), "a link under the temporary name is not followed");
        drop(Fresh::create(&dir, "c.json").unwrap());
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [taken.as_str(), "a.json"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where the control socket is: in the recording's private folder, under this process's name.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use trace::place;

use super::socket::Socket;
use crate::recording::folders;

pub(super) struct Place {
    folder: PathBuf,
    name: String,
    pub(super) path: PathBuf,
    root: Option<(u64, u64)>,
}

impl Place {
    /// Made once: part of the process's name is told by `/proc`, which may be gone later.
    pub(super) fn new(folder: &Path) -> Place {
        let name = place::control_socket(&folders::owner());
        Place { folder: folder.to_owned(), path: folder.join(&name), name, root: root() }
    }

    /// Do paths lead where they led (no `chroot` since)?
    pub(super) fn is_reached(&self) -> bool {
        root() == self.root
    }

    /// Is nothing there?
    pub(super) fn is_empty(&self) -> bool {
        self.path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    /// Listens there. The folder is made where it is gone; it must be ours alone.
    pub(super) fn listen(&self, has_own: bool) -> io::Result<Socket> {
        let folder = folders::open_private(&self.folder).ok_or(io::ErrorKind::PermissionDenied)?;
        // (once more where somebody removed it at that moment)
        for _ in 0..2 {
            let listener = match Socket::listen(&self.folder, &self.name, has_own) {
                // of the program that this process was before it called exec
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    std::fs::remove_file(&self.path)?;
                    Socket::listen(&self.folder, &self.name, has_own)?
                }
                listening => listening?,
            };
            if has(&folder, &self.name) {
                return Ok(listener);
            }
        }
        // its path leads elsewhere by now
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Device and inode of the root directory.
fn root() -> Option<(u64, u64)> {
    std::fs::metadata("/").ok().map(|m| (m.dev(), m.ino()))
}

/// Is a file of this name in an open folder?
fn has(folder: &File, name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    let mut s = MaybeUninit::<libc::stat>::zeroed();
    let (folder, flags) = (folder.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: an open folder, a C string and a stat buffer.
    unsafe { libc::fstatat(folder, name.as_ptr(), s.as_mut_ptr(), flags) == 0 }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! The private folders that recordings are made in, on local disks.

use std::ffi::{CString, OsStr};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use trace::{place, setting};

use crate::platform::environment;

/// File systems where a write may wait for another machine.
const NETWORK: &[u64] = &[
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x517b,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0x6b41_4653,
];

fn is_network(path: &Path) -> bool {
    let Ok(c) = CString::new(path.as_os_str().as_bytes()) else { return true };
    let mut s = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a C string and a statfs buffer.
    if unsafe { libc::statfs(c.as_ptr(), s.as_mut_ptr()) } != 0 {
        return true;
    }
    // SAFETY: zeroed and then filled by statfs.
    let kind = unsafe { s.assume_init() }.f_type as u64;
    NETWORK.contains(&kind)
}

/// The private folders a recording may be made in, in the order to try: `gapprobe-<uid>` in each
/// root of [`trace::place::roots`] that is on a local disk.
pub(crate) fn private_directories() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| environment::get(name).map(OsStr::from_bytes);
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    let local = place::roots(variable("TMPDIR"), variable(setting::TEST_ROOT))
        .into_iter()
        .filter(|root| !is_network(root));
    local.map(move |root| place::folder(&root, uid))
}

/// This process, as it is told in the names of files it has not finished.
pub(crate) fn owner() -> place::Owner {
    spool::liveness::own()
}

/// Makes a private folder with mode 0700 and opens it; `None` where it cannot be, is a link, not
/// ours, or open to others. What is made in it is made through this descriptor: whoever may rename
/// things in its parent cannot put another folder there.
pub(crate) fn open_private(directory: &Path) -> Option<std::fs::File> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    let _ = std::fs::DirBuilder::new().mode(0o700).create(directory); // exists already: checked below
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = std::fs::File::options().read(true).custom_flags(flags).open(directory).ok()?;
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    let is_ours = folder.metadata().is_ok_and(|m| m.uid() == uid && m.mode() & 0o077 == 0);
    is_ours.then_some(folder)
}

/// Locks a file or directory for as long as it is open, without waiting. Where the file system
/// knows no locks it is ours.
pub(crate) fn lock(file: &std::fs::File) -> bool {
    // SAFETY: a descriptor that `file` keeps open.
    let rc = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EWOULDBLOCK)
}

// SPDX-License-Identifier: Apache-2.0
//! Does anybody listen at a Unix socket? Asked of the kernel by connecting, which needs no pid: the
//! answer is right for a process of another namespace of pids or of time, too.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Is it certain that nobody does? Never waits longer than a moment: a full queue is somebody's.
pub fn is_abandoned(folder: &Path, name: &str) -> bool {
    let answer = connect(folder, name, Duration::from_millis(1));
    answer.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// As std's, but with a limit: the full queue of a stopped process would hold it for ever; and
/// under any path ([`address`]). `patience`: for a place in the queue, and for each word sent or
/// awaited later.
///
/// # Errors
/// What the kernel says. `ConnectionRefused`: nobody listens. `WouldBlock`: no place in the queue
/// in time.
pub fn connect(folder: &Path, name: &str, patience: Duration) -> io::Result<UnixStream> {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above, and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let patience = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: patience.subsec_micros().into(),
    };
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        let (value, length) = ((&raw const patience).cast(), size_of::<libc::timeval>() as libc::socklen_t);
        // SAFETY: our own descriptor; a value and its length.
        if unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, value, length) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let (address, _folder) = address(folder, name)?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: an address and its length.
    let connected = unsafe { libc::connect(fd, (&raw const address).cast(), length) } == 0;
    match connected {
        true => Ok(UnixStream::from(socket)),
        false => Err(io::Error::last_os_error()),
    }
}

/// The address of the socket `name` in a folder: there is room for 107 bytes, so that a longer path
/// goes through a descriptor of the folder, of the calling thread, which must stay open while the
/// address is used.
///
/// # Errors
/// The folder cannot be opened, or the name alone is too long.
pub fn address(folder: &Path, name: &str) -> io::Result<(libc::sockaddr_un, Option<File>)> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let (mut path, mut opened) = (folder.join(name), None);
    if path.as_os_str().len() >= address.sun_path.len() {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = File::options().read(true).custom_flags(flags).open(folder)?;
        path = PathBuf::from(format!("/proc/thread-self/fd/{}/{name}", folder.as_raw_fd()));
        opened = Some(folder);
    }
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, opened))
}

// SPDX-License-Identifier: Apache-2.0
//! The other end of a recorded process's control socket (`trace::control`). Only a socket in a folder that is ours alone,
//! made by a process of our user; never waits longer than a process that runs takes to answer.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use trace::control::{Answer, Request, MOST_BYTES};
use trace::place::{self, Owner};

use crate::verbs::living::Living;
use crate::verbs::{process, recordings};

/// Longest wait for a place in the queue, and for an answer: the process looks every 50 ms.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 3, tv_usec: 0 };

/// A connection. What it holds ends with it.
pub(crate) struct Peer {
    stream: UnixStream,
}

impl Peer {
    /// Connects to the process of a recording.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn connect(of: &Living) -> Result<Peer, String> {
        let folder = of.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Some(why) = recordings::distrust(folder) {
            return Err(format!("{why}: its control socket is not used"));
        }
        let name = place::control_socket(&Owner::from(&of.header));
        let path = folder.join(&name);
        let meta = path.symlink_metadata().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => "it has no control socket".to_owned(),
            _ => format!("{}: {e}", path.display()),
        })?;
        if !meta.file_type().is_socket() || meta.uid() != process::user_id() {
            return Err(format!("{} is no socket of yours", path.display()));
        }
        let stream = connect(folder, &name).map_err(|e| match e.kind() {
            io::ErrorKind::ConnectionRefused => "nobody listens at its control socket".to_owned(),
            io::ErrorKind::WouldBlock => "it does not answer (stopped?)".to_owned(),
            _ => format!("{}: {e}", path.display()),
        })?;
        let (pid, uid) = credentials(&stream).map_err(|e| format!("who listens is not known: {e}"))?;
        if uid != process::user_id() {
            return Err(format!("user {uid} listens at its control socket"));
        }
        if !of.elsewhere && pid != of.header.pid {
            return Err(format!("another process ({pid}) listens at its control socket"));
        }
        Ok(Peer { stream })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Answer, String> {
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::WouldBlock => "it does not answer (stopped?)".to_owned(),
            io::ErrorKind::UnexpectedEof => "it hung up (too many ask at once, or it ends)".to_owned(),
            _ => format!("no answer: {e}"),
        };
        self.stream.write_all(request.to_string().as_bytes()).map_err(failed)?;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') && line.len() < MOST_BYTES {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).map_err(failed)?;
            line.push(byte[0]);
        }
        Answer::parse(&line).ok_or_else(|| "its answer is of another version of gapprobe".to_owned())
    }
}

/// As std's, but with a limit before connecting: a full queue of a stopped process would hold it for ever. An address has
/// room for 107 bytes: a longer path goes through a descriptor of the folder.
fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above, and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        let (value, length) = ((&raw const PATIENCE).cast(), size_of::<libc::timeval>() as libc::socklen_t);
        // SAFETY: our own descriptor; a value and its length.
        if unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, value, length) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let mut path: PathBuf = folder.join(name);
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let mut opened = None;
    if path.as_os_str().len() >= address.sun_path.len() {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
        path = PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()));
        opened = Some(folder);
    }
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: an address and its length.
    let connected = unsafe { libc::connect(fd, (&raw const address).cast(), length) } == 0;
    let error = io::Error::last_os_error();
    drop(opened);
    match connected {
        true => Ok(UnixStream::from(socket)),
        false => Err(error),
    }
}

/// Pid and user of who listens, as the kernel saw when it began to.
fn credentials(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (value, level) = ((&raw mut peer).cast(), libc::SOL_SOCKET);
    // SAFETY: a buffer and its length.
    let told =
        unsafe { libc::getsockopt(stream.as_raw_fd(), level, libc::SO_PEERCRED, value, &raw mut length) };
    match told {
        0 => Ok((peer.pid as u32, peer.uid)),
        _ => Err(io::Error::last_os_error()),
    }
}

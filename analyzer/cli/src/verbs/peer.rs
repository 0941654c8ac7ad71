// SPDX-License-Identifier: Apache-2.0
//! The other end of a recorded process's control socket (`trace::control`). Only a socket in a
//! folder that is ours alone, made by a process of our user; never waits longer than a process that
//! runs takes to answer.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use spool::socket_probe;
use trace::control::{Answer, Request, MOST_BYTES};
use trace::place::{self, Owner};

use crate::verbs::living::Living;
use crate::verbs::{process, recordings};

/// Longest wait for a place in the queue, and for an answer: the process looks every 50 ms.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

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
        let stream = socket_probe::connect(folder, &name, ANSWER_TIMEOUT).map_err(|e| match e.kind() {
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

// SPDX-License-Identifier: Apache-2.0
// WARM
//! A Unix socket of ours that never waits. Where its thread has no descriptors of its own
//! (`descriptors`), it is looked at before each use: a program that closes all descriptors and
//! opens its own gets our number.

use std::fmt::Display;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use spool::socket_probe;

use crate::platform::descriptors::{identity_of, out_of_the_way};

/// Who is let in between two looks; more wait in front or are refused by the kernel.
const BACKLOG: i32 = 8;

/// Waits until something is to be read of one of them, or for so long, ns, or not at all: see
/// [`super::Control::wait`].
pub(super) fn wait<'a>(sockets: impl Iterator<Item = &'a Socket>, longest: u64) {
    let entry = |s: &Socket| libc::pollfd { fd: s.number(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = sockets.filter(|s| s.is_ours()).map(entry).collect();
    let ms = i32::try_from(longest.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    // SAFETY: valid entries, and how many.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, ms) };
}

/// The descriptor, and which file it is.
pub(super) struct Socket {
    fd: ManuallyDrop<OwnedFd>,
    identity: (u64, u64),
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here; the number is still ours.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

impl Socket {
    /// `has_own`: the calling thread's numbers are its own.
    fn new(fd: i32, has_own: bool) -> io::Result<Socket> {
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor we just made and nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let fd = if has_own { fd } else { out_of_the_way(fd) };
        let identity = identity_of(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(Socket { fd: ManuallyDrop::new(fd), identity })
    }

    /// Listens under `name` in a folder.
    pub(super) fn listen(folder: &Path, name: &str, has_own: bool) -> io::Result<Socket> {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers.
        let socket = Socket::new(unsafe { libc::socket(libc::AF_UNIX, flags, 0) }, has_own)?;
        // the file is made with these bits: it is open to nobody else at any moment, whatever the
        // umask, which is the whole process's SAFETY: our own descriptor.
        if unsafe { libc::fchmod(socket.number(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (address, _folder) = socket_probe::address(folder, name)?;
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: an address and its length.
        if unsafe { libc::bind(socket.number(), (&raw const address).cast(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: our own descriptor.
        if unsafe { libc::listen(socket.number(), BACKLOG) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }

    pub(super) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    pub(super) fn is_ours(&self) -> bool {
        identity_of(self.number()) == Some(self.identity)
    }

    /// Has anybody come? (`accept` takes the lowest free number for a moment, also where nobody
    /// has.)
    fn has_caller(&self) -> bool {
        let mut p = libc::pollfd { fd: self.number(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, no waiting.
        unsafe { libc::poll(&mut p, 1, 0) == 1 && p.revents & libc::POLLIN != 0 }
    }

    /// Who came, if anybody did; an error where somebody did and cannot be let in.
    pub(super) fn accept(&self, has_own: bool) -> io::Result<Option<Socket>> {
        if !self.is_ours() || !self.has_caller() {
            return Ok(None);
        }
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let nobody = std::ptr::null_mut();
        // SAFETY: our own descriptor, which does not wait; no address is asked for.
        let came =
            Socket::new(unsafe { libc::accept4(self.number(), nobody, nobody.cast(), flags) }, has_own);
        match came {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            came => came.map(Some),
        }
    }

    /// Is the other end a process of our effective user, as the kernel saw when it connected?
    pub(super) fn is_of_our_user(&self) -> bool {
        let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        // SAFETY: a buffer and its length.
        let told = unsafe {
            libc::getsockopt(self.number(), level, option, (&raw mut peer).cast(), &raw mut length)
        } == 0;
        // SAFETY: takes nothing, cannot fail.
        told && length as usize == size_of::<libc::ucred>() && peer.uid == unsafe { libc::geteuid() }
    }

    /// What is there; `Some(0)`: the other end is gone, `None`: nothing yet, or
    /// [`Socket::is_broken`].
    pub(super) fn receive(&self, room: &mut [u8]) -> Option<usize> {
        if !self.is_ours() {
            return Some(0);
        }
        // SAFETY: a buffer and its length; does not wait.
        let n =
            unsafe { libc::recv(self.number(), room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) };
        usize::try_from(n).ok()
    }

    /// After `receive` said nothing: is that all there will ever be?
    pub(super) fn is_broken(&self) -> bool {
        let waits = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
        !waits.contains(&io::Error::last_os_error().kind())
    }

    /// Sends a line; `false` where it does not go out at once as a whole.
    pub(super) fn send(&self, line: &impl Display) -> bool {
        let line = line.to_string();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: a buffer and its length; does not wait, raises no signal.
        let n = unsafe { libc::send(self.number(), line.as_ptr().cast(), line.len(), flags) };
        usize::try_from(n) == Ok(line.len())
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A lock on a recording, or a trace that is being written, that its writer holds as long as it
//! lives: whoever can open the file can tell whether the process is there, whatever namespaces of
//! pids or of time it is in, and whether it has become another program (`exec`). The kernel lets go
//! of it.
//!
//! An open file description's own lock (`fcntl(2)`, Linux 3.15), on a byte that no recording has;
//! `flock`, by which those who report a recording keep out of each other's way, is another.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use trace::header::sources::WRITER_LOCK;
use trace::Header;

use crate::liveness;
use crate::liveness::Life;

/// Far behind the largest recording.
const AT: libc::off_t = 1 << 62;

fn lock() -> libc::flock {
    // SAFETY: plain numbers, of which zero is one.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (AT, 1);
    lock
}

/// Holds it, as long as `file` is open somewhere. `false`: the file system has no such locks, or
/// another one holds it.
pub fn take(file: &impl AsRawFd) -> bool {
    // SAFETY: an open descriptor, and a description of the lock.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock()) == 0 }
}

/// Does anybody hold that of the file at this path, for certain?
pub fn is_held_at(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| is_held(&file) == Some(true))
}

/// Does anybody hold it? `None`: that cannot be told.
fn is_held(file: &impl AsRawFd) -> Option<bool> {
    let mut asked = lock();
    // SAFETY: an open descriptor, and a description that the kernel writes to.
    let told = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut asked) } == 0;
    told.then_some(asked.l_type != libc::F_UNLCK as libc::c_short)
}

/// Is the process of this recording still there?
pub fn life(file: &File, header: &Header) -> Life {
    let by_pid = liveness::life(&header.into());
    let booted_since =
        crate::procfs::boot_id().is_some_and(|id| header.boot_id != [0; 16] && id != header.boot_id);
    if header.sources & WRITER_LOCK == 0 || booted_since {
        return by_pid;
    }
    match (is_held(file), by_pid) {
        (None, _) => by_pid,
        (Some(false), _) => Life::Ended,
        // its pid means nothing here
        (Some(true), Life::Unknown) => Life::Unknown,
        (Some(true), _) => Life::Runs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_whose_writer_holds_its_lock_is_of_a_living_process_whatever_pids_say() {
        let path = std::env::temp_dir().join(format!("gapprobe-test-lock-{}", std::process::id()));
        let write = || File::options().write(true).create(true).truncate(false).open(&path).expect("a file");
        let (writer, reader) = (write(), write());
        let read_only = File::open(&path).expect("the file");
        let own = liveness::own();
        let locked =
            Header { sources: WRITER_LOCK, boot_id: own.boot, pid: i32::MAX as u32, ..Header::default() };
        let living = Header { pid: own.pid, process_start: own.start, ..locked.clone() };
        let elsewhere = Header { pid_namespace: own.namespace + 1, ..living.clone() };
        let of = |header: &Header| life(&read_only, header);
        assert_eq!(
            [&locked, &living, &elsewhere].map(of),
            [Life::Ended; 3],
            "nobody holds it: it is another program by now"
        );
        assert!(take(&writer) && !take(&reader));
        assert_eq!([&locked, &living, &elsewhere].map(of), [Life::Runs, Life::Runs, Life::Unknown]);
        let without = Header { sources: 0, ..locked.clone() };
        assert_eq!((of(&without), of(&Header { boot_id: [1; 16], ..locked })), (Life::Ended, Life::Ended));
        drop(writer);
        assert_eq!(of(&living), Life::Ended);
        std::fs::remove_file(&path).expect("removed");
    }
}

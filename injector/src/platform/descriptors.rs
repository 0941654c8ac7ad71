// SPDX-License-Identifier: Apache-2.0
// COLD
//! Descriptors of ours inside the program: what they are of, and numbers out of its way. And
//! threads of ours with a table of their own: a number that the program closes, or opens a file of
//! its own under, is never the one that such a thread writes to, and what it opens takes no number
//! from the program, not even for a moment, and no forked child with it. That is for threads that
//! do files and nothing else: CUPTI, the driver and NVML keep descriptors of theirs under the
//! program's numbers, and who calls them stays with the program's.

use std::ffi::c_uint;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `linux/close_range.h`; the call is of Linux 5.9.
const UNSHARE: c_uint = 1 << 1;

fn close_range(from: u32, to: u32, flags: c_uint) -> bool {
    // SAFETY: takes numbers. With `UNSHARE` nothing of the program's is closed, and without it the
    // table is this thread's.
    unsafe { libc::syscall(libc::SYS_close_range, from, to, flags) == 0 }
}

/// From here on the calling thread has no descriptors of the program's but `keep`, and what it
/// opens is its own alone. `false`: that cannot be had (an older kernel whose unsharing a
/// container's filter forbids), and nothing was changed.
pub(crate) fn leave_the_programs(keep: Option<u32>) -> bool {
    // (from the highest on: of a range that goes to the end nothing is copied first, and so nothing
    // closed)
    let (last, first) = match keep {
        None => (Some((0, u32::MAX)), None),
        Some(kept) => {
            (kept.checked_add(1).map(|from| (from, u32::MAX)), kept.checked_sub(1).map(|to| (0, to)))
        }
    };
    let mut is_own = false;
    for (from, to) in [last, first].into_iter().flatten() {
        let flags = if is_own { 0 } else { UNSHARE };
        is_own = close_range(from, to, flags) || is_own || close_one_by_one(keep);
    }
    is_own
}

/// The numbers that are open; `None`: the kernel does not tell.
fn numbers() -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc/thread-self/fd").ok()?;
    Some(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

/// The same where the kernel has no such call: a copy of the table, whose descriptors are closed.
/// Not where nobody can tell which they are: a copy that stays open would keep a pipe of the
/// program's from ending.
fn close_one_by_one(keep: Option<u32>) -> bool {
    let Some(before) = numbers() else { return false };
    // SAFETY: gives the calling thread a table of its own.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return false;
    }
    for number in numbers().unwrap_or(before).into_iter().filter(|n| Some(*n) != keep) {
        // SAFETY: of this thread's own table; the folder's own, which is in the list too, is closed
        // already.
        unsafe { libc::close(number as i32) };
    }
    true
}

/// Device and inode of an open descriptor.
pub(crate) fn identity_of(fd: i32) -> Option<(u64, u64)> {
    status_of(fd).map(|s| (s.st_dev, s.st_ino))
}

/// What the kernel says of an open descriptor.
pub(crate) fn status_of(fd: i32) -> Option<libc::stat> {
    let mut s = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a stat buffer; a closed descriptor fails without touching it.
    if unsafe { libc::fstat(fd, s.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed and then filled by fstat.
    Some(unsafe { s.assume_init() })
}

/// Moves the descriptor away from the low numbers: programs that close and reuse 0 to 2, or count
/// on small ones, are not disturbed.
pub(crate) fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    let ours = identity_of(file.as_raw_fd());
    // SAFETY: duplicates our own descriptor to the lowest free number from 300 on.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 300) };
    if high < 0 {
        return file;
    }
    // (the kernel may have enlarged the table for it, some ms in which a program that closes all
    // descriptors may have opened a file of its own there)
    if identity_of(file.as_raw_fd()) != ours {
        std::mem::forget(file);
    }
    // SAFETY: a descriptor we just made.
    unsafe { OwnedFd::from_raw_fd(high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(number: i32) -> bool {
        // SAFETY: asks for the flags of a number.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    fn leaves(how: impl Fn(Option<u32>) -> bool + Sync, keep: Option<u32>) {
        let file = std::fs::File::open("/dev/null").expect("a file");
        let number = file.as_raw_fd();
        let own = || {
            assert!(how(keep));
            assert!(!is_open(number) && is_open(2) == (keep == Some(2)));
            let own = std::fs::File::open("/proc/self/stat").expect("a file");
            let at = own.as_raw_fd();
            assert!(at < number, "{at}: the first free one of its own");
            at
        };
        let at = std::thread::scope(|s| s.spawn(own).join().expect("leaves"));
        assert!(is_open(number) && is_open(2), "the program's are open");
        let text = std::fs::read_link(format!("/proc/self/fd/{at}"));
        assert!(text.is_ok_and(|to| !to.ends_with("stat")), "{at} is another file's, or nobody's, here");
    }

    #[test]
    fn a_thread_that_leaves_closes_nothing_of_the_programs_and_opens_nothing_in_its_numbers() {
        leaves(leave_the_programs, None);
        leaves(leave_the_programs, Some(2));
    }

    #[test]
    fn so_does_one_on_an_older_kernel() {
        leaves(close_one_by_one, None);
        leaves(close_one_by_one, Some(2));
    }
}

// SPDX-License-Identifier: Apache-2.0
// COLD
//! The only place that writes to stderr: one write of one line, only if file descriptor 2 is still
//! what it was at start, and only if it takes the line now (select): a full pipe must not hold the
//! program up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use verdict::text::escape::visible;

use crate::platform::descriptors::identity_of;

/// The program's stderr as it was at start, and what was said.
struct Stderr {
    known: AtomicBool,
    device: AtomicU64,
    inode: AtomicU64,
    quiet: AtomicBool,
    complained: AtomicBool,
}

static STDERR: Stderr = Stderr {
    known: AtomicBool::new(false),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
    quiet: AtomicBool::new(false),
    complained: AtomicBool::new(false),
};

/// `GAPPROBE_QUIET`.
pub(crate) fn set_quiet(quiet: bool) {
    STDERR.quiet.store(quiet, Ordering::Relaxed);
}

/// Remembers what stderr is. In the constructor: later its number may stand for a data file of the
/// program's.
pub(crate) fn remember_stderr() {
    if let Some((device, inode)) = identity_of(2) {
        STDERR.device.store(device, Ordering::Relaxed);
        STDERR.inode.store(inode, Ordering::Relaxed);
        STDERR.known.store(true, Ordering::Release);
    }
}

/// Runs `body` with SIGPIPE and SIGXFSZ held back from the calling thread, and takes back what it
/// raised: both would end a program that only let us write.
fn without_write_signals(body: impl FnOnce()) {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut pending = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a valid sigset.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: as above. One that was pending before is not ours to take.
        if unsafe { libc::sigismember(pending.as_ptr(), signal) } == 0 {
            // SAFETY: as above.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
    }
    // SAFETY: valid sigsets; the mask is this thread's only and restored below.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
    body();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid sigset and timespec; takes a signal that our write sent to this thread, without
    // waiting.
    while unsafe { libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &now) } > 0 {}
    // SAFETY: the mask saved above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
}

/// Writes `text` and a newline in one write, on any thread. Paths and values that others chose are
/// in it: one line, no escapes.
pub(crate) fn line(text: &str) {
    parts(&[visible(text).as_bytes()]);
}

/// Most parts of a line.
const PARTS: usize = 7;
/// A pipe that takes anything takes so many bytes without waiting (PIPE_BUF).
const AT_ONCE: usize = 4096;

/// Has the calling thread the program's stderr? One of ours with descriptors of its own may not.
pub(crate) fn has_stderr() -> bool {
    STDERR.known.load(Ordering::Acquire)
        && identity_of(2)
            == Some((STDERR.device.load(Ordering::Relaxed), STDERR.inode.load(Ordering::Relaxed)))
}

/// As [`line()`], the text in parts, which can be shown as they are. Allocates nothing.
pub(crate) fn parts(text: &[&[u8]]) {
    if !has_stderr() || STDERR.quiet.load(Ordering::Relaxed) {
        return;
    }
    let end: &[u8] = b"\n";
    let mut pieces = [NOTHING; PARTS + 1];
    let (mut count, mut bytes) = (0, 0);
    for part in text.iter().copied().take(PARTS).chain([end]) {
        let mut part = part;
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(AT_ONCE - bytes));
            if let Some(piece) = pieces.get_mut(count) {
                *piece = libc::iovec { iov_base: now.as_ptr().cast_mut().cast(), iov_len: now.len() };
                (count, bytes, part) = (count + 1, bytes + now.len(), later);
            }
            if bytes == AT_ONCE || count == pieces.len() {
                if !write(&pieces, count) {
                    return;
                }
                (count, bytes) = (0, 0);
            }
        }
    }
    if count > 0 {
        write(&pieces, count);
    }
}

const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Does stderr take something now? (`poll` is refused to a program that may open no more files,
/// RLIMIT_NOFILE 0; this is not.)
fn takes_now() -> bool {
    let mut out = std::mem::MaybeUninit::<libc::fd_set>::zeroed();
    // SAFETY: an empty set, and a number below its size.
    unsafe { libc::FD_SET(2, out.as_mut_ptr()) };
    let (none, mut now) = (std::ptr::null_mut(), libc::timeval { tv_sec: 0, tv_usec: 0 });
    // SAFETY: a valid set of numbers below three and a valid time: no waiting.
    unsafe { libc::select(3, none, out.as_mut_ptr(), none, &raw mut now) == 1 }
}

/// So many of these at once, if stderr takes them now; one that nobody reads any more takes
/// nothing.
fn write(pieces: &[libc::iovec; PARTS + 1], count: usize) -> bool {
    if !takes_now() {
        return false;
    }
    let mut written = 0;
    without_write_signals(|| {
        // SAFETY: that many valid buffers, which are only read; a short or failed write is
        // accepted.
        written = unsafe { libc::writev(2, pieces.as_ptr(), count as i32) };
    });
    written > 0
}

/// The one complaint of a process: why gapprobe does not record. Later ones are swallowed.
pub(crate) fn complain(text: &str) {
    if !STDERR.complained.swap(true, Ordering::AcqRel) {
        line(&format!("gapprobe: {text}"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Processes and signals: the only place of the command that talks to libc. Locks and opening
//! without waiting; handing the signals meant for us to the command we run.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A file that is cut off while it is mapped ends the program with SIGBUS, and so does a hole in
/// one on a full disk in memory: says so, and ends with exit code `code`.
pub(crate) fn explain_bus_errors(code: i32) {
    static CODE: AtomicI32 = AtomicI32::new(1);
    extern "C" fn ended(_: i32) {
        const TEXT: &[u8] = b"gapprobe: a file became shorter while it was read, or the tmpfs that it is on is full\n\nhint: wait until it is written, or make room, then run this again\n";
        // SAFETY: write(2) is async-signal-safe; the text is constant.
        unsafe { libc::write(2, TEXT.as_ptr().cast(), TEXT.len()) };
        // SAFETY: _exit(2) is async-signal-safe and does not return.
        unsafe { libc::_exit(CODE.load(Ordering::Relaxed)) };
    }
    CODE.store(code, Ordering::Relaxed);
    // SAFETY: the handler is async-signal-safe; no other part of the command handles SIGBUS.
    unsafe { libc::signal(libc::SIGBUS, ended as *const () as libc::sighandler_t) };
}

/// Columns of the terminal that stdout is; `None` where it is none, or does not tell.
pub(crate) fn terminal_columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes a winsize, and `size` is one.
    let told = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (told == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The user this process acts for.
pub(crate) fn user_id() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// CLOCK_MONOTONIC, ns: the clock of recordings.
pub(crate) fn monotonic() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out-pointer and a clock that always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Was this process asked to end, since [`end_when_asked`]?
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn asked(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on SIGTERM, SIGINT and SIGHUP are noted, for a verb that goes on until then
/// ([`was_asked_to_end`]).
pub(crate) fn end_when_asked() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, asked as *const () as libc::sighandler_t) };
    }
}

/// Did one of them come?
pub(crate) fn was_asked_to_end() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// What is done for people who look on gives way to the work that is looked at.
pub(crate) fn give_way() {
    // SAFETY: takes numbers; 0: this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// glibc's version text, for example `2.36`.
pub(crate) fn glibc_version() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: returns a pointer to a constant string of the C library, valid for ever.
        let pointer = unsafe { libc::gnu_get_libc_version() };
        // SAFETY: that string is not null and ends in a zero byte (glibc's contract).
        let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
        text.to_string_lossy().into_owned()
    }
    #[cfg(not(target_env = "gnu"))]
    {
        String::new()
    }
}

/// Whose turn it is to report a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// Ours, for as long as the file is open.
    Ours,
    /// Another process has it.
    Taken,
}

/// Claims an open file by flock(2): two that recover at once each report a recording once. Where
/// the file system knows no locks (some on the network) it is ours; recordings are on local disks.
pub(crate) fn claim(file: &File) -> Claim {
    // SAFETY: flock on a descriptor that `file` keeps open; does not wait.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    match result {
        0 => Claim::Ours,
        _ if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Claim::Taken,
        _ => Claim::Ours,
    }
}

/// Opens a file for reading without ever waiting for somebody at its other end (a FIFO, a terminal
/// line).
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Opens a file of ours to write into, without waiting and through no link.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// From now on a file size limit (`ulimit -f`) is an error of the write, not the end of this
/// process. Not before a command is started: it would inherit this.
pub(crate) fn survive_file_limit() {
    // SAFETY: ignoring a signal installs no handler; the call has no other preconditions.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The same for `body` alone: what is started later has its limit as it was.
pub(crate) fn within_file_limit<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: ignoring a signal installs no handler; the call has no other preconditions.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let result = body();
    // SAFETY: what the first call returned (a failed one changed nothing, and SIG_ERR is refused).
    unsafe { libc::signal(libc::SIGXFSZ, before) };
    result
}

/// Pid of the running command; 0 before it runs, -1 after it ended.
static COMMAND: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the command ran.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Signals handed on. SIGINT and SIGQUIT from a terminal reach the command by themselves (same
/// foreground group).
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

extern "C" fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    if code > 0 && (signal == libc::SIGINT || signal == libc::SIGQUIT) {
        return; // from the terminal: the command has got it too
    }
    match COMMAND.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        pid if pid > 0 => {
            // SAFETY: kill is async-signal-safe and takes any numbers; errno is the interrupted
            // code's, but no code of ours reads errno across a wait without checking for EINTR
            // first.
            unsafe { libc::kill(pid, signal) };
        }
        _ => {}
    }
}

/// From now on signals meant for us go to the command that [`command_runs`] will name. Signals
/// ignored on entry (nohup) stay ignored, for the command too.
pub(crate) fn forward_signals() {
    for signal in FORWARDED {
        // SAFETY: an all-zero sigaction is a valid value of that C struct.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reading the current disposition into a local.
        unsafe { libc::sigaction(signal, std::ptr::null(), &mut old) };
        if old.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: as above.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = hand_on as *const () as libc::sighandler_t;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: hand_on has the signature SA_SIGINFO asks for and does only async-signal-safe
        // things.
        unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
    }
}

/// The command runs: signals go to `pid`, also one that came before.
pub(crate) fn command_runs(pid: u32) {
    COMMAND.store(pid as i32, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 {
        // SAFETY: kill takes any numbers; the child has not been waited for, so the pid is still
        // its own.
        unsafe { libc::kill(pid as i32, early) };
    }
}

/// The command has ended and is about to be waited for no more: signals go nowhere.
pub(crate) fn command_ended() {
    COMMAND.store(-1, Ordering::SeqCst);
}

/// Waits until the child has ended, leaving it a zombie, so that its pid stays its own until
/// [`command_ended`].
pub(crate) fn wait_without_reaping(pid: u32) {
    loop {
        // SAFETY: an all-zero siginfo is a valid value of that C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waitid writes into our local; WNOWAIT leaves the child to be reaped by std.
        let result = unsafe { libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT) };
        if result == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

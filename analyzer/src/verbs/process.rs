// SPDX-License-Identifier: Apache-2.0
//! Processes and signals: the only place of the command that talks to libc. Whether the process of a recording is
//! still alive; handing the signals meant for us to the command we run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI32, Ordering};

use trace::Header;

/// The user this process acts for.
pub(crate) fn user_id() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
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

/// What can be said about the process of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It has ended.
    Ended,
    /// It still runs.
    Runs,
    /// It was in another pid namespace (a container) on this boot: nobody can tell from here.
    Unknown,
}

/// Is the process that wrote `header` still there? By boot id, pid namespace, pid and start time, so that a reused
/// pid is not mistaken for it.
pub(crate) fn life(header: &Header) -> Life {
    let boot = boot_id();
    if header.boot_id != [0; 16] && boot.is_some_and(|b| b != header.boot_id) {
        return Life::Ended;
    }
    let namespace = fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).unwrap_or(0);
    if header.pid_namespace != 0 && namespace != 0 && header.pid_namespace != namespace {
        return Life::Unknown;
    }
    match stat_of(header.pid) {
        // a zombie runs no more: its parent just has not asked yet
        Some((state, start))
            if state != 'Z'
                && state != 'X'
                && (header.process_start == 0 || start == header.process_start) =>
        {
            Life::Runs
        }
        _ => Life::Ended,
    }
}

/// State letter and start time (clock ticks since boot) of a process: fields 3 and 22 of /proc/PID/stat.
pub(crate) fn stat_of(pid: u32) -> Option<(char, u64)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // the name in parentheses may hold anything, parentheses too: count from the last one
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The kernel's boot id as 16 bytes.
pub(crate) fn boot_id() -> Option<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(id)
}

/// From now on a file size limit (`ulimit -f`) is an error of the write, not the end of this process. Not before a
/// command is started: it would inherit this.
pub(crate) fn survive_file_limit() {
    // SAFETY: ignoring a signal installs no handler; the call has no other preconditions.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Pid of the running command; 0 before it runs, -1 after it ended.
static COMMAND: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the command ran.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Signals handed on. SIGINT and SIGQUIT from a terminal reach the command by themselves (same foreground group).
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
            // SAFETY: kill is async-signal-safe and takes any numbers; errno is the interrupted code's, but no
            // code of ours reads errno across a wait without checking for EINTR first.
            unsafe { libc::kill(pid, signal) };
        }
        _ => {}
    }
}

/// From now on signals meant for us go to the command that [`command_runs`] will name. Signals ignored on entry
/// (nohup) stay ignored, for the command too.
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
        // SAFETY: hand_on has the signature SA_SIGINFO asks for and does only async-signal-safe things.
        unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
    }
}

/// The command runs: signals go to `pid`, also one that came before.
pub(crate) fn command_runs(pid: u32) {
    COMMAND.store(pid as i32, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 {
        // SAFETY: kill takes any numbers; the child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(pid as i32, early) };
    }
}

/// The command has ended and is about to be waited for no more: signals go nowhere.
pub(crate) fn command_ended() {
    COMMAND.store(-1, Ordering::SeqCst);
}

/// Waits until the child has ended, leaving it a zombie, so that its pid stays its own until [`command_ended`].
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own_header() -> Header {
        Header {
            pid: std::process::id(),
            process_start: stat_of(std::process::id()).unwrap().1,
            boot_id: boot_id().unwrap(),
            pid_namespace: fs::metadata("/proc/self/ns/pid").unwrap().ino(),
            ..Header::default()
        }
    }

    #[test]
    fn a_process_is_known_by_boot_namespace_pid_and_start() {
        let h = own_header();
        assert_eq!(life(&h), Life::Runs);
        assert_eq!(
            life(&Header { process_start: h.process_start + 1, ..h.clone() }),
            Life::Ended,
            "pid reused"
        );
        assert_eq!(life(&Header { boot_id: [1; 16], ..h.clone() }), Life::Ended, "booted since");
        assert_eq!(life(&Header { pid_namespace: h.pid_namespace + 1, ..h.clone() }), Life::Unknown);
        assert_eq!(life(&Header { pid: i32::MAX as u32, ..h }), Life::Ended);
    }
}

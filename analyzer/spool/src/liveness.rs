// SPDX-License-Identifier: Apache-2.0
//! Is the process that made a file still there? Asked of /proc, by boot id, pid namespace, pid and
//! start time, so that a reused pid is not mistaken for it. Every leftover is judged by this one
//! answer: recordings, unfinished files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use trace::place::Owner;

/// What can be said about a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It has ended.
    Ended,
    /// It still runs.
    Runs,
    /// It was in another pid namespace (a container) on this boot, or there is no /proc: nobody can
    /// tell from here.
    Unknown,
}

/// Is `owner` still there? Of a file on a disk of this host: another boot id means an earlier boot.
pub fn life(owner: &Owner) -> Life {
    if owner.boot != [0; 16] && boot_id().is_some_and(|b| b != owner.boot) {
        return Life::Ended;
    }
    let namespace = pid_namespace();
    if owner.namespace != 0 && namespace != 0 && owner.namespace != namespace {
        return Life::Unknown;
    }
    match stat_of(owner.pid) {
        Some((state, start)) if owner.start == 0 || start == owner.start => match runs(state) {
            true => Life::Runs,
            false => others_run(owner.pid),
        },
        // (where there is no /proc it does not even know of this process)
        None if stat_of(std::process::id()).is_none() => Life::Unknown,
        _ => Life::Ended,
    }
}

fn runs(state: char) -> bool {
    state != 'Z' && state != 'X'
}

/// The main thread is a zombie. That of a process whose other threads go on; or the process's,
/// whose parent just has not asked yet: it has no thread any more.
fn others_run(pid: u32) -> Life {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let mut states = tasks.filter_map(|t| stat_in(&t.path().join("stat"))).map(|(state, _)| state);
    if states.any(runs) {
        Life::Runs
    } else {
        Life::Ended
    }
}

/// Has the process begun to end, as a whole? All its threads leave, or have a SIGKILL to heed: it
/// is gone in a moment, but for what the kernel has to take down.
pub fn is_ending(pid: u32) -> bool {
    /// PF_EXITING of the kernel's include/linux/sched.h.
    const LEAVES: u64 = 4;
    /// SIGKILL in a mask.
    const KILL: u64 = 1 << 8;
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let leaves = |task: &Path| {
        let Some([flags]) = fields(&task.join("stat"), [6]) else { return true };
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let pending = |name| {
            status.lines().find_map(|l: &str| u64::from_str_radix(l.strip_prefix(name)?.trim(), 16).ok())
        };
        let killed = pending("SigPnd:").unwrap_or(0) | pending("ShdPnd:").unwrap_or(0);
        flags.parse().unwrap_or(0) & LEAVES != 0 || killed & KILL != 0
    };
    tasks.filter_map(Result::ok).all(|t| leaves(&t.path()))
}

/// This process.
pub fn own() -> Owner {
    let pid = std::process::id();
    Owner {
        pid,
        start: stat_of(pid).map_or(0, |s| s.1),
        namespace: pid_namespace(),
        boot: boot_id().unwrap_or_default(),
    }
}

/// State letter and start time (clock ticks since boot) of a process: fields 3 and 22 of
/// /proc/PID/stat.
pub fn stat_of(pid: u32) -> Option<(char, u64)> {
    stat_in(Path::new(&format!("/proc/{pid}/stat")))
}

/// Is the process `pid` stopped, by a signal or a debugger?
pub fn is_stopped(pid: u32) -> bool {
    stat_of(pid).is_some_and(|(state, _)| matches!(state, 'T' | 't'))
}

fn stat_in(path: &Path) -> Option<(char, u64)> {
    let [state, start] = fields(path, [0, 19])?;
    Some((state.chars().next()?, start.parse().ok()?))
}

/// Fields of a file `stat`, counted from the one behind the name.
fn fields<const N: usize>(path: &Path, numbers: [usize; N]) -> Option<[String; N]> {
    let stat = fs::read(path).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // the name in parentheses may hold anything, parentheses too: count from the last one
    let all: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    numbers.iter().all(|&n| n < all.len()).then(|| numbers.map(|n| all[n].to_owned()))
}

/// The kernel's boot id as 16 bytes. Read once: no process outlives its boot.
pub fn boot_id() -> Option<[u8; 16]> {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    ID.get().copied().or_else(|| read_boot_id().map(|id| *ID.get_or_init(|| id)))
}

fn read_boot_id() -> Option<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(id)
}

/// Inode of this process's pid namespace, 0 where unknown.
pub fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// The user this process acts for (the effective one of /proc/self/status).
pub fn user() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("Uid:"))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_boot_namespace_pid_and_start() {
        let own = own();
        assert!(own.start > 0 && own.namespace > 0 && own.boot != [0; 16]);
        assert_eq!(life(&own), Life::Runs);
        assert_eq!(life(&Owner { start: own.start + 1, ..own }), Life::Ended, "pid reused");
        assert_eq!(life(&Owner { boot: [1; 16], ..own }), Life::Ended, "booted since");
        assert_eq!(life(&Owner { namespace: own.namespace + 1, ..own }), Life::Unknown);
        assert_eq!(life(&Owner { pid: i32::MAX as u32, ..own }), Life::Ended);
    }

    #[test]
    fn a_process_that_was_killed_is_ending_before_anybody_asked_for_it() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(is_ending(child.id()), "and gone");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Is the process that made a file still there? Asked of /proc, by boot id, pid namespace, pid and
//! start time, so that a reused pid is not mistaken for it. Every leftover is judged by this one
//! answer: recordings, unfinished files.

use std::fs;
use std::path::Path;

use trace::place::Owner;

use crate::procfs::{boot_id, pid_namespace, Stat};

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
    match Stat::of(owner.pid) {
        Some(stat) if owner.start == 0 || stat.start == owner.start => match runs(stat.state) {
            true => Life::Runs,
            false => others_run(owner.pid),
        },
        // (where there is no /proc it does not even know of this process)
        None if Stat::of(std::process::id()).is_none() => Life::Unknown,
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
    let mut states = tasks.filter_map(|t| Stat::read(&t.path().join("stat"))).map(|s| s.state);
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
        let Some(stat) = Stat::read(&task.join("stat")) else { return true };
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let pending = |name| {
            status.lines().find_map(|l: &str| u64::from_str_radix(l.strip_prefix(name)?.trim(), 16).ok())
        };
        let killed = pending("SigPnd:").unwrap_or(0) | pending("ShdPnd:").unwrap_or(0);
        stat.flags & LEAVES != 0 || killed & KILL != 0
    };
    tasks.filter_map(Result::ok).all(|t| leaves(&t.path()))
}

/// This process.
pub fn own() -> Owner {
    Owner {
        pid: std::process::id(),
        // (/proc may be another pid namespace's, in which this number is somebody else)
        start: Stat::read(Path::new("/proc/self/stat")).map_or(0, |s| s.start),
        namespace: pid_namespace(),
        boot: boot_id().unwrap_or_default(),
    }
}

/// Is the process `pid` stopped, by a signal or a debugger?
pub fn is_stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|s| matches!(s.state, 'T' | 't'))
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

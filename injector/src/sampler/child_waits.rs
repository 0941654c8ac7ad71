// SPDX-License-Identifier: Apache-2.0
// WARM
//! What the main thread of a child waits for where it may wait for data: the system call that the
//! kernel says it is blocked in (`/proc/PID/syscall`), and whether that reads a pipe. A worker of a
//! DataLoader that reads from a slow disk or a network stands there.
//!
//! The kernel tells it to who may read the child's memory (see `workers`).

use trace::event::PAGE_FAULT;

/// System calls of x86-64 Linux that return when data is there, first argument a descriptor: read,
/// pread64, readv, preadv, preadv2; recvfrom, recvmsg, recvmmsg; getdents, getdents64.
const OF_A_FILE: [u32; 10] = [0, 17, 19, 295, 327, 45, 47, 299, 78, 217];
/// As above, without one: open, openat, stat, fstat, lstat, newfstatat, statx (a network file
/// system asks its server); poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2 (a
/// socket with a time limit); connect; io_getevents, io_pgetevents, io_uring_enter.
const OTHERS: [u32; 18] = [2, 257, 4, 5, 6, 262, 332, 7, 271, 23, 270, 232, 281, 441, 42, 208, 333, 426];

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChildWait {
    /// The call's number, or [`PAGE_FAULT`].
    pub(super) call: u32,
    /// What it reads is no file and no socket: a pipe, a terminal, an event of the kernel's.
    /// Another process, not storage, is waited for.
    pub(super) on_pipe: bool,
}

impl ChildWait {
    /// Of the main thread of `pid`; `Ok(None)`: it is in no such call.
    ///
    /// # Errors
    /// The kernel does not tell; asked again and again it may log each refusal (Yama, SELinux).
    pub(super) fn of(pid: u32) -> Result<Option<ChildWait>, std::io::Error> {
        let text = std::fs::read(format!("/proc/{pid}/syscall"))?;
        let Some((call, descriptor)) = std::str::from_utf8(&text).ok().and_then(parse) else {
            return Ok(None);
        };
        let on_pipe = descriptor.is_some_and(|fd| {
            // what cannot be asked is not taken for storage
            let to = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
            to.map_or(true, |to| !holds_data(&to.to_string_lossy()))
        });
        Ok(Some(ChildWait { call, on_pipe }))
    }
}

/// The call, and the descriptor it reads.
fn parse(text: &str) -> Option<(u32, Option<u64>)> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?;
    if number == "-1" {
        return Some((PAGE_FAULT, None));
    }
    let call = number.parse().ok()?;
    let first = words.next().and_then(|w| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok());
    match () {
        () if OF_A_FILE.contains(&call) => Some((call, first)),
        () if OTHERS.contains(&call) => Some((call, None)),
        () => None,
    }
}

/// By what the kernel calls an open descriptor.
fn holds_data(target: &str) -> bool {
    target.starts_with("socket:") || (target.starts_with('/') && !target.starts_with("/dev/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(parse("0 0x7 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffd 0x7fbe\n"), Some((0, Some(7))));
        assert_eq!(parse("7 0x7ffd 0x1 0xffffffff 0x0 0x0 0x0 0x7ffd 0x7fbe\n"), Some((7, None)));
        assert_eq!(parse("-1 0x7ffd 0x7fbe\n"), Some((PAGE_FAULT, None)));
        for other in ["running\n", "202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7fbe\n", ""] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn files_and_sockets_hold_data_and_what_processes_say_to_each_other_does_not() {
        for (target, holds) in [
            ("socket:[123]", true),
            ("/data/images.bin", true),
            ("/data/gone (deleted)", true),
            ("pipe:[77]", false),
            ("anon_inode:[eventfd]", false),
            ("/dev/pts/0", false),
        ] {
            assert_eq!(holds_data(target), holds, "{target}");
        }
    }

    #[test]
    fn a_child_that_reads_a_pipe_is_seen_and_one_that_sleeps_waits_for_no_data() {
        let reads = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let sleeps = Command::new("sleep").arg("20").spawn();
        let (mut reads, mut sleeps) = (reads.expect("cat"), sleeps.expect("sleep"));
        let mut seen = (None, None);
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(10));
            seen = (ChildWait::of(reads.id()).ok(), ChildWait::of(sleeps.id()).ok());
            if seen == (Some(Some(ChildWait { call: 0, on_pipe: true })), Some(None)) {
                break;
            }
        }
        let told = std::fs::read(format!("/proc/{}/syscall", reads.id()));
        reads.stdin.take().expect("a pipe").write_all(b"x").expect("it reads");
        for child in [&mut reads, &mut sleeps] {
            let _ = child.kill();
            child.wait().expect("wait");
        }
        if told.is_ok() {
            assert_eq!(seen, (Some(Some(ChildWait { call: 0, on_pipe: true })), Some(None)));
        }
    }
}

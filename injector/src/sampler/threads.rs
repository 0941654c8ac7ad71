// SPDX-License-Identifier: Apache-2.0
// WARM
//! One host thread as the kernel sees it: its CPU clock, how long it waited for a CPU, the system
//! call it is blocked in. Files of /proc stay open (opening one costs four reads of it) and out of
//! the program's way; where they cannot be opened those figures are 0.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::platform::descriptors::{identity_of, out_of_the_way};

/// A file of /proc that is read again and again.
struct ProcFile {
    file: Option<OwnedFd>,
    identity: Option<(u64, u64)>,
}

impl ProcFile {
    fn open(path: &str) -> ProcFile {
        let mut text = path.as_bytes().to_vec();
        text.push(0);
        // SAFETY: a C string (made above).
        let fd = unsafe { libc::open(text.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return ProcFile { file: None, identity: None };
        }
        // SAFETY: a descriptor we just opened and nobody else owns.
        let file = out_of_the_way(unsafe { OwnedFd::from_raw_fd(fd) });
        let identity = identity_of(file.as_raw_fd());
        ProcFile { file: Some(file), identity }
    }

    /// What it says now; `None` where it is not there (any more).
    fn read<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a str> {
        let fd = self.file.as_ref()?.as_raw_fd();
        // SAFETY: a buffer and its length; a descriptor of ours (or, where the program closed it,
        // of a file that is read at its beginning, which changes nothing).
        let n = unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let text = buffer.get(..usize::try_from(n).ok()?)?;
        std::str::from_utf8(text).ok()
    }
}

impl Drop for ProcFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // a program that closes all descriptors may have given the number to a file of its own
            if identity_of(file.as_raw_fd()) != self.identity {
                std::mem::forget(file);
            }
        }
    }
}

/// What a blocked thread waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocked {
    /// Not blocked: it runs, or waits for a CPU.
    No,
    /// In this system call, with this first argument.
    In(u32, u64),
    /// Blocked outside a system call (a page fault), or the kernel does not tell.
    Unknown,
}

/// What a thread did since its clocks were read before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Spent {
    /// ns on a CPU.
    pub(super) cpu: u64,
    /// ns runnable, but waiting for a CPU.
    pub(super) queued: u64,
}

/// A thread that is watched.
pub(super) struct Watched {
    clock: libc::clockid_t,
    schedule: ProcFile,
    call: ProcFile,
    cpu: u64,
    queued: u64,
    /// Waiting said before the kernel counted it, ns.
    ahead: u64,
}

/// CPU time of a thread or process by the kernel's clock number; `None` where it is gone.
pub(super) fn clock_of(clock: libc::clockid_t) -> Option<u64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out-pointer; the kernel refuses a clock of a thread that is gone.
    let rc = unsafe { libc::clock_gettime(clock, &mut t) };
    (rc == 0).then(|| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// The number of a thread's CPU clock, as glibc makes it for pthread_getcpuclockid: scheduler's
/// time, per thread.
pub(super) fn thread_clock(tid: u32) -> libc::clockid_t {
    (!(tid as i32)) << 3 | 6
}

/// The number of a process's CPU clock, as for clock_getcpuclockid.
pub(super) fn process_clock(pid: u32) -> libc::clockid_t {
    (!(pid as i32)) << 3 | 2
}

/// ns that the main thread of another process was on a CPU, and that it waited for one; `None`
/// where it is gone, or the kernel does not count that.
pub(super) fn schedule_of_main_thread(pid: u32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).ok()?;
    let mut numbers = text.split(' ').map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

impl Watched {
    /// Begins with a thread of this process; `None` where it is gone.
    pub(super) fn new(tid: u32) -> Option<Watched> {
        let mut thread = Watched {
            clock: thread_clock(tid),
            schedule: ProcFile::open(&format!("/proc/self/task/{tid}/schedstat")),
            call: ProcFile::open(&format!("/proc/self/task/{tid}/syscall")),
            cpu: 0,
            queued: 0,
            ahead: 0,
        };
        thread.cpu = clock_of(thread.clock)?;
        thread.queued = thread.waited().unwrap_or(0);
        Some(thread)
    }

    /// Which of its files the kernel lets us read: schedstat, syscall.
    pub(super) fn readable(&self) -> (bool, bool) {
        let mut buffer = [0; 256];
        (self.waited().is_some(), self.call.read(&mut buffer).is_some())
    }

    /// ns it has waited for a CPU: the second number of its schedstat.
    fn waited(&self) -> Option<u64> {
        let mut buffer = [0; 128];
        self.schedule.read(&mut buffer)?.split(' ').nth(1)?.parse().ok()
    }

    /// What it did since the last question, `span` ns ago, and what it is blocked in now; `None`:
    /// it is gone. The kernel counts waiting for a CPU when it ends: a thread that did not run and
    /// is in no system call waits meanwhile.
    pub(super) fn look(&mut self, span: u64) -> Option<(Spent, Blocked)> {
        let cpu = clock_of(self.clock)?;
        let ran = cpu.saturating_sub(self.cpu);
        self.cpu = cpu;
        let blocked = self.blocked();
        let mut queued = 0;
        if ran > 0 {
            let total = self.waited().unwrap_or(self.queued);
            queued = total.saturating_sub(self.queued);
            self.queued = total;
            let said = queued.min(self.ahead);
            queued -= said;
            self.ahead = 0;
        } else if blocked == Blocked::No {
            queued = span;
            self.ahead += span;
        }
        let spent = Spent { cpu: ran.min(span), queued: queued.min(span - ran.min(span)) };
        Some((spent, blocked))
    }

    /// It has not run since [`Watched::look`].
    pub(super) fn stands_still(&self) -> bool {
        clock_of(self.clock) == Some(self.cpu)
    }

    fn blocked(&self) -> Blocked {
        let mut buffer = [0; 256];
        let Some(text) = self.call.read(&mut buffer) else { return Blocked::Unknown };
        parse_call(text)
    }
}

/// `/proc/TID/syscall`: "running", or the number and the arguments in hexadecimal; -1: blocked
/// outside of one.
fn parse_call(text: &str) -> Blocked {
    let mut words = text.split_ascii_whitespace();
    match words.next() {
        Some("running") => Blocked::No,
        Some(number) => match number.parse() {
            Ok(number) => {
                let argument = words.next().and_then(|w| w.strip_prefix("0x"));
                Blocked::In(number, argument.and_then(|w| u64::from_str_radix(w, 16).ok()).unwrap_or(0))
            }
            Err(_) => Blocked::Unknown,
        },
        None => Blocked::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    fn own_tid() -> u32 {
        // SAFETY: takes nothing, cannot fail.
        unsafe { libc::gettid() as u32 }
    }

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(parse_call("running\n"), Blocked::No);
        assert_eq!(
            parse_call("202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7fbe\n"),
            Blocked::In(202, 0x7f00)
        );
        assert_eq!(parse_call("-1 0x7ffd 0x7fbe\n"), Blocked::Unknown);
        assert_eq!(parse_call(""), Blocked::Unknown);
    }

    /// Lets the thread end where an assertion fails too.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn a_sleeping_thread_and_a_running_one_are_told_apart_and_a_dead_one_is_gone() {
        let (tid, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        let spin = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                tid.store(own_tid(), Ordering::Release);
                while !stop.load(Ordering::Acquire) {
                    if !spin.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            });
            let _stop = Stop(&stop);
            while tid.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let tid = tid.load(Ordering::Acquire);
            let mut watched = Watched::new(tid).expect("it lives");
            let mut look = |ms| {
                let begin = Instant::now();
                watched.look(0).expect("it lives");
                std::thread::sleep(Duration::from_millis(ms));
                let span = begin.elapsed().as_nanos() as u64;
                let (spent, blocked) = watched.look(span).expect("it lives");
                (spent.cpu as f64 / span as f64, spent.queued as f64 / span as f64, blocked)
            };
            let (cpu, _, _) = look(200);
            assert!(cpu < 0.1, "{cpu}");
            if Watched::new(tid).expect("it lives").readable().1 {
                // now and then it is awake
                let asleep = |b| matches!(b, Blocked::In(n, _) if i64::from(n) == libc::SYS_clock_nanosleep);
                assert!((0..50).any(|_| asleep(look(7).2)));
            }
            spin.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(30));
            let (cpu, queued, _) = look(300);
            // on a busy machine it waits for a CPU most of the time, and that is known only when
            // the waiting ends
            assert!(cpu > 0.02 && cpu + queued <= 1.0, "{cpu} {queued}");
            stop.store(true, Ordering::Release);
            thread.join().expect("it ends");
            for _ in 0..200 {
                if watched.look(1).is_none() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("the thread is gone");
        });
    }
}

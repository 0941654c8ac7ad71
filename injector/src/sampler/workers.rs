// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where children stand in Python that were forked from this process (workers of a DataLoader): one of those that run at a time,
//! 25 looks a second for all of them together.
//!
//! A forked process has what this one had at the same addresses, and only that is made use of: the interpreter, the thread that
//! forked, code that lies at the same place in both. That it is one (and has not become another program by exec) is seen by a
//! number of our own that it has, too, before and after each reading. Of others nothing is read. The kernel allows
//! reading one's own children's memory unless they forbid it (`PR_SET_DUMPABLE`), or Yama forbids everything (`ptrace_scope` 2 and more).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use trace::event::{sample, Event, Kind};

use super::children::MOST;
use super::code::Codes;
use super::handover::{put, Item};
use super::python::{PyThread, Python};
use super::remote::{u64_at, Forked};
use super::stack::{Guess, Reader, Why};
use super::threads::{clock_of, process_clock};
use super::told::Told;
use crate::clock;

/// Between two looks, ns. One reads place by place (`remote`): some 0.1 ms for 25 frames, 0.3 % of a CPU.
const PERIOD: u64 = 40_000_000;
/// A worker that was on a CPU for less than this part of the time, in percent, waits for something.
const LEAST_ON_CPU: u64 = 10;
/// After so many failures in a row its memory is not read any more.
const MOST_FAILED: u32 = 16;

/// What tells a copy of this process from any other: not 0 once it is made, and the same nowhere else.
static COOKIE: AtomicU64 = AtomicU64::new(0);

/// One of them.
struct Worker {
    looked: u64,
    cpu: u64,
    reader: Reader<Forked>,
    thread: Option<PyThread>,
    guess: Guess,
    failed: u32,
}

/// All of them.
#[derive(Default)]
pub(super) struct Workers {
    each: HashMap<u32, Worker>,
    /// Whose turn it is.
    next: usize,
    looked: u64,
}

/// In the constructor, before anything is forked: makes the number that copies of this process have.
pub(crate) fn at_load() {
    // SAFETY: takes a number, returns one.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
    if random.is_null() {
        return;
    }
    // SAFETY: 16 random bytes that the kernel put above the program's stack; never unmapped.
    let random = unsafe { random.read_unaligned() };
    let own = random ^ clock::monotonic().rotate_left(32) ^ u64::from(std::process::id());
    COOKIE.store(own | 1, Ordering::Relaxed);
}

impl Worker {
    fn new(pid: u32) -> Worker {
        let reader = Reader::of(Forked(pid));
        Worker { looked: 0, cpu: 0, reader, thread: None, guess: Guess::default(), failed: 0 }
    }

    /// Is it a copy of this process, now?
    fn is_copy(&mut self, cookie: u64) -> bool {
        let at = std::ptr::from_ref(&COOKIE) as u64;
        cookie != 0 && self.reader.read_one(at, 8).is_some_and(|bytes| u64_at(&bytes, 0) == cookie)
    }

    /// The number of the stack it stands in, and the bits of a sample; the number 0 where the stack moved.
    fn stack(
        &mut self,
        pid: u32,
        cookie: u64,
        python: &Python,
        codes: &mut Codes,
        told: &mut Told,
    ) -> Option<(u32, u8)> {
        if !self.is_copy(cookie) {
            return None;
        }
        self.thread = self.thread.or_else(|| python.forked(pid, &mut self.reader));
        let read = self.reader.stack(python, &self.thread?, &mut self.guess, codes);
        if !self.is_copy(cookie) {
            return None;
        }
        match read {
            Ok(stack) => {
                let number = told.number(&stack.frames, codes).unwrap_or(0);
                Some((number, if stack.is_outer && number != 0 { sample::OUTER } else { 0 }))
            }
            Err(Why::Moved | Why::Empty) => Some((0, 0)),
            Err(Why::Gone) => {
                self.thread = None;
                None
            }
        }
    }
}

impl Workers {
    /// Looks at one of the children, where it is time.
    pub(super) fn look(
        &mut self,
        now: u64,
        pids: &[u32],
        python: &Python,
        codes: &mut Codes,
        told: &mut Told,
    ) {
        if now.saturating_sub(self.looked) < PERIOD {
            return;
        }
        self.looked = now;
        self.each.retain(|pid, _| pids.contains(pid));
        let pids = pids.get(..MOST).unwrap_or(pids);
        let is_given_up = |pid: &u32| self.each.get(pid).is_some_and(|w| w.failed >= MOST_FAILED);
        let turn = (0..pids.len())
            .map(|n| (self.next + n) % pids.len())
            .find(|n| pids.get(*n).is_some_and(|p| !is_given_up(p)));
        let Some((turn, &pid)) = turn.and_then(|n| Some((n, pids.get(n)?))) else { return };
        self.next = turn + 1;
        let cookie = COOKIE.load(Ordering::Relaxed);
        let worker = self.each.entry(pid).or_insert_with(|| Worker::new(pid));
        let Some(cpu) = clock_of(process_clock(pid)) else { return };
        let from = std::mem::replace(&mut worker.looked, now);
        let ran = cpu.saturating_sub(std::mem::replace(&mut worker.cpu, cpu));
        let span = now.saturating_sub(from).max(1);
        if from == 0 || ran.saturating_mul(100) < span.saturating_mul(LEAST_ON_CPU) {
            return;
        }
        let Some((stack, bits)) = worker.stack(pid, cookie, python, codes, told) else {
            worker.failed += 1;
            return;
        };
        worker.failed = 0;
        let mut e = Event::new(Kind::ChildSample, from, now);
        (e.a, e.b, e.x) = (stack, pid, bits);
        e.c = (ran.saturating_mul(1000) / span).min(65_535) as u32;
        put(Item::ChildSample(e));
    }

    /// Nothing was wanted meanwhile: what comes counts from the next look on.
    pub(super) fn forget(&mut self) {
        self.each.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_is_known_and_any_other_is_not() {
        at_load();
        let cookie = COOKIE.load(Ordering::Relaxed);
        assert_ne!(cookie, 0);
        let mut other = std::process::Command::new("sleep").arg("20").spawn().expect("sleep");
        assert!(!Worker::new(other.id()).is_copy(cookie));
        other.kill().expect("kill");
        other.wait().expect("wait");
        // SAFETY: the child waits for its end and does nothing else.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
        assert!(pid > 0);
        assert!(Worker::new(pid as u32).is_copy(cookie));
        // SAFETY: numbers of a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        assert!(!Worker::new(pid as u32).is_copy(cookie), "gone");
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where children stand in Python (workers of a DataLoader, by fork, by spawn, by a fork server):
//! one of those that run, or wait for data, at a time, 25 looks a second for all of them together.
//!
//! What is known of this process's Python holds for a child that has it from the same file, by as
//! much further as it lies there (its load bias); that it is so is seen by a pointer of the
//! interpreter's into its own file. That it still is, and the child has not become another program
//! by exec (not even the same one, at the same addresses), is seen before and after each reading by
//! the random bytes that the kernel gives each program at its start (`AT_RANDOM`). Of others
//! nothing is read. The kernel allows reading one's own children's memory unless they forbid it
//! (`PR_SET_DUMPABLE`), or Yama forbids everything (`ptrace_scope` 2 and more).

use std::collections::HashMap;

use spool::procfs::Mapping;
use trace::event::{sample, Event, Kind};

use super::child_waits::ChildWait;
use super::children::MAX_CHILDREN;
use super::code::Codes;
use super::handover::{put, Item};
use super::interned_stacks::InternedStacks;
use super::load_bias::{bias_of, part_at};
use super::python::{PyThread, Python};
use super::remote::Child;
use super::stack::{Guess, Reader, Why};
use super::threads::schedule_of_main_thread;
use crate::platform::memory::{u64_at, word};

/// Between two looks, ns. One reads place by place (`remote`): some 0.1 ms for 25 frames, 0.3 % of
/// a CPU.
const PERIOD: u64 = 40_000_000;
/// A worker whose main thread was on a CPU for less than this part of the time, in percent, waits
/// for something: for other threads of its own, where the process did run.
const LEAST_ON_CPU: u64 = 10;
/// One that waits is asked what it is so often at most, and not again within so many ns: a worker
/// that begins does not stand yet where workers wait.
const MOST_ASKED: u32 = 64;
const ASKED_EVERY: u64 = 500_000_000;
/// After so many failures in a row its memory is not read any more.
const MOST_FAILED: u32 = 16;

/// One of them.
struct Worker {
    looked: u64,
    cpu: u64,
    reader: Reader<Child>,
    python: Option<TheirPython>,
    guess: Guess,
    failed: u32,
    /// How often it was asked what it is while it waited, when, and the stack it stood in then.
    asked: u32,
    asked_at: u64,
    waits_in: u32,
    /// Where it stood when it waited for data, and what its clock said then: until that goes on it
    /// stands there.
    stands: Option<(u64, u32, u8)>,
    /// What it waits for cannot be asked, and is not asked any more.
    is_unknown: bool,
}

/// Of a child.
struct TheirPython {
    python: Box<Python>,
    thread: PyThread,
    /// Where the random bytes of the program it runs are, and what they say.
    random: (u64, u64),
}

/// The type and value that the kernel tells a program at its start: auxiliary vector, `AT_RANDOM`.
const AT_RANDOM: u64 = 25;

/// Where process `pid` has the random bytes of the program it runs.
fn random_at(pid: u32) -> Option<u64> {
    let vector = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let entry = vector.chunks_exact(16).find(|entry| u64_at(entry, 0) == AT_RANDOM)?;
    Some(u64_at(entry, 8))
}

/// All of them.
#[derive(Default)]
pub(super) struct Workers {
    each: HashMap<u32, Worker>,
    /// This process's interpreter, and what it was found for.
    own: Option<(u64, Option<Mapping>)>,
    /// Whose turn it is.
    next: usize,
    looked: u64,
}

impl Worker {
    fn new(pid: u32) -> Worker {
        let reader = Reader::of(Child(pid));
        Worker {
            looked: 0,
            cpu: 0,
            reader,
            python: None,
            guess: Guess::default(),
            failed: 0,
            asked: 0,
            asked_at: 0,
            waits_in: 0,
            stands: None,
            is_unknown: false,
        }
    }

    /// Looks for `ours` in it.
    fn find(&mut self, pid: u32, ours: &Python, file: &Mapping) -> Option<TheirPython> {
        let at = random_at(pid)?;
        let random = (at, u64_at(&self.reader.read_one(at, 8)?, 0));
        let bias = bias_of(file, pid)?;
        let at = ours.known.name_of_code_type();
        let pointer = self.reader.read_one(at.wrapping_add(bias), 8)?;
        if u64_at(&pointer, 0) != word(at)?.wrapping_add(bias) {
            return None;
        }
        let python = Box::new(ours.of_child(bias, &mut self.reader)?);
        let thread = python.main_thread(pid, &mut self.reader)?;
        Some(TheirPython { python, thread, random })
    }

    /// It waits, for long perhaps: what it is shows in where it stands, told once for each place,
    /// of no time.
    fn introduce(
        &mut self,
        now: u64,
        pid: u32,
        (ours, file): (&Python, &Mapping),
        codes: &mut Codes,
        stacks: &mut InternedStacks,
    ) {
        if self.asked >= MOST_ASKED || now.saturating_sub(self.asked_at) < ASKED_EVERY {
            return;
        }
        (self.asked, self.asked_at) = (self.asked + 1, now);
        let Some((stack @ 1.., bits)) = self.stack(pid, ours, file, codes, stacks) else { return };
        if std::mem::replace(&mut self.waits_in, stack) == stack {
            return;
        }
        let mut e = Event::new(Kind::ChildSample, now, now);
        (e.a, e.b, e.x) = (stack, pid, bits);
        put(Item::ChildSample(e));
    }

    /// The number of the stack it stands in, and the bits of a sample; the number 0 where the stack
    /// moved.
    fn stack(
        &mut self,
        pid: u32,
        ours: &Python,
        file: &Mapping,
        codes: &mut Codes,
        stacks: &mut InternedStacks,
    ) -> Option<(u32, u8)> {
        let theirs = match self.python.take() {
            Some(known) => known,
            None => {
                codes.forget(pid);
                self.find(pid, ours, file)?
            }
        };
        let (mark, reader) = (theirs.random, &mut self.reader);
        let is_there = |reader: &mut Reader<Child>| {
            reader.read_one(mark.0, 8).is_some_and(|bytes| u64_at(&bytes, 0) == mark.1)
        };
        if !is_there(reader) {
            return None;
        }
        let read = reader.stack(&theirs.python, &theirs.thread, &mut self.guess, codes);
        if !is_there(reader) || matches!(read, Err(Why::Gone)) {
            return None;
        }
        self.python = Some(theirs);
        let Ok(stack) = read else { return Some((0, 0)) };
        let number = stacks.number(&stack.frames, codes).unwrap_or(0);
        Some((number, if stack.is_outer && number != 0 { sample::OUTER } else { 0 }))
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
        stacks: &mut InternedStacks,
    ) {
        if now.saturating_sub(self.looked) < PERIOD {
            return;
        }
        self.looked = now;
        let before = self.each.len();
        self.each.retain(|pid, _| pids.contains(pid));
        if self.each.len() != before {
            codes.only_of(|pid| self.each.contains_key(&pid));
        }
        let pids = pids.get(..MAX_CHILDREN).unwrap_or(pids);
        let is_given_up = |pid: &u32| self.each.get(pid).is_some_and(|w| w.failed >= MOST_FAILED);
        let turn = (0..pids.len())
            .map(|n| (self.next + n) % pids.len())
            .find(|n| pids.get(*n).is_some_and(|p| !is_given_up(p)));
        let Some((turn, &pid)) = turn.and_then(|n| Some((n, pids.get(n)?))) else { return };
        self.next = turn + 1;
        let type_at = python.known.code_type as u64;
        if self.own.as_ref().is_none_or(|own| own.0 != type_at) {
            self.own = Some((type_at, part_at(type_at)));
        }
        let Some((_, Some(file))) = &self.own else { return };
        let worker = self.each.entry(pid).or_insert_with(|| Worker::new(pid));
        let Some((cpu, _)) = schedule_of_main_thread(pid) else { return };
        let from = std::mem::replace(&mut worker.looked, now);
        let ran = cpu.saturating_sub(std::mem::replace(&mut worker.cpu, cpu));
        let span = now.saturating_sub(from).max(1);
        if from == 0 {
            return;
        }
        let mut wait = None;
        if ran.saturating_mul(100) < span.saturating_mul(LEAST_ON_CPU) {
            if !worker.is_unknown {
                let asked = ChildWait::of(pid);
                worker.is_unknown = asked.is_err();
                wait = asked.ok().flatten();
            }
            if wait.is_none() {
                return worker.introduce(now, pid, (python, file), codes, stacks);
            }
            // one that begins waits for its own files for a while: no failure that counts
            if worker.python.is_none() && now.saturating_sub(worker.asked_at) < ASKED_EVERY {
                return;
            }
        }
        // (a clock that shows nothing at all is none)
        let stood = worker.stands.filter(|s| wait.is_some() && cpu != 0 && s.0 == cpu).map(|s| (s.1, s.2));
        let Some((stack, bits)) = stood.or_else(|| worker.stack(pid, python, file, codes, stacks)) else {
            match wait {
                Some(_) => worker.asked_at = now,
                None => worker.failed += 1,
            }
            return;
        };
        worker.failed = 0;
        worker.stands = (stack != 0).then_some((cpu, stack, bits));
        let mut e = Event::new(Kind::ChildSample, from, now);
        (e.a, e.b, e.x) = (stack, pid, bits);
        e.c = (ran.saturating_mul(1000) / span).min(65_535) as u32;
        if let Some(wait) = wait {
            e.c |= (wait.call + 1) << 16;
            e.x |= if wait.on_pipe { sample::PIPE } else { 0 };
        }
        put(Item::ChildSample(e));
    }

    /// Nothing was wanted meanwhile: what comes counts from the next look on.
    pub(super) fn forget(&mut self) {
        self.each.clear();
    }
}

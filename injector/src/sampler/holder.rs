// SPDX-License-Identifier: Apache-2.0
// WARM
//! Who holds Python's lock while a launching thread waits for it: mostly a thread that never calls
//! CUDA, and so is not sampled by itself. It is read only then, and it counts only if the same
//! thread held the lock before and after, while the one that waits did not run: then it is that
//! thread, at that line, that is waited for.

use trace::event::{sample, Event, Kind};

use super::counts::COUNTS;
use super::handover::{put, Item};
use super::python::PyThread;
use super::stack::{Guess, Stack, Why};
use super::threads::{clock_of, thread_clock};
use super::Sampler;
use crate::platform::clock;

/// Holders remembered: few threads compute in Python at a time.
const MAX_HOLDERS: usize = 16;

/// A launching thread that waits for the lock.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    pub(super) tid: u32,
    /// What its sample stands for begins here.
    pub(super) from: u64,
}

/// A thread that held it before.
struct Holder {
    tid: u32,
    /// When it was read last, and its CPU clock then.
    read: u64,
    cpu: u64,
    guess: Guess,
}

/// Those seen, the last one at the end.
#[derive(Default)]
pub(super) struct Holders {
    seen: Vec<Holder>,
}

impl Holders {
    /// Takes out what is known of a thread.
    fn take(&mut self, tid: u32) -> Holder {
        let known = self.seen.iter().position(|h| h.tid == tid).map(|at| self.seen.remove(at));
        if self.seen.len() >= MAX_HOLDERS {
            self.seen.remove(0);
        }
        known.unwrap_or(Holder { tid, read: 0, cpu: 0, guess: Guess::default() })
    }
}

impl Sampler {
    /// Reads the thread that holds the lock `waits` waits for.
    pub(super) fn look_at_holder(&mut self, waits: Waits) {
        let holder = self.python.as_mut().and_then(|p| {
            let state = p.locks().holder;
            p.thread_of(state, clock::monotonic()).map(|thread| (state, thread))
        });
        let Some((state, thread)) = holder else {
            COUNTS.holders_missed.add(1);
            return;
        };
        if thread.tid == waits.tid {
            COUNTS.holders_missed.add(1); // it has got it by now
            return;
        }
        if self.subjects.contains_key(&thread.tid) {
            return; // it calls CUDA, too: it has a sample of its own, from this look
        }
        let mut holder = self.holders.take(thread.tid);
        let read = self.read_holder(thread, &mut holder.guess);
        let is_still = self.python.as_ref().is_some_and(|p| p.locks().holder == state)
            && self.subjects.get(&waits.tid).is_some_and(|s| s.watched.stands_still());
        if let (Err(Why::Gone), Some(python)) = (&read, &mut self.python) {
            python.distrust();
        }
        let told = read.ok().and_then(|stack| {
            let number = self.stacks.number(&stack.frames, &mut self.codes)?;
            Some((number, if stack.is_outer { sample::OUTER } else { 0 }))
        });
        match told {
            Some((stack, bits)) if is_still => put_sample(&mut holder, waits.from, stack, bits),
            _ => COUNTS.holders_missed.add(1),
        }
        self.holders.seen.push(holder);
    }

    fn read_holder(&mut self, thread: PyThread, guess: &mut Guess) -> Result<Stack, Why> {
        let Some(python) = &self.python else { return Err(Why::Empty) };
        self.reader.stack(python, &thread, guess, &mut self.codes)
    }
}

/// The holder's sample stands for the time that was waited for it.
fn put_sample(holder: &mut Holder, from: u64, stack: u32, bits: u8) {
    let now = clock::monotonic();
    let from = from.max(holder.read).min(now);
    let cpu = clock_of(thread_clock(holder.tid)).unwrap_or(holder.cpu);
    let mut e = Event::new(Kind::Sample, from, now);
    (e.a, e.x) = (stack, sample::HOLDS_GIL | bits);
    // only where it was read at the beginning of this span is it known how long it ran in it
    if holder.read == from {
        let ran = cpu.saturating_sub(holder.cpu);
        e.c = (ran.saturating_mul(1000) / (now - from).max(1)).min(1000) as u32;
    }
    (holder.read, holder.cpu) = (now, cpu);
    COUNTS.looks.add(1);
    COUNTS.outer.add(u64::from(bits & sample::OUTER != 0));
    put(Item::Sample(holder.tid, e));
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! The gap sampler: a thread of ours that looks, about 100 times a second (`GAPPROBE_SAMPLE_HZ`),
//! at the threads that call CUDA: where they stand in Python, what they are blocked in, how much of
//! the time since the look before they ran or waited for a CPU, who holds Python's lock; 25 times a
//! second where one of the children stands; twice a second at what all children use, once a second
//! at memory and CPU quota. (The GPU's own figures come from `nvml`, a thread of its own.)
//!
//! It takes nothing from the program: no signal, no lock of the interpreter, no lock that a
//! callback takes; foreign memory is read through the kernel. A thread that did not run since the
//! look before is not read again: what it is in cannot have changed. Where nobody calls CUDA it
//! looks more rarely. Above 1 % of a CPU it halves its rate.
//!
//! Never in a forked child (its thread is not there), nothing while the program wants nothing
//! recorded, and between windows only while a step does not come (`duty_cycle/pauses.rs`).

mod cgroup;
mod child_waits;
mod children;
mod code;
mod counts;
mod frame;
mod gpm;
mod handover;
mod holder;
mod interned_stacks;
mod load_bias;
mod nvml;
mod python;
mod remote;
mod stack;
mod threads;
mod workers;

use std::collections::HashMap;

use trace::define;
use trace::event::{sample, Event, Gauge, Kind};

pub(crate) use counts::spent;
pub(crate) use handover::Taker;

use crate::platform::threads::spawn_quietly;
use crate::platform::{clock, descriptors, lifecycle, settings};
use crate::sources::cupti::buffers;
use crate::store;
use children::Children;
use code::Codes;
use counts::COUNTS;
use handover::{gauge, put, Item};
use holder::{Holders, Waits};
use interned_stacks::InternedStacks;
use python::{Locks, PyThread, Python, Search};
use stack::{Guess, Reader, Why};
use threads::{Blocked, Watched};
use workers::Workers;

/// Share of one CPU above which the rate is halved. Measured on two busy virtual CPUs whose system
/// calls take 1.5 to 3 µs: 57 to 78 µs of CPU time a look with one thread that computes, 32 to 62
/// µs with one that sleeps, everything else in it: 100 looks a second stay below, and four times as
/// many do not.
const MOST_CPU: f64 = 0.01;
/// Below this share a halved rate is doubled again.
const LITTLE_CPU: f64 = 0.004;
/// The rate is halved at most so often.
const MOST_HALVED: u32 = 4;
const SECOND: u64 = 1_000_000_000;
/// No call for so long: ten looks a second; for so long: one.
const QUIET: [(u64, u64); 2] = [(60 * SECOND, SECOND), (2 * SECOND, SECOND / 10)];
/// After the start Python is looked for, once a second, this often.
const MOST_SEARCHES: u32 = 60;

/// Starts the threads, with the recording. Where they cannot be started there are no samples.
pub(crate) fn start() {
    let hz = settings::get().map_or(0, |s| s.sample_hz);
    if hz == 0 {
        return;
    }
    spawn_quietly("gapprobe-sample", move || {
        // (a file for each thread that calls CUDA, and what it reads of children: nothing of it
        // under the program's numbers)
        descriptors::leave_the_programs(None);
        Sampler::new(hz).run();
    });
    if !settings::get().is_some_and(|s| s.no_nvml) {
        spawn_quietly("gapprobe-nvml", nvml::run);
    }
}

/// A thread under watch.
struct Subject {
    watched: Watched,
    looked: u64,
    guess: Guess,
    /// Its number in `stacks` at the last look, plus one; 0: none.
    stack: u32,
    /// That has the outer frames only.
    is_outer: bool,
    /// It holds as long as the thread does not run.
    is_settled: bool,
    /// What it is to Python.
    python: Option<PyThread>,
}

struct Sampler {
    period: u64,
    halved: u32,
    subjects: HashMap<u32, Subject>,
    python: Option<Box<Python>>,
    searches: u32,
    reader: Reader,
    codes: Codes,
    stacks: InternedStacks,
    holders: Holders,
    children: Children,
    workers: Workers,
    limits: cgroup::Limits,
    /// When a second's figures were read last, and this thread's and the process's CPU time then.
    second: u64,
    cpu: u64,
    process_cpu: u64,
    is_begun: bool,
}

impl Sampler {
    fn new(hz: u64) -> Sampler {
        Sampler {
            period: SECOND / hz.max(1),
            halved: 0,
            subjects: HashMap::new(),
            python: None,
            searches: 0,
            reader: Reader::default(),
            codes: Codes::default(),
            stacks: InternedStacks::default(),
            holders: Holders::default(),
            children: Children::default(),
            workers: Workers::default(),
            limits: cgroup::Limits::find(),
            second: 0,
            cpu: 0,
            process_cpu: 0,
            is_begun: false,
        }
    }

    fn run(mut self) {
        put(Item::Attribute(define::CPUS.into(), cgroup::affinity().to_string()));
        if let Some(cpus) = self.limits.cpus {
            put(Item::Attribute(define::CPU_QUOTA.into(), format!("{cpus:.2}")));
        }
        let mut next = clock::monotonic();
        while lifecycle::get() == lifecycle::State::Recording {
            let now = clock::monotonic();
            let pause = if buffers::is_bare() {
                self.period // a benchmark's other side: nothing is looked at, nothing forgotten
            } else if handover::is_wanted() {
                self.look(now)
            } else {
                // what comes after counts from there on
                self.subjects.clear();
                self.children.forget();
                self.workers.forget();
                self.second = 0;
                SECOND / 20
            };
            // a deadline that has passed is not made up for
            next = if next + pause > now { next + pause } else { now + pause };
            sleep_until(next);
        }
    }

    /// Looks at everything that is due; the pause until the next look, ns.
    fn look(&mut self, now: u64) -> u64 {
        let callers = handover::callers();
        if self.python.as_ref().is_some_and(|p| p.is_ending()) {
            // from here on it frees what stacks are read of
            (self.python, self.searches) = (None, MOST_SEARCHES);
        }
        self.subjects.retain(|tid, _| callers.iter().any(|c| c.0 == *tid));
        let locks = self.python.as_ref().map(|p| p.locks()).unwrap_or_default();
        let mut waits = None;
        for (tid, _) in callers.into_iter().filter(|c| c.0 != 0) {
            waits = self.look_at(tid, locks).or(waits);
        }
        if let Some(waits) = waits {
            self.look_at_holder(waits);
        }
        self.children.look(now, |e| {
            put(Item::Recorder(e));
        });
        if let Some(python) = &self.python {
            self.workers.look(now, self.children.pids(), python, &mut self.codes, &mut self.stacks);
        }
        if now.saturating_sub(self.second) >= SECOND {
            self.each_second(now);
        }
        let cpu = clock::thread_cpu();
        COUNTS.cpu.set(cpu);
        let newest = callers.iter().map(|c| c.1).fold(handover::pause(), u64::max);
        let quiet = QUIET.iter().find(|q| now.saturating_sub(newest) > q.0).map_or(0, |q| q.1);
        (self.period << self.halved).max(quiet)
    }

    fn each_second(&mut self, now: u64) {
        let (cpu, process) = (clock::thread_cpu(), clock::process_cpu());
        if self.second != 0 {
            let span = now - self.second;
            let share = cpu.saturating_sub(self.cpu) as f64 / span as f64;
            if share > MOST_CPU {
                self.halved = (self.halved + 1).min(MOST_HALVED);
            } else if share < LITTLE_CPU {
                self.halved = self.halved.saturating_sub(1);
            }
            let used = process.saturating_sub(self.process_cpu);
            put(gauge(Gauge::ProcessCpuNs, 0, self.second, now, used));
            let throttled = self.limits.throttled(span);
            if throttled > 0 {
                put(gauge(Gauge::CpuThrottledNs, 0, self.second, now, throttled));
            }
        } else {
            self.limits.throttled(0);
        }
        if let Some(bytes) = cgroup::resident() {
            // the recording's own pages grow with the run, up to GAPPROBE_MAX_MB: that is no leak
            // of the program's
            put(gauge(Gauge::ResidentBytes, 0, now, now, bytes.saturating_sub(store::touched())));
        }
        (self.second, self.cpu, self.process_cpu) = (now, cpu, process);
        if self.python.is_none() && self.searches < MOST_SEARCHES {
            self.searches += 1;
            match Python::find() {
                Search::None => {}
                Search::Unknown(why) => {
                    self.searches = MOST_SEARCHES;
                    put(Item::Attribute("sampler.python".into(), why));
                }
                Search::Found(python) => {
                    put(Item::Attribute("sampler.python".into(), python.describe()));
                    self.python = Some(python);
                }
            }
        }
    }

    /// A sample of one thread; the first look at it only reads its clocks. Told is whether it waits
    /// for Python's lock.
    fn look_at(&mut self, tid: u32, locks: Locks) -> Option<Waits> {
        let now = clock::monotonic();
        let Some(subject) = self.subjects.get_mut(&tid) else {
            self.begin(tid, now);
            return None;
        };
        let span = now.saturating_sub(subject.looked).max(1);
        let Some((spent, blocked)) = subject.watched.look(span) else {
            // gone; its number may be another's soon
            self.subjects.remove(&tid);
            return None;
        };
        let from = std::mem::replace(&mut subject.looked, now);
        let mut blocked = blocked;
        if spent.cpu > 0 || !subject.is_settled {
            let read = self.python.as_mut().map_or(Err(Why::Empty), |python| {
                subject.python = python.thread(tid, now);
                let Some(thread) = subject.python else { return Err(Why::Empty) };
                let (reader, codes) = (&mut self.reader, &mut self.codes);
                reader.stack(python, &thread, &mut subject.guess, codes)
            });
            subject.is_outer = matches!(&read, Ok(stack) if stack.is_outer);
            let is_read = matches!(read, Ok(_) | Err(Why::Empty)) && !subject.is_outer;
            subject.is_settled = is_read && subject.watched.stands_still();
            if !subject.watched.stands_still() {
                blocked = Blocked::No; // not any more: it ran while its stack was read
            }
            let number = match &read {
                Ok(stack) => self.stacks.number(&stack.frames, &mut self.codes),
                Err(Why::Moved) => None,
                Err(Why::Empty | Why::Gone) => Some(0),
            };
            if number.is_none() {
                COUNTS.moved.add(1);
                subject.is_outer = false;
            }
            COUNTS.outer.add(u64::from(subject.is_outer));
            if let (Err(Why::Gone), Some(python)) = (read, &mut self.python) {
                python.distrust();
            }
            subject.stack = number.unwrap_or(0);
        }
        let mut e = Event::new(Kind::Sample, from, now);
        let permille = |ns: u64| (ns.saturating_mul(1000) / span).min(1000) as u32;
        e.a = subject.stack;
        e.c = permille(spent.cpu) | permille(spent.queued) << 16;
        e.x = if subject.is_outer { sample::OUTER } else { 0 };
        match blocked {
            Blocked::In(call, _) => e.b = call.saturating_add(1),
            Blocked::No => e.x |= sample::RUNNABLE,
            Blocked::Unknown => {}
        }
        if let (Some(python), Some(thread)) = (&self.python, subject.python) {
            let waits = match blocked {
                Blocked::In(call, futex) => i64::from(call) == libc::SYS_futex && python.is_of_gil(futex),
                _ => false,
            };
            let holds = locks.holder == thread.state && python.gil.is_some();
            e.x |= if waits { sample::WAITS_GIL } else { 0 }
                | if holds && !waits { sample::HOLDS_GIL } else { 0 }
                | if locks.is_collecting { sample::COLLECTING } else { 0 };
        }
        COUNTS.looks.add(1);
        put(Item::Sample(tid, e));
        (e.x & sample::WAITS_GIL != 0).then_some(Waits { tid, from })
    }

    fn begin(&mut self, tid: u32, now: u64) {
        let Some(watched) = Watched::new(tid) else { return };
        if !std::mem::replace(&mut self.is_begun, true) {
            let (schedule, call) = watched.readable();
            if !schedule || !call {
                let closed = [("schedstat", schedule), ("syscall", call)];
                let closed: Vec<&str> = closed.iter().filter(|c| !c.1).map(|c| c.0).collect();
                put(Item::Attribute("sampler.unreadable".into(), closed.join(" ")));
            }
        }
        let guess = Guess::default();
        let subject = Subject {
            watched,
            looked: now,
            guess,
            stack: 0,
            is_outer: false,
            is_settled: false,
            python: None,
        };
        self.subjects.insert(tid, subject);
    }
}

/// Until the monotonic clock shows `at`, ns.
fn sleep_until(at: u64) {
    let until =
        libc::timespec { tv_sec: (at / SECOND) as libc::time_t, tv_nsec: (at % SECOND) as std::ffi::c_long };
    // SAFETY: a valid time; signals are blocked on this thread, and a sleep cut short does no harm.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut())
    };
}

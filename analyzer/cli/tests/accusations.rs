// SPDX-License-Identifier: Apache-2.0
//! No false accusation: random small programs on a little machine of their own (a host that thinks,
//! launches and waits; one stream that is a queue), played twice where a fix is at stake.
//!
//! - Where the queue never runs dry, nothing the host does costs anything: no verdict may name it,
//!   whatever waits, stalls and allocations there are, and however long the device idles for
//!   reasons of its own.
//! - In any program: what is named must be worth about what is promised when it is really taken
//!   out.
//! - And the other way: where one of waits, host work, allocations and copies is worth a quarter of
//!   the step, the verdict does not say that nothing is, or that it takes several fixes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trace::build::Builder;
use trace::call::{pack, Class, DRIVER, RUNTIME};
use trace::event::Copy;
use trace::{Event, Kind};
use verdict::replay::CAPTURABLE_NS;
use verdict::Analysis;

const US: u64 = 1_000;
/// Framework time before a launch, the call itself, call to start on an empty stream, between
/// queued kernels, and the end of what is waited for to the return of the wait, ns (H200).
const DISPATCH: u64 = 5 * US;
const CALL: u64 = 4 * US;
const LATENCY: u64 = 8 * US;
const SPACING: u64 = US;
const RETURN: u64 = 6 * US;
/// Work that a healthy program always has queued: more than a launch takes.
const AHEAD: u64 = 60 * US;
const STEPS: u64 = 24;
const TRAINER: u32 = 100;
const AUTOGRAD: u32 = 101;
const MONITOR: u32 = 777;

/// What the host does between two launches.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    /// Something else than launching, ns.
    Think(u64),
    /// cudaStreamSynchronize.
    Sync,
    /// `.item()`.
    Item,
    /// cudaEventSynchronize of an event behind the op that came this many before the latest.
    SyncBehind(usize),
    /// Another thread waits for everything that is queued.
    Monitor,
    /// cudaMalloc that waits for nothing, ns.
    Malloc(u64),
    /// cudaFree: waits, then takes this long, ns.
    Free(u64),
    /// `x.to(device)` from pageable memory, bytes: the call stands until it is done.
    Pageable(u64),
    /// The stream waits for an event of another one, which comes this long after the queue's end,
    /// ns.
    Event(u64),
}

/// One step: kernels by duration, and what is done before some of them.
#[derive(Clone, Debug)]
struct Step {
    kernels: Vec<u64>,
    acts: Vec<(usize, Act)>,
    /// From this kernel on, another thread launches and waits (autograd's), until the step's end.
    other: usize,
}

/// What is taken out of the program.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    Nothing,
    Waits,
    HostWork,
    Allocations,
    /// Copied a step ahead from pinned memory: they hold nobody.
    Copies,
    /// One graph launch from each wait (or long host work) to the next.
    Launching,
}

struct Machine {
    b: Builder,
    t: u64,
    /// The thread whose turn it is.
    tid: u32,
    /// Starts and ends of all ops.
    ops: Vec<(u64, u64)>,
    /// What the next op waits for on the device, ns.
    event: u64,
    /// Launches are nodes of graphs, and the next one begins a new graph.
    graphs: bool,
    fresh: bool,
    correlation: u32,
    names: Vec<u32>,
}

impl Machine {
    fn new(kernels: usize) -> Machine {
        let mut b = Builder::new();
        b.device(0, "SIM H200", 132);
        let names = (0..kernels).map(|k| b.kernel(&format!("kernel_{k}"), 256, 32)).collect();
        Machine {
            b,
            t: 1_000_000_000,
            tid: TRAINER,
            ops: Vec::new(),
            event: 0,
            graphs: false,
            fresh: true,
            correlation: 1,
            names,
        }
    }

    fn queue_ends(&self) -> u64 {
        self.ops.last().map_or(0, |o| o.1)
    }

    fn ahead(&self) -> u64 {
        self.queue_ends().saturating_sub(self.t)
    }

    fn call(&mut self, tid: u32, id: u32, class: Class, start: u64, end: u64) {
        self.correlation += 1;
        let mut e = Event::new(Kind::Call, start, end);
        let domain = if class == Class::StreamWait { DRIVER } else { RUNTIME };
        (e.a, e.x, e.correlation) = (pack(domain, id), class as u8, self.correlation);
        self.b.on_thread(tid, e);
    }

    fn op(&mut self, launched: u64, duration: u64, mut e: Event) -> u64 {
        let start = (launched + LATENCY).max(self.queue_ends() + SPACING + std::mem::take(&mut self.event));
        self.ops.push((start, start + duration));
        (e.start, e.end, e.correlation) = (start, start + duration, self.correlation);
        self.b.on_stream(0, 1, 7, e);
        start + duration
    }

    fn launch(&mut self, kernel: usize, duration: u64) {
        if self.graphs && !std::mem::take(&mut self.fresh) {
            let start = self.queue_ends() + SPACING;
            self.ops.push((start, start + duration));
            return;
        }
        let begin = self.t + DISPATCH;
        let held = self.ops.len().checked_sub(1024).map_or(0, |i| self.ops[i].0);
        self.t = (begin + CALL).max(held);
        self.call(self.tid, 211, Class::Launch, begin, self.t);
        let mut e = Event::new(Kind::Kernel, 0, 0);
        (e.a, e.b) = (self.names[kernel], 264);
        self.op(begin, duration, e);
    }

    fn wait(&mut self, id: u32, until: u64) {
        let begin = self.t;
        self.t = (begin + 2 * US).max(until + RETURN);
        self.call(self.tid, id, Class::Sync, begin, self.t);
    }

    /// A blocking copy at 5 GB/s.
    fn copy(&mut self, what: Copy) {
        let begin = self.t + DISPATCH;
        self.correlation += 1;
        let correlation = self.correlation;
        let mut e = Event::new(Kind::Memcpy, 0, 0);
        (e.a, e.b) = what.pack();
        self.t = self.op(begin, 1_500 + what.bytes / 5, e) + RETURN;
        let mut c = Event::new(Kind::Call, begin, self.t);
        (c.a, c.x, c.correlation) = (pack(RUNTIME, 41), Class::Copy as u8, correlation);
        self.b.on_thread(self.tid, c);
    }

    fn act(&mut self, act: Act) {
        self.fresh = true;
        match act {
            Act::Think(ns) => self.t += ns,
            Act::Sync => self.wait(131, self.queue_ends()),
            Act::SyncBehind(n) => {
                let end = self.ops.len().checked_sub(1 + n).map_or(0, |i| self.ops[i].1);
                self.wait(137, end);
            }
            Act::Item => {
                self.copy(Copy { bytes: 4, direction: 2, source: 3, destination: 1, peer: false });
                self.wait(131, 0);
            }
            Act::Pageable(bytes) => {
                self.copy(Copy { bytes, direction: 1, source: 1, destination: 3, peer: false });
                self.wait(131, 0);
            }
            Act::Monitor => {
                self.call(MONITOR, 131, Class::Sync, self.t, self.t.max(self.queue_ends()) + RETURN)
            }
            Act::Malloc(ns) => {
                self.call(self.tid, 20, Class::Alloc, self.t, self.t + ns);
                self.t += ns;
            }
            Act::Event(ns) => {
                self.call(self.tid, 295, Class::StreamWait, self.t, self.t + US);
                self.t += US;
                self.event = ns;
            }
            Act::Free(ns) => {
                let begin = self.t;
                self.t = begin.max(self.queue_ends()) + ns;
                self.call(self.tid, 22, Class::Free, begin, self.t);
            }
        }
    }

    fn analyze(self) -> Analysis {
        let bytes = self.b.finish();
        let run = verdict::load(bytes.as_slice()).expect("a recording");
        verdict::analyze(&run)
    }
}

/// Plays a healthy program: what would let the queue run dry is cut short or left out.
fn healthy(step: &Step) -> Analysis {
    let mut m = Machine::new(step.kernels.len());
    for _ in 0..STEPS {
        for (k, &duration) in step.kernels.iter().enumerate() {
            m.tid = if k < step.other { TRAINER } else { AUTOGRAD };
            for &(_, act) in step.acts.iter().filter(|a| a.0 == k) {
                let spare = m.ahead().saturating_sub(AHEAD);
                match act {
                    Act::Think(ns) => m.act(Act::Think(ns.min(spare))),
                    Act::Malloc(ns) if ns <= spare => m.act(act),
                    Act::SyncBehind(n) => {
                        // an event that leaves enough behind it
                        let enough = |n: &usize| {
                            let op = m.ops.len().checked_sub(1 + n);
                            op.is_none_or(|i| m.ops[i].1 + RETURN + AHEAD <= m.queue_ends())
                        };
                        if let Some(n) = (n..m.ops.len()).find(enough) {
                            m.act(Act::SyncBehind(n));
                        }
                    }
                    Act::Monitor | Act::Event(_) => m.act(act),
                    _ => {}
                }
            }
            // the first kernels of all build the queue up
            m.launch(k, if m.ops.len() < 3 { duration + 500 * US } else { duration });
            assert!(m.ops.len() < 4 || m.ahead() >= AHEAD / 4, "not a healthy program");
        }
    }
    m.wait(165, m.queue_ends());
    m.analyze()
}

/// Plays any program without something; returns the mean step time, ns, and the analysis.
fn play(step: &Step, without: Without) -> (f64, Analysis) {
    let mut m = Machine::new(step.kernels.len());
    let begin = m.t;
    m.graphs = without == Without::Launching;
    for _ in 0..STEPS {
        for (k, &duration) in step.kernels.iter().enumerate() {
            m.tid = if k < step.other { TRAINER } else { AUTOGRAD };
            for &(_, act) in step.acts.iter().filter(|a| a.0 == k) {
                let out = match act {
                    // Python between two kernels goes with the graph
                    Act::Think(ns) if m.graphs => ns <= CAPTURABLE_NS,
                    Act::Think(_) => without == Without::HostWork,
                    Act::Sync | Act::Item | Act::SyncBehind(_) => without == Without::Waits,
                    Act::Malloc(_) | Act::Free(_) => without == Without::Allocations,
                    Act::Pageable(_) => without == Without::Copies,
                    Act::Monitor | Act::Event(_) => false,
                };
                if !out {
                    m.act(act);
                }
            }
            m.launch(k, duration);
        }
    }
    let end = m.t.max(m.queue_ends());
    ((end - begin) as f64 / STEPS as f64, m.analyze())
}

fn acts(kinds: impl Strategy<Value = Act>) -> impl Strategy<Value = Vec<(usize, Act)>> {
    proptest::collection::vec((0..24usize, kinds), 0..10)
}

fn harmless() -> impl Strategy<Value = Act> {
    prop_oneof![
        (20..6_000u64).prop_map(|us| Act::Think(us * US)),
        (1..40usize).prop_map(Act::SyncBehind),
        Just(Act::Monitor),
        (20..200u64).prop_map(|us| Act::Malloc(us * US)),
        (20..1_000u64).prop_map(|us| Act::Event(us * US)),
    ]
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (20..6_000u64).prop_map(|us| Act::Think(us * US)),
        Just(Act::Sync),
        Just(Act::Item),
        (1..40usize).prop_map(Act::SyncBehind),
        (20..200u64).prop_map(|us| Act::Malloc(us * US)),
        (50..500u64).prop_map(|us| Act::Free(us * US)),
        (100..8_000u64).prop_map(|kb| Act::Pageable(kb * 1024)),
    ]
}

fn waiting() -> impl Strategy<Value = Act> {
    prop_oneof![Just(Act::Sync), Just(Act::Item), (1..10usize).prop_map(Act::SyncBehind)]
}

/// Durations from `shortest` to `longest`, us; most of them short.
fn kernels(shortest: u64, longest: u64) -> impl Strategy<Value = Vec<u64>> {
    let one = prop_oneof![3 => shortest..60, 2 => 60..400u64, 1 => 400..longest];
    proptest::collection::vec(one.prop_map(|us| us * US), 6..24)
}

/// Mostly shorter than a launch takes.
fn tiny() -> impl Strategy<Value = Vec<u64>> {
    let one = prop_oneof![9 => 2..9u64, 1 => 9..200u64];
    proptest::collection::vec(one.prop_map(|us| us * US), 12..60)
}

const HOST_SIDE: [&str; 6] = ["SYNC", "LAUNCH", "HOST", "INPUT", "ALLOC", "COPY"];
/// Wins below this are nobody's accusation (`causes::MINOR_WIN`).
const NOTHING: f64 = verdict::causes::MINOR_WIN;

/// The same programs in every run: a promise has a ±, and one program in some ten thousand lies
/// outside of it. To look for those: more cases, another seed.
fn programs() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(20_261_121);
    ProptestConfig { cases: 300, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(programs())]

    #[test]
    fn a_gpu_that_always_has_work_queued_is_nobodys_fault(
        kernels in kernels(25, 3_000), acts in acts(harmless()), other in 4..40usize
    ) {
        let a = healthy(&Step { kernels, acts, other });
        let v = &a.verdict;
        prop_assert!(!HOST_SIDE.contains(&v.cause), "{:?}\n{:?}", v, a.devices[0].buckets);
        prop_assert!(v.then.is_none_or(|t| !HOST_SIDE.contains(&t.0)), "{:?}", v);
        for f in a.findings.iter().filter(|f| HOST_SIDE.contains(&f.cause)) {
            prop_assert!(f.win.share() < NOTHING, "{:?}", f);
        }
    }

    #[test]
    fn what_is_named_is_worth_what_is_promised(
        kernels in prop_oneof![2 => kernels(4, 800).boxed(), 1 => tiny().boxed()],
        acts in prop_oneof![acts(any_act()).boxed(), acts(waiting()).boxed()],
        other in 4..40usize
    ) {
        let step = Step { kernels, acts, other };
        let (now, a) = play(&step, Without::Nothing);
        let without = match a.verdict.cause {
            "SYNC" => Without::Waits,
            "HOST" => Without::HostWork,
            "ALLOC" => Without::Allocations,
            "COPY" => Without::Copies,
            "LAUNCH" => Without::Launching,
            _ => return Ok(()),
        };
        let finding = a.findings.iter().find(|f| f.cause == a.verdict.cause).expect("the named one");
        let (after, _) = play(&step, without);
        let real = 1.0 - after / now;
        let margin = finding.promise.unwrap().error_ns() / (finding.promise.unwrap().ns() / (1.0 - finding.win.share())) + NOTHING;
        prop_assert!(
            finding.win.share() - real <= margin,
            "{} promises {:.3}, the real fix wins {:.3} (±{:.3}): {:?}",
            finding.cause, finding.win.share(), real, margin, a.verdict
        );
    }

    #[test]
    fn what_is_worth_a_quarter_is_not_missed(kernels in kernels(4, 800), acts in acts(any_act()), other in 4..40usize) {
        let step = Step { kernels, acts, other };
        let (now, a) = play(&step, Without::Nothing);
        let fixes = [Without::Waits, Without::HostWork, Without::Allocations, Without::Copies];
        let wins = fixes.map(|w| 1.0 - play(&step, w).0 / now);
        if wins.iter().any(|&w| w >= 0.25) {
            prop_assert!(
                !["GPU-BOUND", "MIXED"].contains(&a.verdict.cause),
                "{fixes:?} win {wins:.3?}, said: {:?} {:?}",
                a.verdict, a.findings
            );
        }
    }
}

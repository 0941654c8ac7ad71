// SPDX-License-Identifier: Apache-2.0
//! Random programs in their slow form, and the same with something mended as a programmer would
//! mend it. Everything random is drawn with the slow form: what is left of it in the mended one is
//! equal to the nanosecond.

use super::acts::{Act, Machine};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// Streams of a program: the main one and one beside it.
const MAIN: u32 = 7;
const SIDE: u32 = 13;

/// What can be wrong with a program, and what mending it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// `.item()`s and synchronizes; mended: the values come into pinned memory, nobody waits.
    Waits,
    /// Single launches; mended: one graph for all between two calls that need the host.
    Launches,
    /// Host stretches; mended: gone.
    Elsewhere,
    /// Fetching the batch; mended: a batch is there.
    Fetching,
    /// Pageable copies; mended: pinned, a step ahead, on a stream of their own.
    Pageable,
    /// cudaFree and cudaMalloc; mended: none.
    Allocations,
    /// Waits between streams; mended: for events that are long past.
    Streams,
}

impl Fault {
    pub(crate) const ALL: [Fault; 7] = [
        Fault::Waits,
        Fault::Launches,
        Fault::Elsewhere,
        Fault::Fetching,
        Fault::Pageable,
        Fault::Allocations,
        Fault::Streams,
    ];
}

/// xorshift, the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            r.next();
        }
        r
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From `low` up to `high`.
    pub(crate) fn of(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// The same, small ones as often as large ones.
    fn spread(&mut self, low: u64, high: u64) -> u64 {
        let ratio = high as f64 / low as f64;
        (low as f64 * ratio.powf(self.of(0, 1_000) as f64 / 1_000.0)) as u64
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next() % n == 0
    }

    fn about(&mut self, ns: u64) -> u64 {
        ns - ns / 8 + self.next() % (ns / 4 + 1)
    }
}

/// A program: what its host does in each step, and the machine.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) machine: Machine,
    pub(crate) steps: Vec<Vec<Act>>,
}

/// A step as it is planned: lengths are what they usually are.
#[derive(Clone, Copy)]
enum Plan {
    Launch { stream: u32, kernel: usize, ns: u64 },
    Item { site: usize },
    Sync,
    Sleep { ns: u64, every: usize },
    Fetch(u64),
    CopyIn(u64),
    CopyOut(u64),
    Free(u64),
    Malloc(u64),
    Wait { stream: u32, on: u32 },
    Thread(u32),
}

/// A program of `steps` steps with these faults.
pub(crate) fn program(r: &mut Random, faults: &[Fault], steps: usize) -> Program {
    let machine = machine(r);
    let dispatch = r.spread(4 * US, 40 * US);
    let plan = plan(r, faults, dispatch);
    Program { machine, steps: (0..steps).map(|n| step(r, &plan, dispatch, n)).collect() }
}

/// A program that waits at two of its lines: at the first with much of the GPU's work still to come
/// and many launches in front of it, at the second when it has caught up. Where the one costs a lot
/// the other need not.
pub(crate) fn of_two_sites(r: &mut Random, steps: usize) -> Program {
    let machine = machine(r);
    let dispatch = r.of(8 * US, 20 * US);
    let mut plan = Vec::new();
    let mut launches = |r: &mut Random, shortest: u64, longest: u64| {
        for kernel in 0..r.of(8, 30) as usize {
            plan.push(Plan::Launch { stream: MAIN, kernel, ns: r.spread(shortest, longest) });
        }
        std::mem::take(&mut plan)
    };
    let (long, short) = (launches(r, 40 * US, 120 * US), launches(r, 2 * US, 6 * US));
    let plan = [&long[..], &[Plan::Item { site: 0 }], &short[..], &[Plan::Item { site: 1 }]].concat();
    Program { machine, steps: (0..steps).map(|n| step(r, &plan, dispatch, n)).collect() }
}

/// A program that fetches values from the GPU and works on them in each step.
pub(crate) fn of_values(r: &mut Random, steps: usize) -> Program {
    let machine = machine(r);
    let dispatch = r.of(6 * US, 20 * US);
    let mut plan = Vec::new();
    for kernel in 0..r.of(20, 60) as usize {
        plan.push(Plan::Launch { stream: MAIN, kernel: kernel % 23, ns: r.spread(20 * US, 200 * US) });
    }
    let at = r.of(plan.len() as u64 / 2, plan.len() as u64) as usize;
    let values =
        [Plan::CopyOut(r.spread(2_000_000, 40_000_000)), Plan::Sleep { ns: r.spread(MS, 6 * MS), every: 1 }];
    plan.splice(at..at, values);
    Program { machine, steps: (0..steps).map(|n| step(r, &plan, dispatch, n)).collect() }
}

/// A program in which two calls wait one behind the other: without the one the other waits in its
/// place.
pub(crate) fn of_two_waits(r: &mut Random, steps: usize) -> Program {
    let machine = machine(r);
    let dispatch = r.of(12 * US, 25 * US);
    let free = Plan::Free(r.of(100 * US, 220 * US));
    let waits = if r.one_in(2) { [Plan::Item { site: 0 }, free] } else { [free, Plan::Item { site: 0 }] };
    let mut plan = Vec::new();
    for kernel in 0..r.of(14, 26) as usize {
        plan.push(Plan::Launch { stream: MAIN, kernel: kernel % 9, ns: r.of(90 * US, 130 * US) });
    }
    plan.extend(waits);
    for kernel in 0..r.of(8, 14) as usize {
        plan.push(Plan::Launch { stream: MAIN, kernel: 10 + kernel % 9, ns: r.of(2 * US, 5 * US) });
    }
    Program { machine, steps: (0..steps).map(|n| step(r, &plan, dispatch, n)).collect() }
}

pub(crate) fn machine(r: &mut Random) -> Machine {
    Machine {
        launch: r.of(3 * US, 9 * US),
        latency: r.of(9 * US, 14 * US),
        // where nothing was queued a recording does not show it
        spacing: r.of(900, 1_100),
        back: r.of(4 * US, 12 * US),
        graph: 20 * US,
        node: 1_400,
        pageable: r.of(4, 12),
        pinned: 25,
        copy_waits: r.one_in(2),
    }
}

fn plan(r: &mut Random, faults: &[Fault], dispatch: u64) -> Vec<Plan> {
    let has = |f: Fault| faults.contains(&f);
    let kernels = r.of(16, 70) as usize;
    // by itself the program is anything from far slower than its GPU to far faster; one in a list
    // of launches is not
    let around = match has(Fault::Launches) {
        true => r.spread(2 * US, dispatch.max(6 * US)),
        // what streams wait for must be longer than the host takes to launch it
        false => r.spread(if has(Fault::Streams) { 40 * US } else { 3 * US }, 200 * US),
    };
    let two = has(Fault::Streams);
    let mut plan: Vec<Plan> = (0..kernels)
        .map(|kernel| Plan::Launch {
            stream: if two && r.one_in(2) { SIDE } else { MAIN },
            kernel: kernel % 23,
            ns: r.spread(around / 3 + 1_000, around * 3),
        })
        .collect();
    let mut put = |r: &mut Random, what: Plan| {
        let at = r.of(1, plan.len() as u64) as usize;
        plan.insert(at, what);
    };
    if has(Fault::Waits) {
        for n in 0..r.of(1, 10) {
            let what = if r.one_in(4) { Plan::Sync } else { Plan::Item { site: n as usize % 3 } };
            put(r, what);
        }
    }
    if has(Fault::Elsewhere) {
        let every = [1, 1, 1, 3][r.of(0, 3) as usize];
        // what is shorter goes with a graph (`CAPTURABLE_NS`)
        let shortest = if has(Fault::Launches) { 5 * MS / 2 } else { MS };
        for _ in 0..r.of(1, 2) {
            let ns = r.spread(shortest, 12 * MS);
            put(r, Plan::Sleep { ns, every });
        }
    }
    if has(Fault::Pageable) {
        for _ in 0..r.of(1, 3) {
            let bytes = r.spread(200_000, 60_000_000);
            put(r, Plan::CopyIn(bytes));
        }
    }
    if has(Fault::Allocations) {
        for _ in 0..r.of(1, 6) {
            let ns = r.spread(50 * US, 600 * US);
            put(r, Plan::Free(ns));
            if r.one_in(2) {
                put(r, Plan::Malloc(ns / 2));
            }
        }
    }
    if two {
        for _ in 0..r.of(4, 16) {
            let (stream, on) = if r.one_in(2) { (MAIN, SIDE) } else { (SIDE, MAIN) };
            put(r, Plan::Wait { stream, on });
        }
    }
    if r.one_in(2) {
        // backward
        put(r, Plan::Thread(101));
    }
    if has(Fault::Fetching) {
        let ns = r.spread(MS, 15 * MS);
        plan.insert(0, Plan::Fetch(ns));
    }
    plan
}

fn step(r: &mut Random, plan: &[Plan], dispatch: u64, n: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    for p in plan {
        match *p {
            Plan::Launch { stream, kernel, ns } => {
                acts.push(Act::Think(r.about(dispatch)));
                acts.push(Act::Launch { stream, kernel, ns: r.about(ns) });
            }
            Plan::Item { site } => {
                acts.push(Act::Think(r.about(dispatch)));
                acts.push(Act::Item { later: false, site });
            }
            Plan::Sync => acts.push(Act::Sync),
            Plan::Sleep { ns, every } if n % every == 0 => acts.push(Act::Sleep(r.about(ns))),
            Plan::Sleep { .. } => {}
            Plan::Fetch(ns) => acts.push(Act::Fetch(r.about(ns))),
            Plan::CopyIn(bytes) => {
                acts.push(Act::Think(r.about(dispatch)));
                acts.push(Act::CopyIn { stream: MAIN, bytes, pinned: false });
            }
            Plan::CopyOut(bytes) => {
                acts.push(Act::Think(r.about(dispatch)));
                acts.push(Act::CopyOut { bytes, pinned: false, aside: false });
            }
            Plan::Free(ns) => acts.push(Act::Free(r.about(ns))),
            Plan::Malloc(ns) => acts.push(Act::Malloc(r.about(ns))),
            Plan::Wait { stream, on } => acts.push(Act::Wait { stream, on, late: false }),
            Plan::Thread(tid) => acts.push(Act::Thread(tid)),
        }
    }
    acts
}

impl Program {
    /// The program without these faults.
    pub(crate) fn mended(&self, faults: &[Fault]) -> Program {
        let mut fixed = self.clone();
        for acts in &mut fixed.steps {
            for &fault in faults.iter().filter(|&&f| f != Fault::Launches) {
                mend(acts, fault);
            }
            if faults.contains(&Fault::Launches) {
                *acts = captured(std::mem::take(acts));
            }
        }
        fixed
    }

    /// Nobody waits for the values of one line of the program.
    pub(crate) fn without_site(&self, gone: usize) -> Program {
        let mut fixed = self.clone();
        for act in fixed.steps.iter_mut().flatten() {
            if let Act::Item { later, site } = act {
                *later |= *site == gone;
            }
        }
        fixed
    }
}

fn mend(acts: &mut Vec<Act>, fault: Fault) {
    acts.retain(|act| !match fault {
        Fault::Waits => matches!(act, Act::Sync),
        Fault::Elsewhere => matches!(act, Act::Sleep(_)),
        Fault::Fetching => matches!(act, Act::Fetch(_)),
        Fault::Allocations => matches!(act, Act::Free(_) | Act::Malloc(_)),
        Fault::Pageable | Fault::Launches | Fault::Streams => false,
    });
    for act in acts {
        match (fault, act) {
            (Fault::Waits, Act::Item { later, .. }) => *later = true,
            (Fault::Pageable, Act::CopyIn { pinned, .. } | Act::CopyOut { pinned, .. }) => *pinned = true,
            (Fault::Elsewhere, Act::CopyOut { aside, .. }) => *aside = true,
            (Fault::Streams, Act::Wait { late, .. }) => *late = true,
            _ => {}
        }
    }
}

/// One graph of everything between calls that need the host; what the host did between its launches
/// goes with it. What it did before the first of them, and before those calls, stays.
fn captured(acts: Vec<Act>) -> Vec<Act> {
    let (mut out, mut graph, mut think) = (Vec::new(), Vec::new(), None);
    let mut before = 0;
    let close = |graph: &mut Vec<Act>, before: u64, out: &mut Vec<Act>| {
        let launches = graph.iter().filter(|a| matches!(a, Act::Launch { .. })).count();
        if launches > 0 {
            out.push(Act::Think(before));
        }
        match launches {
            0 | 1 => out.append(graph),
            _ => out.push(Act::Graph(std::mem::take(graph))),
        }
    };
    for act in acts {
        match act {
            Act::Launch { .. } | Act::Wait { .. } => {
                if matches!(act, Act::Launch { .. }) {
                    if !graph.iter().any(|a| matches!(a, Act::Launch { .. })) {
                        before = think.unwrap_or(0);
                    }
                    think = None;
                }
                graph.push(act);
            }
            Act::Think(ns) => think = Some(ns),
            Act::Thread(_) => {}
            _ => {
                close(&mut graph, before, &mut out);
                out.extend(think.take().map(Act::Think));
                out.push(act);
            }
        }
    }
    close(&mut graph, before, &mut out);
    out
}

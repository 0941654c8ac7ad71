// SPDX-License-Identifier: Apache-2.0
//! The truth: a program as a list of what its host does, run by a simulator that keeps absolute
//! times and nothing else. It knows nothing of the replay, and writes the recording that gapprobe
//! would have made. All times are ns.

use std::collections::{HashMap, HashSet};

use trace::build::Builder;
use trace::call::{pack, Class, DRIVER, RUNTIME};
use trace::event::{Copy, GRAPH_NODE};
use trace::{Event, Kind};

use super::acts::{Act, Machine};

const QUEUE: usize = 1024;
/// The stream that pinned copies one step ahead take.
const AHEAD: u32 = 20;

/// The stream of copies to pinned memory.
const OUT: u32 = 21;

pub(crate) struct Simulated {
    /// When each step's work was done and its host was through, ns since the first began.
    pub(crate) done: Vec<u64>,
    pub(crate) recording: Vec<u8>,
    /// Launching (and waiting) calls by site, as correlation ids.
    pub(crate) sites: HashMap<usize, HashSet<u32>>,
}

impl Simulated {
    /// Time of a step, ns, the first few left out.
    pub(crate) fn step(&self) -> f64 {
        let (from, to) = (WARM - 1, self.done.len() - 2);
        (self.done[to] - self.done[from]) as f64 / (to - from) as f64
    }
}

/// Steps until queues are as full as they get.
pub(crate) const WARM: usize = 12;

struct Playing {
    m: Machine,
    b: Builder,
    t: u64,
    tid: u32,
    correlation: u32,
    streams: HashMap<u32, u64>,
    engine: u64,
    /// When the copies made ahead in the steps before are through.
    arrived: u64,
    begins: Vec<u64>,
    done: u64,
    sites: HashMap<usize, HashSet<u32>>,
    calls: Vec<(u32, Event)>,
    random: u64,
}

/// Plays `steps`, one list after the other.
pub(crate) fn simulate(m: Machine, steps: &[Vec<Act>]) -> Simulated {
    let mut p = Playing {
        m,
        b: Builder::new(),
        t: 1_000_000_000,
        tid: 100,
        correlation: 1,
        streams: HashMap::new(),
        engine: 0,
        arrived: 0,
        begins: Vec::new(),
        done: 0,
        sites: HashMap::new(),
        calls: Vec::new(),
        random: 88_172_645_463_325_252,
    };
    p.b.device(0, "SIM H200", 132);
    let mut done = Vec::new();
    let mut marks = Vec::new();
    for acts in steps {
        marks.push(p.t);
        p.tid = 100;
        p.done = 0;
        p.arrived = p.streams.get(&AHEAD).copied().unwrap_or(0);
        for act in acts {
            p.act(act);
        }
        done.push(p.done.max(p.t) - 1_000_000_000);
    }
    p.act(&Act::Sync); // as programs end
    marks.push(p.t);
    // the first steps are not marked, as warm-up often is not
    for (n, w) in marks.windows(2).enumerate().skip(WARM) {
        let mut e = Event::new(Kind::Step, w[0], w[1]);
        e.a = n as u32;
        p.b.on_thread(100, e);
    }
    p.calls.sort_by_key(|c| c.1.start);
    for (tid, e) in p.calls {
        p.b.on_thread(tid, e);
    }
    p.b.on_recorder(Event::clock_pair(1_000_000_000, 1_700_000_000_000_000_000));
    Simulated { done, recording: p.b.finish(), sites: p.sites }
}

impl Playing {
    /// Up to a tenth more or less.
    fn about(&mut self, ns: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ns - ns / 10 + self.random % (ns / 5 + 1)
    }

    fn call(&mut self, domain: u8, id: u32, class: Class, start: u64) -> u32 {
        self.correlation += 1;
        let mut e = Event::new(Kind::Call, start, self.t);
        e.a = pack(domain, id);
        e.x = class as u8;
        e.correlation = self.correlation;
        self.calls.push((self.tid, e));
        self.correlation
    }

    /// The device takes an operation: in the stream's order, no sooner than `ready`.
    fn op(&mut self, stream: u32, ready: u64, ns: u64, mut e: Event) -> (u64, u64) {
        let spacing = self.about(self.m.spacing);
        let free = self.streams.get(&stream).map_or(0, |&end| end + spacing);
        let mut start = ready.max(free);
        if e.kind == Kind::Memcpy && Copy::unpack(e.a, e.b).direction == 1 {
            start = start.max(self.engine); // one engine for all copies to the device
            self.engine = start + ns;
        }
        (e.start, e.end) = (start, start + ns);
        self.streams.insert(stream, e.end);
        self.done = self.done.max(e.end);
        self.b.on_stream(0, 1, stream, e);
        (start, start + ns)
    }

    fn kernel(&mut self, number: usize) -> Event {
        let mut e = Event::new(Kind::Kernel, 0, 0);
        e.a = self.b.kernel(&format!("kernel_{number}"), 256, 32);
        e.b = 264;
        e
    }

    fn wait(&mut self, stream: u32, on: u32, late: bool) {
        if late {
            return;
        }
        let end = self.streams.get(&on).copied().unwrap_or(0);
        let mine = self.streams.entry(stream).or_insert(0);
        *mine = (*mine).max(end);
    }

    fn act(&mut self, act: &Act) {
        let begin = self.t;
        match act {
            Act::Think(ns) | Act::Sleep(ns) => self.t += ns,
            Act::Fetch(ns) => {
                self.t += ns;
                let mut e = Event::new(Kind::Range, begin, self.t);
                e.a = self.b.string("next_batch");
                self.b.on_thread(self.tid, e);
            }
            Act::Launch { stream, kernel, ns } => {
                let held = self.begins.len().checked_sub(QUEUE).map_or(0, |i| self.begins[i]);
                self.t = (begin + self.about(self.m.launch)).max(held);
                let mut e = self.kernel(*kernel);
                e.correlation = self.call(RUNTIME, 211, Class::Launch, begin);
                let latency = self.about(self.m.latency);
                let (start, _) = self.op(*stream, begin + latency, *ns, e);
                self.begins.push(start);
            }
            Act::Graph(acts) => {
                let nodes = acts.iter().filter(|a| matches!(a, Act::Launch { .. })).count() as u64;
                self.t += self.m.graph + nodes * self.m.node;
                let correlation = self.call(RUNTIME, 311, Class::GraphLaunch, begin);
                for a in acts {
                    match a {
                        Act::Launch { stream, kernel, ns } => {
                            let mut e = self.kernel(*kernel);
                            (e.c, e.flags, e.correlation) = (1, GRAPH_NODE, correlation);
                            self.op(*stream, begin + self.m.graph, *ns, e);
                        }
                        Act::Wait { stream, on, late } => self.wait(*stream, *on, *late),
                        _ => unreachable!("a graph holds kernels and waits"),
                    }
                }
            }
            Act::CopyIn { stream, bytes, pinned } => self.copy_in(*stream, *bytes, *pinned),
            Act::CopyOut { bytes, pinned, aside } => self.copy_out(*bytes, *pinned || *aside, *aside),
            Act::Item { later, site } => self.item(*later, *site),
            Act::Sync => {
                let end = self.streams.values().copied().max().unwrap_or(0);
                self.t = (begin + 2_000).max(end + self.m.back);
                self.call(RUNTIME, 165, Class::Sync, begin);
            }
            Act::Free(ns) => {
                let end = self.streams.values().copied().max().unwrap_or(0);
                self.t = begin.max(end) + ns;
                self.call(RUNTIME, 22, Class::Free, begin);
            }
            Act::Malloc(ns) => {
                self.t += ns;
                self.call(RUNTIME, 20, Class::Alloc, begin);
            }
            Act::Wait { stream, on, late } => {
                self.t += 1_000;
                let mut e = Event::new(Kind::SyncRecord, begin, begin);
                e.correlation = self.call(DRIVER, 295, Class::StreamWait, begin);
                (e.a, e.c) = (2, *stream);
                self.b.on_recorder(e);
                self.wait(*stream, *on, *late);
            }
            Act::Thread(tid) => self.tid = *tid,
        }
    }

    fn copy_in(&mut self, stream: u32, bytes: u64, pinned: bool) {
        let begin = self.t;
        let mut e = Event::new(Kind::Memcpy, 0, 0);
        let source = if pinned { 2 } else { 1 };
        (e.a, e.b) = Copy { bytes, direction: 1, source, destination: 3, peer: false }.pack();
        e.correlation = self.correlation + 1;
        let (latency, own) = (self.about(self.m.latency), self.about(self.m.launch));
        if pinned {
            // what was copied in the step before is used in this one
            let mine = self.streams.entry(stream).or_insert(0);
            *mine = (*mine).max(self.arrived);
            self.op(AHEAD, begin + latency, bytes / self.m.pinned, e);
            self.t += own;
        } else {
            let (_, end) = self.op(stream, begin + latency, bytes / self.m.pageable, e);
            self.t = end + self.m.back;
        }
        self.call(RUNTIME, 41, Class::Copy, begin);
    }

    fn copy_out(&mut self, bytes: u64, pinned: bool, aside: bool) {
        let begin = self.t;
        let mut e = Event::new(Kind::Memcpy, 0, 0);
        let destination = if pinned { 2 } else { 1 };
        (e.a, e.b) = Copy { bytes, direction: 2, source: 3, destination, peer: false }.pack();
        e.correlation = self.correlation + 1;
        let (latency, own) = (self.about(self.m.latency), self.about(self.m.launch));
        let (stream, speed) = if pinned { (OUT, self.m.pinned) } else { (7, self.m.pageable) };
        let given = self.streams.get(&7).copied().unwrap_or(0);
        let (_, end) = self.op(stream, given.max(begin + latency), bytes / speed, e);
        self.t = if aside { begin + own } else { end + self.m.back };
        self.call(RUNTIME, 41, Class::Copy, begin);
    }

    fn item(&mut self, later: bool, site: usize) {
        let begin = self.t;
        let mut e = Event::new(Kind::Memcpy, 0, 0);
        let destination = if later { 2 } else { 1 };
        (e.a, e.b) = Copy { bytes: 4, direction: 2, source: 3, destination, peer: false }.pack();
        e.correlation = self.correlation + 1;
        let (latency, own) = (self.about(self.m.latency), self.about(self.m.launch));
        let (_, end) = self.op(7, begin + latency, 1_500, e);
        let waits = self.m.copy_waits && !later;
        self.t = if waits { end + self.m.back } else { begin + own };
        let copy = self.call(RUNTIME, 41, Class::Copy, begin);
        if later {
            return;
        }
        let begin = self.t;
        self.t = (begin + 2_000).max(if waits { 0 } else { end + self.m.back });
        let sync = self.call(RUNTIME, 131, Class::Sync, begin);
        let mut e = Event::new(Kind::SyncRecord, begin, self.t);
        (e.a, e.c, e.correlation) = (3, 7, sync);
        self.b.on_recorder(e);
        self.sites.entry(site).or_default().extend([copy, sync]);
    }
}

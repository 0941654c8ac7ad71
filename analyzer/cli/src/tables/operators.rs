// SPDX-License-Identifier: Apache-2.0
//! Operators and named ranges, nested with the calls inside them, and what each had to itself, by
//! the rules of torch.profiler's `key_averages()` (`torch/autograd/profiler_util.py`):
//! - On its thread an event is in the last one that began before it and ends no earlier.
//! - CPU time to itself is what no operator, range or call directly in it took, nor the profiler.
//! - What a call launched belongs to the innermost operator around the call: of what was launched
//!   outside of any, torch.profiler says nothing; of other recorders named ranges count as
//!   operators.
//! - A collective that is waited for elsewhere is in nothing, and has nothing to itself.
//! - One that has nothing in it but one other of the same name is counted as one.
//! - Memory counts for every operator, on any thread, that was open when it changed.

use std::cmp::Reverse;
use std::ops::{AddAssign, Sub};

use foldhash::{HashMap, HashMapExt};
use formats::MemoryChange;
use trace::Kind;
use verdict::run::{Op, Range, RangeKind, Recorder, Span};

use super::ranges::unnumbered;
use super::Source;

/// Operators of torch's that `key_averages()` leaves out; what is in them it counts.
const LEFT_OUT: [&str; 6] = [
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

/// torch.distributed's ranges, from a collective's begin until it is done, on whatever thread.
const ASYNC: [&str; 5] = ["nccl:", "gloo:", "mpi:", "ucc:", "xccl:"];

/// Bytes allocated less bytes freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bytes {
    pub(super) host: i64,
    pub(super) gpu: i64,
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.host = self.host.saturating_add(other.host);
        self.gpu = self.gpu.saturating_add(other.gpu);
    }
}

impl Sub for Bytes {
    type Output = Bytes;

    fn sub(self, other: Bytes) -> Bytes {
        Bytes { host: self.host.saturating_sub(other.host), gpu: self.gpu.saturating_sub(other.gpu) }
    }
}

/// What it is, of an operator or range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct What<'a> {
    pub(super) name: &'a str,
    /// The program named it: no operator of the framework.
    pub(super) is_named: bool,
    /// Shapes of its inputs, a string id (0: not told).
    pub(super) shapes: u32,
    /// Their types, a string id (0: not told).
    pub(super) types: u32,
    /// What of them are no tensors, a string id (0: not told).
    pub(super) values: u32,
}

/// Times, ns, and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Spent {
    pub(super) cpu: u128,
    pub(super) gpu: u128,
    /// Of `gpu`, copies that leave the device's memory or come from elsewhere.
    pub(super) copies: u128,
    pub(super) memory: Bytes,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.cpu += other.cpu;
        self.gpu += other.gpu;
        self.copies += other.copies;
        self.memory += other.memory;
    }
}

/// An operator or range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operator<'a> {
    pub(super) what: What<'a>,
    /// With all that is in it.
    pub(super) total: Spent,
    /// Without.
    pub(super) own: Spent,
}

/// Shapes, types and values by thread, begin, end and name, each as its number.
type Inputs = HashMap<(u32, u64, u64, u32), [u32; 3]>;

/// Hands out all of a trace. Returns how often memory changed while none was open, and by how much.
pub(super) fn operators<'a>(source: &Source<'a>, mut add: impl FnMut(Operator<'a>)) -> (u64, Bytes) {
    let mut memory = Memory::new(&source.operators.memory);
    let mut inputs = Inputs::new();
    for i in &source.operators.inputs {
        let told = [i.shapes, i.types, i.values];
        let known = inputs.entry((i.tid, i.span.start, i.span.end, i.name)).or_insert(told);
        if *known != told {
            *known = [0; 3]; // stamps of whole microseconds: which is which is not known
        }
    }
    for thread in 0..source.run.threads.len() {
        nest(source, thread, &inputs, &mut memory, &mut add).settle(&mut add);
    }
    memory.elsewhere()
}

/// An operator or range, a call, or the profiler's own work.
#[derive(Debug)]
struct Node<'a> {
    /// `None`: no operator or range.
    what: Option<What<'a>>,
    end: u64,
    parent: Option<usize>,
    /// Whose the work is that is launched in it: its own, of one around it, nobody's.
    owner: Option<usize>,
    /// Nodes directly in it, and what they spent.
    children: u32,
    inner: Spent,
    /// CPU time and memory with them, GPU time without.
    spent: Spent,
}

/// Nodes of one thread, each behind the one it is in.
#[derive(Debug, Default)]
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    /// Those that may yet hold the next one, the innermost last.
    open: Vec<usize>,
}

fn nest<'a>(
    source: &Source<'a>,
    index: usize,
    inputs: &Inputs,
    memory: &mut Memory,
    add: &mut impl FnMut(Operator<'a>),
) -> Tree<'a> {
    let (run, mut tree) = (source.run, Tree::default());
    let Some(thread) = run.threads.get(index) else { return tree };
    let is_torchs = run.recorder == Recorder::Torch;
    let is_operator = |r: &&Range| {
        let is_one = matches!(r.kind, RangeKind::Operator | RangeKind::User);
        let nests = !r.is_start_end() && !thread.is_left_open(r);
        is_one && nests && !run.is_librarys(r) && !LEFT_OUT.contains(&source.string(r.name))
    };
    let ranges = thread.ranges.iter().filter(is_operator).map(|r| (r.span, Event::Range(r)));
    let calls = thread.calls.iter().enumerate().map(|(i, c)| (c.span(), Event::Call(run.flat(index, i))));
    // (torch.profiler counts them for the thread that stops it: most often the process's first)
    let is_first = source.operators.main_thread == Some(thread.tid);
    let overhead = source.operators.overhead.iter().filter(|_| is_first).map(|&s| (s, Event::Overhead));
    let mut events: Vec<(Span, Event<'_>)> = ranges.chain(calls).chain(overhead).collect();
    events.sort_by_key(|(span, _)| (span.start, Reverse(span.end)));
    for (span, event) in events {
        tree.close(span.start);
        match event {
            Event::Range(r) => {
                let name = match unnumbered(source.string(r.name)) {
                    step if step.starts_with("ProfilerStep#") => "ProfilerStep*",
                    name => name,
                };
                let is_named = r.kind == RangeKind::User;
                let of = (thread.tid, span.start, span.end, r.name);
                let [shapes, types, values] = inputs.get(&of).copied().unwrap_or_default();
                let what = What { name, is_named, shapes, types, values };
                if is_torchs && ASYNC.iter().any(|a| name.starts_with(a)) {
                    add(Operator { what, total: memory.spent(span), own: Spent::default() });
                } else {
                    tree.put(span, Some(what), !(is_torchs && is_named), memory);
                }
            }
            _ if tree.open.is_empty() => {} // nobody's
            Event::Call(flat) => {
                if let Some(owner) = tree.owner() {
                    for (_, op) in source.launched(flat) {
                        let ns = u128::from(op.span().ns());
                        owner.spent.gpu += ns;
                        owner.spent.copies += if leaves_device(op) { ns } else { 0 };
                    }
                }
                tree.put(span, None, false, memory);
            }
            Event::Overhead => tree.put(span, None, false, memory),
        }
    }
    tree
}

/// What is nested.
enum Event<'a> {
    Range(&'a Range),
    /// By its flat number.
    Call(u32),
    /// Of the profiler itself.
    Overhead,
}

impl<'a> Tree<'a> {
    /// Leaves those that have ended by then.
    fn close(&mut self, at: u64) {
        while self.innermost().is_some_and(|n| n.end <= at) {
            self.open.pop();
        }
    }

    /// Whose the work is that is launched now.
    fn owner(&mut self) -> Option<&mut Node<'a>> {
        let owner = self.innermost()?.owner?;
        self.nodes.get_mut(owner)
    }

    fn innermost(&self) -> Option<&Node<'a>> {
        self.nodes.get(*self.open.last()?)
    }

    /// The next one, in the order of begin, the longer first. `owns`: work that is launched in it
    /// is its own.
    fn put(&mut self, span: Span, what: Option<What<'a>>, owns: bool, memory: &mut Memory) {
        while self.innermost().is_some_and(|n| n.end < span.end) {
            self.open.pop();
        }
        let (number, parent) = (self.nodes.len(), self.open.last().copied());
        let owner = if owns { Some(number) } else { self.innermost().and_then(|n| n.owner) };
        if let Some(parent) = parent.and_then(|p| self.nodes.get_mut(p)) {
            parent.children += 1;
        }
        let spent = memory.spent(span);
        self.open.push(number);
        let (end, children, inner) = (span.end, 0, Spent::default());
        self.nodes.push(Node { what, end, parent, owner, children, inner, spent });
    }

    /// Hands out its operators and ranges, those that count as one put together.
    fn settle(mut self, add: &mut impl FnMut(Operator<'a>)) {
        let mut counted_as: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for number in 0..self.nodes.len() {
            counted_as.push(number);
            let (before, rest) = self.nodes.split_at_mut(number);
            let Some(node) = rest.first_mut() else { break };
            let Some(outer) = node.parent.and_then(|p| counted_as.get(p)).copied() else { continue };
            node.parent = Some(outer);
            let Some(parent) = before.get_mut(outer) else { continue };
            let name = |n: &Node<'a>| n.what.map(|w| w.name);
            if parent.children == 1 && name(node).is_some() && name(node) == name(parent) {
                parent.children = node.children;
                parent.spent.gpu += node.spent.gpu;
                parent.spent.copies += node.spent.copies;
                (node.what, node.parent) = (None, None);
                counted_as[number] = outer;
            }
        }
        while let Some(Node { what, parent, inner, spent, .. }) = self.nodes.pop() {
            let (gpu, copies) = (spent.gpu + inner.gpu, spent.copies + inner.copies);
            let total = Spent { gpu, copies, ..spent };
            if let Some(parent) = parent.and_then(|p| self.nodes.get_mut(p)) {
                parent.inner += total;
            }
            let cpu = spent.cpu.saturating_sub(inner.cpu);
            let own = Spent { cpu, memory: spent.memory - inner.memory, ..spent };
            if let Some(what) = what {
                add(Operator { what, total, own });
            }
        }
    }
}

/// A copy of which one end is not in the device's memory.
fn leaves_device(op: &Op) -> bool {
    op.kind == Kind::Memcpy && !matches!(op.copy().direction, 5..=8)
}

/// Changes of memory in the order of time.
struct Memory {
    at: Vec<u64>,
    /// Sums of those before each, and of all.
    sums: Vec<Bytes>,
    changes: Vec<Bytes>,
    /// By how many more an operator is open from each on.
    opened: Vec<i64>,
}

impl Memory {
    fn new(changes: &[MemoryChange]) -> Memory {
        let bytes = |c: &MemoryChange| match c.on_gpu {
            true => Bytes { host: 0, gpu: c.bytes },
            false => Bytes { host: c.bytes, gpu: 0 },
        };
        let mut sum = Bytes::default();
        let mut sums = vec![sum];
        sums.extend(changes.iter().map(|c| {
            sum += bytes(c);
            sum
        }));
        let (at, changes) = (changes.iter().map(|c| c.at).collect(), changes.iter().map(bytes).collect());
        Memory { at, opened: vec![0; sums.len()], sums, changes }
    }

    /// Time and memory from its begin to its end.
    fn spent(&mut self, span: Span) -> Spent {
        Spent { cpu: span.ns().into(), memory: self.within(span), ..Spent::default() }
    }

    /// What changed from its begin to its end.
    fn within(&mut self, span: Span) -> Bytes {
        let from = self.at.partition_point(|&at| at < span.start);
        let to = self.at.partition_point(|&at| at <= span.end);
        for (place, by) in [(from, 1), (to, -1)] {
            if let Some(opened) = self.opened.get_mut(place) {
                *opened += by;
            }
        }
        let sum = |n: usize| self.sums.get(n).copied().unwrap_or_default();
        sum(to) - sum(from)
    }

    /// What changed while nothing that was asked for was open.
    fn elsewhere(&self) -> (u64, Bytes) {
        let (mut open, mut times, mut sum) = (0, 0, Bytes::default());
        for (&change, by) in self.changes.iter().zip(&self.opened) {
            open += by;
            if open == 0 {
                times += 1;
                sum += change;
            }
        }
        (times, sum)
    }
}

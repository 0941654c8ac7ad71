// SPDX-License-Identifier: Apache-2.0
//! The phase of each launching call of a device, and the spans of the host that the phases are:
//! named ranges first, what is sure without them else.

use std::collections::HashMap;

use trace::call::Class;
use trace::Kind as Event;
use verdict::run::{Device, Op, Run, Span};
use verdict::timeline::kernels::KernelTable;

use super::spans::{self, Names, Part};
use super::{names, threads, By, Kind};
use crate::tables::{class_of, KernelClass};

/// What a call puts on the device; of a graph what says most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(super) enum What {
    /// A copy from or to the host.
    Transfer,
    /// Another copy, a memset, a collective.
    Memory,
    /// A kernel that may be anybody's.
    Kernel,
    /// One that updates weights.
    Update,
    /// A matrix product, convolution or attention: no optimizer that is known by its kernels has
    /// one.
    Product,
}

/// A launching call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) span: Span,
    /// Index of its thread.
    pub(super) thread: usize,
    /// Flat number.
    pub(super) flat: u32,
    pub(super) what: What,
    pub(super) kind: Option<Kind>,
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    /// By flat call number.
    kinds: Vec<Option<Kind>>,
    /// Of the host's threads together: disjoint, by time.
    pub(super) spans: Vec<Part>,
    /// How each is known.
    pub(super) by: [Option<By>; Kind::COUNT],
    /// Spans of phases that no range names, one an instance.
    pub(super) inferred: Vec<Part>,
}

impl Calls {
    pub(super) fn new(run: &Run, device: &Device) -> Calls {
        let mut launches = launches(run, device);
        let engine = threads::autograd(run, &launches);
        let is_engine = |t: usize| engine.get(t) == Some(&true);
        let mut calls = Calls::default();
        let named = named(run, &launches, &is_engine);
        let has = |kind| match kind {
            Kind::Backward => names_backward(run),
            kind => named.iter().flatten().any(|p| p.1 == kind),
        };
        for kind in Kind::ALL.into_iter().filter(|&k| has(k)) {
            calls.by[kind as usize] = Some(By::Ranges);
        }
        for l in &mut launches {
            let range = named.get(l.thread).and_then(|parts| spans::at(parts, l.span.start));
            // what the engine launches is backward, whatever stands around it; and what another
            // thread computes meanwhile
            let engines = is_engine(l.thread) || works_for_backward(l, &named);
            l.kind = if engines { Some(Kind::Backward) } else { range };
        }
        calls.spans = named.concat();
        if launches.iter().any(|l| l.kind == Some(Kind::Backward)) {
            calls.infer(run, &mut launches, &is_engine);
        }
        calls.spans = spans::painted(&calls.spans);
        let flats = launches.iter().map(|l| l.flat as usize + 1).max().unwrap_or(0);
        calls.kinds = vec![None; flats];
        for l in &launches {
            if let Some(kind) = calls.kinds.get_mut(l.flat as usize) {
                *kind = l.kind;
            }
        }
        calls
    }

    /// The phase in which the call was made that launched it.
    pub(super) fn of(&self, op: &Op) -> Option<Kind> {
        self.of_call(op.call)
    }

    /// The phase a launching call is in.
    pub(super) fn of_call(&self, flat: u32) -> Option<Kind> {
        self.kinds.get(flat as usize).copied().flatten()
    }

    /// The phase the host is in at a time.
    pub(super) fn at(&self, time: u64) -> Option<Kind> {
        spans::at(&self.spans, time)
    }

    /// What ranges do not say: backward by its thread; optimizer and forward by what the main
    /// thread launches between two of it.
    fn infer(&mut self, run: &Run, launches: &mut [Launch], is_engine: &dyn Fn(usize) -> bool) {
        let main = main_thread(launches, is_engine);
        let infers = [Kind::Forward, Kind::Backward, Kind::Optimizer].map(|k| self.by[k as usize].is_none());
        let [forward, backward, optimizer] = infers;
        let mut by_engine: Vec<Part> = Vec::new();
        let mut chunks: Vec<Chunk> = Vec::new();
        let (mut from, mut by_thread) = (0, false);
        while from < launches.len() {
            let is_backward = |l: &Launch| l.kind == Some(Kind::Backward);
            let all = launches.get(from..).unwrap_or(&[]);
            let Some(is) = all.first().map(is_backward) else { break };
            let count = all.iter().take_while(|l| is_backward(l) == is).count();
            let own = all.get(..count).unwrap_or(&[]);
            if is {
                // on the engine's thread, or, where there is none, in its operators
                let engines = own.iter().any(|l| is_engine(l.thread));
                let launched = || own.iter().filter(|l| is_engine(l.thread) || !engines);
                by_thread |= engines;
                if let (Some(first), Some(last)) = (launched().next(), launched().last()) {
                    by_engine.push((Span::new(first.span.start, last.span.end), Kind::Backward));
                }
            } else {
                let next = all.get(count).map(|l| l.span.start);
                chunks.push(Chunk { from, to: from + count, next });
            }
            from += count;
        }
        if backward && !by_engine.is_empty() {
            self.by[Kind::Backward as usize] = Some(if by_thread { By::Thread } else { By::Operators });
            self.inferred.extend(&by_engine);
        }
        self.spans.extend(by_engine);
        let mut updates = Vec::new();
        if optimizer {
            for chunk in &chunks {
                updates.extend(chunk.update(launches, main));
            }
            if !updates.is_empty() {
                self.by[Kind::Optimizer as usize] = Some(By::Kernels);
            }
        }
        // without an optimizer the main thread's launches may be anything
        let calls = run.threads.get(main).map_or(&[][..], |t| &t.calls);
        let syncs: Vec<u64> =
            calls.iter().filter(|c| c.class == Some(Class::Sync)).map(|c| c.start).collect();
        if forward && self.by[Kind::Optimizer as usize].is_some() {
            let found: Vec<Part> = chunks.iter().filter_map(|c| c.forward(launches, main, &syncs)).collect();
            if !found.is_empty() {
                self.by[Kind::Forward as usize] = Some(By::Between);
            }
            updates.extend(found);
        }
        self.inferred.extend(&updates);
        self.spans.extend(updates);
    }
}

/// Launches between two backward passes, by index; and when the second begins.
struct Chunk {
    from: usize,
    to: usize,
    next: Option<u64>,
}

impl Chunk {
    /// The first kernels that update weights, up to a matrix product; they are the optimizer's
    /// then.
    fn update(&self, launches: &mut [Launch], main: usize) -> Option<Part> {
        let own = launches.get_mut(self.from..self.to)?;
        let is_main = |l: &Launch| l.thread == main;
        let first = own.iter().position(|l| is_main(l) && l.what == What::Update)?;
        let behind = own.get_mut(first..)?;
        let product = behind.iter().position(|l| is_main(l) && l.what == What::Product);
        let behind = behind.get_mut(..product.unwrap_or(behind.len()))?;
        let last = behind.iter().rposition(|l| is_main(l) && l.what == What::Update)?;
        let update = behind.get_mut(..=last)?;
        for l in update.iter_mut().filter(|l| is_main(l) && l.kind.is_none()) {
            l.kind = Some(Kind::Optimizer);
        }
        Some((Span::new(update.first()?.span.start, update.last()?.span.end), Kind::Optimizer))
    }

    /// Behind the optimizer, up to backward: forward. It begins with the kernels in front of the
    /// first matrix product, as far as nothing waits or comes from the host between: before that
    /// may be anything (the loss is logged, a batch prepared).
    fn forward(&self, launches: &mut [Launch], main: usize, syncs: &[u64]) -> Option<Part> {
        let next = self.next?;
        let own = launches.get_mut(self.from..self.to)?;
        // cleared gradients may stand between forward and backward
        let is_step = |l: &Launch| l.kind == Some(Kind::Optimizer);
        let products: Vec<usize> =
            own.iter().enumerate().filter(|(_, l)| l.what == What::Product).map(|p| p.0).collect();
        let before = products.last().copied().unwrap_or(own.len());
        let behind = own.iter().take(before).rposition(is_step).map_or(0, |i| i + 1);
        let own = own.get_mut(behind..)?;
        let is_free = |l: &Launch| l.thread == main && l.kind.is_none();
        let is_kernel = |l: &Launch| is_free(l) && l.what > What::Memory;
        let sure = own.iter().position(|l| is_free(l) && l.what == What::Product);
        let sure = sure.or_else(|| own.iter().position(is_kernel))?;
        let until = own.get(sure)?.span.start;
        let synced = syncs.get(syncs.partition_point(|&s| s < until).checked_sub(1).unwrap_or(usize::MAX));
        let before = own.get(..sure)?;
        let begins =
            before.iter().rposition(|l| l.thread == main && l.what == What::Transfer).map_or(0, |i| i + 1);
        let behind = |l: &Launch| synced.is_none_or(|&s| l.span.start > s);
        let first =
            before.iter().skip(begins).position(|l| is_kernel(l) && behind(l)).map_or(sure, |i| begins + i);
        let own = own.get_mut(first..)?;
        for l in own.iter_mut().filter(|l| is_free(l)) {
            l.kind = Some(Kind::Forward);
        }
        Some((Span::new(own.first()?.span.start, next), Kind::Forward))
    }
}

/// A thread without phases of its own computes while another one is in a range of backward.
fn works_for_backward(launch: &Launch, named: &[Vec<Part>]) -> bool {
    let others = || named.iter().enumerate().filter(|(t, _)| *t != launch.thread);
    launch.what > What::Memory
        && named.get(launch.thread).is_none_or(Vec::is_empty)
        && others().any(|(_, parts)| spans::at(parts, launch.span.start) == Some(Kind::Backward))
}

/// Does a range say backward, other than nodes of the engine?
fn names_backward(run: &Run) -> bool {
    let mut ids: Vec<u32> = run.threads.iter().flat_map(|t| &t.ranges).map(|r| r.name).collect();
    ids.sort_unstable();
    ids.dedup();
    let text = |id| run.definitions.string(id).unwrap_or("");
    ids.into_iter().map(text).any(|n| !names::is_node(n) && names::kind(n) == Some(Kind::Backward))
}

/// The thread that launches most beside the engine's.
fn main_thread(launches: &[Launch], is_engine: &dyn Fn(usize) -> bool) -> usize {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for l in launches.iter().filter(|l| !is_engine(l.thread)) {
        *counts.entry(l.thread).or_default() += 1;
    }
    counts.into_iter().max_by_key(|&(t, n)| (n, usize::MAX - t)).map_or(0, |c| c.0)
}

/// Named phases by thread, of those that launch. An optimizer's range that holds a backward pass (a
/// closure) is the optimizer's only behind it.
fn named(run: &Run, launches: &[Launch], is_engine: &dyn Fn(usize) -> bool) -> Vec<Vec<Part>> {
    let mut launching = vec![false; run.threads.len()];
    let mut backward: Vec<u64> = Vec::new();
    for l in launches {
        if let Some(is) = launching.get_mut(l.thread) {
            *is = true;
        }
        if is_engine(l.thread) {
            backward.push(l.span.start);
        }
    }
    let mut names = Names::new(run);
    let mut of = |t: usize, thread| -> Vec<Part> {
        if launching.get(t) != Some(&true) {
            return Vec::new();
        }
        let mut parts = spans::named(run, thread, &mut names);
        for (span, kind) in parts.iter_mut().filter(|p| p.1 == Kind::Optimizer) {
            let last = backward.partition_point(|&b| b < span.end).checked_sub(1);
            let inside = last.and_then(|i| backward.get(i)).filter(|&&b| b > span.start);
            if let (Some(&last), Kind::Optimizer) = (inside, *kind) {
                span.start = last;
            }
        }
        parts
    };
    run.threads.iter().enumerate().map(|(t, thread)| of(t, thread)).collect()
}

/// All launching calls of a device, by begin.
fn launches(run: &Run, device: &Device) -> Vec<Launch> {
    let table = KernelTable::new(run);
    let mut products: HashMap<u32, bool> = HashMap::new();
    let calls = run.threads.iter().map(|t| t.calls.len()).sum();
    let mut by_call: Vec<Option<What>> = vec![None; calls];
    for op in device.streams.iter().flat_map(|s| &s.ops) {
        let mut is_product = |id| {
            *products.entry(id).or_insert_with(|| {
                let class = class_of(run.definitions.kernel_name(id));
                matches!(class, KernelClass::Gemm | KernelClass::Conv | KernelClass::Attention)
            })
        };
        let what = match op.kind {
            // moves data, whoever waits for it
            Event::Kernel if table.get(op.a).collective => What::Memory,
            Event::Kernel if table.get(op.a).optimizer => What::Update,
            Event::Kernel if is_product(op.a) => What::Product,
            Event::Memcpy if matches!(op.copy().direction, 1 | 2) => What::Transfer,
            Event::Memcpy | Event::Memset => What::Memory,
            _ => What::Kernel,
        };
        if let Some(known) = by_call.get_mut(op.call as usize) {
            *known = (*known).max(Some(what));
        }
    }
    let launch = |(flat, what): (u32, Option<What>)| {
        let (what, (thread, call)) = (what?, run.call(flat)?);
        Some(Launch { span: call.span(), thread, flat, what, kind: None })
    };
    let mut launches: Vec<Launch> = (0..).zip(by_call).filter_map(launch).collect();
    launches.sort_unstable_by_key(|l| (l.span.start, l.flat));
    launches
}

// SPDX-License-Identifier: Apache-2.0
//! A [`Run`] from the events of another tool's trace, whatever its format: numbers for texts,
//! kernels, streams and threads, ids of several processes told apart, and the facts of the header
//! that follow from the events.

use foldhash::{HashMap, HashMapExt};
use trace::call::{self, Class};
use trace::define::Definition;
use trace::event::{GRAPH_NODE, OPEN_ENDED};
use trace::header::{sources, state};
use trace::{KernelInfo, Kind};
use verdict::load;
use verdict::load::array_waits;
use verdict::load::missing_kernels;
use verdict::run::{Call, Device, Mark, Op, Range, Run, Span, Stream, SyncRecord, Thread, NAMED_CALL, NONE};

use super::{uncalled, vendors};

/// More streams of a device than this are not told apart: their operations are refused.
const MOST_STREAMS: usize = 60_000;
/// More threads than this: likewise.
const MOST_THREADS: usize = 1 << 14;
/// More devices than this: likewise.
const MOST_DEVICES: usize = 1 << 10;

/// A stream, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct StreamKey {
    /// Processes are counted from 0; formats that hold one process say 0.
    pub(super) process: u32,
    /// As it shall be named in the run, or as [`Assembly::renumber_devices`] is told.
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
}

/// An operation of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForeignOp {
    pub(super) span: Span,
    pub(super) correlation: u32,
    /// As in `trace::Event`; kernels: an id of [`Assembly::kernel`].
    pub(super) a: u32,
    pub(super) b: u32,
    /// CUDA graph, 0 where it is none or not told (then the launching call tells).
    pub(super) graph: u32,
    pub(super) kind: Kind,
}

/// Which call: its name, and its number where it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// An id of [`Assembly::string`].
    pub(super) string: u32,
    /// `trace::call::pack`, 0 where not told.
    pub(super) packed: u32,
}

/// An API call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForeignCall {
    pub(super) span: Span,
    pub(super) correlation: u32,
    pub(super) name: Named,
    /// Return value.
    pub(super) result: u32,
    /// Stack id, 0 where not told.
    pub(super) site: u32,
}

/// A run under construction.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pub(super) run: Run,
    strings: HashMap<Box<[u8]>, u32>,
    kernels: HashMap<KernelInfo, u32>,
    devices: HashMap<u32, usize>,
    pub(super) streams: HashMap<StreamKey, (usize, usize)>,
    threads: HashMap<u32, usize>,
    /// By index of the thread.
    pub(super) process_of_thread: Vec<u32>,
    /// By index of the wait.
    pub(super) process_of_wait: Vec<u32>,
    /// What a call's name and number stand for.
    calls: HashMap<(u32, u32), (u32, Option<Class>)>,
}

impl Assembly {
    /// The id of a text; 0 for the empty one.
    pub(super) fn string(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = self.strings.len() as u32 + 1;
        self.strings.insert(text.into(), id);
        self.run.definitions.insert(id, Definition::String(text));
        id
    }

    /// The id of a kernel.
    pub(super) fn kernel(&mut self, info: KernelInfo) -> u32 {
        let next = self.kernels.len() as u32 + 1;
        let definitions = &mut self.run.definitions;
        *self.kernels.entry(info).or_insert_with(|| {
            definitions.insert(next, Definition::Kernel(info));
            next
        })
    }

    /// Takes a definition as it is.
    pub(super) fn define(&mut self, id: u32, definition: Definition<'_>) {
        self.run.definitions.insert(id, definition);
    }

    /// Where a stream's operations go; `None` where there are too many.
    pub(super) fn stream(&mut self, device: u32, context: u32, stream: u32) -> Option<(usize, usize)> {
        self.stream_of(StreamKey { process: 0, device, context, stream })
    }

    /// The same where a trace holds several processes.
    pub(super) fn stream_of(&mut self, key: StreamKey) -> Option<(usize, usize)> {
        if let Some(&at) = self.streams.get(&key) {
            return Some(at);
        }
        let StreamKey { device, context, stream, .. } = key;
        let devices = &mut self.run.devices;
        if devices.len() >= MOST_DEVICES && !self.devices.contains_key(&device) {
            return None;
        }
        let index = *self.devices.entry(device).or_insert_with(|| {
            devices.push(Device { ordinal: device, ..Device::default() });
            devices.len() - 1
        });
        let d = devices.get_mut(index)?;
        if d.streams.len() >= MOST_STREAMS {
            return None;
        }
        d.streams.push(Stream { context, stream, ops: Vec::new() });
        let at = (index, d.streams.len() - 1);
        self.streams.insert(key, at);
        Some(at)
    }

    /// Where the events of the thread with this number go; `None` where there are too many.
    pub(super) fn thread(&mut self, number: u32, tid: u32) -> Option<usize> {
        self.thread_of(0, number, tid)
    }

    /// The same where a trace holds several processes.
    pub(super) fn thread_of(&mut self, process: u32, number: u32, tid: u32) -> Option<usize> {
        let threads = &mut self.run.threads;
        if !self.threads.contains_key(&number) && threads.len() >= MOST_THREADS {
            return None;
        }
        let owners = &mut self.process_of_thread;
        Some(*self.threads.entry(number).or_insert_with(|| {
            threads.push(Thread { tid, ..Thread::default() });
            owners.push(process);
            threads.len() - 1
        }))
    }

    /// Gives each device, by the number it was made with, another one.
    pub(super) fn renumber_devices(&mut self, number: impl Fn(u32) -> u32) {
        for d in &mut self.run.devices {
            d.ordinal = number(d.ordinal);
        }
    }

    /// Names a thread that has events.
    pub(super) fn name_thread(&mut self, number: u32, name: u32) {
        if let Some(t) = self.threads.get(&number).and_then(|&i| self.run.threads.get_mut(i)) {
            t.name = name;
        }
    }

    /// An operation of the stream that [`Assembly::stream`] gave.
    pub(super) fn op(&mut self, (device, stream): (usize, usize), op: ForeignOp) {
        let streams = self.run.devices.get_mut(device).map(|d| &mut d.streams);
        let Some(s) = streams.and_then(|s| s.get_mut(stream)) else { return };
        let ForeignOp { span, correlation, a, b, graph, kind } = op;
        let flags = if graph != 0 && kind != Kind::GraphTrace { GRAPH_NODE } else { 0 };
        let Span { start, end } = span;
        s.ops.push(Op { start, end, correlation, a, b, graph, call: NONE, captured: 0, kind, flags });
        self.run.events += 1;
    }

    /// A call of the thread that [`Assembly::thread`] gave.
    pub(super) fn call(&mut self, thread: usize, call: ForeignCall) {
        let ForeignCall { span, correlation, name, result, site } = call;
        let (packed, class) = self.which(name);
        if let Some(t) = self.run.threads.get_mut(thread) {
            let Span { start, end } = span;
            t.calls.push(Call { start, end, correlation, packed, result, site, class, flags: 0 });
            self.run.events += 1;
        }
    }

    /// The call's number: the one told where our table has it under that name, else one by the name
    /// alone.
    fn which(&mut self, name: Named) -> (u32, Option<Class>) {
        if let Some(&known) = self.calls.get(&(name.string, name.packed)) {
            return known;
        }
        let text = self.run.definitions.string(name.string).unwrap_or("");
        let (shown, plain) = (shown(text), plain(text));
        let told = call::find(name.packed).filter(|c| c.name == plain);
        let row = told.or_else(|| call::CALLS.iter().find(|c| c.name == plain));
        let found = match (told, row) {
            (Some(c), _) => (name.packed, Some(c.class)),
            (None, Some(c)) if shown == plain => (call::pack(c.domain, c.id), Some(c.class)),
            (None, row) => {
                // our own trace has the waits that no call shows as calls of this name
                let made = (shown == array_waits::NAME).then_some(Class::Sync);
                let class = row.map(|c| c.class).or_else(|| vendors::class(plain)).or(made);
                let shown = shown.to_owned();
                (NAMED_CALL | self.string(shown.as_bytes()) & 0xff_ffff, class)
            }
        };
        self.calls.insert((name.string, name.packed), found);
        found
    }

    /// A range of the thread that [`Assembly::thread`] gave; its depth is found at the end.
    pub(super) fn range(&mut self, thread: usize, range: Range) {
        if let Some(t) = self.run.threads.get_mut(thread) {
            t.ranges.push(range);
            self.run.events += 1;
        }
    }

    /// A step mark of the thread that [`Assembly::thread`] gave.
    pub(super) fn mark(&mut self, thread: usize, mark: Mark) {
        if let Some(t) = self.run.threads.get_mut(thread) {
            t.marks.push(mark);
            self.run.events += 1;
        }
    }

    /// A wait as CUPTI recorded it.
    pub(super) fn wait(&mut self, span: Span, correlation: u32, what: u32, stream: u32) {
        self.wait_of(0, span, correlation, what, stream);
    }

    /// The same where a trace holds several processes.
    pub(super) fn wait_of(&mut self, process: u32, span: Span, correlation: u32, what: u32, stream: u32) {
        self.run.waits.push(SyncRecord { span, correlation, what, event: 0, stream });
        self.process_of_wait.push(process);
    }

    /// Sorted, joined, with a header.
    pub(super) fn finish(mut self) -> Run {
        self.tell_processes_apart();
        let streams = self.streams.iter().map(|(key, &(device, stream))| (key.process, device, stream));
        let launching = uncalled::launching(&self.run, &self.process_of_thread, streams);
        let mut run = self.run;
        let h = &mut run.header;
        let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| s.ops.iter().map(Op::span));
        let calls = run.threads.iter().flat_map(|t| t.calls.iter().map(Call::span));
        let ranges = run.threads.iter().flat_map(|t| t.ranges.iter().map(|r| r.span));
        let all = ops.chain(calls).chain(ranges);
        let (first, last) = all.fold((u64::MAX, 0), |(a, b), s| (a.min(s.start), b.max(s.end)));
        h.start_monotonic = first.min(last);
        h.first_use = h.start_monotonic;
        (h.last_write, h.gpu_complete_to, h.host_complete_to) = (last, last, last);
        h.state = state::CLOSED;
        for r in run.threads.iter_mut().flat_map(|t| &mut t.ranges).filter(|r| r.flags & OPEN_ENDED != 0) {
            r.span.end = last;
        }
        if !run.threads.iter().flat_map(|t| &t.calls).any(Call::launches) {
            h.sources |= sources::NO_LAUNCHES;
        }
        run.foreign = true;
        run.duplicates = drop_duplicates(&mut run);
        load::finish(&mut run);
        let apart = uncalled::take_apart(&mut run);
        run.uncalled = uncalled::count(&run, &launching, apart);
        mark_graph_nodes(&mut run);
        for t in &mut run.threads {
            nest(&mut t.ranges);
        }
        if let Some(copies) = missing_kernels::all_copies(&run) {
            run.missing = format!("copies were called for {copies} times, and none is in the trace");
        }
        run
    }
}

/// A call's name as `nsys stats` shows it: without CUPTI's runtime version,
/// `cudaLaunchKernel_v7000`.
fn shown(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((rest, version)) if is_version(version) && version.len() >= 5 => rest,
        _ => name,
    }
}

/// A call's name without any version, nor the variant for the thread's own default stream:
/// `cudaLaunchKernel_v7000`, `cudaMemcpyAsync_ptsz_v7000`, `cuMemcpyHtoDAsync_v2_ptsz`.
fn plain(name: &str) -> &str {
    let mut name = name;
    loop {
        let shorter = match name.rsplit_once('_') {
            Some((rest, "ptsz" | "ptds")) => rest,
            Some((rest, version)) if is_version(version) => rest,
            _ => return name,
        };
        name = shorter;
    }
}

/// `v7000`.
fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// The same operation, or the same call, written twice counts once. Graph nodes of no length may
/// look alike and are kept.
fn drop_duplicates(run: &mut Run) -> u64 {
    let mut dropped = 0;
    for t in &mut run.threads {
        let key = |c: &Call| (c.start, c.end, c.correlation, c.packed);
        if !t.calls.is_sorted_by_key(key) {
            t.calls.sort_by_key(key);
        }
        let before = t.calls.len();
        t.calls.dedup_by(|b, a| key(a) == key(b) && a.correlation != 0);
        dropped += (before - t.calls.len()) as u64;
    }
    for s in run.devices.iter_mut().flat_map(|d| &mut d.streams) {
        let key = |o: &Op| (o.start, o.end, o.correlation, o.kind as u8, o.a, o.b);
        s.ops.sort_by_key(key);
        let before = s.ops.len();
        s.ops.dedup_by(|b, a| key(a) == key(b) && a.end > a.start);
        dropped += (before - s.ops.len()) as u64;
    }
    dropped
}

/// Where the format does not tell: what one graph launch started is its nodes. The first kernel
/// stands for the graph.
fn mark_graph_nodes(run: &mut Run) {
    let is_graph: Vec<bool> =
        run.threads.iter().flat_map(|t| &t.calls).map(|c| c.class == Some(Class::GraphLaunch)).collect();
    if !is_graph.contains(&true) {
        return;
    }
    // several kernels of one launch: the same graph if it begins with the same kernel and has as
    // many nodes
    let mut nodes: HashMap<u32, (u32, u32)> = HashMap::new();
    let ops = || run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    for o in ops().filter(|o| is_graph.get(o.call as usize) == Some(&true)) {
        let first = nodes.entry(o.call).or_insert((o.a, 0));
        first.1 += 1;
    }
    // behind those that the trace does name
    let told = ops().map(|o| o.graph).max().unwrap_or(0);
    let mut graphs: HashMap<(u32, u32), u32> = HashMap::new();
    for d in &mut run.devices {
        for o in d.streams.iter_mut().flat_map(|s| &mut s.ops) {
            let Some(&key) = nodes.get(&o.call).filter(|_| o.graph == 0) else { continue };
            let next = told.saturating_add(graphs.len() as u32).saturating_add(1);
            o.graph = *graphs.entry(key).or_insert(next);
            if o.kind != Kind::GraphTrace {
                o.flags |= GRAPH_NODE;
            }
        }
    }
}

/// Depths of a thread's ranges, which are sorted by begin (the longer first).
fn nest(ranges: &mut [Range]) {
    ranges.sort_by_key(|r| (r.span.start, std::cmp::Reverse(r.span.end), r.kind as u8));
    let mut open: Vec<u64> = Vec::new();
    for r in ranges {
        while open.last().is_some_and(|&end| end <= r.span.start) {
            open.pop();
        }
        r.depth = u8::try_from(open.len()).unwrap_or(u8::MAX);
        open.push(r.span.end);
    }
}

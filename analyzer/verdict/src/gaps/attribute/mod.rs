// SPDX-License-Identifier: Apache-2.0
//! The walk over a device that gives each gap to a bucket, and what it finds on its way.
//!
//! Words: E end of the op before, L start of the next op's launch call, R its return, W credit.

mod charge;
mod reason;

use trace::Kind;

use self::reason::{same_graph, Reason};
use super::host::{Blocker, Hold, HostView};
use super::{KERNEL_GAP_NS, SMALL_COPY_NS, SMALL_KERNEL_NS};
use crate::run::{Device, Op, Run, Span, NONE};
use crate::stats::middle;
use crate::timeline::buckets::{Bucket, Buckets, IdleSlice};
use crate::timeline::{class, sweep, Observed, Placed, Visitor};

/// Kernels too small to fill the device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SmallKernels {
    /// Share of the kernels' busy time in kernels shorter than [`super::SMALL_KERNEL_NS`] or with
    /// blocks for less than half of the multiprocessors, 0 to 1.
    pub share: f64,
    /// Kernels counted.
    pub kernels: u64,
    /// Small ones of them.
    pub small: u64,
    /// Median kernel duration, ns.
    pub median_ns: u64,
}

/// What the walk over one device found.
#[derive(Clone, Debug, Default)]
pub struct Attributed {
    /// Buckets of the steady span.
    pub buckets: Buckets,
    /// Gap slices of the valid span, by start.
    pub slices: Vec<IdleSlice>,
    /// Small kernels in the steady span.
    pub small: SmallKernels,
    /// Ops, kernels in the steady span.
    pub ops: u64,
    /// Kernels in the steady span.
    pub kernels: u64,
    /// Ops that start before their launch call.
    pub start_before_launch: u64,
    /// By how much at most, ns.
    pub most_before_launch_ns: u64,
    /// Of so many ops whose call is known.
    pub launched: u64,
    /// Valid span: time with anything running, ns.
    pub busy_ns: u64,
    /// Valid span: gaps.
    pub gaps: u64,
    /// Valid span: longest gap, ns.
    pub max_gap_ns: u64,
    /// Valid span: first start to last end.
    pub span: Span,
}

/// Attributes every gap of `device`. `valid`: what was observed of the valid span; `steady`: what
/// counts, and from where to where. O(n log n) in events.
pub fn attribute(
    run: &Run,
    device: &Device,
    host: &HostView,
    collectives: &[u32],
    valid: (&Observed, Span),
    steady: (&Observed, Span),
) -> Attributed {
    let main = main_stream(device, collectives);
    let mut walk = Walk {
        run,
        device,
        host,
        valid: valid.0,
        whole: valid.1,
        steady: steady.0,
        steady_span: steady.1,
        collectives,
        main,
        next_blocker: 0,
        clocks_apart: clocks_apart(run, device),
        credits: Vec::new(),
        standing: Vec::new(),
        staged: (NONE, 0),
        frontier: None,
        latest_launch: 0,
        pending: Vec::new(),
        durations: Vec::new(),
        small_ns: 0,
        kernel_ns: 0,
        out: Attributed::default(),
    };
    let last = sweep(device, collectives, &mut walk);
    walk.finish(last);
    walk.out
}

/// The stream that carries the computing: most kernel time.
fn main_stream(device: &Device, collectives: &[u32]) -> u16 {
    let busy = |ops: &[Op]| -> u64 {
        ops.iter()
            .filter(|o| class(o, collectives) == Bucket::Compute && o.kind != Kind::Memset)
            .map(|o| o.end - o.start)
            .sum()
    };
    let best = device.streams.iter().enumerate().max_by_key(|(i, s)| (busy(&s.ops), usize::MAX - i));
    best.map_or(0, |(i, _)| i as u16)
}

/// By how much the device's clock is ahead of the host's at least, ns: no op can begin sooner after
/// its launch than the one that did. 0 in our recordings (one clock); other tools' clocks differ.
fn clocks_apart(run: &Run, device: &Device) -> u64 {
    let ops = device.streams.iter().flat_map(|s| &s.ops);
    ops.filter_map(|o| Some(o.start.saturating_sub(run.call(o.call)?.1.end))).min().unwrap_or(0)
}

/// Time the host stood in a call that had drained the queue; gaps after it are charged to it until
/// it is spent.
#[derive(Clone, Copy)]
struct Credit {
    left: u64,
    bucket: Bucket,
    call: u32,
    /// When the call returned: from then on the host may be seen to do something else.
    returned: u64,
}

/// The op that ended last, and where it is.
#[derive(Clone, Copy)]
struct Before<'a> {
    end: u64,
    op: &'a Op,
    stream: u16,
    index: u32,
}

struct Walk<'a> {
    run: &'a Run,
    device: &'a Device,
    host: &'a HostView,
    valid: &'a Observed,
    whole: Span,
    steady: &'a Observed,
    steady_span: Span,
    collectives: &'a [u32],
    main: u16,
    next_blocker: usize,
    /// See [`clocks_apart`].
    clocks_apart: u64,
    credits: Vec<Credit>,
    /// Allocating calls, from when the device had fallen idle: they stood beside the gap, whatever
    /// drained the queue.
    standing: Vec<(Span, u32)>,
    /// The last copy that the driver staged while the device was idle, and for how long: that time
    /// is the copy's already.
    staged: (u32, u64),
    frontier: Option<Before<'a>>,
    /// Latest begin of a launch call among the ops seen so far.
    latest_launch: u64,
    /// Gap pieces in front of small copies, and of what threads aside launch, that do not end a
    /// gap, and the op before the first of them.
    pending: Vec<(Span, Option<Before<'a>>)>,
    durations: Vec<u32>,
    small_ns: u64,
    kernel_ns: u64,
    out: Attributed,
}

impl<'a> Visitor<'a> for Walk<'a> {
    fn busy(&mut self, bucket: Bucket, span: Span) {
        self.out.busy_ns += span.clip(self.whole).ns();
        self.out.buckets.add(bucket, self.steady.measure(span));
    }

    fn gap(&mut self, span: Span, _op: Placed<'a>) {
        let seen = span.clip(self.whole).ns();
        self.out.gaps += u64::from(seen > 0);
        self.out.max_gap_ns = self.out.max_gap_ns.max(seen);
        self.pending.push((span, self.frontier));
    }

    fn op(&mut self, placed: Placed<'a>) {
        let op = placed.op;
        self.count(op);
        let small_copy = matches!(op.kind, Kind::Memcpy | Kind::Memset)
            && placed.stream != self.main
            && op.end - op.start <= SMALL_COPY_NS;
        if !small_copy && !self.host.is_aside(self.run, op) {
            self.resolve(placed);
        }
        if self.frontier.is_none_or(|b| op.end >= b.end) {
            self.frontier = Some(Before { end: op.end, op, stream: placed.stream, index: placed.index });
        }
    }
}

impl<'a> Walk<'a> {
    fn count(&mut self, op: &Op) {
        if !self.steady.contains(op.start) {
            return;
        }
        self.out.ops += 1;
        if op.kind != Kind::Kernel || class(op, self.collectives) == Bucket::Comm {
            self.out.kernels += u64::from(op.kind == Kind::Kernel);
            return;
        }
        self.out.kernels += 1;
        let ns = op.end - op.start;
        self.durations.push(u32::try_from(ns).unwrap_or(u32::MAX));
        self.kernel_ns += ns;
        // (0 blocks: not told; a persistent kernel leaves some multiprocessors free)
        if ns < SMALL_KERNEL_NS || (op.b > 0 && op.b < self.device.info.multiprocessors.div_ceil(2)) {
            self.small_ns += ns;
            self.out.small.small += 1;
        }
    }

    /// The next op of the stream that carries the computing has come: what was the time before it?
    fn resolve(&mut self, next: Placed<'a>) {
        let call = self.run.call(next.op.call).map(|(_, c)| c);
        if let Some(c) = call.filter(|_| self.valid.contains(next.op.start)) {
            let before = c.start.saturating_sub(next.op.start);
            self.out.start_before_launch += u64::from(before > 0);
            self.out.most_before_launch_ns = self.out.most_before_launch_ns.max(before);
            self.out.launched += 1;
        }
        // E: the end of the op before the first piece; without a piece, of the last op
        let before = match self.pending.first() {
            Some((_, b)) => *b,
            None => self.frontier,
        };
        let end = before.map_or(0, |b| b.end);
        let Some(call) = call else {
            self.take_blockers(next.op.start, end);
            let near = self.pending_ns() <= KERNEL_GAP_NS || same_graph(before, next.op);
            let bucket = if near { Bucket::KernelGap } else { Bucket::Unexplained };
            self.give(next, before, Reason::of(bucket, NONE), false);
            return;
        };
        let begin = call.start.min(next.op.start);
        if call.end <= end {
            self.take_blockers(begin, u64::MAX); // work was queued: whatever stood until now did not drain it
            self.credits.clear();
            if !self.pending.is_empty() {
                let (bucket, call) = self.queued(next, before);
                self.give(next, before, Reason::of(bucket, call), false);
            }
        } else {
            self.take_blockers(begin, end);
            if !self.pending.is_empty() {
                let bucket = match begin >= end && self.host.is_long(next.op.call) {
                    true if self.host.is_fetch(next.op.call) => Bucket::Input,
                    true => Bucket::Host,
                    // (it is not known what stood before the first launch of a file, but for the
                    // time)
                    false => {
                        let front = Span::new(end, begin);
                        self.host.in_front_of_first(next.op.call, front).unwrap_or(Bucket::Launch)
                    }
                };
                let mut reason = Reason { late: begin, ..self.late(next.op, call, end, bucket) };
                if self.begins_late(next.op, call) {
                    reason.returned = call.end.max(end);
                    reason.stalled = self.stalled(next);
                }
                if reason.inside == Bucket::CopyWait {
                    self.staged = (next.op.call, next.op.start.saturating_sub(begin.max(end)));
                }
                self.give(next, before, reason, true);
            }
        }
        // a copy that is part of a wait (`array_waits.rs`) was not launched beside it
        if call.launches() || next.op.kind != Kind::Memcpy {
            self.latest_launch = self.latest_launch.max(begin);
        }
    }

    fn pending_ns(&self) -> u64 {
        self.pending.iter().map(|p| p.0.ns()).sum()
    }

    /// Calls that returned by `until`: each that drained the queue (nothing ran past its return,
    /// nothing was launched while it stood) gives a credit. `end`: when the device fell idle.
    fn take_blockers(&mut self, until: u64, end: u64) {
        while let Some(b) = self.host.blockers.get(self.next_blocker).filter(|b| b.end <= until) {
            self.next_blocker += 1;
            if end <= b.end.max(b.done) && self.latest_launch <= b.start {
                self.credit(*b, end);
            }
        }
    }

    fn credit(&mut self, b: Blocker, end: u64) {
        let mut stood = b.end - b.start;
        if b.hold == Hold::Alloc {
            let beside = Span::new(end.max(b.start), b.end);
            self.standing.push((beside, b.call));
            stood -= beside.ns().min(stood);
        }
        let mut push = |left, bucket| {
            if left > 0 {
                self.credits.push(Credit { left, bucket, call: b.call, returned: b.end });
            }
        };
        match b.hold {
            Hold::Sync => push(stood, Bucket::Sync),
            Hold::Alloc => push(stood, Bucket::Alloc),
            Hold::Copy { drain } => {
                if self.staged.0 == b.call {
                    stood -= self.staged.1.min(stood);
                }
                push(drain.min(stood), Bucket::Sync);
                push(stood.saturating_sub(drain), Bucket::CopyWait);
            }
        }
    }

    /// Gaps before trailing small copies, and the time of the span before the first and after the
    /// last op.
    fn finish(&mut self, last: u64) {
        let before = self.frontier;
        for (piece, behind) in std::mem::take(&mut self.pending) {
            self.slice(piece, behind, None, Bucket::Unexplained, NONE);
        }
        let first = crate::timeline::ops(self.device).next();
        self.out.span = Span::new(first.map_or(last, |p| p.op.start), last).clip(self.whole);
        let head = Span::new(self.steady_span.start, first.map_or(self.steady_span.end, |p| p.op.start));
        let tail = Span::new(last.max(head.end), self.steady_span.end);
        // The host had launched nothing for the device in this time.
        let elsewhere = |s: Span| self.host.elsewhere(s);
        if self.steady.measure(head) > 0 {
            let call = first.and_then(|f| Some((f, self.run.call(f.op.call)?.1)));
            let late = call.map(|(f, call)| self.late(f.op, call, head.start, Bucket::Host));
            let (begin, inside) = late.map_or((u64::MAX, Bucket::Host), |l| (l.begin, l.inside));
            let away = Span::new(head.start, begin.clamp(head.start, head.end));
            self.slice(away, None, first, elsewhere(away), NONE);
            let call = first.map_or(NONE, |f| f.op.call);
            if away.end < head.end {
                self.slice(Span::new(away.end, head.end), None, first, inside, call);
            }
            self.out.slices.sort_by_key(|s| s.start);
        }
        if self.steady.measure(tail) > 0 {
            self.slice(tail, before, None, elsewhere(tail), NONE);
        }
        self.out.small.median_ns = middle(&mut self.durations).map_or(0, u64::from);
        self.out.small.kernels = self.durations.len() as u64;
        self.out.small.share = crate::stats::share(self.small_ns, self.kernel_ns);
    }
}

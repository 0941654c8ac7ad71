// SPDX-License-Identifier: Apache-2.0
//! Launches whose kernels are not in another tool's trace: its recorder lost them, and no counter
//! says so. What looks like them and is no loss:
//!
//! - at the begin and the end of a trace: the GPU was not recorded yet, or the kernel had still to
//!   run. So only what stands between launches of the same thread that have theirs, and not behind
//!   the last one on any stream that it uses (streams are queues);
//! - launches into a capture, which put a node into a graph: a stretch of them ends with the calls
//!   that end the capture;
//! - the launch of the driver that one of the runtime makes, or the other way round: one kernel,
//!   two calls;
//! - launches that failed, or whose kernels have another id (`formats/uncalled.rs`).
//!
//! A trace without any kernel has no such thread. There the copies and memsets tell from when to
//! when the GPU was recorded.
//!
//! Six traces of other people and of ours, 30 thousand launches: none is left. Recordings of
//! gapprobe have counters.

use std::collections::HashMap;

use trace::call::Class;
use trace::Kind;

use crate::run::{Call, Run};

/// A stream with a smaller share of a thread's kernels than one in so many says nothing of how far
/// the GPU had come: a program may use it once, and never again.
const USED: u64 = 20;

/// How many there are in the run.
pub fn count(run: &Run) -> u64 {
    if !run.foreign {
        return 0;
    }
    let kernels = has_kernels(run);
    let (answered, frontier) = answers(run, kernels);
    let breaks = Breaks::new(run);
    let mut missing = 0;
    for (t, thread) in run.threads.iter().enumerate() {
        let Some(&until) = frontier.get(&t) else { continue };
        let recorded =
            || (0..).zip(&thread.calls).find(|(i, _)| answered.get(run.flat(t, *i) as usize) == Some(&true));
        let from = if kernels { None } else { recorded().map(|(_, c)| c.start) };
        let mut stretch = Stretch { from, ..Stretch::default() };
        let mut outer: Option<Launch> = None;
        for (i, c) in thread.calls.iter().enumerate().filter(|(_, c)| is_launch(c)) {
            let ran = answered.get(run.flat(t, i) as usize) == Some(&true);
            match outer.as_mut().filter(|o| c.start == o.start || c.end <= o.end) {
                Some(o) => (o.end, o.ran) = (o.end.max(c.end), o.ran | ran),
                None => {
                    missing += outer.map_or(0, |o| stretch.take(o, until, &breaks));
                    outer = Some(Launch { start: c.start, end: c.end, ran });
                }
            }
        }
        missing += outer.map_or(0, |o| stretch.take(o, until, &breaks));
        if !kernels {
            missing += stretch.end(until, &breaks);
        }
    }
    // a kernel whose id is not its own has its launch in the trace, which seems to have none
    missing.saturating_sub(run.uncalled.unidentified_kernels)
}

/// Kernels, or graphs as one operation.
fn has_kernels(run: &Run) -> bool {
    let mut ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    ops.any(|o| matches!(o.kind, Kind::Kernel | Kind::GraphTrace))
}

fn is_launch(c: &Call) -> bool {
    c.class == Some(Class::Launch) && c.result == 0
}

/// By flat number: whether the call has an operation. By thread: up to when, on all streams that it
/// uses, its launches must have been answered.
fn answers(run: &Run, kernels: bool) -> (Vec<bool>, HashMap<usize, u64>) {
    let mut answered = vec![false; run.threads.iter().map(|t| t.calls.len()).sum()];
    let mut frontier: HashMap<usize, u64> = HashMap::new();
    let mut all: HashMap<usize, u64> = HashMap::new();
    let mut streams: Vec<(usize, u64, u64)> = Vec::new();
    for s in run.devices.iter().flat_map(|d| &d.streams) {
        // (kernels, else operations; begin of the latest launch) by thread
        let mut by_thread: HashMap<usize, (u64, u64)> = HashMap::new();
        for op in &s.ops {
            if let Some(a) = answered.get_mut(op.call as usize) {
                *a = true;
            }
            let Some((thread, call)) = run.call(op.call).filter(|_| op.kind == Kind::Kernel || !kernels)
            else {
                continue;
            };
            let of = by_thread.entry(thread).or_default();
            *of = (of.0 + 1, of.1.max(call.start));
        }
        for (thread, (n, last)) in by_thread {
            *all.entry(thread).or_default() += n;
            streams.push((thread, n, last));
        }
    }
    for (thread, n, last) in streams {
        if n * USED >= all.get(&thread).copied().unwrap_or(0) {
            let until = frontier.entry(thread).or_insert(u64::MAX);
            *until = last.min(*until);
        }
    }
    (answered, frontier)
}

/// Copies that were called for while kernels ran, where the trace has none at all (somebody took
/// them out to make the file smaller): what waited for them would look like the host's time. Fewer
/// than a few may be of no bytes, or between buffers of the host.
#[cfg(feature = "readers")]
pub fn all_copies(run: &Run) -> Option<u64> {
    const A_FEW: u64 = 3;
    let ops = || run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    if ops().any(|o| matches!(o.kind, Kind::Memcpy | Kind::GraphTrace)) {
        return None;
    }
    // AMD's runtime copies by kernels, too, and XLA's profiler shows them as such
    let copies = |call: u32| run.call(call).is_some_and(|(_, c)| c.class == Some(Class::Copy));
    if ops().any(|o| copies(o.call)) {
        return None;
    }
    let kernels = || ops().filter(|o| o.kind == Kind::Kernel).map(|o| o.start);
    let (first, last) = (kernels().min()?, kernels().max()?);
    // into a capture they are no copies yet
    let breaks = Breaks::new(run);
    let copies = run
        .threads
        .iter()
        .flat_map(|t| &t.calls)
        .filter(|c| c.class == Some(Class::Copy) && c.result == 0 && c.start > first && c.end < last);
    let count = copies.count() as u64;
    (count >= A_FEW && !breaks.explain(first, last)).then_some(count)
}

/// A launch, with those that it made itself.
#[derive(Clone, Copy)]
struct Launch {
    start: u64,
    end: u64,
    ran: bool,
}

/// Launches of a thread without kernels, behind one that has its own.
#[derive(Default)]
struct Stretch {
    begun: bool,
    /// Without any kernel: begun from here on.
    from: Option<u64>,
    first: u64,
    count: u64,
}

impl Stretch {
    /// The next launch of the thread; gives back how many are missing before it.
    fn take(&mut self, l: Launch, until: u64, breaks: &Breaks<'_>) -> u64 {
        self.begun |= self.from.is_some_and(|from| l.start > from);
        if !l.ran {
            if self.begun && l.start <= until {
                self.first = if self.count == 0 { l.start } else { self.first };
                self.count += 1;
            }
            return 0;
        }
        self.begun = true;
        self.end(l.start, breaks)
    }

    /// How many were missing up to now.
    fn end(&mut self, now: u64, breaks: &Breaks<'_>) -> u64 {
        let count = std::mem::take(&mut self.count);
        if count == 0 || breaks.explain(self.first, now) {
            0
        } else {
            count
        }
    }
}

/// What explains a stretch of launches without kernels.
struct Breaks<'a> {
    run: &'a Run,
    /// Begins of calls that end captures or make graphs of them, sorted.
    graphs: Vec<u64>,
}

impl Breaks<'_> {
    fn new(run: &Run) -> Breaks<'_> {
        let calls = run.threads.iter().flat_map(|t| &t.calls);
        let mut graphs: Vec<u64> = calls.filter(|c| ends_capture(run, c)).map(|c| c.start).collect();
        graphs.sort_unstable();
        Breaks { run, graphs }
    }

    fn explain(&self, from: u64, to: u64) -> bool {
        let at = self.graphs.partition_point(|&g| g < from);
        self.graphs.get(at).is_some_and(|&g| g < to)
            || self.run.blind.iter().any(|b| b.span.start < to && b.span.end > from)
    }
}

fn ends_capture(run: &Run, c: &Call) -> bool {
    match c.class {
        Some(Class::GraphSetup) => true,
        Some(_) => false,
        None => run.known_call_name(c.packed).is_some_and(|name| name.contains("StreamEndCapture")),
    }
}

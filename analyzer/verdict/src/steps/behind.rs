// SPDX-License-Identifier: Apache-2.0
//! When a step that the host marks begins on the GPU.
//!
//! Marks and ranges are times of the host. A host that is ahead sets them while the GPU still works
//! on earlier steps; the time between two of them is then what queueing took, not what the step
//! took. So a step begins at its mark, or, where the GPU was not ready for its first kernel, when
//! that kernel began. Each step is judged by itself, by what the marking threads launched in it:
//! what others launch, on this or another GPU, holds no step up.

use trace::event::Unobserved;
use trace::Kind;

use crate::run::{Call, Op, Run, Span, Stream, UnobservedSpan, MAX_TIME};
use crate::timeline::Observed;

/// A launch whose op started this long after the call returned was made far ahead: its own time is
/// the queue's, ns.
pub const AHEAD_NS: u64 = 100_000;

/// Steps as the host names them.
pub(super) struct Host<'a> {
    /// Threads that set the marks (indices).
    pub threads: &'a [usize],
    /// Begins, ascending.
    pub begins: &'a [u64],
    /// End of the last step, where it has one.
    pub end: Option<u64>,
}

/// The same on the GPU. `None` where it cannot be known: what was launched is not in the recording.
pub(super) struct OnDevice {
    pub begins: Vec<Option<u64>>,
    /// End of the last step.
    pub end: Option<u64>,
}

/// What the marking threads launched in a step.
#[derive(Clone, Copy, Default)]
struct Work {
    /// Kernels on the stream that tells; 0: none was recorded.
    kernels: u32,
    /// Begin of the first of them, if the GPU was not ready for it when it was launched; else 0.
    held: u64,
    /// End of the last of them.
    end: u64,
}

/// `None` where marks are not about this work: set by threads that launch nothing, while most of
/// the launching, or of the steps, is elsewhere (an environment's steps, a queue filled by a main
/// thread). Two looks at each operation, each a search among the steps.
pub(super) fn on_device(run: &Run, host: &Host<'_>) -> Option<OnDevice> {
    let step_at = |t: u64| {
        let step = host.begins.partition_point(|&b| b <= t).checked_sub(1)?;
        (step + 1 < host.begins.len() || host.end.is_none_or(|end| t < end)).then_some(step)
    };
    let calls = |t: usize| run.threads.get(t).map_or(&[][..], |t| t.calls.as_slice());
    // marks of a thread that launches nothing are about the work of the others
    let marking = host.threads.iter().any(|&t| calls(t).iter().any(Call::is_launch));
    let mut counts = vec![!marking; run.threads.len()];
    for &t in host.threads {
        if let Some(counts) = counts.get_mut(t) {
            *counts = true;
        }
    }
    let mut works = vec![Work::default(); host.begins.len()];
    // of each step the first and the last call that launched something
    let mut launched: Vec<Option<Span>> = vec![None; host.begins.len()];
    let (mut inside, mut outside) = (0u64, 0u64);
    let counting = counts.iter().enumerate().filter(|t| *t.1).map(|t| t.0);
    for call in counting.flat_map(calls).filter(|c| c.is_launch() && c.result == 0) {
        match step_at(call.start).and_then(|step| launched.get_mut(step)) {
            Some(calls) => {
                *calls = Some(joined(*calls, call));
                inside += 1;
            }
            None => outside += 1,
        }
    }
    let with_work = launched.iter().flatten().count();
    if !marking && (inside < outside || (inside > 0 && with_work * 2 < works.len())) {
        return None;
    }
    let steps_of = |stream: &Stream, each: &mut dyn FnMut(usize, Work)| {
        let kernels = stream.ops.iter().filter(|o| matches!(o.kind, Kind::Kernel | Kind::GraphTrace));
        // a stream runs in the order of launching: a step's kernels stand together
        let mut run_of: Option<(usize, Work)> = None;
        for op in kernels {
            let Some((thread, call)) = run.call(op.call) else { continue };
            let Some(step) = step_at(call.start).filter(|_| counts.get(thread) == Some(&true)) else {
                continue;
            };
            match &mut run_of {
                Some((of, work)) if *of == step => {
                    work.kernels += 1;
                    work.end = work.end.max(op.end);
                }
                _ => {
                    let held = if is_held(op, call) { op.start } else { 0 };
                    let fresh = (step, Work { kernels: 1, held, end: op.end });
                    run_of.replace(fresh).into_iter().for_each(|(of, work)| each(of, work));
                }
            }
        }
        run_of.into_iter().for_each(|(of, work)| each(of, work));
    };
    // the stream that most steps use tells, of those the one with most kernels: an evaluation is no
    // measure of the training
    let mut streams: Vec<((u64, u64), &Stream)> = Vec::new();
    for stream in run.devices.iter().flat_map(|d| &d.streams) {
        let mut rank = (0, 0);
        steps_of(stream, &mut |_, work| rank = (rank.0 + 1, rank.1 + u64::from(work.kernels)));
        streams.push((rank, stream));
    }
    streams.sort_by_key(|s| std::cmp::Reverse(s.0));
    let mut told: Vec<(u64, u64)> = vec![(0, 0); works.len()];
    for (rank, stream) in streams {
        steps_of(stream, &mut |step, found| {
            let (Some(work), Some(by)) = (works.get_mut(step), told.get_mut(step)) else { return };
            // of two GPUs that do the same, the slower one
            if work.kernels == 0 || (*by == rank && found.held > work.held) {
                (*work, *by) = (found, rank);
            }
        });
    }
    let dark = Dark::new(run, host, |call, thread| {
        step_at(call.start).filter(|_| counts.get(thread) == Some(&true))
    });
    let mut latest = 0;
    // the end of the last step that launched something, where all of it is known
    let mut before = None;
    let begins = works.iter().zip(&launched).zip(host.begins).zip(0..).map(|(((w, calls), &mark), step)| {
        let is_hidden = dark.hides_begin(step, mark, *calls);
        let is_drained = before.is_some_and(|end| end <= mark);
        before = match calls {
            _ if !dark.shows_all(step, mark, *calls) => None,
            Some(_) => Some(w.end),
            None => before,
        };
        // (where nothing of the step before was left to wait for it began at its mark)
        if (calls.is_some() && w.kernels == 0) || (is_hidden && !is_drained) {
            return None;
        }
        let held = if is_hidden { 0 } else { w.held };
        latest = held.max(mark).max(latest);
        Some(latest)
    });
    let begins: Vec<Option<u64>> = begins.collect();
    let last = works.last().copied().unwrap_or_default();
    let known = launched.last().is_none_or(|calls| calls.is_none()) || last.kernels > 0;
    let end = host.end.filter(|_| known).map(|end| end.max(last.end).max(latest));
    Some(OnDevice { begins, end })
}

/// Launched, and not begun for long: the GPU was at other work.
fn is_held(op: &Op, call: &Call) -> bool {
    op.start > call.end.saturating_add(AHEAD_NS)
}

/// These calls and one more: from the begin of the first to the begin of the last.
fn joined(calls: Option<Span>, call: &Call) -> Span {
    calls.map_or(Span::new(call.start, call.start), |c| {
        Span::new(c.start.min(call.start), c.end.max(call.start))
    })
}

/// Where recording was off for a while, a host that runs ahead has launched steps of which it was
/// off for the calls, or for the kernels.
struct Dark<'a> {
    host: &'a Host<'a>,
    /// The time in which calls were recorded.
    seen: Observed,
    /// Of each step, the first and the last call that launched something which was recorded.
    ran: Vec<Option<Span>>,
}

impl<'a> Dark<'a> {
    /// `step_of`: the step that a thread's call belongs to.
    fn new(run: &Run, host: &'a Host<'a>, step_of: impl Fn(&Call, usize) -> Option<usize>) -> Dark<'a> {
        if run.blind.is_empty() {
            return Dark { host, seen: Observed::default(), ran: Vec::new() };
        }
        let mut ran = vec![None; host.begins.len()];
        for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
            let Some((thread, call)) = run.call(op.call).filter(|(_, c)| c.is_launch()) else { continue };
            if let Some(calls) = step_of(call, thread).and_then(|step| ran.get_mut(step)) {
                *calls = Some(joined(*calls, call));
            }
        }
        // (a process that was stopped made no calls)
        let hides = |b: &&UnobservedSpan| !b.is_host_seen() && b.reason != Unobserved::Stopped as u32;
        let unseen: Vec<UnobservedSpan> = run.blind.iter().filter(hides).copied().collect();
        Dark { host, seen: Observed::new(Span::new(0, MAX_TIME), &unseen), ran }
    }

    fn next(&self, step: usize) -> Option<u64> {
        self.host.begins.get(step + 1).copied().or(self.host.end)
    }

    fn ran(&self, step: usize) -> Option<Span> {
        self.ran.get(step).copied().flatten()
    }

    /// Were all calls of this step recorded, and what the last of them launched?
    fn shows_all(&self, step: usize, mark: u64, calls: Option<Span>) -> bool {
        let is_seen = |next: u64| self.seen.measure(Span::new(mark, next)) == next.saturating_sub(mark);
        let ran = calls.is_none_or(|calls| self.ran(step).is_some_and(|ran| ran.end >= calls.end));
        ran && self.next(step).is_some_and(is_seen)
    }

    /// Does nobody know which op was the first of this step? `calls`: the launches that were
    /// recorded.
    fn hides_begin(&self, step: usize, mark: u64, calls: Option<Span>) -> bool {
        if self.ran.is_empty() {
            return false;
        }
        let until = calls.map_or_else(|| self.next(step).unwrap_or(mark), |calls| calls.start);
        let until = Span::new(mark, until);
        let lacks_first = calls.is_some_and(|calls| self.ran(step).is_none_or(|ran| ran.start > calls.start));
        self.seen.measure(until) < until.ns() || lacks_first
    }
}

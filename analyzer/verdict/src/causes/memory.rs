// SPDX-License-Identifier: Apache-2.0
//! What a run says of memory: allocations on the device that failed and what came of them, and
//! memory in use that grows.

use trace::call::Class;
use trace::event::Gauge;
use trace::{Header, Total};

use crate::analysis::Analysis;
use crate::run::{Call, Reading, Run, Span, NONE};

/// `cudaErrorMemoryAllocation` and `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Device allocations that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    /// Memory was freed and the same thread's next allocation succeeded: thread, from the failing
    /// call's begin to the good one's end, flat number of the failing call.
    pub(super) retried: Vec<(usize, Span, u32)>,
    /// The last failure that nothing came of: its flat number and its call.
    pub(super) last: Option<(u32, Call)>,
}

impl Failures {
    pub(super) fn of(run: &Run) -> Failures {
        let mut found = Failures::default();
        for (t, thread) in run.threads.iter().enumerate() {
            let mut open: Option<(usize, &Call, bool)> = None;
            for (i, c) in thread.calls.iter().enumerate().filter(|(_, c)| is_of_device(run, c)) {
                match (c.class, c.result, open) {
                    (Some(Class::Alloc), OUT_OF_MEMORY, None) => open = Some((i, c, false)),
                    (Some(Class::Free), 0, Some((at, failed, _))) => open = Some((at, failed, true)),
                    (Some(Class::Alloc), 0, Some((at, failed, freed))) => {
                        if freed {
                            let span = Span::new(failed.start, c.end);
                            found.retried.push((t, span, run.flat(t, at)));
                        }
                        open = None;
                    }
                    _ => {}
                }
            }
            let later = |c: &Call| found.last.is_none_or(|(_, last)| last.start < c.start);
            if let Some((at, c, _)) = open.filter(|o| later(o.1)) {
                found.last = Some((run.flat(t, at), *c));
            }
        }
        found
    }

    /// The episode in which this call was made.
    pub(super) fn retry_of(&self, run: &Run, flat: u32) -> Option<u32> {
        let (thread, call) = run.call(flat).filter(|_| flat != NONE)?;
        let inside =
            |r: &&(usize, Span, u32)| r.0 == thread && r.1.start <= call.start && call.start < r.1.end;
        self.retried.iter().find(inside).map(|r| r.2)
    }
}

/// Allocates or frees memory of the device.
fn is_of_device(run: &Run, c: &Call) -> bool {
    matches!(c.class, Some(Class::Alloc | Class::Free)) && !run.call_name(c).contains("Host")
}

/// Memory in use that grew all through the steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes a step, without `kept`.
    pub a_step: f64,
    /// Bytes a step that CUPTI may keep of the program's launches, host memory only.
    pub(crate) kept: f64,
    /// At the first reading, bytes.
    pub from: f64,
    /// At the last.
    pub to: f64,
}

impl Growth {
    /// Fewer readings in a third of the time are no picture.
    const LEAST: usize = 5;
    /// Memory that grows by less in all is no leak, bytes.
    const BYTES: f64 = 16.0 * 1024.0 * 1024.0;
    /// ... or by less of what there was.
    const PART: f64 = 0.01;
    /// A reading that falls by this part of the growth: a collector, or a cache that is filled and
    /// emptied.
    const FALLS: f64 = 0.1;

    /// Growth where it is clear: each third of the time has more than the one before, the last
    /// third grows no less than half as fast as before (a cache that fills up levels off), nothing
    /// comes back, and what was won is worth a word.
    pub fn of(run: &Run, a: &Analysis, gauge: Gauge, device: u32) -> Option<Growth> {
        let fits = |r: &&Reading| {
            let at = r.span.start;
            r.gauge == gauge as u32
                && u32::from(r.device) == device
                && at >= a.steady.start
                && at < a.steady.end
        };
        let readings: Vec<&Reading> = run.readings.iter().filter(fits).collect();
        let third = readings.len() / 3;
        if third < Growth::LEAST || a.steps.mean_ns <= 0.0 {
            return None;
        }
        let mean = |part: &[&Reading]| {
            let n = part.len() as f64;
            let sum = part.iter().fold((0.0, 0.0), |s, r| (s.0 + r.span.start as f64, s.1 + r.value as f64));
            (sum.0 / n, sum.1 / n)
        };
        let thirds: Vec<(f64, f64)> = readings.chunks(third).take(3).map(mean).collect();
        let [x, y, z] = thirds.as_slice() else { return None };
        let (early, late) = (y.1 - x.1, z.1 - y.1);
        let (from, to) = (readings.first()?.value as f64, readings.last()?.value as f64);
        let grown = to - from;
        let falls = |w: &[&Reading]| matches!(w, [x, y] if x.value.saturating_sub(y.value) as f64 > grown * Growth::FALLS);
        let clear = early > 0.0
            && late >= early * 0.5
            && grown >= Growth::BYTES.max(from * Growth::PART)
            && !readings.windows(2).any(falls);
        let rate = (z.1 - x.1) / (z.0 - x.0).max(1.0);
        let kept = if gauge == Gauge::ResidentBytes { kept_a_step(run, a) } else { 0.0 };
        let of_the_program = 1.0 - kept / (rate * a.steps.mean_ns).max(f64::MIN_POSITIVE);
        (clear && grown * of_the_program >= Growth::BYTES.max(from * Growth::PART)).then_some(Growth {
            a_step: rate * a.steps.mean_ns - kept,
            kept,
            from,
            to,
        })
    }
}

/// What CUPTI keeps of a step's launches, bytes ([`trace::total::kept_bytes`]): that is the
/// recorder's doing, and not the program's.
fn kept_a_step(run: &Run, a: &Analysis) -> f64 {
    let each = trace::total::kept_bytes(run.header.cupti_version);
    let Some(since) = first_graph(run).filter(|_| each > 0) else { return 0.0 };
    let (from, to) = (a.steady.start.max(since), a.steady.end);
    let launches = run.threads.iter().flat_map(|t| &t.calls).filter(|c| c.class == Some(Class::Launch));
    let steady = launches.filter(|c| c.start >= from && c.start < to).count();
    let seen: u64 = a.steps.steady().iter().map(|s| s.span.ns()).sum();
    let steps = seen as f64 / a.steps.mean_ns.max(1.0);
    steady as f64 * each as f64 / steps.max(1.0)
}

/// What CUPTI keeps of the whole run's launches at most, bytes: those before the first graph, of
/// which it keeps nothing, are not told apart in the run's totals.
pub(crate) fn kept_by_cupti(run: &Run) -> u64 {
    match first_graph(run) {
        Some(_) => kept_of_launches(&run.header),
        None => kept_so_far(&run.header),
    }
}

/// The same of a recording whose events are not looked at: 0 before a graph was launched.
pub fn kept_so_far(header: &Header) -> u64 {
    match header.total(Total::GraphLaunches) {
        0 => 0,
        _ => kept_of_launches(header),
    }
}

fn kept_of_launches(header: &Header) -> u64 {
    let launches = header.total(Total::Launches).saturating_add(header.total(Total::LaunchesBetween));
    launches.saturating_mul(trace::total::kept_bytes(header.cupti_version))
}

/// When the program first instantiated or launched a CUDA graph, as far as is recorded.
fn first_graph(run: &Run) -> Option<u64> {
    let calls = run.threads.iter().flat_map(|t| &t.calls);
    let of_graphs = |c: &&Call| matches!(c.class, Some(Class::GraphSetup | Class::GraphLaunch));
    calls.filter(of_graphs).map(|c| c.start).min()
}

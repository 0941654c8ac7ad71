// SPDX-License-Identifier: Apache-2.0
//! What a run says of memory: allocations on the device that failed and what came of them, and memory in use that grows.

use trace::call::Class;
use trace::event::Gauge;

use crate::analysis::Analysis;
use crate::run::{Call, Run, Span, NONE};

/// `cudaErrorMemoryAllocation` and `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Device allocations that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    /// Memory was freed and the same thread's next allocation succeeded: thread, from the failing call's begin to the good one's
    /// end, flat number of the failing call.
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
pub(super) struct Growth {
    /// At the first reading and at the last, bytes.
    pub(super) from: u64,
    /// See `from`.
    pub(super) to: u64,
    /// Between them, ns.
    pub(super) ns: u64,
}

impl Growth {
    /// Fewer readings do not show that it goes on.
    const LEAST_READINGS: usize = 6;
    /// Less is no leak that matters: three segments of PyTorch's allocator are 60 MiB.
    const LEAST_BYTES: u64 = 64 << 20;
    /// Steps that count, at least.
    const LEAST_STEPS: usize = 10;

    /// Of a gauge; `None` where it stands still, falls, or has stopped growing: each third of the readings must bring at least half of
    /// its share, and none may fall by a tenth of all (a collector, or a cache that is filled and emptied).
    pub(super) fn of(run: &Run, a: &Analysis, gauge: Gauge, device: u32) -> Option<Growth> {
        if a.steps.steady().len() < Growth::LEAST_STEPS {
            return None;
        }
        let fits = |r: &&crate::run::Reading| {
            r.gauge == gauge as u32 && u32::from(r.device) == device && a.counts.contains(r.span.end)
        };
        let values: Vec<(u64, u64)> =
            run.readings.iter().filter(fits).map(|r| (r.span.end, r.value)).collect();
        let (&(begin, from), &(end, to)) = (values.first()?, values.last()?);
        let all = to.checked_sub(from).filter(|&n| n >= Growth::LEAST_BYTES)?;
        let at = |third: usize| values.get((values.len() - 1) * third / 3).map_or(0, |v| v.1);
        let goes_on = (0..3).all(|third| at(third + 1).saturating_sub(at(third)) >= all / 6);
        let falls = values.windows(2).any(|w| matches!(w, [x, y] if x.1.saturating_sub(y.1) > all / 10));
        let enough = values.len() >= Growth::LEAST_READINGS && (end - begin) * 2 >= a.steady.ns();
        (enough && goes_on && !falls).then_some(Growth { from, to, ns: end - begin })
    }

    /// Bytes a step of this length.
    pub(super) fn a_step(&self, step_ns: f64) -> f64 {
        (self.to - self.from) as f64 / self.ns.max(1) as f64 * step_ns
    }
}

/// `12.3 MB`, `1.20 GB`.
pub(super) fn bytes(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.1} kB", n / 1e3),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The program's own functions that work between launches and never launch: what they take is no dispatching, however short each piece is, and no CUDA
//! graph takes it away.
//!
//! A function that dispatches is seen inside of CUDA calls as well: 22 to 80 % of its samples (H100, PyTorch and CuPy, every function of the labelled
//! programs that launches from its own line). One that works beside is seen there only where its sample's stack was read up to 0.1 ms after its time:
//! 5 and 6 % (a simulation step of 35 and 95 µs in front of each of 40 launches).

use std::collections::{HashMap, HashSet};

use trace::event::sample::OUTER;
use trace::Language;

use crate::run::{Run, Sample, Thread};
use crate::sites::is_users;

/// Of fewer samples it is not known whether a function launches.
const LEAST: u32 = 40;
/// From this share inside of CUDA calls on it does.
const LAUNCHES: f64 = 0.1;

/// A function, as its frames name it: file and name.
type Function = (u32, u32);

/// Such functions of a run.
#[derive(Default)]
pub(super) struct Beside(HashSet<Function>);

impl Beside {
    pub(super) fn new(run: &Run) -> Beside {
        let mut seen: HashMap<Function, (u32, u32)> = HashMap::new();
        for thread in run.threads.iter().filter(|t| t.calls.iter().any(|c| c.launches())) {
            for sample in thread.samples.iter().filter(|s| s.syscall.is_none()) {
                let Some(function) = innermost(run, sample) else { continue };
                let (all, inside) = seen.entry(function).or_default();
                *all += 1;
                *inside += u32::from(is_in_call(thread, sample.span.end));
            }
        }
        let is_beside = |n: (u32, u32)| n.0 >= LEAST && f64::from(n.1) < LAUNCHES * f64::from(n.0);
        Beside(seen.into_iter().filter(|s| is_beside(s.1)).map(|s| s.0).collect())
    }

    /// Does this sample stand in one?
    pub(super) fn has(&self, run: &Run, sample: &Sample) -> bool {
        !self.0.is_empty() && innermost(run, sample).is_some_and(|f| self.0.contains(&f))
    }
}

/// The innermost function, where it is the program's own; `None` where inner frames are not known.
fn innermost(run: &Run, sample: &Sample) -> Option<Function> {
    if sample.stack == 0 || sample.bits & OUTER != 0 {
        return None;
    }
    let frame = run.definitions.stack(sample.stack).find(|f| f.language == Language::Python)?;
    is_users(run.definitions.string(frame.file)?).then_some((frame.file, frame.function))
}

fn is_in_call(thread: &Thread, at: u64) -> bool {
    let next = thread.calls.partition_point(|c| c.start <= at);
    next.checked_sub(1).and_then(|i| thread.calls.get(i)).is_some_and(|c| c.end > at)
}

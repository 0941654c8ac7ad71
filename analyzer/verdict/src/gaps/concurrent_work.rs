// SPDX-License-Identifier: Apache-2.0
//! The program's own functions that work between launches and never launch: what they take is no
//! dispatching, however short each piece is, and no CUDA graph takes it away.
//!
//! A function that dispatches is seen inside of CUDA calls as well: 22 to 80 % of its samples
//! (H100, PyTorch and CuPy, every function of the labelled programs that launches from its own
//! line). One that works beside is seen there only where its sample's stack was read up to 0.1 ms
//! after its time: 5 and 6 % (a simulation step of 35 and 95 µs in front of each of 40 launches).

use std::collections::{HashMap, HashSet};

use trace::event::sample::OUTER;
use trace::Language;

use crate::run::{Call, Run, Sample};
use crate::sites::is_users;

/// Of fewer samples it is not known whether a function launches.
const LEAST: u32 = 40;
/// From this share inside of CUDA calls on it does.
const LAUNCHES: f64 = 0.1;

/// A function, as its frames name it: file and name.
type Function = (u32, u32);

/// Stacks whose innermost function is such a one.
pub(super) struct ConcurrentWork(HashSet<u32>);

impl ConcurrentWork {
    pub(super) fn new(run: &Run) -> ConcurrentWork {
        let mut functions: HashMap<u32, Option<Function>> = HashMap::new();
        let mut seen: HashMap<Function, (u32, u32)> = HashMap::new();
        for thread in run.threads.iter().filter(|t| t.calls.iter().any(Call::launches)) {
            for sample in thread.samples.iter().filter(|s| shows_all(s) && s.syscall.is_none()) {
                let function = functions.entry(sample.stack).or_insert_with(|| innermost(run, sample.stack));
                let Some(function) = *function else { continue };
                let (all, inside) = seen.entry(function).or_default();
                *all += 1;
                *inside += u32::from(thread.call_at(sample.span.end).is_some());
            }
        }
        let is_beside = |f: &Function| {
            seen.get(f).is_some_and(|n| n.0 >= LEAST && f64::from(n.1) < LAUNCHES * f64::from(n.0))
        };
        let of = functions.into_iter().filter(|(_, f)| f.as_ref().is_some_and(is_beside));
        ConcurrentWork(of.map(|(stack, _)| stack).collect())
    }

    /// Does this sample stand in one?
    pub(super) fn has(&self, sample: &Sample) -> bool {
        shows_all(sample) && self.0.contains(&sample.stack)
    }
}

/// Are its innermost frames known?
fn shows_all(sample: &Sample) -> bool {
    sample.stack != 0 && sample.bits & OUTER == 0
}

/// The innermost function of a stack, where it is the program's own.
fn innermost(run: &Run, stack: u32) -> Option<Function> {
    let frame = run.definitions.stack(stack).find(|f| f.language == Language::Python)?;
    is_users(run.definitions.string(frame.file)?).then_some((frame.file, frame.function))
}

// SPDX-License-Identifier: Apache-2.0
//! Threads that do something small beside the program's work (a monitor, a heartbeat, a metric's
//! running mean): the GPU does not wait for them. What they launch comes whenever they wake up, in
//! the middle of an idle stretch too, which is not theirs for that.

use trace::Kind;

use crate::run::{Run, NONE};

/// A thread is aside that has no more of any device's work than this part of it. Ours: a hundredth
/// is what no fix of a cause is worth.
const PART: u64 = 100;

/// By thread: is it aside? Its work is little, kernels alone, and in streams that nobody else
/// launches to. One that copies hands something over (a prefetcher), and one whose work stands in a
/// row with others' may be part of a step. O(n log t) in operations and threads.
pub(super) fn aside(run: &Run) -> Vec<bool> {
    let mut aside = vec![false; run.threads.len()];
    let mut is_needed = vec![false; run.threads.len()];
    for device in &run.devices {
        let mut work = vec![0u64; run.threads.len()];
        let mut all = 0u64;
        for stream in &device.streams {
            let mut owner = None;
            let (mut last, mut thread) = (NONE, None);
            for op in &stream.ops {
                if op.call != last || op.call == NONE {
                    (last, thread) = (op.call, run.call(op.call).map(|(t, _)| t));
                    let is_shared = owner.is_some_and(|owner| owner != thread) || thread.is_none();
                    for t in [owner.flatten(), thread].into_iter().flatten().filter(|_| is_shared) {
                        set(&mut is_needed, t);
                    }
                    owner = Some(thread);
                }
                if let Some(t) = thread.filter(|_| op.kind == Kind::Memcpy) {
                    set(&mut is_needed, t);
                }
                let ns = op.end.saturating_sub(op.start);
                all = all.saturating_add(ns);
                if let Some(work) = thread.and_then(|t| work.get_mut(t)) {
                    *work = work.saturating_add(ns);
                }
            }
        }
        for (t, work) in work.into_iter().enumerate().filter(|(_, work)| *work > 0) {
            set(if work.saturating_mul(PART) <= all { &mut aside } else { &mut is_needed }, t);
        }
    }
    aside.iter().zip(&is_needed).map(|(aside, needed)| *aside && !needed).collect()
}

fn set(all: &mut [bool], at: usize) {
    if let Some(place) = all.get_mut(at) {
        *place = true;
    }
}

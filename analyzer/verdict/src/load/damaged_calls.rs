// SPDX-License-Identifier: Apache-2.0
//! Launching calls that cannot have taken as long as they say: a bit of a recording that is another
//! one than was written changes no checksum, for events have none. A call that its own thread made
//! many others in has a wrong end; it is cut, and counted as damage.

use crate::run::{Run, Thread};

/// A launch makes fewer calls within itself: the driver's below the runtime's, those of a module
/// that is loaded with its first kernel.
const MOST_WITHIN: usize = 256;

/// Cuts them. O(n) in calls.
pub(crate) fn cut(run: &mut Run) {
    let cut: u64 = run.threads.iter_mut().map(cut_of).sum();
    run.problems.bad_events = run.problems.bad_events.saturating_add(cut);
}

fn cut_of(thread: &mut Thread) -> u64 {
    let mut cut = 0;
    for at in 0..thread.calls.len() {
        let later = |by: usize| thread.calls.get(at.saturating_add(by)).map(|c| c.start);
        let (next, far) = (later(1), later(MOST_WITHIN));
        if let Some(call) = thread.calls.get_mut(at).filter(|c| c.launches()) {
            if let (Some(next), true) = (next, far.is_some_and(|far| far < call.end)) {
                call.end = next.max(call.start);
                cut += 1;
            }
        }
    }
    cut
}

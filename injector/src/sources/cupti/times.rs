// SPDX-License-Identifier: Apache-2.0
// WARM
//! Times that cannot be: what CUPTI stamps with another clock, backwards or not at all must not be
//! drawn. Each is counted by name, and of those that nobody can explain the first is told whole, in
//! the recording's attributes.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use trace::event::{Event, Kind};
use trace::Loss;

use super::{flushing, session};
use crate::platform::{clock, losses};

/// How far CUPTI's times may lie before the first use of the GPU, or in the future, ns: more than
/// any error of its conversion (medians of some microseconds, tests/gpu/results), less than any
/// difference between two clocks.
const CLOCK_SLACK: u64 = 1_000_000_000;

/// The losses of which the first is told, and its words until the drain thread takes them.
static FIRST: Mutex<[(Loss, bool, Option<String>); 2]> =
    Mutex::new([(Loss::BackwardTimestamp, false, None), (Loss::ForeignClock, false, None)]);
/// There is something to take.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// The event of this kind (a node of a graph?), unless its times say that it must not be drawn:
/// those are counted by name. `now`: of this round, ns.
pub(super) fn timed((kind, is_node): (Kind, bool), start: u64, end: u64, now: u64) -> Option<Event> {
    let loss = match (start, end) {
        // measured on the H200: the unfinished ones of a forced flush have neither start nor end
        (0, 0) if flushing::was_forced() => Loss::Unfinished,
        (0, 0) => Loss::ZeroTimestamp,
        (_, 0) => Loss::Unfinished,
        (start, end) if end < start => Loss::BackwardTimestamp,
        _ if !is_of_our_clock(start, end, now) => Loss::ForeignClock,
        _ => return Some(Event::new(kind, start, end)),
    };
    losses::add(loss, 1);
    tell(loss, (kind, is_node), (start, end), now);
    None
}

/// After another client has registered its clock, CUPTI has been seen to give the first records
/// that follow in a clock that is not ours (pytorch/pytorch#192021: 1e14 ns off). One of them would
/// make the run days long.
pub(super) fn is_of_our_clock(start: u64, end: u64, now: u64) -> bool {
    let is_past = |now: u64| end <= now.saturating_add(CLOCK_SLACK);
    start.saturating_add(CLOCK_SLACK) >= session::first_use_at()
        // the process may have been stopped since this round's time was read
        && (is_past(now) || is_past(clock::monotonic()))
}

fn tell(loss: Loss, (kind, is_node): (Kind, bool), (start, end): (u64, u64), now: u64) {
    let mut first = FIRST.lock();
    let Some((_, is_told, words)) = first.iter_mut().find(|f| f.0 == loss && !f.1) else { return };
    let node = if is_node { " of a graph's node" } else { "" };
    *words = Some(format!("{kind:?}{node} from {start} to {end} ns, read at {now}"));
    *is_told = true;
    IS_NEW.store(true, Ordering::Relaxed);
}

/// What was found for the first time since the last question: the attribute's key and value.
pub(crate) fn take_new() -> Vec<(String, String)> {
    if !IS_NEW.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    let mut first = FIRST.lock();
    first
        .iter_mut()
        .filter_map(|(loss, _, words)| Some((format!("first.{}", loss.key()), words.take()?)))
        .collect()
}

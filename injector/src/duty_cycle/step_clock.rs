// SPDX-License-Identifier: Apache-2.0
// HOT (`on_launch`, `on_mark`), WARM (the rest)
//! Counts launches and steps without CUPTI: all that is known of the program between two windows.
//!
//! A step is what lies between two launches of one function that comes once a step (the anchor), or
//! between two marks of the program. Which function that is, is learnt from the launches
//! themselves: each function's distance to its last launch, counted in launches, and how often in a
//! row it was the same. Of those that have come evenly for two seconds without a break (a layer's
//! or an optimizer's own function breaks at the end of each step) the one with the longest distance
//! is the anchor; where several have it, the one that comes first in the step. An anchor that
//! breaks later was none, and a longer distance is looked for. All ranks of a job launch the same
//! sequence and find the same anchor and the same step numbers, without a word between them (but
//! where XLA shares out among them what it tries out first: docs/windows.md).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use trace::total;

use super::thread_slots::{self, Mine, BOARD};
use crate::platform::clock;
use crate::sources::hostpool;

/// What is counted, and by what.
struct Clock {
    /// So many launches had been counted as numbering the steps (`thread_slots::numbering`) when
    /// their numbers began anew. Not numbered (`thread_slots::Mine::count_other`) are those through
    /// the driver in a program that launches through the runtime's library, too (Triton's
    /// benchmarks of a new kernel are repeated by time, on each rank as often as it can), and the
    /// few ([`STRAYS`]) through that library in one that launches through the driver (XLA, CuPy,
    /// the runtime linked in).
    numbered_from: AtomicU64,
    /// Launches through the runtime's library in a program whose steps are numbered by the driver's
    /// so far, and how many of them change that.
    stray: AtomicU64,
    /// Number of the step, by which all ranks agree: launches before the first even one count as
    /// steps of the same length.
    steps: AtomicU64,
    /// Steps that there were.
    counted: AtomicU64,
    /// How often it was changed what a step is, and so their numbers.
    changes: AtomicU64,
    /// Launches from one coming of the anchor to the next; the number of its last launch; how often
    /// the distance was another.
    gap: AtomicU64,
    last_number: AtomicU64,
    breaks: AtomicU64,
    /// Time of the last step's begin, ns.
    last: AtomicU64,
    /// At this step the drain thread is woken, once.
    wake_at: AtomicU64,
}

static CLOCK: Clock = Clock {
    numbered_from: AtomicU64::new(0),
    stray: AtomicU64::new(0),
    steps: AtomicU64::new(0),
    counted: AtomicU64::new(0),
    changes: AtomicU64::new(0),
    gap: AtomicU64::new(0),
    last_number: AtomicU64::new(0),
    breaks: AtomicU64::new(0),
    last: AtomicU64::new(0),
    wake_at: AtomicU64::new(u64::MAX),
};

const STRAYS: u64 = 1000;
/// [`BOARD`]`.anchor` where the program marks its steps; 0 there: nothing is known.
const MARKS: usize = 1;
/// Step times kept, ns, by step number: the steps around a window's end are looked at a quarter of
/// a second later, of 0.1 ms, too.
const KEPT: usize = 4096;
static TIMES: [AtomicU64; KEPT] = [const { AtomicU64::new(0) }; KEPT];

/// Functions told apart; more have to share.
const FUNCTIONS: usize = 1024;
/// Places looked at for one function.
const PROBES: usize = 4;
static TABLE: [Function; FUNCTIONS] = [const { Function::new() }; FUNCTIONS];

struct Function {
    address: AtomicUsize,
    /// Number of its last launch.
    last: AtomicU64,
    /// How many launches before that the one before was.
    gap: AtomicU64,
    /// How often in a row it was that many.
    repeats: AtomicU32,
    /// How often it came, while an anchor was looked for.
    times: AtomicU32,
}

/// So many equal distances in a row are even.
const EVEN: u32 = 16;
/// A function that comes with every launch is no step, unless it is a graph (see [`GRAPH`]).
const SHORTEST: u64 = 2;
/// Marks the address of a graph.
pub(super) const GRAPH: usize = 1 << 63;

impl Function {
    const fn new() -> Function {
        Function {
            address: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            repeats: AtomicU32::new(0),
            times: AtomicU32::new(0),
        }
    }

    /// Two threads that launch one function at once may spoil a distance: it is then not even, and
    /// begins anew.
    fn note(&self, number: u64) {
        self.times.fetch_add(1, Ordering::Relaxed);
        let gap = number.wrapping_sub(self.last.swap(number, Ordering::Relaxed));
        if self.gap.swap(gap, Ordering::Relaxed) == gap {
            self.repeats.fetch_add(1, Ordering::Relaxed);
        } else {
            self.repeats.store(0, Ordering::Relaxed);
        }
    }
}

/// A launch through the runtime of this function (its handle, or a graph's).
#[inline]
pub(super) fn on_launch(mine: Mine, function: usize) {
    if BOARD.has_runtime.load(Ordering::Relaxed) || is_of_runtime() {
        note_launch(mine, function);
    } else {
        mine.count_other();
    }
}

/// A launch through the driver.
#[inline]
pub(super) fn on_driver_launch(mine: Mine, function: usize) {
    if BOARD.has_runtime.load(Ordering::Relaxed) {
        mine.count_other();
    } else {
        note_launch(mine, function);
    }
}

/// Launches that number the steps, so far.
fn numbered() -> u64 {
    thread_slots::numbering().saturating_sub(CLOCK.numbered_from.load(Ordering::Relaxed))
}

/// Are steps numbered by the runtime's launches from now on: nothing else launches, or these are
/// many?
#[cold]
#[inline(never)]
fn is_of_runtime() -> bool {
    let has_others = numbered() > 0;
    if has_others && CLOCK.stray.fetch_add(1, Ordering::Relaxed) + 1 < STRAYS {
        return false;
    }
    if !BOARD.has_runtime.swap(true, Ordering::Relaxed) {
        CLOCK.numbered_from.store(thread_slots::numbering(), Ordering::Relaxed);
        if source() != Source::Marks {
            forget();
        }
    }
    true
}

#[inline]
fn note_launch(mine: Mine, function: usize) {
    mine.count();
    let anchor = BOARD.anchor.load(Ordering::Relaxed);
    if anchor == function && anchor > MARKS {
        on_anchor();
    } else if anchor == 0 && BOARD.learns.load(Ordering::Relaxed) {
        learn(function);
    }
}

/// Once a step.
#[inline(never)]
fn on_anchor() {
    let number = numbered().saturating_sub(1);
    let gap = number.wrapping_sub(CLOCK.last_number.swap(number, Ordering::Relaxed));
    if gap != CLOCK.gap.load(Ordering::Relaxed) {
        CLOCK.breaks.fetch_add(1, Ordering::Relaxed);
    }
    on_step();
}

/// Steps are to be told from now on (else launches are counted, no more).
pub(super) fn learns() {
    BOARD.learns.store(true, Ordering::Relaxed);
}

/// The program marks a step.
#[inline]
pub(crate) fn on_mark() {
    if BOARD.anchor.load(Ordering::Relaxed) != MARKS {
        CLOCK.changes.fetch_add(1, Ordering::Relaxed);
        BOARD.anchor.store(MARKS, Ordering::Relaxed);
        CLOCK.steps.store(0, Ordering::Relaxed);
        CLOCK.counted.store(0, Ordering::Relaxed);
        CLOCK.last.store(0, Ordering::Relaxed);
        forget_times();
    }
    on_step();
}

/// Those that are kept are of other steps.
#[cold]
fn forget_times() {
    TIMES.iter().for_each(|t| t.store(0, Ordering::Relaxed));
}

fn on_step() {
    let now = clock::monotonic();
    let last = CLOCK.last.swap(now, Ordering::Relaxed);
    let step = CLOCK.steps.fetch_add(1, Ordering::Relaxed) + 1;
    CLOCK.counted.fetch_add(1, Ordering::Relaxed);
    if last != 0 {
        if let Some(slot) = TIMES.get(step as usize % KEPT) {
            slot.store(now.saturating_sub(last), Ordering::Relaxed);
        }
    }
    // one call to the kernel at each end of a window, and only there
    if step >= CLOCK.wake_at.load(Ordering::Relaxed)
        && CLOCK.wake_at.swap(u64::MAX, Ordering::Relaxed) != u64::MAX
    {
        hostpool::wake_reader();
    }
}

#[inline(never)]
fn learn(function: usize) {
    let number = numbered().saturating_sub(1);
    let hash = (function as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    for probe in 0..PROBES {
        let Some(place) = TABLE.get((hash as usize + probe) % FUNCTIONS) else { return };
        let holder = place.address.load(Ordering::Relaxed);
        let is_ours = holder == function
            || holder == 0
                && place.address.compare_exchange(0, function, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_ours {
            place.note(number);
            return;
        }
    }
}

/// Launches so far.
pub(super) fn launches() -> u64 {
    thread_slots::launches()
}

/// What a step is told by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Nothing.
    None,
    /// A function that is launched once a step.
    Anchor,
    /// The program's marks.
    Marks,
}

/// What a step is told by, now.
pub(super) fn source() -> Source {
    match BOARD.anchor.load(Ordering::Relaxed) {
        0 => Source::None,
        MARKS => Source::Marks,
        _ => Source::Anchor,
    }
}

/// Does each rank give a step the same number: by marks, or by launches through the runtime's
/// library? (Through the driver alone XLA launches, which shares out among ranks what it tries out
/// first, and each launch of that counts.)
pub(super) fn do_ranks_agree() -> bool {
    source() == Source::Marks || BOARD.has_runtime.load(Ordering::Relaxed)
}

/// How often it was changed so far what a step is: times of before and after are of other steps.
pub(super) fn changes() -> u64 {
    CLOCK.changes.load(Ordering::Relaxed)
}

/// Number of the last step that has begun.
pub(super) fn steps() -> u64 {
    CLOCK.steps.load(Ordering::Relaxed)
}

/// Steps that there were so far.
pub(super) fn counted() -> u64 {
    CLOCK.counted.load(Ordering::Relaxed)
}

/// When the last one began, ns; 0: none.
pub(super) fn last_step_at() -> u64 {
    CLOCK.last.load(Ordering::Relaxed)
}

/// The drain thread is to be woken at this step.
pub(super) fn wake_at(step: u64) {
    CLOCK.wake_at.store(step, Ordering::Relaxed);
}

/// Times of the steps from `from` to before `to`, ns, of those that are still known.
pub(super) fn times(from: u64, to: u64) -> Vec<u64> {
    let oldest = steps().saturating_sub(KEPT as u64 - 1);
    (from.max(oldest)..to.min(steps() + 1))
        .filter_map(|step| TIMES.get(step as usize % KEPT))
        .map(|t| t.load(Ordering::Relaxed))
        .filter(|ns| *ns > 0)
        .collect()
}

/// A function in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    address: usize,
    last: u64,
    gap: u64,
    repeats: u32,
    times: u32,
}

/// The anchor among these, after so many launches; `before`: how many there were two seconds ago;
/// `least`: shorter distances were none.
fn anchor(known: impl Iterator<Item = Known>, launches: u64, before: u64, least: u64) -> Option<Known> {
    let is_even = |k: &Known| {
        let unbroken_since = k.last.saturating_sub(k.gap.saturating_mul(u64::from(k.repeats)));
        let is_step = k.gap >= SHORTEST || k.gap == 1 && k.address & GRAPH != 0;
        k.repeats >= EVEN
            && is_step
            && k.gap >= least
            && unbroken_since <= before
            && launches.saturating_sub(k.last) <= 2 * k.gap
    };
    // the longest distance; the place in the step is the same in every step, and on every rank
    known.filter(is_even).max_by_key(|k| (k.gap, std::cmp::Reverse(k.last % k.gap)))
}

/// What is remembered from look to look.
#[derive(Default)]
pub(super) struct Search {
    /// When, and how many launches there were.
    looks: VecDeque<(u64, u64)>,
    least: u64,
    anchored_at: u64,
    /// The anchor before was none: what it counted were no steps.
    was_none: bool,
}

/// An anchor comes evenly for so long, ns.
const UNBROKEN: u64 = 2_000_000_000;
/// One step in so many may be another (an evaluation, a checkpoint).
const SELDOM: u64 = 16;

impl Search {
    /// Looks for the anchor, where there is none yet; drops one that was none. Returns whether
    /// there is one.
    pub(super) fn look(&mut self, now: u64) -> bool {
        if source() == Source::Anchor
            && CLOCK.breaks.load(Ordering::Relaxed) * SELDOM
                > steps() - self.anchored_at.min(steps()) + SELDOM
        {
            self.least = CLOCK.gap.load(Ordering::Relaxed) + 1;
            let since = steps() - self.anchored_at.min(steps());
            self.was_none = CLOCK.breaks.load(Ordering::Relaxed) * 2 > since;
            forget();
        }
        let launches = numbered();
        if self.looks.back().is_some_and(|l| launches < l.1) {
            self.looks.clear(); // they are numbered anew
        }
        self.looks.push_back((now, launches));
        while self.looks.get(1).is_some_and(|l| l.0 + UNBROKEN <= now) {
            self.looks.pop_front();
        }
        let before = self.looks.front().filter(|l| l.0 + UNBROKEN <= now).map(|l| l.1);
        if let (Source::None, Some(before)) = (source(), before) {
            if find(launches, before, self.least, self.was_none) {
                self.anchored_at = steps();
                self.was_none = false;
            }
        }
        source() != Source::None
    }
}

fn find(launches: u64, before: u64, least: u64, begin_anew: bool) -> bool {
    let load = |f: &Function| Known {
        address: f.address.load(Ordering::Relaxed),
        last: f.last.load(Ordering::Relaxed),
        gap: f.gap.load(Ordering::Relaxed),
        repeats: f.repeats.load(Ordering::Relaxed),
        times: f.times.load(Ordering::Relaxed),
    };
    let known = TABLE.iter().map(load).filter(|k| k.address > MARKS);
    let Some(found) = anchor(known, launches, before, least) else { return false };
    CLOCK.gap.store(found.gap, Ordering::Relaxed);
    CLOCK.last_number.store(found.last, Ordering::Relaxed);
    CLOCK.breaks.store(0, Ordering::Relaxed);
    CLOCK.steps.store(found.last / found.gap, Ordering::Relaxed);
    match begin_anew {
        true => CLOCK.counted.store(found.last / found.gap, Ordering::Relaxed),
        false => _ = CLOCK.counted.fetch_add(u64::from(found.times), Ordering::Relaxed),
    }
    CLOCK.last.store(0, Ordering::Relaxed);
    CLOCK.changes.fetch_add(1, Ordering::Relaxed);
    forget_times();
    BOARD.anchor.compare_exchange(0, found.address, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// An anchor that has not come for this long, and for this many usual steps, is none any more, ns.
const STALE: (u64, u64) = (60_000_000_000, 2 * total::HANGS.0);

/// The program does something else by now (evaluates, say): another anchor is looked for, and steps
/// are counted on.
pub(super) fn forget_stale(now: u64, step_ns: u64) {
    let last = last_step_at();
    let stale = STALE.0.max(step_ns.saturating_mul(STALE.1));
    if source() == Source::Anchor && last != 0 && now.saturating_sub(last) > stale {
        forget();
    }
}

fn forget() {
    for f in &TABLE {
        f.repeats.store(0, Ordering::Relaxed);
        f.times.store(0, Ordering::Relaxed);
    }
    BOARD.anchor.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sequence: &[usize], steps: u64) -> Option<(usize, u64)> {
        let table: Vec<(usize, Function)> = {
            let mut all = sequence.to_vec();
            all.sort_unstable();
            all.dedup();
            all.into_iter().map(|f| (f, Function::new())).collect()
        };
        let (mut number, mut before) = (0, 0);
        for step in 0..steps {
            if step == steps / 2 {
                before = number;
            }
            for function in sequence {
                let place = table.iter().find(|t| t.0 == *function).expect("in the table");
                place.1.note(number);
                number += 1;
            }
        }
        let known = table.iter().map(|(address, f)| Known {
            address: *address,
            last: f.last.load(Ordering::Relaxed),
            gap: f.gap.load(Ordering::Relaxed),
            repeats: f.repeats.load(Ordering::Relaxed),
            times: f.times.load(Ordering::Relaxed),
        });
        anchor(known, number, before, 0).map(|k| (k.address, k.gap))
    }

    #[test]
    fn the_anchor_comes_once_a_step_and_first_of_those_that_do() {
        // 10: each layer's, at even distances; 20: once in the forward part; 30: once at the end
        let step = [10, 11, 10, 11, 10, 11, 20, 12, 12, 30];
        assert_eq!(run(&step, 40), Some((20, 10)));
        assert_eq!(run(&step, 10), None, "too few to say");
        assert_eq!(run(&[5; 7], 40), None, "one function over and over is no step");
        assert_eq!(run(&[5 | GRAPH], 40), Some((5 | GRAPH, 1)), "a graph may be one");
    }

    #[test]
    fn what_comes_evenly_within_a_step_only_is_no_anchor() {
        // seen on an H200: an optimizer's kernels, 11 a parameter, 240 times in a row, were counted
        // as 240 steps
        let mut step = vec![20, 21];
        step.extend([10, 11, 12].repeat(60));
        assert_eq!(run(&step, 10), None, "too few steps to say");
        assert_eq!(run(&step, 40), Some((20, 182)));
    }

    #[test]
    fn launches_through_the_driver_number_steps_until_there_are_many_through_the_runtime() {
        let _alone = thread_slots::alone();
        let mine = thread_slots::mine(|| {});
        let numbers = || (numbered(), launches());
        for function in [0x10, 0x20, 0x10] {
            on_driver_launch(mine, function);
        }
        assert_eq!(numbers(), (3, 3));
        for _ in 1..STRAYS {
            on_launch(mine, 0x30); // a library's in a program of XLA's
        }
        on_driver_launch(mine, 0x20);
        assert_eq!(numbers(), (4, STRAYS + 3), "counted, and no more");
        on_launch(mine, 0x30);
        assert_eq!(numbers(), (1, STRAYS + 4), "numbers begin anew, launches do not");
        on_driver_launch(mine, 0x10);
        on_launch(mine, 0x30);
        assert_eq!(numbers(), (2, STRAYS + 6));
    }

    #[test]
    fn a_layers_function_is_no_anchor_where_the_step_has_one() {
        let mut step = [10, 11, 12].repeat(8);
        step.push(40);
        assert_eq!(run(&step, 30), Some((40, 25)));
    }
}

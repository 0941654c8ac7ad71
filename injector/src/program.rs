// SPDX-License-Identifier: Apache-2.0
// HOT (`step`, `range_push`, `range_pop`, `capture`), WARM (`Marks`, `Capture`)
//! What the program itself tells us (`include/gapprobe.h`, cudaProfilerStart/Stop): step marks, capture on and off, and
//! named ranges (`ranges.rs`, with NVTX's). It travels through the thread's own ring in slots with tags of their own and becomes events here, on
//! the drain thread.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use trace::define::TrackInfo;
use trace::event::{Event, Kind, Unobserved};

use crate::ranges::Ranges;
use crate::ring::{Tag, SLOT_WORDS};
use crate::store::Store;
use crate::{clock, hostpool, lifecycle, ranges, windows};

/// Tags in the kind byte of a ring slot; see [`Tag`].
const TAG_STEP: u64 = Tag::Step as u64;
const TAG_CAPTURE: u64 = Tag::Capture as u64;

/// A step begins here.
pub(crate) fn step() {
    if lifecycle::is_live() {
        windows::on_mark();
        hostpool::push(&[[clock::monotonic(), 0, 0, TAG_STEP]]);
    }
}

/// A range begins: up to 96 bytes of its name are copied.
pub(crate) fn range_push(name: *const c_char) {
    // SAFETY: the caller of the C ABI passes a C string (include/gapprobe.h).
    unsafe { ranges::push_plain(name) };
}

/// The innermost range ends.
pub(crate) fn range_pop() {
    ranges::pop(ranges::PROGRAM);
}

/// Recording on or off from now.
pub(crate) fn capture(on: bool) {
    if lifecycle::is_live() {
        let now = clock::monotonic();
        SWITCHES.add(now, on);
        hostpool::push(&[[now, u64::from(on), 0, TAG_CAPTURE]]);
    }
}

/// cudaProfilerStart or Stop returned.
pub(crate) fn on_profiler_call(start: bool) {
    capture(start);
}

/// Switches remembered: more than any program makes between two rounds of the drain thread.
const LATEST: usize = 64;

/// When recording was switched last, by any thread. Rings are emptied one after the other: what a thread did after another one
/// switched recording on may come out before that switch does.
struct Switches {
    /// Time in ns and, in the lowest bit, on or off; 0: none.
    latest: [AtomicU64; LATEST],
    next: AtomicUsize,
}

static SWITCHES: Switches =
    Switches { latest: [const { AtomicU64::new(0) }; LATEST], next: AtomicUsize::new(0) };

impl Switches {
    /// Before the call that switches returns: who does something after it was told so by that thread.
    fn add(&self, time: u64, on: bool) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % LATEST;
        if let Some(slot) = self.latest.get(at) {
            slot.store(time << 1 | u64::from(on), Ordering::Release);
        }
    }

    /// Was it switched on after `since`, and not off again, by `time`?
    fn is_on(&self, since: u64, time: u64) -> bool {
        let all = self.latest.iter().map(|s| s.load(Ordering::Acquire));
        let last = all.filter(|s| s >> 1 > since && s >> 1 <= time).max();
        last.is_some_and(|s| s & 1 == 1)
    }
}

/// The spans in which the program wanted nothing recorded. Kinds stay on meanwhile (CUDA graphs captured with them off
/// would stay dark); what falls into such a span is dropped here.
#[derive(Default)]
pub(crate) struct Capture {
    off_since: Option<u64>,
    /// The program does not want any; it is between two windows.
    off: [bool; 2],
    /// The program switches itself.
    is_the_programs: bool,
    /// Closed spans, newest last; old ones are forgotten once nothing from so far back can arrive.
    closed: Vec<(u64, u64)>,
}

impl Capture {
    /// Starts switched off (`GAPPROBE_CAPTURE=profiler`).
    pub(crate) fn waiting_since(now: u64) -> Capture {
        Capture { off_since: Some(now), off: [true, false], is_the_programs: true, ..Capture::default() }
    }

    /// Does the program switch itself? Then there are no windows of ours.
    pub(crate) fn is_the_programs(&self) -> bool {
        self.is_the_programs
    }

    /// Is an event that starts at `time` wanted?
    pub(crate) fn covers(&self, time: u64) -> bool {
        self.off_since.is_none_or(|t| time < t || SWITCHES.is_on(t, time))
            && !self.closed.iter().rev().any(|&(a, b)| a <= time && time < b)
    }

    /// Is anything wanted now?
    pub(crate) fn is_on(&self) -> bool {
        self.off_since.is_none()
    }

    /// Since when nothing is wanted, while nothing is.
    pub(crate) fn off_since(&self) -> Option<u64> {
        self.off_since
    }

    /// The program wants recording on or off from `now`.
    pub(crate) fn switch(&mut self, on: bool, now: u64, store: &mut Store) {
        self.is_the_programs = true;
        self.set([!on, self.off[1]], now, store);
    }

    /// A window begins (`on`) or ends `now`.
    pub(crate) fn window(&mut self, on: bool, now: u64, store: &mut Store) {
        self.set([self.off[0], !on], now, store);
    }

    fn set(&mut self, off: [bool; 2], now: u64, store: &mut Store) {
        let before = std::mem::replace(&mut self.off, off);
        match (self.off_since, off == [false; 2]) {
            (Some(since), true) => {
                self.off_since = None;
                store.add_recorder(&unobserved(since, now, before));
                if self.closed.len() >= 1024 {
                    self.closed.remove(0);
                }
                self.closed.push((since, now));
            }
            (None, false) => self.off_since = Some(now),
            _ => {}
        }
    }

    /// At the end: an open span is stored too.
    pub(crate) fn finish(&mut self, now: u64, store: &mut Store) {
        if let Some(since) = self.off_since.take() {
            store.add_recorder(&unobserved(since, now, self.off));
        }
    }
}

/// `off`: as in [`Capture`].
fn unobserved(from: u64, to: u64, off: [bool; 2]) -> Event {
    let mut e = Event::new(Kind::Unobserved, from, to);
    e.a = if off[0] { Unobserved::CaptureOff } else { Unobserved::Window } as u32;
    e
}

/// Ranges under way, and the step counter.
#[derive(Default)]
pub(crate) struct Marks {
    ranges: Ranges,
    /// Steps marked so far.
    pub(crate) steps: u64,
}

impl Marks {
    /// Takes a ring slot if it is one of ours; `false`: it is an encoded event.
    pub(crate) fn take(
        &mut self,
        tid: u32,
        words: [u64; SLOT_WORDS],
        store: &mut Store,
        capture: &mut Capture,
    ) -> bool {
        let [time, payload, _, tagged] = words;
        match tagged & 0xff {
            TAG_STEP => {
                let mut e = Event::new(Kind::Step, time, time);
                e.a = self.steps as u32;
                self.steps += 1;
                if capture.covers(time) {
                    store.add(TrackInfo::Thread { tid, name: 0 }, &e);
                }
                true
            }
            TAG_CAPTURE => {
                capture.switch(payload != 0, time, store);
                true
            }
            _ => self.ranges.take(tid, words, &mut ranges::Sink { store, capture }),
        }
    }

    /// After each round of all rings.
    pub(crate) fn settle(&mut self) {
        self.ranges.settle();
    }

    /// At the end: ranges still open are stored as such.
    pub(crate) fn finish(&mut self, now: u64, store: &mut Store, capture: &Capture) {
        self.ranges.finish(now, &mut ranges::Sink { store, capture });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_switch_that_was_not_taken_yet_is_known() {
        let switches = Switches { latest: [const { AtomicU64::new(0) }; LATEST], next: AtomicUsize::new(0) };
        assert!(!switches.is_on(0, u64::MAX), "none yet");
        for (time, on) in [(20, true), (30, false), (40, true)] {
            switches.add(time, on);
        }
        let on = |time| switches.is_on(10, time);
        assert_eq!([15, 20, 29, 30, 39, 40, 99].map(on), [false, true, true, false, false, true, true]);
        assert!(!switches.is_on(40, 99), "recording was switched off at 40 or after");
        (0..LATEST as u64).for_each(|n| switches.add(100 + n, false));
        assert!(!switches.is_on(10, 99), "what is forgotten is not on");
    }
}

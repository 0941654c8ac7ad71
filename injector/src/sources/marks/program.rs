// SPDX-License-Identifier: Apache-2.0
// HOT (`step`, `range_push`, `range_pop`, `capture`), WARM (`Marks`, `Capture`)
//! What the program itself tells us (`include/gapprobe.h`, cudaProfilerStart/Stop): step marks,
//! capture on and off, and named ranges (`ranges.rs`, with NVTX's). It travels through the thread's
//! own ring in slots with tags of their own and becomes events here, on the drain thread.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use trace::define::TrackInfo;
use trace::event::{Event, Kind, Unobserved};

use crate::platform::{clock, lifecycle, ticks};
use crate::recording::writer;
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::marks::ranges::{self, Ranges};
use crate::sources::{above, hostpool};
use crate::store::Store;

/// Tags in the kind byte of a ring slot; see [`Tag`].
const TAG_STEP: u64 = Tag::Step as u64;
const TAG_CAPTURE: u64 = Tag::Capture as u64;

/// A step begins here.
pub(crate) fn step() {
    if lifecycle::is_live() {
        if let Some(above) = above::get() {
            (above.on_mark)();
        }
        hostpool::push(&[[ticks::now(), 0, 0, TAG_STEP]]);
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

/// When recording was switched last, by any thread. Rings are emptied one after the other: what a
/// thread did after another one switched recording on may come out before that switch does.
struct Switches {
    /// Time in ns and, in the lowest bit, on or off; 0: none.
    latest: [AtomicU64; LATEST],
    next: AtomicUsize,
}

static SWITCHES: Switches =
    Switches { latest: [const { AtomicU64::new(0) }; LATEST], next: AtomicUsize::new(0) };

impl Switches {
    /// Before the call that switches returns: who does something after it was told so by that
    /// thread.
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

/// The spans in which the program wanted nothing recorded. Kinds stay on meanwhile (CUDA graphs
/// captured with them off would stay dark); what falls into such a span is dropped here.
#[derive(Default)]
pub(crate) struct Capture {
    off_since: Option<u64>,
    /// The program wants nothing recorded (what is recorded all the same, by
    /// [`writer::held_until`], is no such span); it is between two windows.
    off: [bool; 2],
    /// Why nothing is wanted, while nothing is: was it the program?
    by_the_program: bool,
    /// The program switches itself.
    is_the_programs: bool,
    /// Closed spans, newest last; old ones are forgotten once nothing from so far back can arrive.
    closed: Vec<(u64, u64)>,
}

impl Capture {
    /// Starts switched off (`GAPPROBE_CAPTURE=profiler`).
    pub(crate) fn waiting_since(now: u64) -> Capture {
        Capture {
            off_since: Some(now),
            off: [true, false],
            by_the_program: true,
            is_the_programs: true,
            ..Capture::default()
        }
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

    /// Is what the GPU did then wanted? What it still did when recording was switched on: the GPU
    /// was busy.
    pub(crate) fn covers_op(&self, start: u64, end: u64) -> bool {
        self.covers(start)
            || self.closed.iter().rev().any(|&(a, b)| a <= start && start < b && b < end)
            || self.off_since.is_some_and(|t| SWITCHES.is_on(t, end))
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
        self.off[0] = !on;
        self.set(writer::is_held(now), now, store);
    }

    /// A window begins (`on`) or ends `now`.
    pub(crate) fn window(&mut self, on: bool, now: u64, store: &mut Store) {
        self.off[1] = !on;
        self.set(writer::is_held(now), now, store);
    }

    /// Recording is held on from outside, or no more ([`writer::held_until`]).
    pub(crate) fn heed(&mut self, now: u64, store: &mut Store) {
        if self.off[0] {
            self.set(writer::is_held(now), now, store);
        }
    }

    fn set(&mut self, forced: bool, now: u64, store: &mut Store) {
        let [program, window] = self.off;
        match (self.off_since, (!program || forced) && !window) {
            (Some(since), true) => {
                self.off_since = None;
                store.add_recorder(&unobserved(since, now, self.by_the_program));
                if self.closed.len() >= 1024 {
                    self.closed.remove(0);
                }
                self.closed.push((since, now));
            }
            (None, false) => {
                self.off_since = Some(now);
                self.by_the_program = program;
            }
            _ => {}
        }
    }

    /// At the end: an open span is stored too.
    pub(crate) fn finish(&mut self, now: u64, store: &mut Store) {
        if let Some(since) = self.off_since.take() {
            store.add_recorder(&unobserved(since, now, self.by_the_program));
        }
    }
}

fn unobserved(from: u64, to: u64, by_the_program: bool) -> Event {
    let mut e = Event::new(Kind::Unobserved, from, to);
    e.a = if by_the_program { Unobserved::CaptureOff } else { Unobserved::Window } as u32;
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
    use crate::store::image::Image;

    #[test]
    fn what_is_held_on_from_outside_ends_with_its_time_and_the_programs_own_wish_stays() {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let mut capture = Capture::waiting_since(10);
        // by hand what `heed` does with `is_held`: the word itself is the whole process's
        capture.set(true, 30, &mut store);
        assert!(!capture.covers(20) && !capture.covers(29) && capture.covers(30) && capture.off[0]);
        capture.set(false, 40, &mut store);
        assert!(capture.covers(39) && !capture.covers(40), "what came before the end is still wanted");
        capture.set(true, 50, &mut store);
        capture.switch(true, 55, &mut store);
        assert!(!capture.off[0] && capture.covers(52) && capture.off_since().is_none());
        capture.heed(60, &mut store);
        assert!(capture.is_on(), "the program wants it");
        capture.switch(false, 70, &mut store);
        assert!(capture.off[0] && !capture.covers(75) && capture.covers(69));
    }

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

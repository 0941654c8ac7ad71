// SPDX-License-Identifier: Apache-2.0
// HOT (`step`, `range_push`, `range_pop`, `capture`), WARM (`Marks`, `Capture`)
//! What the program itself tells us (`include/gapprobe.h`, cudaProfilerStart/Stop): step marks, named ranges, capture
//! on and off. It travels through the thread's own ring in slots with tags of their own and becomes events here, on
//! the drain thread.

use std::collections::HashMap;
use std::ffi::{c_char, CStr};

use trace::define::TrackInfo;
use trace::event::{Event, Kind, Unobserved, OPEN_ENDED};
use trace::Loss;

use crate::ring::SLOT_WORDS;
use crate::store::Store;
use crate::{clock, hostpool, lifecycle, losses};

/// Tags in the kind byte of a ring slot; none is a `trace::Kind`.
const TAG_PUSH: u64 = 0xf0;
const TAG_POP: u64 = 0xf1;
const TAG_STEP: u64 = 0xf2;
const TAG_CAPTURE: u64 = 0xf3;
const TAG_NAME: u64 = 0xf4;

/// Slots a name may take; a slot carries 24 bytes of it.
const NAME_SLOTS: usize = 4;
const NAME_BYTES_PER_SLOT: usize = 24;
/// Open ranges kept a thread.
const MAX_DEPTH: usize = 64;

/// A step begins here.
pub(crate) fn step() {
    if lifecycle::is_live() {
        hostpool::push(&[[clock::monotonic(), 0, 0, TAG_STEP]]);
    }
}

/// A range begins: up to 96 bytes of its name are copied.
pub(crate) fn range_push(name: *const c_char) {
    if !lifecycle::is_live() || name.is_null() {
        return;
    }
    // SAFETY: the caller of the C ABI passes a C string (include/gapprobe.h).
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let name = name.get(..NAME_SLOTS * NAME_BYTES_PER_SLOT).unwrap_or(name);
    let mut slots = [[0u64; SLOT_WORDS]; NAME_SLOTS + 1];
    let mut used = 1;
    for (slot, piece) in slots.iter_mut().skip(1).zip(name.chunks(NAME_BYTES_PER_SLOT)) {
        for (word, part) in slot.iter_mut().zip(piece.chunks(8)) {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(part) {
                *to = *from;
            }
            *word = u64::from_le_bytes(bytes);
        }
        if let Some(last) = slot.last_mut() {
            *last = TAG_NAME | (piece.len() as u64) << 8;
        }
        used += 1;
    }
    if let Some(first) = slots.first_mut() {
        *first = [clock::monotonic(), 0, 0, TAG_PUSH];
    }
    if let Some(slots) = slots.get(..used) {
        hostpool::push(slots);
    }
}

/// The innermost range ends.
pub(crate) fn range_pop() {
    if lifecycle::is_live() {
        hostpool::push(&[[clock::monotonic(), 0, 0, TAG_POP]]);
    }
}

/// Recording on or off from now.
pub(crate) fn capture(on: bool) {
    if lifecycle::is_live() {
        hostpool::push(&[[clock::monotonic(), u64::from(on), 0, TAG_CAPTURE]]);
    }
}

/// cudaProfilerStart or Stop returned.
pub(crate) fn on_profiler_call(start: bool) {
    capture(start);
}

/// The spans in which the program wanted nothing recorded. Kinds stay on meanwhile (CUDA graphs captured with them off
/// would stay dark); what falls into such a span is dropped here.
#[derive(Default)]
pub(crate) struct Capture {
    off_since: Option<u64>,
    /// Closed spans, newest last; old ones are forgotten once nothing from so far back can arrive.
    closed: Vec<(u64, u64)>,
}

impl Capture {
    /// Starts switched off (`GAPPROBE_CAPTURE=profiler`).
    pub(crate) fn waiting_since(now: u64) -> Capture {
        Capture { off_since: Some(now), closed: Vec::new() }
    }

    /// Is an event that starts at `time` wanted?
    pub(crate) fn covers(&self, time: u64) -> bool {
        self.off_since.is_none_or(|t| time < t)
            && !self.closed.iter().rev().any(|&(a, b)| a <= time && time < b)
    }

    /// Is anything wanted now?
    pub(crate) fn is_on(&self) -> bool {
        self.off_since.is_none()
    }

    /// Recording on or off from `now`.
    pub(crate) fn switch(&mut self, on: bool, now: u64, store: &mut Store) {
        match (self.off_since, on) {
            (Some(since), true) => {
                self.off_since = None;
                store.add_recorder(&unobserved(since, now));
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
            store.add_recorder(&unobserved(since, now));
        }
    }
}

fn unobserved(from: u64, to: u64) -> Event {
    let mut e = Event::new(Kind::Unobserved, from, to);
    e.a = Unobserved::CaptureOff as u32;
    e
}

/// Open ranges by thread, and the step counter.
#[derive(Default)]
pub(crate) struct Marks {
    open: HashMap<u32, Vec<(u64, Vec<u8>)>>,
    too_deep: HashMap<u32, u32>,
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
        let [time, payload, second, tagged] = words;
        match tagged & 0xff {
            TAG_PUSH => {
                let open = self.open.entry(tid).or_default();
                if open.len() < MAX_DEPTH {
                    open.push((time, Vec::new()));
                } else {
                    *self.too_deep.entry(tid).or_default() += 1;
                    losses::add(Loss::RangeTooDeep, 1);
                }
            }
            TAG_NAME => {
                let deep = self.too_deep.get(&tid).is_some_and(|n| *n > 0);
                if let (false, Some((_, name))) = (deep, self.open.get_mut(&tid).and_then(|o| o.last_mut())) {
                    let bytes: Vec<u8> =
                        [time, payload, second].iter().flat_map(|w| w.to_le_bytes()).collect();
                    name.extend_from_slice(bytes.get(..(tagged >> 8) as usize & 31).unwrap_or(&bytes));
                }
            }
            TAG_POP => {
                if let Some(n) = self.too_deep.get_mut(&tid).filter(|n| **n > 0) {
                    *n -= 1;
                } else if let Some((start, name)) = self.open.get_mut(&tid).and_then(Vec::pop) {
                    self.store_range(tid, start, time, &name, 0, store, capture);
                } else {
                    losses::add(Loss::RangeUnbalanced, 1);
                }
            }
            TAG_STEP => {
                let mut e = Event::new(Kind::Step, time, time);
                e.a = self.steps as u32;
                self.steps += 1;
                if capture.covers(time) {
                    store.add(TrackInfo::Thread { tid, name: 0 }, &e);
                }
            }
            TAG_CAPTURE => capture.switch(payload != 0, time, store),
            _ => return false,
        }
        true
    }

    #[expect(clippy::too_many_arguments, reason = "one range: whose, when, what, how, and where it goes")]
    fn store_range(
        &self,
        tid: u32,
        start: u64,
        end: u64,
        name: &[u8],
        flags: u8,
        store: &mut Store,
        capture: &Capture,
    ) {
        let mut e = Event::new(Kind::Range, start, end);
        e.a = store.string(name);
        e.flags = flags;
        e.x = self.open.get(&tid).map_or(0, Vec::len).min(255) as u8;
        if capture.covers(start) {
            store.add(TrackInfo::Thread { tid, name: 0 }, &e);
        }
    }

    /// At the end: ranges still open are stored as such.
    pub(crate) fn finish(&mut self, now: u64, store: &mut Store, capture: &Capture) {
        let threads: Vec<u32> = self.open.keys().copied().collect();
        for tid in threads {
            while let Some((start, name)) = self.open.get_mut(&tid).and_then(Vec::pop) {
                self.store_range(tid, start, now, &name, OPEN_ENDED, store, capture);
            }
        }
    }
}

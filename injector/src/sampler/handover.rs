// SPDX-License-Identifier: Apache-2.0
// WARM
//! Between the sampler and the drain thread, which alone writes the store: a bounded queue one way;
//! which threads call CUDA, which devices work and whether anything is wanted the other way. Both
//! hold these locks for a copy only; no callback takes them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use trace::define::{FrameInfo, Language, TrackInfo};
use trace::event::{Event, Kind};
use trace::Loss;

use super::code::Text;
use crate::duty_cycle::Pauses;
use crate::platform::losses;
use crate::sources::cupti::last_callers::{Caller, LastCallers, CALLERS_KEPT};
use crate::sources::marks::program::Capture;
use crate::store::Store;

/// What waits for the drain thread at most: 16 threads at 100 Hz for two seconds.
const QUEUE_CAPACITY: usize = 4096;

/// A frame as the sampler knows it: function, file, line.
pub(super) type Frame = (Text, Text, u32);

/// One thing for the store.
pub(super) enum Item {
    /// A [`Kind::Sample`] of a thread; field `a` is the stack's place among the [`Item::Stack`]s so
    /// far, plus one.
    Sample(u32, Event),
    /// An event of the recorder's track.
    Recorder(Event),
    /// A [`Kind::ChildSample`], its stack as of a [`Item::Sample`].
    ChildSample(Event),
    /// The next stack, innermost frame first.
    Stack(Vec<Frame>),
    /// A fact of the run.
    Attribute(String, String),
}

/// What either side has left for the other.
struct Handed {
    queue: Mutex<Vec<Item>>,
    callers: Mutex<[Caller; CALLERS_KEPT]>,
    wanted: AtomicBool,
    pause: AtomicU64,
    devices: AtomicU64,
}

static HANDED: Handed = Handed {
    queue: Mutex::new(Vec::new()),
    callers: Mutex::new([(0, 0); CALLERS_KEPT]),
    wanted: AtomicBool::new(false),
    pause: AtomicU64::new(0),
    devices: AtomicU64::new(0),
};

/// Hands `item` over; `false`: the queue is full, it is lost and counted.
pub(super) fn put(item: Item) -> bool {
    let mut queue = HANDED.queue.lock();
    if queue.len() >= QUEUE_CAPACITY {
        losses::add(Loss::SampleQueueFull, 1);
        return false;
    }
    queue.push(item);
    true
}

/// The threads that called CUDA last, with the time of their last call.
pub(super) fn callers() -> [Caller; CALLERS_KEPT] {
    *HANDED.callers.lock()
}

/// Is anything wanted now: the program's recording, or what it does in a pause?
pub(super) fn is_wanted() -> bool {
    HANDED.wanted.load(Ordering::Relaxed)
}

/// Since when a step does not come that nobody records, ns; 0: there is no such pause.
pub(super) fn pause() -> u64 {
    HANDED.pause.load(Ordering::Relaxed)
}

/// Devices that work was seen on, one bit each.
pub(super) fn devices() -> u64 {
    HANDED.devices.load(Ordering::Relaxed)
}

/// The drain thread's side.
#[derive(Default)]
pub(crate) struct Taker {
    stacks: Vec<u32>,
}

impl Taker {
    /// Once a round: says what is known, takes what waits.
    pub(crate) fn round(
        &mut self,
        store: &mut Store,
        (capture, pauses): (&Capture, &mut Pauses),
        (callers, devices): (&LastCallers, u64),
    ) {
        *HANDED.callers.lock() = callers.all();
        let pause = pauses.on_since();
        HANDED.pause.store(pause.unwrap_or(0), Ordering::Relaxed);
        HANDED.wanted.store(capture.is_on() || pause.is_some(), Ordering::Relaxed);
        HANDED.devices.store(devices, Ordering::Relaxed);
        let items = std::mem::take(&mut *HANDED.queue.lock());
        for item in items {
            self.take(item, store, (capture, pauses));
        }
    }

    /// The stack of this number; 0: none.
    fn stack(&self, number: u32) -> u32 {
        (number as usize).checked_sub(1).and_then(|n| self.stacks.get(n)).copied().unwrap_or(0)
    }

    fn take(&mut self, item: Item, store: &mut Store, (capture, pauses): (&Capture, &mut Pauses)) {
        match item {
            Item::Sample(tid, mut e) => {
                e.a = self.stack(e.a);
                if capture.covers(e.start) || pauses.takes(tid, &mut e) {
                    store.add(TrackInfo::Thread { tid, name: 0 }, &e);
                }
            }
            Item::Recorder(e) => {
                if capture.covers(e.start) {
                    store.add_recorder(&e);
                }
            }
            Item::ChildSample(mut e) => {
                e.a = self.stack(e.a);
                if capture.covers(e.start) {
                    store.add_recorder(&e);
                }
            }
            Item::Stack(frames) => {
                self.stacks.push(define(&frames, store));
            }
            Item::Attribute(key, value) => store.attribute(&key, &value),
        }
    }
}

/// Defines a stack; 0 where there is no room.
fn define(frames: &[Frame], store: &mut Store) -> u32 {
    let mut ids = Vec::with_capacity(frames.len());
    for (function, file, line) in frames {
        let (function, file) = (store.string(function), store.string(file));
        let info = FrameInfo { language: Language::Python, function, file, line: *line };
        ids.extend(store.frame(info));
    }
    let id = if ids.len() == frames.len() { store.stack(&ids, None, None) } else { None };
    if id.is_none() {
        losses::add(Loss::SiteDropped, 1);
    }
    id.unwrap_or(0)
}

/// A gauge's reading.
pub(super) fn gauge(which: trace::event::Gauge, device: u32, from: u64, to: u64, value: u64) -> Item {
    let mut e = Event::new(Kind::Gauge, from, to);
    (e.a, e.x, e.b, e.c) = (which as u32, device as u8, value as u32, (value >> 32) as u32);
    Item::Recorder(e)
}

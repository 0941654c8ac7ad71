// SPDX-License-Identifier: Apache-2.0
// WARM
//! API calls on their way into the store: records of CUPTI's per-call filter, and events of our own
//! callbacks.
//!
//! A runtime call and the driver calls in it leave a record each, all with the thread and the
//! correlation id of the outer one: one event. A thread is in one call at a time, so
//! in what is read at a time (a buffer, or the front of one that is still lent) the records of a
//! call follow one another, with at most other threads' between them: a call is complete when its
//! thread's next one begins, and the outermost record is kept. Only a thread's first and last call
//! of a reading can have more records elsewhere, in a buffer that is read before or much later (a
//! plain flush keeps a buffer back as long as one of its kernels runs). These are the [`Edges`]:
//! the first record read of such a call is stored, those of other readings are dropped, whichever
//! domain they are of.

use std::collections::HashMap;

use cupti_sys::{cbid, record};
use trace::call::{self, Class};
use trace::define::TrackInfo;
use trace::event::{Event, Kind, FROM_RECORD};
use trace::Total;

use super::decode::{Decoder, Sink};
use super::times::timed;
use crate::sources::marks::program::Capture;
use crate::store::Store;

/// Joins the records of a call into one event.
#[derive(Default)]
pub(super) struct Calls {
    /// By thread: its newest call in this reading.
    newest: HashMap<u32, Newest>,
    edges: Edges,
}

#[derive(Clone, Copy)]
struct Newest {
    /// The outermost record so far.
    call: Event,
    /// The thread's first call of this reading.
    first: bool,
}

impl Calls {
    /// Takes a record; gives back the call of that thread that it ends, unless that is stored
    /// already.
    fn take(&mut self, thread: u32, record: Event) -> Option<Event> {
        let Some(newest) = self.newest.get_mut(&thread) else {
            self.newest.insert(thread, Newest { call: record, first: true });
            return None;
        };
        if is_same_call(&newest.call, &record) {
            // the outer call lasts longer; where the clock does not tell, it is the runtime's
            if (record.duration(), record.a >> 24) > (newest.call.duration(), newest.call.a >> 24) {
                newest.call = record;
            }
            return None;
        }
        let done = std::mem::replace(newest, Newest { call: record, first: false });
        (!done.first || self.edges.add(thread, &done.call)).then_some(done.call)
    }

    /// The last call of each thread in what was read, unless it is stored already.
    fn end_of_reading(&mut self) -> Vec<(u32, Event)> {
        let Calls { newest, edges } = self;
        newest.drain().map(|(thread, n)| (thread, n.call)).filter(|(t, call)| edges.add(*t, call)).collect()
    }
}

/// Calls at the edges of recent readings, by thread and correlation id, with their times: the
/// newest [`Edges::KEPT`] of them at least, twice as many at most (1 MB).
///
/// A buffer has one edge or two a thread, and comes back every 100 ms or fills up (`buffers`): what
/// is kept allows a buffer to be a minute late where launches are slow, nine seconds at 200,000
/// launches a second. Beyond, a call parted between two buffers is stored twice. That is no loss,
/// and harmless: at most one call a buffer is counted once too often, and both have the same
/// thread, the same correlation id and the same time.
#[derive(Default)]
struct Edges {
    newer: HashMap<(u32, u32), (u64, u64)>,
    older: HashMap<(u32, u32), (u64, u64)>,
}

impl Edges {
    const KEPT: usize = 8192;

    /// Remembers a call; `false` if it is known.
    fn add(&mut self, thread: u32, call: &Event) -> bool {
        let (key, times) = ((thread, call.correlation), (call.start, call.end));
        let known = |map: &HashMap<_, _>| map.get(&key).is_some_and(|t| are_close(*t, times));
        if known(&self.newer) || known(&self.older) {
            return false;
        }
        if self.newer.len() >= Edges::KEPT {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
        }
        self.newer.insert(key, times);
        true
    }
}

/// Two records of one thread: of the same call?
fn is_same_call(a: &Event, b: &Event) -> bool {
    a.correlation == b.correlation && are_close((a.start, a.end), (b.start, b.end))
}

/// Correlation ids have 32 bits, and one call in 2^32 has that of another. The records of a call
/// overlap, or (two driver calls in one of the runtime's) almost; two calls with one id are seven
/// minutes apart even at ten million calls a second, more than CUPTI records.
fn are_close(a: (u64, u64), b: (u64, u64)) -> bool {
    const CLOSE: u64 = 60_000_000_000;
    a.0.max(b.0).saturating_sub(a.1.min(b.1)) < CLOSE
}

/// cudaProfilerStart and cuProfilerStart.
const STARTS: [u32; 2] = [
    call::pack(call::RUNTIME, cbid::runtime::CUDA_PROFILER_START_V4000),
    call::pack(call::DRIVER, cbid::driver::CU_PROFILER_START),
];

/// Does this call switch capture on?
pub(super) fn is_profiler_start(runtime: bool, cbid: u32) -> bool {
    STARTS.contains(&call::pack(if runtime { call::RUNTIME } else { call::DRIVER }, cbid))
}

impl Decoder {
    /// An API record of the filter.
    pub(super) fn call(&mut self, runtime: bool, r: &record::Api, sink: &mut Sink<'_>) {
        let packed = call::pack(if runtime { call::RUNTIME } else { call::DRIVER }, r.cbid);
        let Some(class) = call::find_fast(packed) else { return };
        let Some(mut e) = timed((Kind::Call, false), r.start, r.end, sink.now) else { return };
        (e.a, e.b, e.x, e.correlation) = (packed, r.return_value, class as u8, r.correlation);
        e.flags = FROM_RECORD;
        // (now: the event follows with the thread's next call, when kernels of this one were read)
        if sink.capture.covers(r.start) {
            self.first_op.called(r.start, r.correlation);
        }
        if let Some(done) = self.calls.take(r.thread, e) {
            self.recorded_call(r.thread, done, sink);
        }
    }

    /// A buffer, or what was complete of one, is read.
    pub(super) fn end_of_reading(&mut self, sink: &mut Sink<'_>) {
        for (thread, call) in self.calls.end_of_reading() {
            self.recorded_call(thread, call, sink);
        }
    }

    fn recorded_call(&mut self, thread: u32, call: Event, sink: &mut Sink<'_>) {
        if call.x == Class::Profiler as u8 {
            self.profiler_calls.push((call.end, STARTS.contains(&call.a)));
        } else {
            self.host_event(thread, call, sink.store, sink.capture);
        }
    }

    /// One call, from a record or a callback, into its thread's track.
    pub(crate) fn host_event(&mut self, thread: u32, event: Event, store: &mut Store, capture: &Capture) {
        if !capture.covers(event.start) {
            return;
        }
        self.last_callers.called(thread, event.end);
        if event.flags & FROM_RECORD == 0 {
            self.first_op.called(event.start, event.correlation);
        }
        match Class::from_u8(event.x) {
            Some(Class::Launch) => self.count(Total::Launches, 1),
            Some(Class::GraphLaunch) => self.count(Total::GraphLaunches, 1),
            Some(Class::Sync) => {
                self.count(Total::Syncs, 1);
                self.count(Total::SyncNs, event.duration());
            }
            Some(Class::Alloc | Class::Free) => self.count(Total::Allocs, 1),
            _ => {}
        }
        store.add(TrackInfo::Thread { tid: thread, name: 0 }, &event);
    }
}

#[cfg(test)]
mod tests;

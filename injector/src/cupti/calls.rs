// SPDX-License-Identifier: Apache-2.0
// WARM
//! API calls on their way into the store: records of CUPTI's per-call filter, and events of our own callbacks.

use cupti_sys::{cbid, record};
use trace::call::{self, Class};
use trace::define::TrackInfo;
use trace::event::{Event, Kind, FROM_RECORD};
use trace::{Loss, Total};

use super::decode::Decoder;
use crate::losses;
use crate::program::Capture;
use crate::store::Store;

impl Decoder {
    /// An API record of the filter. A runtime call and the driver call in it share the correlation: the runtime's is
    /// kept, whichever comes first.
    pub(crate) fn call(&mut self, runtime: bool, r: &record::Api, store: &mut Store, capture: &Capture) {
        let domain = if runtime { call::RUNTIME } else { call::DRIVER };
        let packed = call::pack(domain, r.cbid);
        let Some(known) = call::find_fast(packed) else { return };
        if r.end < r.start {
            losses::add(Loss::BackwardTimestamp, 1);
            return;
        }
        if known == Class::Profiler {
            let start =
                [cbid::runtime::CUDA_PROFILER_START_V4000, cbid::driver::CU_PROFILER_START].contains(&r.cbid);
            self.profiler_calls.push((r.end, start));
            return;
        }
        let mut e = Event::new(Kind::Call, r.start, r.end);
        (e.a, e.b, e.x, e.correlation) = (packed, r.return_value, known as u8, r.correlation);
        e.flags = FROM_RECORD;
        if self.released.get(&r.thread) == Some(&e.correlation) {
            losses::add(Loss::Duplicate, 1);
            return;
        }
        let first = !self.begun.iter().any(|b| b.0 == r.thread);
        let twin = self.held.get(&r.thread).is_some_and(|h| h.correlation == e.correlation);
        if first {
            self.begun.push((r.thread, twin.then_some(e.correlation)));
        }
        if first && !twin && !self.is_new_edge(r.thread, e.correlation) {
            losses::add(Loss::Duplicate, 1);
            return;
        }
        match self.held.get_mut(&r.thread) {
            Some(h) if h.correlation == e.correlation && (h.a >> 24) != (e.a >> 24) => {
                if runtime {
                    *h = e;
                }
            }
            Some(h) => {
                let done = std::mem::replace(h, e);
                self.released.insert(r.thread, done.correlation);
                self.host_event(r.thread, done, store, capture);
            }
            None => {
                self.held.insert(r.thread, e);
            }
        }
    }

    /// The last API record of each thread in the buffer just read: its twin may have come in a buffer before.
    pub(super) fn end_of_buffer(&mut self) {
        for (thread, joined) in std::mem::take(&mut self.begun) {
            let Some(correlation) = self.held.get(&thread).map(|h| h.correlation) else { continue };
            // a call begun in the buffer before and joined here is no second one
            if joined != Some(correlation) && !self.is_new_edge(thread, correlation) {
                losses::add(Loss::Duplicate, 1);
                self.held.remove(&thread);
            }
        }
    }

    /// Remembers a call at the edge of the buffer being read; `false` if another buffer had it.
    fn is_new_edge(&mut self, thread: u32, correlation: u32) -> bool {
        const REMEMBERED: usize = 512;
        let known = self.edges.iter().any(|e| (e.0, e.1) == (thread, correlation) && e.2 != self.reading);
        if !known {
            self.edges.push_back((thread, correlation, self.reading));
            if self.edges.len() > REMEMBERED {
                self.edges.pop_front();
            }
        }
        !known
    }

    /// Lets go of the API records held back since before `older_than`: their twin, if any, would have come.
    pub(crate) fn release_held(&mut self, older_than: u64, store: &mut Store, capture: &Capture) {
        let due: Vec<u32> = self.held.iter().filter(|(_, e)| e.end < older_than).map(|(t, _)| *t).collect();
        for thread in due {
            let Some(event) = self.held.remove(&thread) else { continue };
            self.released.insert(thread, event.correlation);
            if self.released.len() > 4096 {
                self.released.clear();
            }
            self.host_event(thread, event, store, capture);
        }
    }

    /// One call, from a record or a callback, into its thread's track.
    pub(crate) fn host_event(&mut self, thread: u32, event: Event, store: &mut Store, capture: &Capture) {
        if !capture.covers(event.start) {
            return;
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

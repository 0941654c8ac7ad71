// SPDX-License-Identifier: Apache-2.0
// WARM
//! CUPTI's records -> events in the store. Steps through a buffer only with CUPTI's own `GetNextRecord`; the fields
//! we read have the same offsets in every release from 11.8 to 13.5 (`cupti_sys::record`).

use std::collections::{HashMap, VecDeque};

use cupti_sys::{kind, record, Cupti, CuptiResult};
use trace::define::{KernelInfo, TrackInfo};
use trace::event::{Copy, Event, Kind, COPY_ASYNC, GRAPH_NODE};
use trace::{total, Loss, Total};

use super::buffers;
use super::names::Names;
use super::raw::RawFile;
use crate::losses;
use crate::program::Capture;
use crate::store::Store;

/// The decoder's memory between buffers; belongs to the drain thread.
pub(crate) struct Decoder {
    names: Names,
    kernels: HashMap<KernelKey, u32>,
    /// By thread: the API record held back until it is known whether its twin of the other domain follows.
    pub(super) held: HashMap<u32, Event>,
    /// By thread: correlation of the API record let go last; a twin that comes later still is dropped.
    pub(super) released: HashMap<u32, u32>,
    /// (thread, correlation, buffer) of the first and last API records of recent buffers: buffers of one thread may
    /// come back out of order, and a call's two records may lie in two of them.
    pub(super) edges: VecDeque<(u32, u32, u64)>,
    /// The buffer being read, and the threads whose first API record of it was seen, with the call it
    /// joined if that had begun in the buffer before.
    pub(super) reading: u64,
    pub(super) begun: Vec<(u32, Option<u32>)>,
    /// Run-wide counters.
    pub(crate) totals: [u64; total::SLOTS],
    /// Records seen since the last look.
    pub(crate) records: u64,
    /// Devices seen, one bit each.
    pub(crate) devices: u64,
    /// cudaProfilerStart (true) and Stop (false) seen as records, with their time: where no callback tells.
    pub(crate) profiler_calls: Vec<(u64, bool)>,
    /// Test switch: the raw records go here too.
    pub(crate) raw: Option<RawFile>,
}

/// A launch configuration by name pointer: spares the name lookup for all but the first of a kind.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct KernelKey {
    pointer: u64,
    block: [i32; 3],
    registers: u16,
    shared: [i32; 2],
}

/// Highest offset that is read of any record.
const MOST: usize = 224;

impl Decoder {
    /// Nothing seen yet.
    pub(crate) fn new(raw: Option<RawFile>) -> Decoder {
        Decoder {
            names: Names::default(),
            kernels: HashMap::new(),
            held: HashMap::new(),
            released: HashMap::new(),
            edges: VecDeque::new(),
            reading: 0,
            begun: Vec::new(),
            totals: [0; total::SLOTS],
            records: 0,
            devices: 0,
            profiler_calls: Vec::new(),
            raw,
        }
    }

    /// Adds to a run-wide counter.
    pub(crate) fn count(&mut self, which: Total, n: u64) {
        if let Some(t) = self.totals.get_mut(which as usize) {
            *t += n;
        }
    }

    /// Decodes one returned buffer.
    pub(crate) fn buffer(
        &mut self,
        cupti: &Cupti,
        full: &buffers::Full,
        store: &mut Store,
        capture: &Capture,
        now: u64,
    ) {
        // SAFETY: the drain thread owns the buffer; `valid` is at most its size.
        let bytes = unsafe { std::slice::from_raw_parts(full.address.as_ptr(), full.valid) };
        self.count(Total::Buffers, 1);
        if !super::session::is_subscribed() {
            self.kernels.clear();
            self.names.distrust(now);
        }
        if let Some(raw) = &mut self.raw {
            raw.buffer(now, bytes);
        }
        self.reading += 1;
        self.begun.clear();
        let mut next = std::ptr::null_mut();
        let mut index = 0;
        loop {
            // SAFETY: our own buffer and its valid size, as CUPTI gave it; the record pointer starts null and is
            // only ever what CUPTI made it.
            let result =
                unsafe { (cupti.activity_get_next_record)(full.address.as_ptr(), full.valid, &mut next) };
            if result == CuptiResult::NO_MORE_RECORDS || !result.is_success() {
                break;
            }
            let Some(offset) = (next as usize).checked_sub(full.address.as_ptr() as usize) else { break };
            let Some(rest) = bytes.get(offset..) else { break };
            index += 1;
            if index <= full.consumed {
                continue; // read in place before the buffer came back
            }
            self.records += 1;
            self.record(rest.get(..MOST).unwrap_or(rest), store, capture, now);
        }
        self.end_of_buffer();
    }

    /// Reads the records at the front of a buffer that is still lent, as far as a flush has completed them in place. Stops
    /// at the first that is not: its kind carries CUPTI's pending bit or its end is 0 (seen on the H200; releases
    /// without the bit have the zero end). True if there is such a one.
    pub(crate) fn front_of(
        &mut self,
        cupti: &Cupti,
        stuck: &buffers::Stuck,
        store: &mut Store,
        capture: &Capture,
        now: u64,
    ) -> bool {
        let base = stuck.address.as_ptr();
        let mut next = std::ptr::null_mut();
        let (mut index, mut launched, mut pending) = (0, 0, false);
        loop {
            // SAFETY: our own buffer of that size, never unmapped; CUPTI writes records behind those it completed.
            let result = unsafe { (cupti.activity_get_next_record)(base, buffers::BUFFER_BYTES, &mut next) };
            if !result.is_success() {
                break;
            }
            let Some(offset) = (next as usize)
                .checked_sub(base as usize)
                .filter(|o| *o < buffers::BUFFER_BYTES && o % 8 == 0)
            else {
                break;
            };
            let length = MOST.min(buffers::BUFFER_BYTES - offset);
            let mut copy = [0u8; MOST];
            for (i, to) in copy.chunks_exact_mut(8).enumerate().take(length / 8) {
                let from = base.wrapping_add(offset + i * 8).cast::<u64>();
                // SAFETY: inside the buffer (checked) and aligned (records are at multiples of 8); volatile and a word
                // at a time because CUPTI may be finishing it: the checks of `is_complete` need all of its words.
                to.copy_from_slice(&unsafe { std::ptr::read_volatile(from) }.to_ne_bytes());
            }
            let record = copy.get(..length).unwrap_or(&[]);
            if !is_complete(record) {
                pending = true;
                break;
            }
            index += 1;
            if index > stuck.consumed {
                if let (Some(kind::RUNTIME | kind::DRIVER), Some(r)) =
                    (record::kind_of(record), record::Api::read(record))
                {
                    launched = launched.max(r.start);
                }
                self.records += 1;
                self.record(record, store, capture, now);
            }
        }
        buffers::consumed(stuck, index.max(stuck.consumed), launched);
        pending
    }

    fn record(&mut self, bytes: &[u8], store: &mut Store, capture: &Capture, now: u64) {
        match record::kind_of(bytes) {
            Some(kind::CONCURRENT_KERNEL | kind::KERNEL) => {
                if let Some(r) = record::Kernel::read(bytes) {
                    self.kernel(&r, store, capture, now);
                }
            }
            Some(kind::MEMCPY) => {
                if let Some(r) = record::Memcpy::read(bytes) {
                    let copy = Copy {
                        bytes: r.bytes,
                        direction: r.copy_kind,
                        source: r.source_kind,
                        destination: r.destination_kind,
                        peer: false,
                    };
                    let at = Where {
                        start: r.start,
                        end: r.end,
                        device: r.device,
                        context: r.context,
                        stream: r.stream,
                    };
                    self.copy(
                        copy,
                        at,
                        [r.correlation, r.graph, r.graph_node as u32],
                        r.flags,
                        store,
                        capture,
                    );
                }
            }
            Some(kind::MEMCPY2) => {
                if let Some(r) = record::MemcpyPeer::read(bytes) {
                    let copy = Copy {
                        bytes: r.bytes,
                        direction: r.copy_kind,
                        source: r.source_kind,
                        destination: r.destination_kind,
                        peer: true,
                    };
                    let at = Where {
                        start: r.start,
                        end: r.end,
                        device: r.device,
                        context: r.context,
                        stream: r.stream,
                    };
                    self.copy(
                        copy,
                        at,
                        [r.correlation, r.graph, r.graph_node as u32],
                        r.flags,
                        store,
                        capture,
                    );
                }
            }
            Some(kind::MEMSET) => {
                if let Some(r) = record::Memset::read(bytes) {
                    let at = Where {
                        start: r.start,
                        end: r.end,
                        device: r.device,
                        context: r.context,
                        stream: r.stream,
                    };
                    let Some(mut e) = at.event(Kind::Memset) else { return };
                    e.correlation = r.correlation;
                    (e.a, e.b, e.c) = (r.bytes as u32, (r.bytes >> 32) as u32, r.graph);
                    e.flags |= if r.graph_node != 0 { GRAPH_NODE } else { 0 };
                    if self.place(at, e, store, capture) {
                        self.count(Total::Memsets, 1);
                    }
                }
            }
            Some(kind::SYNCHRONIZATION) => {
                if let Some(r) = record::Synchronization::read(bytes) {
                    // a wait of a stream has no duration on the host; zero times are normal for some types
                    let mut e = Event::new(Kind::SyncRecord, r.start, r.end.max(r.start));
                    e.correlation = r.correlation;
                    (e.a, e.b, e.c) = (r.sync_type, r.event, r.stream);
                    if r.start != 0 && capture.covers(r.start) {
                        store.add_recorder(&e);
                    }
                }
            }
            Some(kind::GRAPH_TRACE) => {
                if let Some(r) = record::GraphTrace::read(bytes) {
                    let at = Where {
                        start: r.start,
                        end: r.end,
                        device: r.device,
                        context: r.context,
                        stream: r.stream,
                    };
                    let Some(mut e) = at.event(Kind::GraphTrace) else { return };
                    (e.correlation, e.c) = (r.correlation, r.graph);
                    self.place(at, e, store, capture);
                }
            }
            Some(k @ (kind::RUNTIME | kind::DRIVER)) => {
                if let Some(r) = record::Api::read(bytes) {
                    self.call(k == kind::RUNTIME, &r, store, capture);
                }
            }
            // CUDA_EVENT comes with SYNCHRONIZATION before 12.5 (seen with 11.8 and 12.4 on the H200)
            Some(kind::CONTEXT | kind::DEVICE | kind::STREAM | kind::OVERHEAD | kind::CUDA_EVENT) => {}
            _ => losses::add(Loss::RecordUnknown, 1),
        }
    }

    fn kernel(&mut self, r: &record::Kernel, store: &mut Store, capture: &Capture, now: u64) {
        let at = Where { start: r.start, end: r.end, device: r.device, context: r.context, stream: r.stream };
        let Some(mut e) = at.event(Kind::Kernel) else { return };
        let key = KernelKey {
            pointer: r.name,
            block: [r.block_x, r.block_y, r.block_z],
            registers: r.registers_per_thread,
            shared: [r.static_shared_memory, r.dynamic_shared_memory],
        };
        e.a = match self.kernels.get(&key) {
            Some(&id) if !super::names::unloaded_since_start() => id,
            _ => {
                let text = self.names.resolve(r.name, r.end, now).to_vec();
                if let Some(raw) = &mut self.raw {
                    raw.name(now, r.name, &text);
                }
                let info = KernelInfo {
                    name: store.string(&text),
                    block: key.block.map(|n| n.max(0) as u32),
                    registers: u32::from(key.registers),
                    static_shared: r.static_shared_memory.max(0) as u32,
                    dynamic_shared: r.dynamic_shared_memory.max(0) as u32,
                };
                let id = store.kernel(info);
                if self.kernels.len() < 65_536 {
                    self.kernels.insert(key, id);
                }
                id
            }
        };
        let blocks = [r.grid_x, r.grid_y, r.grid_z].map(|n| n.max(0) as u64);
        e.b = blocks.iter().product::<u64>().min(u64::from(u32::MAX)) as u32;
        (e.c, e.correlation) = (r.graph, r.correlation);
        e.flags |= if r.graph_node != 0 { GRAPH_NODE } else { 0 };
        if self.place(at, e, store, capture) {
            self.count(Total::Kernels, 1);
            self.count(Total::KernelNs, e.duration());
        }
    }

    fn copy(
        &mut self,
        copy: Copy,
        at: Where,
        ids: [u32; 3],
        flags: u8,
        store: &mut Store,
        capture: &Capture,
    ) {
        let Some(mut e) = at.event(Kind::Memcpy) else { return };
        let [correlation, graph, node] = ids;
        (e.a, e.b) = copy.pack();
        (e.correlation, e.c) = (correlation, graph);
        e.flags |= if flags & 1 != 0 { COPY_ASYNC } else { 0 };
        e.flags |= if node != 0 { GRAPH_NODE } else { 0 };
        if self.place(at, e, store, capture) {
            self.count(Total::Copies, 1);
            self.count(Total::CopyBytes, copy.bytes);
            self.count(Total::CopyNs, e.duration());
        }
    }

    /// Into its stream's track, unless the program wanted nothing recorded then. Whether it was.
    fn place(&mut self, at: Where, event: Event, store: &mut Store, capture: &Capture) -> bool {
        self.devices |= 1u64.checked_shl(at.device).unwrap_or(0);
        let wanted = capture.covers(event.start);
        if wanted {
            store
                .add(TrackInfo::Stream { device: at.device, context: at.context, stream: at.stream }, &event);
        }
        wanted
    }
}

/// Has CUPTI finished this record? By its kind and its times.
fn is_complete(bytes: &[u8]) -> bool {
    match record::kind_of(bytes) {
        Some(kind::CONCURRENT_KERNEL) => {
            record::Kernel::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0)
        }
        Some(kind::MEMCPY) => record::Memcpy::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0),
        Some(kind::MEMCPY2) => record::MemcpyPeer::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0),
        Some(kind::MEMSET) => record::Memset::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0),
        Some(kind::SYNCHRONIZATION) => {
            record::Synchronization::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0)
        }
        Some(kind::RUNTIME | kind::DRIVER) => {
            record::Api::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0)
        }
        Some(kind::CONTEXT) => true,
        _ => false,
    }
}

/// Where and when a GPU op ran.
#[derive(Clone, Copy)]
struct Where {
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
}

impl Where {
    /// The event, unless its times say that it must not be drawn: those are counted by name.
    fn event(self, kind: Kind) -> Option<Event> {
        let loss = match (self.start, self.end) {
            // measured on the H200: the unfinished ones of a forced flush have neither start nor end
            (0, 0) if super::session::was_forced() => Loss::Unfinished,
            (0, 0) => Loss::ZeroTimestamp,
            (_, 0) => Loss::Unfinished,
            (start, end) if end < start => Loss::BackwardTimestamp,
            _ => return Some(Event::new(kind, self.start, self.end)),
        };
        losses::add(loss, 1);
        None
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! CUPTI's records -> events in the store. The fields we read have the same offsets in every
//! release from 11.8 to 13.5 (`cupti_sys::record`). Who steps from record to record is `walk`; what
//! becomes of API calls is `calls`.

use std::collections::HashMap;

use cupti_sys::{kind, record};
use trace::define::{KernelInfo, TrackInfo};
use trace::event::{Copy, Event, Kind, COPY_ASYNC, GRAPH_NODE};
use trace::{total, Loss, Total};

use super::calls::Calls;
use super::graph_nodes;
use super::last_callers::LastCallers;
use super::names::{self, Names};
use super::raw::RawFile;
use super::session;
use super::times::{is_of_our_clock, timed};
use crate::platform::losses;
use crate::sources::captured_launches::CapturedLaunches;
use crate::sources::cupti::warm_up::FirstOp;
use crate::sources::marks::program::Capture;
use crate::store::Store;

/// The decoder's memory between buffers; belongs to the drain thread.
pub(crate) struct Decoder {
    names: Names,
    kernels: HashMap<KernelKey, u32>,
    pub(super) calls: Calls,
    /// For the sampler.
    pub(crate) last_callers: LastCallers,
    /// Run-wide counters.
    pub(crate) totals: [u64; total::SLOTS],
    /// Records seen since the last look.
    pub(crate) records: u64,
    /// Devices seen, one bit each.
    pub(crate) devices: u64,
    /// cudaProfilerStart (true) and Stop (false) seen as records, with their time: where no
    /// callback tells.
    pub(crate) profiler_calls: Vec<(u64, bool)>,
    /// When a window's first op began.
    pub(crate) first_op: FirstOp,
    /// Test switch: the raw records go here too.
    raw: Option<RawFile>,
}

/// Where events go.
pub(crate) struct Sink<'a> {
    /// What keeps them.
    pub(crate) store: &'a mut Store,
    /// What the program wants recorded.
    pub(crate) capture: &'a Capture,
    /// The launches that graphs were captured from.
    pub(crate) launches: &'a mut CapturedLaunches,
    /// The time of this round, ns.
    pub(crate) now: u64,
}

/// A launch configuration by name pointer: spares the name lookup for all but the first of a kind.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct KernelKey {
    pointer: u64,
    block: [i32; 3],
    registers: u16,
    shared: [i32; 2],
    captured: u32,
}

/// Launch configurations remembered; beyond, each launch looks its name up.
const MOST_KERNELS: usize = 65_536;

/// The fields that a copy within a device and one between two have in common.
macro_rules! copied {
    ($r:ident, $peer:literal) => {
        Copy {
            bytes: $r.bytes,
            direction: $r.copy_kind,
            source: $r.source_kind,
            destination: $r.destination_kind,
            peer: $peer,
        }
    };
}

impl Decoder {
    /// Nothing seen yet.
    pub(crate) fn new(raw: Option<RawFile>) -> Decoder {
        Decoder {
            names: Names::default(),
            kernels: HashMap::new(),
            calls: Calls::default(),
            last_callers: LastCallers::default(),
            totals: [0; total::SLOTS],
            records: 0,
            devices: 0,
            profiler_calls: Vec::new(),
            first_op: FirstOp::default(),
            raw,
        }
    }

    /// Adds to a run-wide counter.
    pub(crate) fn count(&mut self, which: Total, n: u64) {
        if let Some(t) = self.totals.get_mut(which as usize) {
            *t = t.saturating_add(n);
        }
    }

    /// A buffer came back and is about to be read.
    pub(super) fn begin_buffer(&mut self, bytes: &[u8], now: u64) {
        self.count(Total::Buffers, 1);
        if !session::is_subscribed() {
            // nobody tells us when modules are unloaded
            self.kernels.clear();
            self.names.distrust(now);
        }
        if let Some(raw) = &mut self.raw {
            raw.buffer(now, bytes);
        }
    }

    /// One record; `bytes` starts at it and may go on beyond it.
    pub(super) fn record(&mut self, bytes: &[u8], sink: &mut Sink<'_>) {
        self.records += 1;
        if self.known(bytes, sink).is_none() {
            losses::add(Loss::RecordUnknown, 1);
        }
    }

    /// `None` for a record that is too short, or of a kind that we did not ask for.
    fn known(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Option<()> {
        match record::kind_of(bytes)? {
            kind::CONCURRENT_KERNEL | kind::KERNEL => self.kernel(&record::Kernel::read(bytes)?, sink),
            kind::MEMCPY => {
                let r = record::Memcpy::read(bytes)?;
                self.copy(Op::from(&r), copied!(r, false), r.flags, sink);
            }
            kind::MEMCPY2 => {
                let r = record::MemcpyPeer::read(bytes)?;
                self.copy(Op::from(&r), copied!(r, true), r.flags, sink);
            }
            kind::MEMSET => {
                let r = record::Memset::read(bytes)?;
                self.memset(Op::from(&r), r.bytes, sink);
            }
            kind::GRAPH_TRACE => self.graph(Op::from(&record::GraphTrace::read(bytes)?), sink),
            kind::SYNCHRONIZATION => synchronization(&record::Synchronization::read(bytes)?, sink),
            k @ (kind::RUNTIME | kind::DRIVER) => {
                self.call(k == kind::RUNTIME, &record::Api::read(bytes)?, sink);
            }
            // CUDA_EVENT comes with SYNCHRONIZATION before 12.5 (seen with 11.8 and 12.4 on the
            // H200)
            kind::CONTEXT | kind::DEVICE | kind::STREAM | kind::OVERHEAD | kind::CUDA_EVENT => {}
            _ => return None,
        }
        Some(())
    }

    fn kernel(&mut self, r: &record::Kernel, sink: &mut Sink<'_>) {
        let op = Op::from(r);
        let Some(mut e) = op.event(Kind::Kernel, sink.now) else { return };
        e.a = self.kernel_id(r, sink);
        e.b =
            [r.grid_x, r.grid_y, r.grid_z].iter().fold(1u32, |all, n| all.saturating_mul((*n).max(0) as u32));
        if self.place(&op, &e, sink) {
            self.count(Total::Kernels, 1);
            self.count(Total::KernelNs, e.duration());
        }
    }

    /// The definition of the kernel and its launch configuration.
    fn kernel_id(&mut self, r: &record::Kernel, sink: &mut Sink<'_>) -> u32 {
        let key = KernelKey {
            pointer: r.name,
            block: [r.block_x, r.block_y, r.block_z],
            registers: r.registers_per_thread,
            shared: [r.static_shared_memory, r.dynamic_shared_memory],
            captured: sink.launches.definition(graph_nodes::captured(r.graph_node), sink.store),
        };
        if let Some(&id) = self.kernels.get(&key).filter(|_| !names::unloaded_since_start()) {
            return id;
        }
        let text = self.names.resolve(r.name, r.end, sink.now).to_vec();
        if let Some(raw) = &mut self.raw {
            raw.name(sink.now, r.name, &text);
        }
        let name = sink.store.string(&text);
        let id = sink.store.kernel(KernelInfo {
            name,
            block: key.block.map(|n| n.max(0) as u32),
            registers: u32::from(key.registers),
            static_shared: r.static_shared_memory.max(0) as u32,
            dynamic_shared: r.dynamic_shared_memory.max(0) as u32,
            captured: key.captured,
        });
        if self.kernels.len() < MOST_KERNELS {
            self.kernels.insert(key, id);
        }
        id
    }

    fn copy(&mut self, op: Op, copy: Copy, flags: u8, sink: &mut Sink<'_>) {
        let Some(mut e) = op.event(Kind::Memcpy, sink.now) else { return };
        (e.a, e.b) = copy.pack();
        e.flags |= if u32::from(flags) & record::flag::MEMCPY_ASYNC != 0 { COPY_ASYNC } else { 0 };
        if self.place(&op, &e, sink) {
            self.count(Total::Copies, 1);
            self.count(Total::CopyBytes, copy.bytes);
            self.count(Total::CopyNs, e.duration());
        }
    }

    fn memset(&mut self, op: Op, bytes: u64, sink: &mut Sink<'_>) {
        let Some(mut e) = op.event(Kind::Memset, sink.now) else { return };
        (e.a, e.b) = (bytes as u32, (bytes >> 32) as u32);
        if self.place(&op, &e, sink) {
            self.count(Total::Memsets, 1);
        }
    }

    fn graph(&mut self, op: Op, sink: &mut Sink<'_>) {
        if let Some(e) = op.event(Kind::GraphTrace, sink.now) {
            self.place(&op, &e, sink);
        }
    }

    /// Into its stream's track, unless the program wanted nothing recorded then. Whether it was.
    fn place(&mut self, op: &Op, event: &Event, sink: &mut Sink<'_>) -> bool {
        self.devices |= 1u64.checked_shl(op.device).unwrap_or(0);
        let wanted = sink.capture.covers_op(event.start, event.end);
        if wanted {
            let is_kernel = matches!(event.kind, Kind::Kernel | Kind::GraphTrace);
            self.first_op.ran(event.start, op.correlation, op.device, is_kernel);
            let track = TrackInfo::Stream { device: op.device, context: op.context, stream: op.stream };
            sink.store.add(track, event);
        }
        wanted
    }
}

fn synchronization(r: &record::Synchronization, sink: &mut Sink<'_>) {
    // a wait of a stream has no duration on the host; zero times are normal for some types
    let mut e = Event::new(Kind::SyncRecord, r.start, r.end.max(r.start));
    (e.a, e.b, e.c, e.correlation) = (r.sync_type, r.event, r.stream, r.correlation);
    if r.start != 0 && !is_of_our_clock(e.start, e.end, sink.now) {
        losses::add(Loss::ForeignClock, 1);
    } else if r.start != 0 && sink.capture.covers(r.start) {
        sink.store.add_recorder(&e);
    }
}

/// What the records of all work on the device tell: where and when it ran, and who asked for it.
#[derive(Clone, Copy)]
struct Op {
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
    graph: u32,
    is_node: bool,
}

/// `Op::from` a record, and whether it is a node of a graph.
macro_rules! device_work {
    ($($record:ident, $r:ident => $is_node:expr;)*) => {
        $(impl From<&record::$record> for Op {
            fn from($r: &record::$record) -> Op {
                Op {
                    start: $r.start,
                    end: $r.end,
                    device: $r.device,
                    context: $r.context,
                    stream: $r.stream,
                    correlation: $r.correlation,
                    graph: $r.graph,
                    is_node: $is_node,
                }
            }
        })*
    };
}

device_work! {
    Kernel, r => r.graph_node != 0;
    Memcpy, r => r.graph_node != 0;
    MemcpyPeer, r => r.graph_node != 0;
    Memset, r => r.graph_node != 0;
    GraphTrace, r => false;
}

impl Op {
    /// The event, as far as all kinds have it in common.
    fn event(&self, kind: Kind, now: u64) -> Option<Event> {
        let mut e = timed((kind, self.is_node), self.start, self.end, now)?;
        (e.correlation, e.c) = (self.correlation, self.graph);
        e.flags = if self.is_node { GRAPH_NODE } else { 0 };
        Some(e)
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! What the GPUs did: kernels, copies, memsets, whole graph launches.

use foldhash::HashMap;
use trace::event::{Copy, UNIFIED};
use trace::header::sources;
use trace::{KernelInfo, Kind};
use verdict::run::Span;

use super::rows::{Reader, Sink};
use super::schema::{Cells, Wanted};
use crate::assemble::{ForeignOp, StreamKey};
use crate::ReadError;

/// The tables read here. All begin with the same columns.
pub(super) static TABLES: [Wanted; 4] = [
    Wanted {
        names: &["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"],
        columns: &[
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "demangledName",
            "mangledName",
            "shortName",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ],
        needed: 3,
    },
    Wanted {
        names: &["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMCPY2"],
        columns: &[
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
            "srcDeviceId",
            "dstDeviceId",
        ],
        needed: 3,
    },
    Wanted {
        names: &["CUPTI_ACTIVITY_KIND_MEMSET"],
        columns: &[
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "bytes",
        ],
        needed: 3,
    },
    Wanted {
        names: &["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"],
        columns: &[
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
        ],
        needed: 3,
    },
];

/// Reads all of them.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), ReadError> {
    for wanted in &TABLES {
        for table in reader.schema.find(wanted) {
            if let Some(column) = table.lacks(wanted) {
                return Err(ReadError::new(
                    format!("its table {} has no column {column}", table.name),
                    "is it an export as nsys makes it? nsys export --type sqlite -o OUT.sqlite REPORT.nsys-rep",
                ));
            }
        }
    }
    let [kernels, copies, memsets, graphs] = &TABLES;
    let mut streams = Streams::default();
    reader.each(kernels, |sink, cells| {
        let Some(row) = streams.common(sink, cells) else { return Ok(()) };
        // the demangled name before the others, as torch.profiler's traces have it
        let kernel = KernelInfo {
            name: sink.name([9, 10, 11].map(|at| cells.whole(at)))?,
            block: [15, 16, 17].map(|at| cells.number(at)),
            registers: cells.number(18),
            static_shared: cells.number(19),
            dynamic_shared: cells.number(20),
            captured: 0,
        };
        let a = sink.assembly.kernel(kernel);
        let side = |at: usize| cells.small(at).unwrap_or(1);
        let b = side(12).saturating_mul(side(13)).saturating_mul(side(14));
        row.give(sink, Kind::Kernel, a, b);
        Ok(())
    })?;
    reader.each(copies, |sink, cells| {
        let Some(row) = streams.common(sink, cells) else { return Ok(()) };
        let (a, b) = copy(cells).pack();
        let unified = if UNIFIED_KINDS.contains(&cells.number(10)) { UNIFIED } else { 0 };
        row.give(sink, Kind::Memcpy, a, b | unified);
        Ok(())
    })?;
    reader.each(memsets, |sink, cells| {
        let Some(row) = streams.common(sink, cells) else { return Ok(()) };
        let bytes = cells.whole(9).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        row.give(sink, Kind::Memset, bytes as u32, (bytes >> 32) as u32);
        Ok(())
    })?;
    let whole_graphs = reader.each(graphs, |sink, cells| {
        let Some(row) = streams.common(sink, cells) else { return Ok(()) };
        row.give(sink, Kind::GraphTrace, 0, 0);
        Ok(())
    })?;
    if whole_graphs > 0 {
        reader.sink.assembly.run.header.sources |= sources::GRAPH_LEVEL;
    }
    Ok(())
}

/// What all rows have.
struct Common {
    at: (usize, usize),
    span: Span,
    correlation: u32,
    graph: u32,
}

impl Common {
    fn give(self, sink: &mut Sink<'_>, kind: Kind, a: u32, b: u32) {
        let Common { at, span, correlation, graph } = self;
        sink.assembly.op(at, ForeignOp { span, correlation, a, b, graph, kind });
    }
}

/// Where the operations of a stream go, by process, device, context and stream as the rows have
/// them.
#[derive(Default)]
struct Streams {
    known: HashMap<StreamKey, Option<(usize, usize)>>,
    last: Option<(StreamKey, Option<(usize, usize)>)>,
}

impl Streams {
    /// Columns 0 to 8; `None`, and counted, where the row cannot be used.
    #[inline]
    fn common(&mut self, sink: &mut Sink<'_>, cells: &Cells<'_, '_>) -> Option<Common> {
        if cells.whole(0) == Some(0) && cells.whole(1) == Some(0) {
            // how CUPTI says that it has no times
            sink.refused.no_time += 1;
            return None;
        }
        let span = sink.span(cells)?;
        let Some(device) = cells.small(2) else {
            sink.refused.unplaced += 1;
            return None;
        };
        let process = sink.ids.process(cells.whole(6));
        let key = StreamKey { process, device, context: cells.number(3), stream: cells.number(4) };
        let Some(at) = self.at(key, sink) else {
            sink.refused.unplaced += 1;
            return None;
        };
        // the upper half of a node's id is its graph's; copies have no other
        let node = cells.whole(7).unwrap_or(0);
        let graph = match (node >> 32) as u32 {
            0 => cells.number(8),
            graph => graph,
        };
        Some(Common { at, span, correlation: correlation(cells.whole(5)), graph })
    }

    #[inline]
    fn at(&mut self, key: StreamKey, sink: &mut Sink<'_>) -> Option<(usize, usize)> {
        if let Some((_, at)) = self.last.filter(|l| l.0 == key) {
            return at;
        }
        let at = *self.known.entry(key).or_insert_with(|| {
            let (pid, machine) = (sink.ids.pid(key.process), sink.ids.machine(key.process));
            let device = sink.devices.number(key.process, pid, machine, key.device);
            sink.assembly.stream_of(StreamKey { device: device?, ..key })
        });
        self.last = Some((key, at));
        at
    }
}

/// nsys's kinds of copies that are pages of Unified Memory: to the device, to the host, between
/// devices.
const UNIFIED_KINDS: std::ops::RangeInclusive<u32> = 11..=13;

/// CUPTI's ids have 32 bits.
#[inline]
pub(super) fn correlation(id: Option<i64>) -> u32 {
    id.map_or(0, |n| n as u32)
}

fn copy(cells: &Cells<'_, '_>) -> Copy {
    let bytes = cells.whole(9).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let told = cells.number(10);
    let direction = match told {
        0..=10 => told as u8,
        11 => 1,
        12 => 2,
        13 => 8,
        _ => 0,
    };
    // nsys counts the kinds of memory from 0 (pageable) to 6, and 7 is unknown; CUPTI from 1, and 0
    // is unknown
    let memory = |at: usize| cells.small(at).filter(|&k| k < 7).map_or(0, |k| k as u8 + 1);
    let peers = cells.small(13).zip(cells.small(14)).is_some_and(|(from, to)| from != to);
    Copy { bytes, direction, source: memory(11), destination: memory(12), peer: direction == 10 || peers }
}

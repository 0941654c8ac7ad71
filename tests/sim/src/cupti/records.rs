// SPDX-License-Identifier: Apache-2.0
//! The bytes of activity records: offsets common to all releases 11.7 to 13.5, sizes from `layout`.

use super::layout::{kind, record_size, release};

/// Largest record of any release.
pub(crate) const LARGEST: usize = 256;

/// One record being built; times are written at delivery, at `times_at` (start) and `times_at + 8`
/// (end).
pub(crate) struct Record {
    bytes: [u8; LARGEST],
    len: usize,
    pub(crate) times_at: u8,
}

impl Record {
    fn new(kind: u32, times_at: u8) -> Self {
        let len = record_size(kind, release()).unwrap_or(0);
        let mut record = Record { bytes: [0; LARGEST], len, times_at };
        record.u32(0, kind);
        record
    }

    /// Its bytes, of the emulated release's size.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Writes times that are in the client's clock already.
    pub(crate) fn set_times(&mut self, start: u64, end: u64) {
        let at = usize::from(self.times_at);
        self.u64(at, start);
        self.u64(at + 8, end);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        // A field that the emulated release does not have falls off the end.
        if at + bytes.len() <= self.len {
            if let Some(field) = self.bytes.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        }
    }

    fn u8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
}

/// Where an operation ran and which launch it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    pub(crate) graph: u32,
    pub(crate) node: u64,
}

/// A kernel (kind 3 or 10).
pub(crate) fn kernel(kind: u32, place: Place, grid: [u32; 3], block: [u32; 3], name: usize) -> Record {
    let mut r = Record::new(kind, 16);
    r.u32(40, place.device);
    r.u32(44, place.context);
    r.u32(48, place.stream);
    for axis in 0..3 {
        r.u32(52 + 4 * axis, grid.get(axis).copied().unwrap_or(1));
        r.u32(64 + 4 * axis, block.get(axis).copied().unwrap_or(1));
    }
    r.u32(92, place.correlation);
    r.u64(96, u64::from(place.correlation));
    r.u64(104, name as u64);
    r.u64(144, place.node);
    r.u32(156, place.graph);
    r
}

/// A copy (kind 1).
pub(crate) fn memcpy(
    place: Place,
    copy: u8,
    source: u8,
    destination: u8,
    bytes: u64,
    asynchronous: bool,
) -> Record {
    let mut r = Record::new(kind::MEMCPY, 16);
    r.u8(4, copy);
    r.u8(5, source);
    r.u8(6, destination);
    r.u8(7, u8::from(asynchronous));
    r.u64(8, bytes);
    r.u32(32, place.device);
    r.u32(36, place.context);
    r.u32(40, place.stream);
    r.u32(44, place.correlation);
    r.u64(64, place.node);
    r.u32(72, place.graph);
    r.u64(88, 1);
    r
}

/// A copy between devices (kind 22).
pub(crate) fn peer(place: Place, bytes: u64, from: u32, to: u32) -> Record {
    let mut r = Record::new(kind::MEMCPY2, 16);
    for (at, value) in [(4, 10), (5, 3), (6, 3), (7, 1)] {
        r.u8(at, value);
    }
    r.u64(8, bytes);
    r.u32(32, place.device);
    r.u32(36, place.context);
    r.u32(40, place.stream);
    r.u32(44, from);
    r.u32(52, to);
    r.u32(60, place.correlation);
    r.u64(72, place.node);
    r.u32(80, place.graph);
    r
}

/// A memset (kind 2).
pub(crate) fn memset(place: Place, value: u32, bytes: u64) -> Record {
    let mut r = Record::new(kind::MEMSET, 16);
    r.u32(4, value);
    r.u64(8, bytes);
    r.u32(32, place.device);
    r.u32(36, place.context);
    r.u32(40, place.stream);
    r.u32(44, place.correlation);
    // Asynchronous; device memory.
    r.u32(48, 1 | 3 << 16);
    r.u64(64, place.node);
    r.u32(72, place.graph);
    r
}

/// A synchronization (kind 38): 1 event, 2 stream waits event, 3 stream, 4 context. Absent ids are
/// u32::MAX.
pub(crate) fn synchronization(
    kind_of: u32,
    correlation: u32,
    context: u32,
    stream: u32,
    event: u32,
) -> Record {
    let mut r = Record::new(kind::SYNCHRONIZATION, 8);
    r.u32(4, kind_of);
    r.u32(24, correlation);
    r.u32(28, context);
    r.u32(32, stream);
    r.u32(36, event);
    r
}

/// A graph launch as one record (kind 51).
pub(crate) fn graph(place: Place) -> Record {
    let mut r = Record::new(kind::GRAPH_TRACE, 8);
    r.u32(4, place.correlation);
    r.u32(24, place.device);
    r.u32(28, place.graph);
    r.u32(32, place.context);
    r.u32(36, place.stream);
    r.u32(48, place.device);
    r.u32(52, place.context);
    r
}

/// A driver or runtime call (kind 4 or 5).
pub(crate) fn api(kind: u32, cbid: u32, thread: u32, correlation: u32, result: i32) -> Record {
    let mut r = Record::new(kind, 8);
    r.u32(4, cbid);
    r.u32(24, std::process::id());
    r.u32(28, thread);
    r.u32(32, correlation);
    r.u32(36, result as u32);
    r
}

/// A client's id attached to a call (kind 39). It has no times: `times_at` is 0 and ignored.
pub(crate) fn external(kind_of: u32, id: u64, correlation: u32) -> Record {
    let mut r = Record::new(kind::EXTERNAL_CORRELATION, 0);
    r.u32(4, kind_of);
    r.u64(8, id);
    r.u32(16, correlation);
    r
}

#[cfg(test)]
mod tests {
    use super::super::layout::record_size;
    use super::*;
    use cupti_sys::record::{Api, GraphTrace, Kernel, Memcpy, MemcpyPeer, Memset, Synchronization};
    use cupti_sys::Release;

    const PLACE: Place =
        Place { device: 1, context: 2, stream: 13, correlation: 99, graph: 4, node: (4 << 32) | 7 };

    #[test]
    fn sizes_are_those_of_the_bindings_which_are_held_against_the_real_libraries() {
        for (major, minor) in
            [(11, 8), (12, 2), (12, 4), (12, 8), (12, 9), (13, 0), (13, 1), (13, 3), (13, 4), (13, 5)]
        {
            let release = Release { major, minor: Some(minor), last_minor: Some(minor) };
            for kind in 1..kind::COUNT {
                let real = cupti_sys::record::size(kind, release);
                let ours = record_size(kind, u32::from(major) * 100 + u32::from(minor));
                assert!(real.is_none() || real == ours, "kind {kind} in {major}.{minor}: {real:?}, {ours:?}");
            }
        }
    }

    #[test]
    fn records_read_back_through_the_bindings() {
        let mut built = kernel(kind::CONCURRENT_KERNEL, PLACE, [264, 2, 1], [128, 1, 1], 0xabc0);
        built.set_times(10, 20);
        let seen = Kernel::read(built.bytes()).expect("a kernel");
        assert_eq!((seen.start, seen.end, seen.name, seen.correlation), (10, 20, 0xabc0, 99));
        assert_eq!((seen.device, seen.context, seen.stream), (1, 2, 13));
        assert_eq!((seen.grid_x, seen.grid_y, seen.block_x, seen.block_z), (264, 2, 128, 1));
        assert_eq!((seen.graph, seen.graph_node), (PLACE.graph, PLACE.node));

        let seen = Memcpy::read(memcpy(PLACE, 1, 1, 3, 4096, true).bytes()).expect("a copy");
        assert_eq!((seen.copy_kind, seen.source_kind, seen.destination_kind, seen.flags), (1, 1, 3, 1));
        assert_eq!((seen.bytes, seen.stream, seen.correlation, seen.graph), (4096, 13, 99, 4));

        let seen = MemcpyPeer::read(peer(PLACE, 512, 0, 1).bytes()).expect("a peer copy");
        assert_eq!(
            (seen.source_device, seen.destination_device, seen.bytes, seen.correlation),
            (0, 1, 512, 99)
        );
        assert_eq!((seen.graph, seen.graph_node), (4, PLACE.node));

        let seen = Memset::read(memset(PLACE, 5, 64).bytes()).expect("a memset");
        assert_eq!((seen.value, seen.bytes, seen.flags, seen.memory_kind), (5, 64, 1, 3));

        let seen = Synchronization::read(synchronization(3, 99, 2, 13, u32::MAX).bytes()).expect("a wait");
        assert_eq!((seen.sync_type, seen.correlation, seen.context, seen.stream), (3, 99, 2, 13));

        let mut built = api(kind::RUNTIME, 211, 77, 99, 0);
        built.set_times(1, 2);
        let seen = Api::read(built.bytes()).expect("a call");
        assert_eq!((seen.cbid, seen.start, seen.end, seen.thread, seen.correlation), (211, 1, 2, 77, 99));

        let seen = GraphTrace::read(graph(PLACE).bytes()).expect("a graph");
        assert_eq!((seen.correlation, seen.graph, seen.stream, seen.device), (99, 4, 13, 1));
    }
}

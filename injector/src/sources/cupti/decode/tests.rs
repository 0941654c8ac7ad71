// SPDX-License-Identifier: Apache-2.0
//! Each kind of record becomes the event it stands for; bytes that no CUPTI writes become none, or
//! one without harm.

use cupti_sys::record::{memcpy_kind, memory_kind};
use trace::reader::{Recording, Track};
use trace::Header;

use super::*;
use crate::store::image::Image;

/// Nodes and plain work, and what is asserted of both.
const NODES: [u64; 2] = [0, 77];
const TRACK: TrackInfo = TrackInfo::Stream { device: 3, context: 4, stream: 5 };

struct Reader {
    decoder: Decoder,
    store: Store,
}

impl Reader {
    fn new() -> Reader {
        Reader { decoder: Decoder::new(None), store: Store::new(Image::map(64 * 32 * 1024).unwrap()) }
    }

    fn record(&mut self, bytes: &[u8]) {
        let (capture, launches) = (&Capture::default(), &mut CapturedLaunches::default());
        let mut sink = Sink { store: &mut self.store, capture, launches, now: 1 };
        self.decoder.record(bytes, &mut sink);
    }

    fn total(&self, which: Total) -> u64 {
        self.decoder.totals[which as usize]
    }

    fn events(&mut self) -> Vec<(Track, Event)> {
        let (capture, launches) = (&Capture::default(), &mut CapturedLaunches::default());
        let mut sink = Sink { store: &mut self.store, capture, launches, now: 1 };
        self.decoder.end_of_reading(&mut sink);
        let header = Header { segments: self.store.image.segments(), ..Header::default() };
        self.store.image.put_header(&header.encode());
        let mut recording = Recording::open(&self.store.image).unwrap();
        let mut events = Vec::new();
        recording.for_each_event(&self.store.image, |t, e| events.push((t, *e)));
        assert_eq!(recording.problems, Default::default());
        events
    }

    /// The one event of one record.
    fn only(&mut self, kind: u32, write: impl Fn(&mut [u8]) -> bool) -> (Track, Event) {
        let mut bytes = [0; 248];
        assert!(record::set_kind(&mut bytes, kind) && write(&mut bytes));
        self.record(&bytes);
        let events = self.events();
        assert_eq!(events.len(), 1, "kind {kind}");
        events[0]
    }
}

/// The fields that the records of all work on the device share.
macro_rules! work {
    ($record:ident { $($field:ident: $value:expr),* }) => {
        record::$record {
            start: 1000, end: 1600, device: 3, context: 4, stream: 5, correlation: 6, graph: 9,
            $($field: $value,)* ..Default::default()
        }
    };
}

fn is_the_work(kind: Kind, node: u64, (track, e): (Track, Event)) -> Event {
    assert_eq!((track, e.kind), (Track::Of(TRACK), kind));
    assert_eq!((e.start, e.end, e.correlation, e.c), (1000, 1600, 6, 9), "{kind:?}");
    assert_eq!(e.flags & GRAPH_NODE != 0, node != 0, "{kind:?}");
    e
}

#[test]
fn kernels() {
    for node in NODES {
        let mut reader = Reader::new();
        let r = work!(Kernel { grid_x: 2, grid_y: 3, grid_z: 4, block_x: 32, graph_node: node });
        let e = is_the_work(Kind::Kernel, node, reader.only(kind::CONCURRENT_KERNEL, |b| r.write(b)));
        assert_eq!(e.b, 24, "blocks");
        assert_eq!((reader.total(Total::Kernels), reader.total(Total::KernelNs)), (1, 600));
        assert_eq!(reader.decoder.devices, 1 << 3);
    }
    let most = i32::MAX;
    let r = work!(Kernel { grid_x: most, grid_y: most, grid_z: most });
    let (_, e) = Reader::new().only(kind::CONCURRENT_KERNEL, |b| r.write(b));
    assert_eq!(e.b, u32::MAX, "more blocks than can be told");
}

#[test]
fn copies_within_a_device_and_between_two() {
    let wanted = |peer| Copy {
        bytes: 1 << 33,
        direction: memcpy_kind::DTOH as u8,
        source: memory_kind::DEVICE as u8,
        destination: memory_kind::PINNED as u8,
        peer,
    };
    for (node, flags) in NODES.into_iter().zip([0, record::flag::MEMCPY_ASYNC as u8]) {
        let copy = wanted(false);
        let (copy_kind, source_kind, destination_kind) = (copy.direction, copy.source, copy.destination);
        let within = work!(Memcpy {
            copy_kind: copy_kind,
            source_kind: source_kind,
            flags: flags,
            destination_kind: destination_kind,
            bytes: copy.bytes,
            graph_node: node
        });
        let between = work!(MemcpyPeer {
            copy_kind: copy_kind,
            source_kind: source_kind,
            flags: flags,
            destination_kind: destination_kind,
            bytes: copy.bytes,
            graph_node: node
        });
        for peer in [false, true] {
            let mut reader = Reader::new();
            let seen = match peer {
                false => reader.only(kind::MEMCPY, |b| within.write(b)),
                true => reader.only(kind::MEMCPY2, |b| between.write(b)),
            };
            let e = is_the_work(Kind::Memcpy, node, seen);
            assert_eq!(Copy::unpack(e.a, e.b), wanted(peer));
            assert_eq!(e.flags & COPY_ASYNC != 0, flags != 0);
            let totals = [Total::Copies, Total::CopyBytes, Total::CopyNs].map(|t| reader.total(t));
            assert_eq!(totals, [1, 1 << 33, 600]);
        }
    }
}

#[test]
fn memsets_and_whole_graphs() {
    for node in NODES {
        let mut reader = Reader::new();
        let r = work!(Memset { bytes: (7 << 32) + 8, graph_node: node });
        let e = is_the_work(Kind::Memset, node, reader.only(kind::MEMSET, |b| r.write(b)));
        assert_eq!((e.a, e.b, reader.total(Total::Memsets)), (8, 7, 1));
    }
    let r = record::GraphTrace {
        start: 1000,
        end: 1600,
        device: 3,
        context: 4,
        stream: 5,
        correlation: 6,
        graph: 9,
    };
    is_the_work(Kind::GraphTrace, 0, Reader::new().only(kind::GRAPH_TRACE, |b| r.write(b)));
}

#[test]
fn synchronizations_are_the_recorders() {
    let r = record::Synchronization {
        sync_type: 3,
        start: 1000,
        end: 1600,
        correlation: 6,
        stream: 5,
        event: 8,
        ..Default::default()
    };
    let (track, e) = Reader::new().only(kind::SYNCHRONIZATION, |b| r.write(b));
    assert_eq!((track, e.kind, e.start, e.end), (Track::Recorder, Kind::SyncRecord, 1000, 1600));
    assert_eq!((e.a, e.b, e.c, e.correlation), (3, 8, 5, 6));
}

#[test]
fn times_that_cannot_be_are_counted_and_not_drawn() {
    const SINCE_1970: u64 = 1_800_000_000_000_000_000;
    for (start, end, loss) in [
        (0, 0, Loss::ZeroTimestamp),
        (1000, 0, Loss::Unfinished),
        (1000, 999, Loss::BackwardTimestamp),
        (SINCE_1970, SINCE_1970 + 9, Loss::ForeignClock),
        (1000, SINCE_1970, Loss::ForeignClock),
    ] {
        let before = losses::get(loss);
        let mut reader = Reader::new();
        let mut bytes = [0; 248];
        record::set_kind(&mut bytes, kind::MEMCPY2);
        record::MemcpyPeer { start, end, ..Default::default() }.write(&mut bytes);
        reader.record(&bytes);
        assert!(losses::get(loss) > before, "{loss:?}");
        assert_eq!((reader.events().len(), reader.total(Total::Copies)), (0, 0), "{loss:?}");
    }
}

#[test]
fn bytes_that_no_cupti_writes() {
    let unknown = losses::get(Loss::RecordUnknown);
    let mut reader = Reader::new();
    let (mut state, mut sent) = (1u64, 0);
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    for kind in 0..80 {
        for fill in 0..60 {
            let mut bytes = [0; 248];
            match fill {
                0 => bytes.fill(0xff),
                1 => bytes.fill(0x7f),
                _ => bytes.iter_mut().for_each(|b| *b = random()),
            }
            record::set_kind(&mut bytes, kind);
            let length = if fill % 4 == 3 { usize::from(random()).min(248) } else { 248 };
            reader.record(&bytes[..length]);
            sent += 1;
        }
    }
    assert_eq!(reader.decoder.records, sent);
    let unknown = losses::get(Loss::RecordUnknown) - unknown;
    assert!(unknown > 60 * 60, "most kinds are none of ours: {unknown} of {sent}");
    for (_, e) in reader.events() {
        assert!(e.end >= e.start, "{e:?}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Builds a whole recording in memory: for tests, golden inputs and tools. The recorder itself
//! writes in place.

use std::collections::HashMap;

use crate::define::{
    CallerInfo, CapturedLaunch, Definition, DeviceInfo, FrameInfo, InModule, KernelInfo, Language,
    ModuleInfo, NativeStack, TrackInfo, MAX_RECORD,
};
use crate::event::{Event, Kind};
use crate::header::Header;
use crate::reader::Track;
use crate::segment::{
    SegmentHeader, SEGMENT_BYTES, SEGMENT_EVENTS, SEGMENT_HEADER_BYTES, SEGMENT_PAYLOAD, TRACK_DEFINITIONS,
    TRACK_RECORDER,
};

/// Collects definitions and events, then [`Builder::finish`] lays them out.
#[derive(Default)]
pub struct Builder {
    /// The header as it will be stored; `segments` and `segments_used` are filled in by `finish`.
    pub header: Header,
    definitions: Vec<u8>,
    strings: HashMap<Vec<u8>, u32>,
    kernels: HashMap<KernelInfo, u32>,
    tracks: Vec<(Track, u32, Vec<Event>)>,
    thread_names: HashMap<u32, u32>,
    next_id: u32,
}

impl Builder {
    /// An empty recording.
    pub fn new() -> Builder {
        Builder { next_id: 1, ..Builder::default() }
    }

    fn define(&mut self, id: u32, d: Definition<'_>) {
        let mut record = [0; MAX_RECORD];
        let n = d.encode(id, &mut record).unwrap_or(0);
        // a record never spans segments: zeros fill up to the boundary
        let room = SEGMENT_PAYLOAD - self.definitions.len() % SEGMENT_PAYLOAD;
        if n > room {
            self.definitions.resize(self.definitions.len() + room, 0);
        }
        self.definitions.extend_from_slice(&record[..n]);
    }

    fn fresh(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Id of a string.
    pub fn string(&mut self, s: &str) -> u32 {
        if let Some(&id) = self.strings.get(s.as_bytes()) {
            return id;
        }
        let id = self.fresh();
        self.strings.insert(s.as_bytes().to_vec(), id);
        self.define(id, Definition::String(s.as_bytes()));
        id
    }

    /// Id of a kernel with the given name, threads a block and registers.
    pub fn kernel(&mut self, name: &str, block: u32, registers: u32) -> u32 {
        self.graph_kernel(name, block, registers, 0)
    }

    /// As [`Builder::kernel`], of the node of a graph that this launch was captured as
    /// ([`Builder::captured`]; 0: not known).
    pub fn graph_kernel(&mut self, name: &str, block: u32, registers: u32, captured: u32) -> u32 {
        let name = self.string(name);
        let info = KernelInfo { name, block: [block, 1, 1], registers, captured, ..KernelInfo::default() };
        if let Some(&id) = self.kernels.get(&info) {
            return id;
        }
        let id = self.fresh();
        self.kernels.insert(info, id);
        self.define(id, Definition::Kernel(info));
        id
    }

    /// Id of a Python call stack: function, file and line of each frame, innermost first.
    pub fn stack(&mut self, frames: &[(&str, &str, u32)]) -> u32 {
        let frames: Vec<_> =
            frames.iter().map(|&(f, file, line)| (Language::Python, f, file, line)).collect();
        self.frames(&frames)
    }

    /// Id of a call stack: language, function, file and line of each frame, innermost first.
    pub fn frames(&mut self, frames: &[(Language, &str, &str, u32)]) -> u32 {
        let mut bytes = Vec::new();
        for &(language, function, file, line) in frames {
            let (function, file) = (self.string(function), self.string(file));
            let id = self.fresh();
            let frame = FrameInfo { language, function, file, line };
            self.define(id, Definition::Frame(frame));
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        let id = self.fresh();
        self.define(id, Definition::Stack(&bytes));
        id
    }

    /// Puts a stack into a module of PyTorch's.
    pub fn in_module(&mut self, stack: u32, path: &str, class: &str) {
        let path = if path.is_empty() { 0 } else { self.string(path) };
        let class = self.string(class);
        self.define(stack, Definition::InModule(InModule { path, class }));
    }

    /// Id of the stack of a call that machine code made: its module (path and build id, loaded at
    /// `base`), and the return address as one of the module's file.
    pub fn caller(&mut self, (path, build_id, base): (&str, &str, u64), offset: u64) -> u32 {
        let (path, build_id) = (self.string(path), self.string(build_id));
        let (module, frame, stack) = (self.fresh(), self.fresh(), self.fresh());
        self.define(module, Definition::Module(ModuleInfo { path, build_id, base }));
        self.define(frame, Definition::Caller(CallerInfo { module, module_only: false, offset }));
        self.define(stack, Definition::Stack(&frame.to_le_bytes()));
        stack
    }

    /// By which machine code a line comes to what it puts on the GPU.
    pub fn native(&mut self, info: NativeStack) {
        let id = self.fresh();
        self.define(id, Definition::Native(info));
    }

    /// Id of launches that were captured alike.
    pub fn captured(&mut self, launch: CapturedLaunch) -> u32 {
        let id = self.fresh();
        self.define(id, Definition::Captured(launch));
        id
    }

    /// Describes a device in full.
    pub fn device_info(&mut self, ordinal: u32, info: DeviceInfo) {
        self.define(ordinal, Definition::Device(info));
    }

    /// Describes a device.
    pub fn device(&mut self, ordinal: u32, name: &str, multiprocessors: u32) {
        let name = self.string(name);
        self.define(
            ordinal,
            Definition::Device(DeviceInfo {
                multiprocessors,
                name,
                compute_major: 9,
                ..DeviceInfo::default()
            }),
        );
    }

    /// A free-form fact.
    pub fn attribute(&mut self, key: &str, value: &str) {
        let (k, v) = (self.string(key), self.string(value));
        self.define(0, Definition::Attribute(k, v));
    }

    /// Adds an event to a stream.
    pub fn on_stream(&mut self, device: u32, context: u32, stream: u32, event: Event) {
        self.push(Track::Of(TrackInfo::Stream { device, context, stream }), event);
    }

    /// Names a host thread, before its first event.
    pub fn name_thread(&mut self, tid: u32, name: &str) {
        let name = self.string(name);
        self.thread_names.insert(tid, name);
    }

    /// Adds an event to a host thread.
    pub fn on_thread(&mut self, tid: u32, event: Event) {
        let name = self.thread_names.get(&tid).copied().unwrap_or(0);
        self.push(Track::Of(TrackInfo::Thread { tid, name }), event);
    }

    /// Adds an event of the recorder itself.
    pub fn on_recorder(&mut self, event: Event) {
        self.push(Track::Recorder, event);
    }

    fn push(&mut self, track: Track, event: Event) {
        if let Some((_, _, events)) = self.tracks.iter_mut().find(|(t, _, _)| *t == track) {
            events.push(event);
            return;
        }
        let id = match track {
            Track::Recorder => TRACK_RECORDER,
            Track::Of(info) => {
                let id = self.fresh();
                self.define(id, Definition::Track(info));
                id
            }
        };
        self.tracks.push((track, id, vec![event]));
    }

    /// The bytes. Unset header times are derived from the events: recording begins at the first
    /// start and is complete to the last end.
    pub fn finish(mut self) -> Vec<u8> {
        let all = || self.tracks.iter().flat_map(|(_, _, e)| e).filter(|e| e.kind != Kind::ClockPair);
        let first = all().map(|e| e.start).min().unwrap_or(0);
        let last = all().map(|e| e.end).max().unwrap_or(0);
        let h = &mut self.header;
        for field in [&mut h.start_monotonic, &mut h.first_use] {
            *field = if *field == 0 { first } else { *field };
        }
        for field in [&mut h.gpu_complete_to, &mut h.host_complete_to, &mut h.last_write] {
            *field = if *field == 0 { last } else { *field };
        }
        if h.state == 0 {
            h.state = crate::header::state::CLOSED;
        }
        let mut body = Vec::new();
        let mut number = 0;
        let mut segment = |head: SegmentHeader, payload: &[u8]| {
            number += 1;
            for w in (SegmentHeader { number, generation: 2, ..head }).encode() {
                body.extend_from_slice(&w.to_le_bytes());
            }
            body.extend_from_slice(payload);
            body.resize(body.len().next_multiple_of(SEGMENT_BYTES), 0);
        };
        for chunk in self.definitions.chunks(SEGMENT_PAYLOAD) {
            let used = whole_records(chunk);
            segment(
                SegmentHeader { track: TRACK_DEFINITIONS, used: used as u32, ..SegmentHeader::default() },
                &chunk[..used],
            );
        }
        for (_, id, events) in &self.tracks {
            for chunk in events.chunks(SEGMENT_EVENTS) {
                let payload: Vec<u8> =
                    chunk.iter().flat_map(|e| e.encode()).flat_map(u64::to_le_bytes).collect();
                let head = SegmentHeader {
                    track: *id,
                    used: chunk.len() as u32,
                    first_start: chunk.iter().map(|e| e.start).min().unwrap_or(0),
                    last_end: chunk.iter().map(|e| e.end).max().unwrap_or(0),
                    ..SegmentHeader::default()
                };
                segment(head, &payload);
            }
        }
        self.header.segments = (body.len() / SEGMENT_BYTES) as u32;
        self.header.segments_used = self.header.segments;
        let mut out = self.header.encode().to_vec();
        debug_assert_eq!(body.len() % SEGMENT_BYTES, 0);
        debug_assert!(body.is_empty() || body.len() >= SEGMENT_HEADER_BYTES);
        out.extend_from_slice(&body);
        out
    }
}

/// Bytes of `chunk` up to the end of its last whole record (filler zeros excluded).
fn whole_records(chunk: &[u8]) -> usize {
    let mut at = 0;
    while let Some((_, _, n)) = chunk.get(at..).and_then(Definition::decode) {
        at += n;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_BYTES;
    use crate::reader::{Recording, Source};

    #[test]
    fn what_is_built_is_read_back_in_order() {
        let mut b = Builder::new();
        let k = b.kernel("gemm", 256, 64);
        b.device(0, "SIM", 132);
        b.attribute("cupti.path", "/x");
        for i in 0..3 * SEGMENT_EVENTS as u64 {
            let mut e = Event::new(Kind::Kernel, 1000 + i * 10, 1005 + i * 10);
            e.a = k;
            b.on_stream(0, 1, 7, e);
        }
        for i in 0..5000 {
            b.string(&format!("name number {i} that makes the definitions longer than one segment"));
        }
        b.on_recorder(Event::clock_pair(1000, 5_000_000));
        let bytes = b.finish();
        let mut r = Recording::open(bytes.as_slice()).unwrap();
        let mut starts = Vec::new();
        let mut pairs = 0;
        r.for_each_event(bytes.as_slice(), |t, e| match t {
            Track::Recorder => pairs += u64::from(e.realtime() == 5_000_000),
            _ => starts.push(e.start),
        });
        assert_eq!(r.problems, Default::default());
        assert_eq!((starts.len(), pairs), (3 * SEGMENT_EVENTS, 1));
        assert!(starts.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(r.definitions.kernel_name(k), "gemm");
        assert_eq!(r.definitions.device(0).unwrap().multiprocessors, 132);
        assert_eq!(r.definitions.attributes().collect::<Vec<_>>(), [("cupti.path", "/x")]);
        assert_eq!(r.header.gpu_complete_to, 1005 + (3 * SEGMENT_EVENTS as u64 - 1) * 10);
    }

    #[test]
    fn a_recording_cut_at_any_byte_is_read_as_far_as_it_goes() {
        let mut b = Builder::new();
        for i in 0..2000 {
            b.on_stream(0, 1, 7, Event::new(Kind::Memset, i, i + 1));
        }
        let bytes = b.finish();
        let boundaries = (4096..bytes.len()).step_by(SEGMENT_BYTES);
        for cut in (0..bytes.len()).step_by(997).chain(boundaries) {
            match Recording::open(&bytes[..cut]) {
                Err(e) => assert!(cut < 4096, "{e}"),
                Ok(mut r) => {
                    let mut n = 0;
                    r.for_each_event(&bytes[..cut], |_, _| n += 1);
                    assert!(n == 2000 || r.problems.cut_segments > 0, "{n} events of {cut} bytes");
                }
            }
        }
    }

    /// A file that its process goes on writing: more segments, then the header that counts them, at
    /// every look at the header.
    struct Growing {
        whole: Vec<u8>,
        looks: std::cell::Cell<u32>,
    }

    impl Source for Growing {
        fn len(&self) -> u64 {
            (HEADER_BYTES + SEGMENT_BYTES * self.looks.get() as usize) as u64
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
            let from = offset as usize;
            if from == 0 {
                self.looks.set(self.looks.get() + 1);
                let mut header = Header::decode(self.whole[..HEADER_BYTES].try_into().unwrap()).unwrap();
                header.segments_used = self.looks.get();
                out.copy_from_slice(&header.encode()[..out.len()]);
                return true;
            }
            let Some(there) = self.whole[..self.len() as usize].get(from..from + out.len()) else {
                return false;
            };
            out.copy_from_slice(there);
            true
        }
    }

    #[test]
    fn a_recording_that_grows_while_it_is_opened_is_not_cut_off() {
        let mut b = Builder::new();
        for i in 0..4 * SEGMENT_EVENTS as u64 {
            b.on_stream(0, 1, 7, Event::new(Kind::Memset, i, i + 1));
        }
        let source = Growing { whole: b.finish(), looks: std::cell::Cell::new(2) };
        for more in 1..=2 {
            let r = Recording::open(&source).unwrap();
            assert_eq!((r.problems, source.looks.get()), (Default::default(), 2 + more));
            assert!(r.event_bound() >= u64::from(more) * SEGMENT_EVENTS as u64, "{}", r.event_bound());
        }
    }
}

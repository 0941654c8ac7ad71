// SPDX-License-Identifier: Apache-2.0
//! Fills a [`Run`] from any source of bytes: read, sorted, ops joined to their launching calls.
//!
//! Every event is checked before it is kept; what does not fit is counted in `Run.problems`.

pub mod array_waits;
mod autograd;
mod captured;
mod clock_drift;
mod damaged_calls;
mod finish;
pub mod missing_kernels;

use std::collections::HashMap;

use trace::call::Class;
use trace::define::TrackInfo;
use trace::event::{FROM_RECORD, PAYLOAD};
use trace::reader::Track;
use trace::{Event, Kind, Recording, Source};

use crate::run::{
    Call, Child, ChildSample, Device, LoadError, LossMark, Mark, Op, Range, RangeKind, Reading, Run, Sample,
    Span, Stream, SyncRecord, Thread, UnobservedSpan, MAX_TIME, NONE,
};
use autograd::{BackwardNode, Made, Nodes, Origin};
pub use finish::finish;

/// Slots of the histogram by which [`load_newest`] chooses what to leave out.
const SLOTS: usize = 4096;

/// Reads a recording into a [`Run`].
///
/// Reads every event twice (once to count, so that nothing is allocated beyond what is kept).
pub fn load<S: Source + ?Sized>(source: &S) -> Result<Run, LoadError> {
    load_newest(source, u64::MAX)
}

/// Reads at most about `most` events (GPU ops, calls, ranges, marks), the newest: 40 bytes each,
/// and about as much again while they are analysed. What is left out counts as overwritten:
/// `header.valid_from` moves to where the kept part begins.
pub fn load_newest<S: Source + ?Sized>(source: &S, most: u64) -> Result<Run, LoadError> {
    load_window(source, &Window { most, ..Window::default() })
}

/// A part of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// What is believed of it, and said to have been seen: the recording's valid span, cut to this.
    pub valid: Span,
    /// What lies so far before and behind is loaded as well, ns: the calls that launched its first
    /// operations, the mark that ends its last step.
    pub margin: u64,
    /// About so many events at most, the newest.
    pub most: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window { valid: Span { start: 0, end: u64::MAX }, margin: 0, most: u64::MAX }
    }
}

/// Reads a part of a recording. Of segments that lie outside of it only the header is read.
pub fn load_window<S: Source + ?Sized>(source: &S, window: &Window) -> Result<Run, LoadError> {
    let most = window.most;
    let (begin, until) =
        (window.valid.start.saturating_sub(window.margin), window.valid.end.saturating_add(window.margin));
    let mut recording = Recording::open(source)?;
    let skipped = recording.keep(begin, until);
    let mut counts: HashMap<Track, [usize; 4]> = HashMap::new();
    let mut last: Option<(Track, [usize; 4])> = None;
    let bound = recording.event_bound();
    let opened = recording.problems;
    let newest = if bound > most { newest(&mut recording, source, begin, most) } else { 0 };
    let from = newest.max(begin);
    let h = &mut recording.header;
    h.valid_from = h.valid_from.max(newest).max(window.valid.start);
    for complete_to in [&mut h.gpu_complete_to, &mut h.host_complete_to] {
        *complete_to = (*complete_to).min(window.valid.end);
    }
    recording.for_each_event(source, |track, e| {
        // (marks of losses are few, and tell how much was lost before, too)
        if (e.end < from || e.start > until) && e.kind != Kind::LossMark {
            return;
        }
        let slot = slot(e.kind);
        match &mut last {
            Some((t, n)) if *t == track => n[slot] += 1,
            _ => {
                if let Some((t, n)) = last.take() {
                    counts.insert(t, n);
                }
                let mut n = counts.get(&track).copied().unwrap_or_default();
                n[slot] += 1;
                last = Some((track, n));
            }
        }
    });
    if let Some((t, n)) = last {
        counts.insert(t, n);
    }
    recording.problems = opened; // the second pass counts them again
    let mut loader = Loader { room: counts, from, until, ..Loader::default() };
    loader.run.events = skipped;
    loader.run.left_out = skipped;
    recording.for_each_event(source, |track, e| loader.take(track, e));
    debug_assert!(loader.run.events <= bound + skipped);
    let Loader { mut run, mut nodes, .. } = loader;
    let unfit = run.problems.bad_events;
    run.problems = recording.problems;
    run.problems.bad_events += unfit;
    run.header = recording.header;
    let h = &mut run.header;
    for time in [
        &mut h.start_monotonic,
        &mut h.last_write,
        &mut h.valid_from,
        &mut h.gpu_complete_to,
        &mut h.host_complete_to,
        &mut h.exit_monotonic,
        &mut h.first_use,
    ] {
        *time = (*time).min(MAX_TIME);
    }
    run.definitions = recording.definitions;
    finish(&mut run);
    nodes.sort();
    for thread in &mut run.threads {
        nodes.tell(thread, &mut run.definitions);
    }
    Ok(run)
}

/// The time from which on there are at most `most` events, by a histogram over the recorded time.
fn newest<S: Source + ?Sized>(recording: &mut Recording, source: &S, from: u64, most: u64) -> u64 {
    let begin = recording.header.start_monotonic.max(from).min(MAX_TIME);
    let end = recording.header.last_write.max(recording.header.gpu_complete_to).clamp(begin, MAX_TIME);
    let width = ((end - begin) / SLOTS as u64).max(1);
    let mut ends = vec![0u64; SLOTS + 1];
    recording.for_each_event(source, |_, e| {
        let slot = (e.end.saturating_sub(begin) / width).min(SLOTS as u64);
        if let Some(n) = ends.get_mut(slot as usize) {
            *n += 1;
        }
    });
    let mut kept = 0u64;
    let fits = ends.iter().rev().take_while(|&&n| {
        kept += n;
        kept <= most
    });
    let first = (SLOTS + 1).saturating_sub(fits.count()) as u64;
    begin.saturating_add(first.saturating_mul(width)).max(1)
}

/// Which of a track's vectors an event goes to.
fn slot(kind: Kind) -> usize {
    match kind {
        k if k.is_device_work() => 0,
        Kind::Call => 1,
        Kind::Range => 2,
        _ => 3,
    }
}

/// Device, context and stream id.
type StreamKey = (u32, u32, u32);
/// Index of a device in the run, of a stream in the device.
type Place = (usize, usize);

#[derive(Default)]
struct Loader {
    run: Run,
    room: HashMap<Track, [usize; 4]>,
    streams: HashMap<StreamKey, Place>,
    devices: HashMap<u32, usize>,
    threads: HashMap<u32, usize>,
    /// The stream and the thread of the event before: the next is of the same one, but once a
    /// segment.
    last_stream: Option<(StreamKey, Place)>,
    last_thread: Option<(u32, usize)>,
    nodes: Nodes,
    /// Events that end before this are left out.
    from: u64,
    /// And those that begin after this.
    until: u64,
}

impl Loader {
    fn take(&mut self, track: Track, e: &Event) {
        self.run.events += 1;
        if e.end > MAX_TIME {
            self.run.problems.bad_events += 1;
            return;
        }
        if (e.end < self.from || e.start > self.until) && track != Track::Recorder {
            self.run.left_out += 1;
            return;
        }
        match track {
            Track::Recorder => self.take_recorder(e),
            Track::Of(TrackInfo::Stream { device, context, stream }) => {
                self.take_stream(track, (device, context, stream), e)
            }
            Track::Of(TrackInfo::Thread { tid, name }) => self.take_thread(track, tid, name, e),
        }
    }

    fn take_recorder(&mut self, e: &Event) {
        match e.kind {
            Kind::ClockPair => self.run.clocks.push((e.start, e.realtime())),
            Kind::Unobserved => {
                self.run.blind.push(UnobservedSpan { span: Span::new(e.start, e.end), reason: e.a });
            }
            Kind::LossMark => {
                let span = Span::new(e.start, e.end);
                self.run.loss_marks.push(LossMark { span, code: e.a, count: e.b, before: e.c });
            }
            Kind::SyncRecord => self.run.waits.push(sync_record(e)),
            Kind::Process => self.run.children.push(Child {
                span: Span::new(e.start, e.end),
                pid: e.a,
                on_cpu: e.b as u16,
                on_disk: (e.b >> 16) as u16,
                read_kib: e.c,
                run_queue: e.correlation.min(u32::from(u16::MAX)) as u16,
            }),
            Kind::ChildSample => self.run.child_samples.push(ChildSample {
                span: Span::new(e.start, e.end),
                pid: e.b,
                stack: e.a,
                waits: (e.c >> 16).checked_sub(1),
                bits: e.x,
            }),
            Kind::Gauge => self.run.readings.push(Reading {
                span: Span::new(e.start, e.end),
                gauge: e.a,
                device: e.x,
                value: u64::from(e.b) | u64::from(e.c) << 32,
            }),
            _ => self.run.problems.bad_events += 1,
        }
    }

    fn device(&mut self, ordinal: u32) -> usize {
        let devices = &mut self.run.devices;
        *self.devices.entry(ordinal).or_insert_with(|| {
            devices.push(Device { ordinal, ..Device::default() });
            devices.len() - 1
        })
    }

    /// Device and stream index of a track, made where it is new.
    fn stream(&mut self, track: Track, key: StreamKey) -> Place {
        if let Some((_, at)) = self.last_stream.filter(|l| l.0 == key) {
            return at;
        }
        let device = self.device(key.0);
        let (room, devices) = (&self.room, &mut self.run.devices);
        let at = *self.streams.entry(key).or_insert_with(|| {
            let n = room.get(&track).map_or(0, |n| n[0]);
            let streams = devices.get_mut(device).map(|d| &mut d.streams);
            let stream = Stream { context: key.1, stream: key.2, ops: Vec::with_capacity(n) };
            streams.map_or((device, 0), |s| {
                s.push(stream);
                (device, s.len() - 1)
            })
        });
        self.last_stream = Some((key, at));
        at
    }

    fn take_stream(&mut self, track: Track, key: StreamKey, e: &Event) {
        if e.kind == Kind::SyncRecord {
            self.device(key.0);
            self.run.waits.push(sync_record(e));
            return;
        }
        if !e.kind.is_device_work() {
            self.device(key.0);
            self.run.problems.bad_events += 1;
            return;
        }
        let (device, index) = self.stream(track, key);
        let Some(d) = self.run.devices.get_mut(device) else { return };
        if let Some(s) = d.streams.get_mut(index) {
            s.ops.push(Op {
                start: e.start,
                end: e.end,
                correlation: e.correlation,
                a: e.a,
                b: e.b,
                graph: e.c,
                call: NONE,
                captured: 0,
                kind: e.kind,
                flags: e.flags,
            });
        }
    }

    /// Index of a thread, made where it is new.
    fn thread(&mut self, track: Track, tid: u32, name: u32) -> usize {
        if let Some((_, index)) = self.last_thread.filter(|l| l.0 == tid) {
            return index;
        }
        let (threads, room) = (&mut self.run.threads, &self.room);
        let index = *self.threads.entry(tid).or_insert_with(|| {
            let n = room.get(&track).copied().unwrap_or_default();
            threads.push(Thread {
                tid,
                name,
                calls: Vec::with_capacity(n[1]),
                ranges: Vec::with_capacity(n[2]),
                ..Thread::default()
            });
            threads.len() - 1
        });
        self.last_thread = Some((tid, index));
        index
    }

    fn take_thread(&mut self, track: Track, tid: u32, name: u32, e: &Event) {
        let index = self.thread(track, tid, name);
        let Some(t) = self.run.threads.get_mut(index) else { return };
        if name != 0 {
            t.name = name;
        }
        match e.kind {
            Kind::Call => t.calls.push(Call {
                start: e.start,
                end: e.end,
                correlation: e.correlation,
                packed: e.a,
                result: e.b,
                site: if e.flags & FROM_RECORD == 0 { e.c } else { 0 },
                class: Class::from_u8(e.x),
                flags: e.flags,
            }),
            Kind::Range => {
                t.ranges.push(Range {
                    span: Span::new(e.start, e.end),
                    name: e.a,
                    depth: e.x,
                    flags: e.flags,
                    kind: RangeKind::User,
                    domain: e.b,
                    payload: (e.flags & PAYLOAD != 0)
                        .then(|| u64::from(e.correlation) | u64::from(e.c) << 32),
                });
            }
            Kind::Step => t.marks.push(Mark { span: Span::new(e.start, e.end), number: e.a, flags: e.flags }),
            Kind::Sample => t.samples.push(Sample {
                span: Span::new(e.start, e.end),
                stack: e.a,
                syscall: e.b.checked_sub(1),
                on_cpu: e.c as u16,
                run_queue: (e.c >> 16) as u16,
                bits: e.x,
            }),
            Kind::ForwardNode => {
                self.nodes.made.insert(origin(e), Made { thread: tid, at: e.start, stack: e.c });
            }
            Kind::BackwardNode => {
                let (span, origin) = (Span::new(e.start, e.end), origin(e));
                let node = BackwardNode { span, origin, stack: e.c, kind: e.a, latest: 0 };
                self.nodes.evaluated.entry(tid).or_default().push(node);
            }
            Kind::SyncRecord => self.run.waits.push(sync_record(e)),
            _ => self.run.problems.bad_events += 1,
        }
    }
}

/// Of a node of PyTorch's.
fn origin(e: &Event) -> Origin {
    Origin { thread: e.correlation, number: e.b }
}

fn sync_record(e: &Event) -> SyncRecord {
    SyncRecord {
        span: Span::new(e.start, e.end),
        correlation: e.correlation,
        what: e.a,
        event: e.b,
        stream: e.c,
    }
}

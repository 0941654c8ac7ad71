// SPDX-License-Identifier: Apache-2.0
//! The tracks of a trace: what stands on which, their numbers (`tid`) in the order of display,
//! their names. Numbers are our own: real thread ids would mix with the numbers of streams; they
//! are in the names.

use std::io::Write;

use super::json::put_text;
use super::lane::{Flat, Nested};
use super::output::Output;
use super::texts::Texts;
use super::WriteError;
use crate::analysis::Analysis;
use crate::run::{Run, Stream, SyncRecord};

/// A track and its extra lanes: consecutive numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// What it is called.
    pub(super) name: String,
    /// `tid` of each lane.
    pub(super) lanes: Vec<u32>,
    /// Whose it is, where it is a thread's: all its tracks say so, and who reads the trace joins
    /// them again.
    of: Option<Of>,
}

/// A thread of the run.
#[derive(Clone, Debug)]
struct Of {
    /// Index in the run: numbers of threads may come twice, in a trace of several processes.
    thread: usize,
    /// Kernel thread id.
    tid: u32,
    /// As the recording has it.
    name: Option<Box<str>>,
}

impl Track {
    /// `tid` of a lane; a lane nobody counted goes to the last.
    pub(super) fn lane(&self, lane: usize) -> u32 {
        self.lanes.get(lane).or(self.lanes.last()).copied().unwrap_or(0)
    }
}

/// The tracks of one stream.
pub(super) struct StreamTracks {
    /// Kernels, copies, memsets.
    pub(super) work: Track,
    /// Collectives.
    pub(super) collectives: Track,
}

/// The tracks of one device.
pub(super) struct DeviceTracks {
    /// Why it is idle.
    pub(super) idle: Track,
    /// By stream.
    pub(super) streams: Vec<StreamTracks>,
}

/// The tracks of one host thread.
pub(super) struct ThreadTracks {
    /// API calls.
    pub(super) calls: Track,
    /// Named ranges.
    pub(super) ranges: Track,
}

/// All tracks.
pub(super) struct Tracks {
    /// `pid` of the process they belong to.
    pub(super) pid: u32,
    /// Steps.
    pub(super) steps: Track,
    /// By device.
    pub(super) devices: Vec<DeviceTracks>,
    /// By thread.
    pub(super) threads: Vec<ThreadTracks>,
    /// Waits of streams for one another.
    pub(super) waits: Track,
}

impl Tracks {
    /// Counts lanes (one look at every event) and numbers the tracks.
    pub(super) fn new(run: &Run, analysis: &Analysis, texts: &Texts<'_>) -> Tracks {
        // a process that says pid 0 would be merged with Perfetto's idle process
        let pid = run.header.pid.max(1);
        let mut numbers = Numbers { next: 1, pid };
        let several = run.devices.len() > 1;
        let mut steps = Flat::default();
        for s in analysis.steps.all() {
            steps.place(s.span.start, s.span.end);
        }
        let steps = numbers.track("steps".into(), steps.count());
        let mut devices = Vec::with_capacity(run.devices.len());
        for (i, device) in run.devices.iter().enumerate() {
            let prefix = if several { format!("GPU {} ", device.ordinal) } else { String::new() };
            let mut idle = Flat::default();
            for slice in idle_spans(analysis, i) {
                idle.place(slice.0, slice.1);
            }
            let idle = numbers.track(format!("{prefix}why idle"), idle.count());
            let contexts = device.streams.iter().any(|s| s.context != device.streams[0].context);
            let streams = device
                .streams
                .iter()
                .map(|s| {
                    let name = match contexts {
                        true => format!("{prefix}stream {} context {}", s.stream, s.context),
                        false => format!("{prefix}stream {}", s.stream),
                    };
                    let (work, collectives) = lanes(s, texts);
                    StreamTracks {
                        work: numbers.track(name.clone(), work),
                        collectives: numbers.track(format!("{name} collectives"), collectives),
                    }
                })
                .collect();
            devices.push(DeviceTracks { idle, streams });
        }
        let threads = run
            .threads
            .iter()
            .enumerate()
            .map(|(index, t)| {
                let of = Some(Of {
                    thread: index,
                    tid: t.tid,
                    name: run.definitions.string(t.name).map(Into::into),
                });
                let number = format!("thread {}", t.tid);
                let who = match run.definitions.string(t.name) {
                    // torch.profiler's names have the number in them
                    Some(name) if has_number(name, &number) => name.to_owned(),
                    Some(name) => format!("{number} {name}"),
                    None => number,
                };
                let (mut calls, mut ranges) = (Nested::default(), Nested::default());
                for c in &t.calls {
                    calls.place(c.start, c.end);
                }
                for r in &t.ranges {
                    ranges.place(r.span.start, r.span.end);
                }
                // marks are moments: they stand on any lane
                let moments = !t.marks.is_empty() || !t.moments.is_empty();
                let ranges = ranges.count().max(usize::from(moments));
                ThreadTracks {
                    ranges: Track { of: of.clone(), ..numbers.track(format!("{who} ranges"), ranges) },
                    calls: Track { of, ..numbers.track(format!("{who} CUDA API"), calls.count()) },
                }
            })
            .collect();
        let mut waits = Flat::default();
        for w in stream_waits(run) {
            waits.place(w.span.start, w.span.end);
        }
        let waits = numbers.track("stream waits".into(), waits.count());
        Tracks { pid, steps, devices, threads, waits }
    }

    /// Writes the names of all tracks.
    pub(super) fn write_names<W: Write>(&self, out: &mut Output<W>) -> Result<(), WriteError> {
        self.write_name(out, &self.steps)?;
        for d in &self.devices {
            self.write_name(out, &d.idle)?;
            for s in &d.streams {
                self.write_name(out, &s.work)?;
                self.write_name(out, &s.collectives)?;
            }
        }
        for t in &self.threads {
            self.write_name(out, &t.ranges)?;
            self.write_name(out, &t.calls)?;
        }
        self.write_name(out, &self.waits)?;
        Ok(())
    }

    fn write_name<W: Write>(&self, out: &mut Output<W>, track: &Track) -> Result<(), WriteError> {
        for (i, &tid) in track.lanes.iter().enumerate() {
            for (what, key) in
                [("thread_name", &b"\"name\":"[..]), ("thread_sort_index", &b"\"sort_index\":"[..])]
            {
                out.number(b"{\"ph\":\"M\",\"pid\":", u64::from(self.pid));
                out.number(b",\"tid\":", u64::from(tid));
                out.put(b",\"name\":\"");
                out.put(what.as_bytes());
                out.put(b"\",\"args\":{");
                match (what, i) {
                    ("thread_sort_index", _) => out.number(key, u64::from(tid)),
                    (_, 0) => {
                        out.put(key);
                        put_text(&mut out.block, &track.name);
                    }
                    _ => {
                        out.put(key);
                        put_text(&mut out.block, &format!("{} ({})", track.name, i + 1));
                    }
                }
                if let Some(of) = track.of.as_ref().filter(|_| what == "thread_name") {
                    out.number(b",\"thread\":", of.thread as u64);
                    out.number(b",\"os tid\":", u64::from(of.tid));
                    if let Some(name) = &of.name {
                        out.put(b",\"os name\":");
                        put_text(&mut out.block, name);
                    }
                }
                out.put(b"}");
                out.end()?;
            }
        }
        Ok(())
    }
}

/// `name` begins with `number`, and the number ends there.
fn has_number(name: &str, number: &str) -> bool {
    name.strip_prefix(number).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A stream waits for an event of another; its other waits are calls (`load/`).
pub(super) fn stream_waits(run: &Run) -> impl Iterator<Item = &SyncRecord> {
    run.waits.iter().filter(|w| is_stream_wait(w))
}

pub(super) fn is_stream_wait(wait: &SyncRecord) -> bool {
    wait.what == 2
}

/// Begin and end of everything on the idle track of device `index`, by begin: idle slices and
/// unobserved spans.
pub(super) fn idle_spans(
    analysis: &Analysis,
    index: usize,
) -> impl Iterator<Item = (u64, u64, IdleItem)> + '_ {
    let slices = analysis.devices.get(index).map_or(&[][..], |d| &d.slices);
    let mut slices = slices.iter().enumerate().map(|(i, s)| (s.start, s.end, IdleItem::Slice(i))).peekable();
    let mut blind = analysis
        .blind
        .iter()
        .enumerate()
        .map(|(i, b)| (b.span.start, b.span.end, IdleItem::Unobserved(i)))
        .peekable();
    std::iter::from_fn(move || match (slices.peek(), blind.peek()) {
        (Some(s), Some(b)) if b.0 < s.0 => blind.next(),
        (None, Some(_)) => blind.next(),
        _ => slices.next(),
    })
}

/// A slice of the idle track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IdleItem {
    /// `DeviceAnalysis::slices` at this index.
    Slice(usize),
    /// `Analysis::blind` at this index.
    Unobserved(usize),
}

/// Hands out track numbers.
struct Numbers {
    next: u32,
    pid: u32,
}

impl Numbers {
    fn track(&mut self, name: String, lanes: usize) -> Track {
        let lanes = (0..lanes)
            .map(|_| {
                // the thread whose number is the process's is its main thread to every viewer
                self.next += u32::from(self.next == self.pid);
                self.next += 1;
                self.next - 1
            })
            .collect();
        Track { name, lanes, of: None }
    }
}

/// Lanes that the work and the collectives of a stream need.
fn lanes(stream: &Stream, texts: &Texts<'_>) -> (usize, usize) {
    let (mut work, mut collectives) = (Flat::default(), Flat::default());
    for op in &stream.ops {
        match texts.is_collective(op) {
            true => collectives.place(op.start, op.end),
            false => work.place(op.start, op.end),
        };
    }
    (work.count(), collectives.count())
}

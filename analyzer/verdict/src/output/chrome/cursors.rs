// SPDX-License-Identifier: Apache-2.0
//! How far the streams, threads and waits of a run have been written, and which lanes are taken
//! there.

use super::lane::{Flat, Nested};
use super::texts::Texts;
use super::tracks::is_stream_wait;
use crate::run::{Op, Run, NONE};

/// How far all streams and threads have been written.
#[derive(Clone)]
pub(super) struct Cursors {
    pub(super) streams: Vec<StreamCursor>,
    pub(super) threads: Vec<ThreadCursor>,
    pub(super) waits: WaitCursor,
}

/// How far the waits of streams have been written.
#[derive(Clone, Default)]
pub(super) struct WaitCursor {
    pub(super) next: usize,
    pub(super) lanes: Flat,
}

impl Cursors {
    pub(super) fn new(run: &Run) -> Cursors {
        let mut streams: Vec<StreamCursor> = Vec::new();
        for (device, d) in run.devices.iter().enumerate() {
            streams.extend((0..d.streams.len()).map(|stream| StreamCursor::new(run, device, stream)));
        }
        let of = |thread| ThreadCursor { thread, ..ThreadCursor::default() };
        Cursors { streams, threads: (0..run.threads.len()).map(of).collect(), waits: WaitCursor::default() }
    }

    /// Goes on to `until` and writes nothing.
    pub(super) fn pass_over(&mut self, run: &Run, texts: &Texts<'_>, until: u64) {
        for cursor in &mut self.streams {
            let stream = run.devices.get(cursor.device).and_then(|d| d.streams.get(cursor.stream));
            let ops = stream.map_or(&[][..], |s| &s.ops);
            while let Some(op) = ops.get(cursor.next).filter(|o| o.start <= until) {
                cursor.step(op, texts.is_collective(op));
            }
        }
        for cursor in &mut self.threads {
            let Some(thread) = run.threads.get(cursor.thread) else { continue };
            while let Some(call) = thread.calls.get(cursor.call).filter(|c| c.start <= until) {
                cursor.calls.place(call.start, call.end);
                cursor.call += 1;
            }
            while let Some(range) = thread.ranges.get(cursor.range).filter(|r| r.span.start <= until) {
                cursor.ranges.place(range.span.start, range.span.end);
                cursor.range += 1;
            }
        }
        let cursor = &mut self.waits;
        while let Some(wait) = run.waits.get(cursor.next).filter(|w| w.span.start <= until) {
            cursor.next += 1;
            if is_stream_wait(wait) {
                cursor.lanes.place(wait.span.start, wait.span.end);
            }
        }
    }
}

/// How far a stream has been written.
#[derive(Clone)]
pub(super) struct StreamCursor {
    pub(super) device: usize,
    pub(super) stream: usize,
    pub(super) next: usize,
    pub(super) call: u32,
    pub(super) work: Flat,
    pub(super) collectives: Flat,
    /// `"device":0,"context":1,"stream":7`
    pub(super) place: Vec<u8>,
}

impl StreamCursor {
    pub(super) fn new(run: &Run, device: usize, stream: usize) -> StreamCursor {
        let ordinal = run.devices.get(device).map_or(0, |d| d.ordinal);
        let ids = run
            .devices
            .get(device)
            .and_then(|d| d.streams.get(stream))
            .map_or((0, 0), |s| (s.context, s.stream));
        StreamCursor {
            device,
            stream,
            next: 0,
            call: NONE,
            work: Flat::default(),
            collectives: Flat::default(),
            place: format!("\"device\":{ordinal},\"context\":{},\"stream\":{}", ids.0, ids.1).into_bytes(),
        }
    }

    /// The lane of the next operation, and whether it is the first of its call: of a graph's nodes
    /// only that one gets the arrow.
    pub(super) fn step(&mut self, op: &Op, collective: bool) -> (usize, bool) {
        let lanes = if collective { &mut self.collectives } else { &mut self.work };
        let lane = lanes.place(op.start, op.end);
        let first_of_call = op.call != self.call;
        self.call = op.call;
        self.next += 1;
        (lane, first_of_call)
    }
}

/// How far a thread has been written.
#[derive(Clone, Default)]
pub(super) struct ThreadCursor {
    pub(super) thread: usize,
    pub(super) call: usize,
    pub(super) range: usize,
    pub(super) calls: Nested,
    pub(super) ranges: Nested,
}

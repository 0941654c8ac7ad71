// SPDX-License-Identifier: Apache-2.0
//! The file from its first byte to its last: what stands where, and what is left out when it grows
//! too large.
//!
//! Order in the file means nothing to a reader (it sorts by time). So a trace near the size limit
//! is written in several passes: idle slices, the operations beside them and the calls that block
//! for them, of the whole run; then all the rest, piece by piece from the run's end back until the
//! limit. So the file holds all of the newest part of the run, and says from where on
//! (`complete_from_ns`): who reads it again judges that part, as of a recording whose older events
//! were overwritten.

use std::io::Write;

use serde_json::json;
use trace::Total;

use super::cursors::{Cursors, StreamCursor, ThreadCursor, WaitCursor};
use super::essential::{arrows, blocking, choose, shortest_gap, Arrow, Essential};
use super::lane::Flat;
use super::output::{Output, RESERVE};
use super::slices::{self, Frame};
use super::texts::Texts;
use super::tracks::{idle_spans, is_stream_wait, stream_waits, IdleItem, Tracks};
use super::{counters, facts, ChromeOptions, WriteError, Written};
use crate::analysis::{Analysis, IdleSlice};
use crate::run::Run;

/// Compressed bytes of one event, rounded up (measured: 21 a launch and kernel of PyTorch).
const EVENT_BYTES: u64 = 30;
/// Smallest size limit that can be kept, bytes.
const LEAST_BYTES: u64 = 2 * RESERVE;
/// Pieces of the run written one after the other, all tracks of a piece together.
const PIECES: u64 = 256;

/// Which events a pass writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    All,
    Essential,
    /// What is not essential, from the run's end back.
    Rest,
    /// Of the rest that begins before the part that is whole: what reaches into it.
    Across,
}

struct Document<'a, W: Write> {
    run: &'a Run,
    analysis: &'a Analysis,
    options: &'a ChromeOptions<'a>,
    out: Output<W>,
    texts: Texts<'a>,
    tracks: Tracks,
    frame: Frame,
    shortest: u64,
    essential: Option<Essential>,
    arrows: Vec<Arrow>,
    written: Written,
    seen: u64,
    /// From here on everything is in the file; 0: from the begin.
    complete_from: u64,
    /// The end of the newest operation or call that was left out of the piece in which the file was
    /// full.
    left_to: u64,
}

/// See [`super::write`].
pub(super) fn write<W: Write>(
    run: &Run,
    analysis: &Analysis,
    writer: W,
    options: &ChromeOptions<'_>,
) -> Result<(W, Written), WriteError> {
    let limit = options.max_bytes.max(LEAST_BYTES);
    let out = Output::new(writer, options.threaded, limit, options.deadline);
    let mut texts = Texts::new(run);
    texts.advise(&analysis.findings);
    let tracks = Tracks::new(run, analysis, &texts);
    let frame = Frame { pid: tracks.pid, base: first_time(run, analysis) };
    let shortest = shortest_gap(analysis, limit - RESERVE);
    let events: u64 = op_count(run) + call_count(run);
    let fits = events.saturating_mul(EVENT_BYTES) < limit;
    let essential = (!fits).then(|| choose(run, analysis, shortest));
    let arrows = arrows(run, analysis, shortest);
    let (written, seen) = (Written::default(), 0);
    let mut d = Document {
        run,
        analysis,
        options,
        out,
        texts,
        tracks,
        frame,
        shortest,
        essential,
        arrows,
        written,
        seen,
        complete_from: 0,
        left_to: 0,
    };
    d.head()?;
    d.tracks.write_names(&mut d.out)?;
    d.steps()?;
    d.idle()?;
    counters::write(&mut d.out, d.frame, run, analysis)?;
    if d.essential.is_some() {
        d.events(Pass::Essential)?;
        d.newest_first()?;
    } else {
        d.events(Pass::All)?;
    }
    d.tail()?;
    let mut written = d.written;
    written.events = d.out.events + 1; // the last one ends without a comma
    let (writer, bytes) = d.out.finish()?;
    written.bytes = bytes;
    Ok((writer, written))
}

fn op_count(run: &Run) -> u64 {
    run.devices.iter().map(|d| d.ops() as u64).sum()
}

fn call_count(run: &Run) -> u64 {
    run.threads.iter().map(|t| (t.calls.len() + t.ranges.len()) as u64).sum()
}

/// The earliest begin of anything drawn: time zero of the trace.
pub fn first_time(run: &Run, analysis: &Analysis) -> u64 {
    let ops = run.devices.iter().flat_map(|d| &d.streams).filter_map(|s| s.ops.first()).map(|o| o.start);
    let calls = run.threads.iter().filter_map(|t| t.calls.first()).map(|c| c.start);
    let ranges = run.threads.iter().filter_map(|t| t.ranges.first()).map(|r| r.span.start);
    let marks = run.threads.iter().filter_map(|t| t.marks.first()).map(|m| m.span.start);
    let moments = run.threads.iter().filter_map(|t| t.moments.first()).map(|m| m.span.start);
    let waits = stream_waits(run).next().map(|w| w.span.start);
    let steps = analysis.steps.all().into_iter().map(|s| s.span.start);
    let idle = analysis.devices.iter().filter_map(|d| d.slices.first()).map(|s| s.start);
    let blind = analysis.blind.iter().map(|b| b.span.start);
    ops.chain(calls)
        .chain(ranges)
        .chain(marks)
        .chain(moments)
        .chain(waits)
        .chain(steps)
        .chain(idle)
        .chain(blind)
        .min()
        .unwrap_or(run.header.start_monotonic)
}

impl<W: Write> Document<'_, W> {
    fn head(&mut self) -> Result<(), WriteError> {
        let run = self.run;
        let devices: Vec<_> = run
            .devices
            .iter()
            .map(|d| {
                json!({
                    "id": d.ordinal,
                    "name": run.definitions.string(d.info.name),
                    "uuid": run.definitions.attribute(&trace::define::gpu_uuid(d.ordinal)),
                    "totalGlobalMem": d.info.memory,
                    "computeMajor": d.info.compute_major,
                    "computeMinor": d.info.compute_minor,
                    "numSms": d.info.multiprocessors,
                })
            })
            .collect();
        self.out.put(b"{\"schemaVersion\":1,\"displayTimeUnit\":\"ns\"");
        self.out.number(b",\"baseTimeNanoseconds\":", run.realtime(self.frame.base));
        self.out.put(b",\"deviceProperties\":");
        self.out.put(json!(devices).to_string().as_bytes());
        if run.header.world_size > 0 {
            self.out.number(b",\"distributedInfo\":{\"world_size\":", u64::from(run.header.world_size));
            if let Some(rank) = run.header.rank.checked_sub(1) {
                self.out.number(b",\"rank\":", u64::from(rank));
            }
            self.out.put(b"}");
        }
        self.out.put(b",\"");
        self.out.put(facts::KEY.as_bytes());
        self.out.put(b"\":");
        self.out.put(facts::of(run, self.frame.base).to_string().as_bytes());
        self.out.put(b",\"traceEvents\":[\n");
        let command = if run.header.command.is_empty() { "process" } else { &run.header.command };
        let name = match run.header.rank {
            0 => command.to_owned(),
            rank => format!("rank {}: {command}", rank - 1),
        };
        for (what, args) in [
            ("process_name", json!({"name": name})),
            ("process_labels", json!({"labels": format!("{} pid {}", run.header.host, run.header.pid)})),
        ] {
            self.out.number(b"{\"ph\":\"M\",\"pid\":", u64::from(self.frame.pid));
            self.out.put(format!(",\"name\":\"{what}\",\"args\":{args}").as_bytes());
            self.out.end()?;
        }
        Ok(())
    }

    fn steps(&mut self) -> Result<(), WriteError> {
        let mut lanes = Flat::default();
        let steps = &self.analysis.steps;
        for step in steps.all() {
            let tid = self.tracks.steps.lane(lanes.place(step.span.start, step.span.end));
            let is_once = steps.once.iter().any(|s| s.span == step.span);
            slices::step(&mut self.out, self.frame, tid, (&step, is_once))?;
        }
        for (thread, tracks) in self.run.threads.iter().zip(&self.tracks.threads) {
            for mark in &thread.marks {
                slices::mark(&mut self.out, self.frame, tracks.ranges.lane(0), mark)?;
            }
            for moment in &thread.moments {
                if self.out.is_full() {
                    self.written.ranges_left_out += 1;
                } else {
                    slices::moment(&mut self.out, self.frame, tracks.ranges.lane(0), moment, self.run)?;
                }
            }
        }
        Ok(())
    }

    /// The idle tracks, and the arrows' ends on them.
    fn idle(&mut self) -> Result<(), WriteError> {
        let mut arrow = 0;
        for (index, device) in self.analysis.devices.iter().enumerate() {
            let Some(track) = self.tracks.devices.get(index).map(|t| &t.idle) else { continue };
            let mut lanes = Flat::default();
            for (start, end, item) in idle_spans(self.analysis, index) {
                let tid = track.lane(lanes.place(start, end));
                let slice = match item {
                    IdleItem::Unobserved(i) => {
                        if let Some(b) = self.analysis.blind.get(i) {
                            slices::blind(&mut self.out, self.frame, tid, b)?;
                        }
                        continue;
                    }
                    IdleItem::Slice(i) => match device.slices.get(i) {
                        Some(s) => s,
                        None => continue,
                    },
                };
                if slice.span().ns() < self.shortest || self.out.is_full() {
                    self.written.gaps_left_out += 1;
                    arrow += u64::from(slice.span().ns() >= self.shortest && self.arrow_of(slice).is_some());
                    continue;
                }
                let blame =
                    slice.call().and_then(|c| self.run.call(c)).map(|(_, c)| (c, self.run.call_name(c)));
                let stack = device.stack_of(slice);
                slices::idle(&mut self.out, self.frame, tid, slice, (blame, stack), &mut self.texts)?;
                if let Some(call_start) = self.arrow_of(slice) {
                    arrow += 1;
                    let head = call_start <= slice.start;
                    self.frame.arrow(&mut self.out, head, tid, slice.start, arrow)?;
                }
            }
        }
        Ok(())
    }

    /// Begin of the call that an arrow joins to this slice.
    fn arrow_of(&self, slice: &IdleSlice) -> Option<u64> {
        self.run.call(blocking(slice)?).map(|(_, c)| c.start)
    }

    /// One pass over all ops, calls and ranges, piece by piece of the run.
    fn events(&mut self, pass: Pass) -> Result<(), WriteError> {
        let mut cursors = Cursors::new(self.run);
        for piece in 0..PIECES {
            self.piece(&mut cursors, self.end_of(piece), pass)?;
        }
        Ok(())
    }

    /// What is not essential, from the end of the run back to where the file is full. What of the
    /// rest lasts into that part comes, too.
    fn newest_first(&mut self) -> Result<(), WriteError> {
        // lanes and arrows go by what came before: each piece begins with the cursors that the one
        // before it leaves
        let mut cursors = Cursors::new(self.run);
        let mut begins = Vec::with_capacity(PIECES as usize);
        for piece in 0..PIECES {
            begins.push(cursors.clone());
            cursors.pass_over(self.run, &self.texts, self.end_of(piece));
        }
        let mut first = PIECES;
        while first > 0 && !self.out.is_full() {
            first -= 1;
            let Some(mut cursors) = begins.pop() else { break };
            self.piece(&mut cursors, self.end_of(first), Pass::Rest)?;
        }
        if !self.out.is_full() {
            return Ok(());
        }
        // the piece in which the file was full has a part of its own events
        self.complete_from = self.left_to.max(self.end_of(first.min(PIECES - 1))).saturating_add(1);
        let mut cursors = Cursors::new(self.run);
        for piece in 0..first {
            self.piece(&mut cursors, self.end_of(piece), Pass::Across)?;
        }
        Ok(())
    }

    /// The last moment of a piece of the run.
    fn end_of(&self, piece: u64) -> u64 {
        let end = last_start(self.run).saturating_sub(self.frame.base);
        let part = (u128::from(end) * u128::from(piece + 1) / u128::from(PIECES)) as u64;
        if piece + 1 >= PIECES {
            u64::MAX
        } else {
            self.frame.base.saturating_add(part)
        }
    }

    /// From where the cursors stand up to `until`.
    fn piece(&mut self, cursors: &mut Cursors, until: u64, pass: Pass) -> Result<(), WriteError> {
        for cursor in &mut cursors.streams {
            self.stream_piece(cursor, until, pass)?;
        }
        for cursor in &mut cursors.threads {
            self.thread_piece(cursor, until, pass)?;
        }
        self.wait_piece(&mut cursors.waits, until, pass)?;
        if let Some(tell) = self.options.progress {
            let all = op_count(self.run) + call_count(self.run);
            tell(self.seen, all * if self.essential.is_some() { 2 } else { 1 });
        }
        Ok(())
    }

    /// Is it this pass's turn, and is there room? Counts what is left out in `left`. `end`: when
    /// the event ends.
    fn wanted(
        &self,
        pass: Pass,
        end: u64,
        essential: impl FnOnce(&Essential) -> bool,
        left: &mut u64,
    ) -> bool {
        let mine = match (pass, &self.essential) {
            (Pass::Essential, Some(e)) => essential(e),
            (Pass::Rest | Pass::Across, Some(e)) => !essential(e),
            _ => true,
        };
        let room = match pass {
            // few at any moment, and what the file keeps free has room for them
            Pass::Across => end >= self.complete_from,
            _ => !self.out.is_full(),
        };
        *left += u64::from(mine && !room);
        mine && room
    }

    fn stream_piece(&mut self, cursor: &mut StreamCursor, until: u64, pass: Pass) -> Result<(), WriteError> {
        let (device, stream) = (cursor.device, cursor.stream);
        let Some(ops) = self.run.devices.get(device).and_then(|d| d.streams.get(stream)).map(|s| &s.ops)
        else {
            return Ok(());
        };
        let (mut left, mut left_to) = (0, 0);
        while let Some(op) = ops.get(cursor.next).filter(|o| o.start <= until) {
            let collective = self.texts.is_collective(op);
            let index = cursor.next;
            let (lane, first_of_call) = cursor.step(op, collective);
            self.seen += 1;
            let essential =
                |e: &Essential| e.ops.get(device).and_then(|d| d.get(stream)).is_some_and(|b| b.get(index));
            let before = left;
            if !self.wanted(pass, op.end, essential, &mut left) {
                if left > before {
                    left_to = op.end.max(left_to);
                }
                continue;
            }
            let Some(tracks) = self.tracks.devices.get(device).and_then(|d| d.streams.get(stream)) else {
                continue;
            };
            let tid = if collective { tracks.collectives.lane(lane) } else { tracks.work.lane(lane) };
            let arrow = match first_of_call {
                true => slices::launch_arrow(op, |c| self.run.call(c).map(|(_, c)| c.start)),
                false => None,
            };
            slices::op(&mut self.out, self.frame, tid, op, &cursor.place, &mut self.texts, arrow)?;
            self.written.ops += 1;
        }
        self.written.ops_left_out += left;
        self.left_to = self.left_to.max(left_to);
        Ok(())
    }

    fn thread_piece(&mut self, cursor: &mut ThreadCursor, until: u64, pass: Pass) -> Result<(), WriteError> {
        let (Some(thread), Some(tracks)) =
            (self.run.threads.get(cursor.thread), self.tracks.threads.get(cursor.thread))
        else {
            return Ok(());
        };
        let (mut calls_left, mut ranges_left, mut left_to) = (0, 0, 0);
        while let Some(call) = thread.calls.get(cursor.call).filter(|c| c.start <= until) {
            let tid = tracks.calls.lane(cursor.calls.place(call.start, call.end));
            let flat = self.run.flat(cursor.thread, cursor.call);
            cursor.call += 1;
            self.seen += 1;
            let before = calls_left;
            if !self.wanted(pass, call.end, |e| e.calls.get(flat as usize), &mut calls_left) {
                if calls_left > before {
                    left_to = call.end.max(left_to);
                }
                continue;
            }
            let arrow = (call.launches() && call.correlation != 0).then(|| u64::from(call.correlation));
            slices::call(&mut self.out, self.frame, tid, call, &mut self.texts, arrow)?;
            self.written.calls += 1;
            let from = self.arrows.partition_point(|a| a.call < flat);
            for a in self.arrows.get(from..).unwrap_or(&[]).iter().take_while(|a| a.call == flat) {
                self.frame.arrow(&mut self.out, a.from < call.start, tid, call.start, a.id)?;
            }
        }
        while let Some(range) = thread.ranges.get(cursor.range).filter(|r| r.span.start <= until) {
            let tid = tracks.ranges.lane(cursor.ranges.place(range.span.start, range.span.end));
            cursor.range += 1;
            self.seen += 1;
            // none is essential: what the first pass does not take is no range left out
            if pass != Pass::Essential && self.wanted(pass, range.span.end, |_| false, &mut ranges_left) {
                slices::range(&mut self.out, self.frame, tid, range, self.run)?;
                self.written.ranges += 1;
            }
        }
        self.written.calls_left_out += calls_left;
        self.written.ranges_left_out += ranges_left;
        self.left_to = self.left_to.max(left_to);
        Ok(())
    }

    /// Waits of one stream for another.
    fn wait_piece(&mut self, cursor: &mut WaitCursor, until: u64, pass: Pass) -> Result<(), WriteError> {
        let mut left = 0;
        while let Some(wait) = self.run.waits.get(cursor.next).filter(|w| w.span.start <= until) {
            cursor.next += 1;
            if !is_stream_wait(wait) {
                continue;
            }
            let tid = self.tracks.waits.lane(cursor.lanes.place(wait.span.start, wait.span.end));
            // none is essential
            if pass != Pass::Essential && self.wanted(pass, wait.span.end, |_| false, &mut left) {
                slices::stream_wait(&mut self.out, self.frame, tid, wait)?;
            }
        }
        self.written.calls_left_out += left;
        Ok(())
    }

    fn tail(&mut self) -> Result<(), WriteError> {
        let (h, w) = (&self.run.header, &self.written);
        let losses: serde_json::Map<_, _> =
            self.analysis.losses.iter().map(|(l, n)| (l.key().to_owned(), json!(n))).collect();
        let other = json!({
            "generator": format!("gapprobe {}", env!("CARGO_PKG_VERSION")),
            "recorder": h.gapprobe,
            "line": self.options.line,
            "host": h.host,
            "pid": h.pid,
            "command": h.command,
            "base_monotonic_ns": self.frame.base,
            "valid_from_ns": self.analysis.valid.start.saturating_sub(self.frame.base),
            "valid_to_ns": self.analysis.valid.end.saturating_sub(self.frame.base),
            "losses": losses,
            "kernel_details": "block, registers and full name: on every slice, in large traces on a kernel's first",
            "kernels_recorded_in_the_run": h.total(Total::Kernels),
            "left_out_at_the_size_limit": {
                "limit_bytes": self.options.max_bytes,
                "gpu_operations": w.ops_left_out,
                "api_calls": w.calls_left_out,
                "ranges": w.ranges_left_out,
                "idle_slices": w.gaps_left_out,
                "idle_slices_drawn_from_ns": self.shortest,
                // from here on nothing is left out; null: from the begin on
                "complete_from_ns": (self.complete_from > 0 && self.complete_from < u64::MAX).then(|| self.complete_from.saturating_sub(self.frame.base)),
            },
        });
        self.out.number(b"{\"ph\":\"M\",\"pid\":", u64::from(self.frame.pid));
        self.out.number(
            b",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":",
            u64::from(h.rank.saturating_sub(1)),
        );
        self.out.put(b"}}\n],\"otherData\":");
        self.out.put(other.to_string().as_bytes());
        self.out.put(b"}\n");
        Ok(())
    }
}

/// The latest begin of an op, call or range.
fn last_start(run: &Run) -> u64 {
    let ops = run.devices.iter().flat_map(|d| &d.streams).filter_map(|s| s.ops.last()).map(|o| o.start);
    let calls = run.threads.iter().filter_map(|t| t.calls.last()).map(|c| c.start);
    let ranges = run.threads.iter().filter_map(|t| t.ranges.last()).map(|r| r.span.start);
    ops.chain(calls).chain(ranges).max().unwrap_or(0)
}

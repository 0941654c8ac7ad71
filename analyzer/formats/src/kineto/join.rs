// SPDX-License-Identifier: Apache-2.0
//! Parts, in the order of the file, into a `Run`.

use foldhash::{HashMap, HashMapExt};
use serde_json::Value as Json;
use trace::define::{gpu_uuid, Definition};
use trace::header::{sources, state};
use trace::{DeviceInfo, KernelInfo};
use verdict::gaps::pauses;
use verdict::run::{Mark, Range, Recorder, Span, UnobservedSpan, MAX_TIME};
use verdict::stats::middle;

use super::head::Head;
use super::merged;
use super::part::{Part, RawOp, RawThread, Refused, Table, ThreadKey};
use super::xla::{self, Found};
use super::Kineto;
use crate::assemble::{Assembly, ForeignCall, ForeignOp, Named};
use crate::python;
use crate::python::Written;
use crate::{Inputs, MemoryChange, Operators, ReadError};

/// Times this far from the middle of the trace, and operations this long, are damage: 30 days, ns.
const FAR: i64 = 30 * 86_400 * 1_000_000_000;
/// The earliest event is put here, ns: times before it (a call cut off by the begin of the trace)
/// have room.
const ORIGIN: i64 = 1_000_000_000;

/// See the file's head.
pub(super) fn join(mut parts: Vec<Part>, head: &Head) -> Result<Kineto, ReadError> {
    let xla = xla::resolve(&mut parts);
    let mut refused = Refused::default();
    let (mut events, mut host_events) = (0, 0);
    for p in &parts {
        refused.add(&p.refused);
        events += p.events;
        host_events += p.host_events;
    }
    let Some(frame) = Frame::new(&parts, head) else {
        return Err(match (refused.cut, xla) {
            (true, _) => ReadError::cut_before_the_gpu(events),
            (false, Found::NoGpu { tpu }) => ReadError::xla_without_gpu(events, tpu),
            (false, Found::Gpus) => ReadError::xla_without_gpu(events, false),
            (false, Found::Nothing) => ReadError::nothing_of_the_gpu(events, refused.lost()),
        });
    };
    let mut assembly = Assembly::default();
    let rounded = parts.iter().flat_map(|p| &p.ops).all(|o| o.start % 1_000 == 0 && o.end % 1_000 == 0);
    describe_devices(&mut assembly, head);
    let mut names: HashMap<ThreadKey, u32> = HashMap::new();
    let mut threads: Table<ThreadKey> = Table::default();
    let mut blind: Vec<(Span, u32)> = Vec::new();
    let mut operators = Operators::default();
    // what our own traces say once of a kernel or a track, and use in any part
    let mut told: HashMap<u32, KernelInfo> = HashMap::new();
    let mut tracks: HashMap<ThreadKey, RawThread> = HashMap::new();
    let mut named = Vec::with_capacity(parts.len());
    for mut part in parts {
        let texts = std::mem::take(&mut part.texts).into_texts();
        let strings: Vec<u32> = texts.iter().map(|t| assembly.string(t)).collect();
        let string = |n: u32| strings.get(n as usize).copied().unwrap_or(0);
        let mut kernels = std::mem::take(&mut part.kernels).into_keys();
        for k in &mut kernels {
            k.info.name = string(k.info.name);
            if let Some(own) = k.own.filter(|_| k.told) {
                told.entry(own).or_insert(k.info);
            }
        }
        for &(key, track) in &part.tracks {
            tracks.entry(key).or_insert(track);
            if let Some(name) = track.name {
                names.insert(track.key(), string(name));
            }
        }
        named.push((part, strings, kernels));
    }
    // by thread of the run
    let mut pids: Vec<i64> = Vec::new();
    let thread_of = |key: ThreadKey| match tracks.get(&key) {
        Some(track) => (track.key(), track.tid),
        None => (key, thread_id(key)),
    };
    // what is older than the part that is whole stands in the file for who looks at it, and proves
    // nothing
    let from = head.whole_from().unwrap_or(0);
    let own_number = |number: u32| if head.own.is_some() { number } else { 0 };
    for (part, strings, kernels) in named {
        let Part {
            streams,
            threads: own,
            ops,
            calls,
            ranges,
            details,
            waits,
            memory,
            overhead,
            marks,
            thread_names,
            ..
        } = part;
        let string = |n: u32| strings.get(n as usize).copied().unwrap_or(0);
        let kernels: Vec<u32> = kernels
            .into_iter()
            .map(|k| {
                let told = k.own.and_then(|own| told.get(&own)).copied().unwrap_or(k.info);
                assembly.kernel(KernelInfo { captured: k.info.captured, ..told })
            })
            .collect();
        let streams: Vec<Option<(usize, usize)>> =
            streams.into_keys().into_iter().map(|k| assembly.stream(k.device, k.context, k.stream)).collect();
        let own: Vec<Option<usize>> = own
            .into_keys()
            .into_iter()
            .map(|k| {
                let (key, tid) = thread_of(k);
                let at = assembly.thread(threads.number(key), tid)?;
                pids.resize(pids.len().max(at + 1), key.pid);
                Some(at)
            })
            .collect();
        let thread = |n: u32| own.get(n as usize).copied().flatten();
        for o in ops {
            let Some(span) = frame.span(o.start, o.end) else {
                refused.no_time += 1;
                continue;
            };
            if span.end < from {
                continue;
            }
            let Some(stream) = streams.get(o.stream as usize).copied().flatten() else {
                refused.unplaced += 1;
                continue;
            };
            let a = if o.kind == trace::Kind::Kernel {
                kernels.get(o.a as usize).copied().unwrap_or(0)
            } else {
                o.a
            };
            let RawOp { correlation, b, graph, kind, .. } = o;
            assembly.op(stream, ForeignOp { span, correlation, a, b, graph, kind });
        }
        for c in calls {
            let Some(span) = frame.span(c.start, c.end) else {
                refused.no_time += 1;
                continue;
            };
            if span.end < from {
                continue;
            }
            let Some(thread) = thread(c.thread) else {
                refused.unplaced += 1;
                continue;
            };
            let name = Named { string: string(c.name), packed: c.packed };
            let (correlation, result, site) = (c.correlation, own_number(c.result), own_number(c.stack));
            assembly.call(thread, ForeignCall { span, correlation, name, result, site });
        }
        let mut details = details.into_iter().peekable();
        for (i, r) in ranges.into_iter().enumerate() {
            let more = details.next_if(|t| t.0 == i).map(|t| t.1);
            let span = frame.span(r.start, r.end).filter(|s| s.end >= from);
            if let (Some(span), Some(thread)) = (span, thread(r.thread)) {
                let (name, flags, kind) = (string(r.name), r.flags, r.kind);
                let domain = more.and_then(|m| m.domain).map_or(0, string);
                let payload = more.and_then(|m| m.payload);
                assembly.range(thread, Range { span, name, depth: 0, flags, kind, domain, payload });
                if let Some(inputs) = more.and_then(|m| m.inputs) {
                    let tid = assembly.run.threads.get(thread).map_or(0, |t| t.tid);
                    let [shapes, types, values] = inputs.map(string);
                    operators.inputs.push(Inputs { tid, span, name, shapes, types, values });
                }
            }
        }
        for m in marks {
            let span = frame.span(m.start, m.end).filter(|s| s.end >= from);
            if let (Some(span), Some(thread)) = (span, thread(m.thread)) {
                assembly.mark(thread, Mark { span, number: m.number, flags: m.flags });
            }
        }
        blind.extend(part.blind.iter().filter_map(|&(start, end, why)| Some((frame.span(start, end)?, why))));
        for w in waits {
            if let Some(span) = frame.span(w.start, w.end).filter(|s| s.end >= from) {
                assembly.wait(span, w.correlation, w.what, w.stream);
            }
        }
        operators.memory.extend(memory.into_iter().filter_map(|m| {
            let at = frame.span(m.at, m.at)?.start;
            Some(MemoryChange { at, bytes: m.bytes, on_gpu: m.on_gpu })
        }));
        operators.overhead.extend(overhead.into_iter().filter_map(|(start, end)| frame.span(start, end)));
        for (key, name) in thread_names {
            names.insert(key, string(name));
        }
    }
    operators.memory.sort_by_key(|m| m.at);
    blind.sort_unstable();
    blind.dedup();
    assembly.run.blind = blind.into_iter().map(|(span, reason)| UnobservedSpan { span, reason }).collect();
    for (key, name) in names {
        let number = threads.number(key);
        assembly.name_thread(number, name);
    }
    let mut main = assembly.run.threads.iter().zip(&pids).filter(|(t, &pid)| i64::from(t.tid) == pid);
    operators.main_thread = main.next().map(|t| t.0.tid).filter(|_| main.next().is_none());
    if pids.iter().any(|pid| Some(pid) != pids.first()) {
        operators.memory.clear(); // whose it was is not told
    }
    let merged = merged::processes(&assembly.run.threads, &pids);
    let mut run = assembly.finish();
    run.merged = merged;
    refused.duplicates += run.duplicates;
    let is_xla = xla == Found::Gpus;
    run.recorder = if is_xla { Recorder::Xla } else { Recorder::Torch };
    if head.own.is_none() {
        let written = if is_xla { Written::Xla } else { Written::Torch };
        python::give_stacks(&mut run, written, python::FIRST);
    }
    // (by how much XLA's tracer slows a host was never measured)
    run.slowed_host = host_events > 0 && !is_xla;
    let h = &mut run.header;
    h.cupti_version = head.cupti;
    h.driver_version = head.driver;
    h.state = state::CLOSED;
    h.sources |= sources::CALLBACKS;
    if let Some(own) = &head.own {
        own.apply(&mut run);
        match run.recorder {
            Recorder::Torch => python::give_stacks(&mut run, Written::Torch, python::FIRST_OF_OWN),
            Recorder::Xla => {
                python::give_stacks(&mut run, Written::Xla, python::FIRST_OF_OWN);
                run.slowed_host = false;
            }
            Recorder::Gapprobe | Recorder::Nsys => {}
        }
        run.header.valid_from = run.header.valid_from.max(from);
        run.threads.iter_mut().for_each(|t| t.samples.retain(|s| s.span.end >= from));
        pauses::set_apart(&mut run);
    }
    let h = &mut run.header;
    // what the trace's clock showed at `start_monotonic`
    let begin = i64::try_from(h.start_monotonic).unwrap_or(0);
    let base = frame.base.saturating_add(head.base).saturating_add(begin);
    h.start_realtime = u64::try_from(base).unwrap_or(0);
    run.clocks = vec![(h.start_monotonic, h.start_realtime)];
    h.rank = head.rank.map_or(0, |r| r.saturating_add(1));
    h.world_size = head.world;
    Ok(Kineto {
        run,
        operators,
        refused,
        events,
        bytes: 0,
        behind: 0,
        own: false,
        zero: 0,
        said: None,
        xla: is_xla,
        rounded,
    })
}

/// A thread id as far as 32 bits hold it; texts have ids of their own.
fn thread_id(key: ThreadKey) -> u32 {
    u32::try_from(key.tid).unwrap_or((key.tid as u64 ^ (key.tid as u64) >> 32) as u32 | 1 << 31)
}

/// From the trace's clock to the run's.
struct Frame {
    /// Subtracted from every time.
    base: i64,
    middle: i64,
}

impl Frame {
    /// By the operations and calls that are not far from all others; `None` without any operation.
    /// A trace of ours tells where its time begins: the run has the times of the recording.
    fn new(parts: &[Part], head: &Head) -> Option<Frame> {
        let starts = || {
            let ops = parts.iter().flat_map(|p| p.ops.iter().map(|o| (o.start, o.end)));
            ops.chain(parts.iter().flat_map(|p| p.calls.iter().map(|c| (c.start, c.end))))
        };
        parts.iter().flat_map(|p| &p.ops).next()?;
        let every = starts().count() / 10_000 + 1;
        let mut sample: Vec<i64> = starts().step_by(every).map(|s| s.0).collect();
        let middle = middle(&mut sample)?;
        let near = |s: &(i64, i64)| is_near(middle, *s);
        let ranges = parts.iter().flat_map(|p| p.ranges.iter().map(|r| (r.start, r.end)));
        let first = starts().chain(ranges).filter(near).map(|s| s.0).min()?;
        let base = head.own.as_ref().map_or(first - ORIGIN, |own| -own.base);
        Some(Frame { base, middle })
    }

    fn span(&self, start: i64, end: i64) -> Option<Span> {
        if !is_near(self.middle, (start, end)) {
            return None;
        }
        let at = |t: i64| u64::try_from(t.checked_sub(self.base)?).ok().filter(|t| *t <= MAX_TIME);
        Some(Span::new(at(start)?, at(end)?))
    }
}

fn is_near(middle: i64, (start, end): (i64, i64)) -> bool {
    let near = |t: i64| t.checked_sub(middle).is_some_and(|d| d.abs() < FAR);
    near(start) && near(end)
}

fn describe_devices(assembly: &mut Assembly, head: &Head) {
    for d in &head.devices {
        let number = |key: &str| d.get(key).and_then(Json::as_u64).unwrap_or(0);
        let Ok(ordinal) = u32::try_from(number("id")) else { continue };
        let small = |key: &str| u32::try_from(number(key)).unwrap_or(0);
        let name = assembly.string(d.get("name").and_then(Json::as_str).unwrap_or("").as_bytes());
        let info = DeviceInfo {
            multiprocessors: small("numSms"),
            compute_major: small("computeMajor"),
            compute_minor: small("computeMinor"),
            name,
            memory: number("totalGlobalMem"),
        };
        assembly.define(ordinal, Definition::Device(info));
        if let Some(uuid) = d.get("uuid").and_then(Json::as_str) {
            let key = assembly.string(gpu_uuid(ordinal).as_bytes());
            let value = assembly.string(uuid.as_bytes());
            assembly.define(0, Definition::Attribute(key, value));
        }
    }
}

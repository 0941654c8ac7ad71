// SPDX-License-Identifier: Apache-2.0
//! One event of the trace into a [`Part`]. Old category names (Kernel, Runtime, Operator: PyTorch
//! 1.8) and new ones.

use std::hash::BuildHasher;

use trace::event::{Copy, UNIFIED};
use trace::{call, KernelInfo, Kind};
use verdict::run::RangeKind;

use super::args::{args, number, small, Args};
use super::operators;
use super::part::{
    Part, RawCall, RawKernel, RawMark, RawOp, RawRange, RawThread, RawTold, RawWait, StreamKey, ThreadKey,
};
use super::scan::{Scan, Scanned, Value};
use super::time::{nanoseconds, whole};
use super::xla;

/// The fields of an event that are read.
#[derive(Default)]
pub(super) struct Fields<'a> {
    phase: &'a [u8],
    category: &'a [u8],
    pub(super) name: &'a [u8],
    pid: Option<Value<'a>>,
    tid: Option<Value<'a>>,
    pub(super) ts: Option<Value<'a>>,
    pub(super) dur: Option<Value<'a>>,
    pub(super) args: &'a [u8],
}

/// What an event is about.
enum What {
    Kernel,
    Memcpy,
    Memset,
    Call(u8),
    Range(RangeKind),
    Wait,
    Mark,
    Unobserved,
    Memory,
    Overhead,
    Nothing,
}

/// Reads one event, which begins at the scanner.
#[inline]
pub(super) fn event<'a>(scan: &mut Scan<'a>, part: &mut Part) -> Scanned<()> {
    let mut f = Fields::default();
    scan.object(|key, s| {
        let value = s.value()?;
        match (key, value) {
            (b"ph", Value::Text(t)) => f.phase = t,
            (b"cat", Value::Text(t)) => f.category = t,
            (b"name", Value::Text(t)) => f.name = t,
            (b"pid", v) => f.pid = Some(v),
            (b"tid", v) => f.tid = Some(v),
            (b"ts", v) => f.ts = Some(v),
            (b"dur", v) => f.dur = Some(v),
            (b"args", Value::Nested(n)) => f.args = n,
            _ => {}
        }
        Ok(())
    })?;
    part.events += 1;
    match f.phase {
        // torch.profiler names a category of each, XLA's profiler of none
        b"X" if f.category.is_empty() => xla::event(&f, part),
        b"X" | b"i" => complete(&f, part),
        b"M" if f.name == b"thread_name" => thread_name(&f, part),
        b"M" if f.name == b"process_name" => process_name(&f, part),
        _ => {}
    }
    Ok(())
}

fn what(f: &Fields<'_>) -> What {
    match f.category {
        b"kernel" | b"Kernel" => What::Kernel,
        b"gpu_memcpy" | b"Memcpy" => What::Memcpy,
        b"gpu_memset" | b"Memset" => What::Memset,
        b"cuda_runtime" | b"Runtime" => What::Call(call::RUNTIME),
        b"cuda_driver" => What::Call(call::DRIVER),
        // Intel's, Gaudi's, and those of backends that torch does not know
        b"xpu_runtime" | b"xpu_driver" | b"hpu_op" | b"privateuse1_runtime" | b"privateuse1_driver" => {
            What::Call(call::RUNTIME)
        }
        b"user_annotation" => What::Range(RangeKind::User),
        b"cpu_op" | b"Operator" if is_annotation(f.name) => What::Range(RangeKind::User),
        b"cpu_op" | b"Operator" => What::Range(RangeKind::Operator),
        b"python_function" => What::Range(RangeKind::Python),
        b"cuda_sync" => What::Wait,
        b"step mark" => What::Mark,
        b"unobserved" => What::Unobserved,
        b"overhead" => What::Overhead,
        b"cpu_instant_event" if f.name == b"[memory]" => What::Memory,
        _ => What::Nothing,
    }
}

/// The old schema has annotations among the operators.
fn is_annotation(name: &[u8]) -> bool {
    [&b"ProfilerStep#"[..], b"enumerate(DataLoader)", b"Optimizer."].iter().any(|p| name.starts_with(p))
}

/// A time or length in microseconds, as ns.
#[inline]
pub(super) fn time(v: &Option<Value<'_>>) -> Option<i64> {
    match v {
        Some(Value::Bare(t) | Value::Text(t)) => nanoseconds(t),
        _ => None,
    }
}

fn complete(f: &Fields<'_>, part: &mut Part) {
    let what = what(f);
    if matches!(what, What::Nothing) {
        return;
    }
    // how long a complete event took must be said; a moment takes no time
    let length = if f.phase == b"i" && f.dur.is_none() { Some(0) } else { time(&f.dur) };
    let span =
        time(&f.ts).zip(length).and_then(|(start, length)| Some((start, length, start.checked_add(length)?)));
    let aside =
        matches!(what, What::Memory | What::Overhead | What::Range(RangeKind::Operator | RangeKind::Python));
    let Some((start, length, end)) = span else {
        part.refused.lost_one(aside, |r| &mut r.no_time);
        return;
    };
    if length < 0 {
        part.refused.lost_one(aside, |r| &mut r.negative);
        return;
    }
    match what {
        What::Kernel => kernel(f, start, end, part),
        What::Memcpy | What::Memset => memory(f, start, end, part, matches!(what, What::Memcpy)),
        What::Call(domain) => api_call(f, start, end, part, domain),
        What::Range(kind) => {
            part.host_events += u64::from(kind != RangeKind::User);
            let thread = thread(f, part);
            let name = text(part, f.name);
            // operators are many, and have none of these
            let a = if kind == RangeKind::User { args(f.args, part) } else { Args::default() };
            let inputs = (kind == RangeKind::Operator).then(|| operators::inputs(f.name, f.args)).flatten();
            let flags = a.flags;
            let (domain, payload) = (a.own.domain, a.own.payload);
            if domain.is_some() || payload.is_some() || inputs.is_some() {
                let domain = domain.map(|d| text(part, d));
                let inputs = inputs.map(|i| [&i.shapes, i.types, i.values].map(|told| text(part, told)));
                part.details.push((part.ranges.len(), RawTold { domain, payload, inputs }));
            }
            part.ranges.push(RawRange { start, end, thread, name, kind, flags });
        }
        What::Mark => {
            let a = args(f.args, part);
            let Some(end) = start.checked_add(a.ns) else { return };
            let thread = thread(f, part);
            part.marks.push(RawMark { start, end, thread, number: a.step, flags: a.flags });
        }
        What::Unobserved => {
            let code = args(f.args, part).code;
            part.blind.push((start, end, code));
        }
        What::Wait => {
            let a = args(f.args, part);
            let what = match f.name {
                b"Event Sync" => 1,
                b"Stream Wait Event" => 2,
                b"Stream Sync" => 3,
                b"Context Sync" => 4,
                _ => 0,
            };
            let (correlation, stream) = (a.correlation, a.stream.unwrap_or(0));
            part.waits.push(RawWait { start, end, correlation, what, stream });
        }
        What::Memory => operators::memory(f.args, start, part),
        What::Overhead => part.overhead.push((start, end)),
        What::Nothing => {}
    }
}

/// `None`, and counted: on no device.
fn stream(f: &Fields<'_>, a: &Args<'_>, part: &mut Part) -> Option<u32> {
    if a.no_device {
        part.refused.unplaced += 1;
        return None;
    }
    let number = |v: &Option<Value<'_>>| match *v {
        // the old schema's "stream 7"
        Some(Value::Text(t)) => t.strip_prefix(b"stream ").and_then(whole).or_else(|| whole(t)),
        Some(v) => number(v),
        None => None,
    };
    let device = a.device.or_else(|| number(&f.pid).and_then(|n| u32::try_from(n).ok())).unwrap_or(0);
    let stream = a.stream.or_else(|| number(&f.tid).and_then(|n| u32::try_from(n).ok())).unwrap_or(0);
    Some(part.streams.number(StreamKey { device, context: a.context, stream }))
}

fn kernel(f: &Fields<'_>, start: i64, end: i64, part: &mut Part) {
    let a = args(f.args, part);
    let Some(stream) = stream(f, &a, part) else { return };
    let graph = a.own.graph;
    if graph != 0 && f.name == b"CUDA graph" && a.own.full_name.is_none() && !a.own.told {
        let (correlation, kind) = (a.correlation, Kind::GraphTrace);
        part.ops.push(RawOp { start, end, correlation, a: 0, b: 0, stream, graph, kind });
        return;
    }
    let name = text(part, a.own.full_name.unwrap_or(f.name));
    let info = KernelInfo {
        name,
        block: a.block,
        registers: a.registers,
        static_shared: a.shared,
        dynamic_shared: a.own.dynamic,
        captured: a.own.captured,
    };
    let number = part.kernels.number(RawKernel { own: a.own.kernel, told: a.own.told, info });
    let grid = a.grid.iter().try_fold(1u32, |n, &g| n.checked_mul(g)).unwrap_or(u32::MAX);
    let kind = Kind::Kernel;
    part.ops.push(RawOp { start, end, correlation: a.correlation, a: number, b: grid, stream, graph, kind });
}

fn memory(f: &Fields<'_>, start: i64, end: i64, part: &mut Part, copy: bool) {
    let args = args(f.args, part);
    let Some(stream) = stream(f, &args, part) else { return };
    let (a, b) = match copy {
        true => {
            let (a, b) = direction(&as_cuda_says(f.name), args.bytes).pack();
            // (our own traces of nsys's exports)
            let unified = if f.name.starts_with(b"Memcpy Unified ") { UNIFIED } else { 0 };
            (a, b | unified)
        }
        false => (args.bytes as u32, (args.bytes >> 32) as u32),
    };
    let kind = if copy { Kind::Memcpy } else { Kind::Memset };
    let graph = args.own.graph;
    part.ops.push(RawOp { start, end, correlation: args.correlation, a, b, stream, graph, kind });
}

/// Copies as ROCm's tracer names them, as torch.profiler names them, and CUPTI's number of the way.
pub(super) const ROCM_COPIES: [(&[u8], &[u8], u8); 4] = [
    (b"CopyHostToDevice", b"Memcpy HtoD", 1),
    (b"CopyDeviceToHost", b"Memcpy DtoH", 2),
    (b"CopyDeviceToDevice", b"Memcpy DtoD", 8),
    (b"CopyHostToHost", b"Memcpy HtoH", 9),
];

/// `Memcpy M2D (Memory -> Device)`, as Intel's plugin of Kineto writes it (M: memory of the host);
/// `CopyHostToDevice`, as ROCm's tracer has it.
fn as_cuda_says(name: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if let Some((_, cudas, _)) = ROCM_COPIES.iter().find(|copy| name.starts_with(copy.0)) {
        return (*cudas).into();
    }
    const WAYS: [(&[u8], &[u8]); 4] =
        [(b"M2D", b"HtoD"), (b"H2D", b"HtoD"), (b"D2M", b"DtoH"), (b"D2H", b"DtoH")];
    let way = name.strip_prefix(b"Memcpy ");
    let known = way.and_then(|way| WAYS.iter().find(|w| way.starts_with(w.0)));
    match known {
        Some((_, cudas)) => {
            let rest = name.get(b"Memcpy M2D".len()..).unwrap_or(&[]);
            [b"Memcpy ", *cudas, rest].concat().into()
        }
        None if way.is_some_and(|w| w.starts_with(b"D2D")) => b"Memcpy DtoD"[..].into(),
        None => name.into(),
    }
}

/// `Memcpy HtoD (Pageable -> Device)`; our own traces had the memories in small letters.
fn direction(name: &[u8], bytes: u64) -> Copy {
    let name = String::from_utf8_lossy(name);
    let (words, memories) = name.split_once('(').unwrap_or((&name, ""));
    let mut words = words.split_ascii_whitespace().skip(1);
    let way = words.find(|w| *w != "Unified").unwrap_or("");
    let (source, destination) = memories.trim_end_matches(')').split_once("->").unwrap_or_default();
    const MEMORIES: [&str; 7] =
        ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];
    let memory = |name: &str| {
        let at = MEMORIES.iter().position(|m| m.eq_ignore_ascii_case(name.trim()));
        at.map_or(0, |at| at as u8 + 1)
    };
    let direction = match way {
        "HtoD" => 1,
        "DtoH" => 2,
        "HtoA" => 3,
        "AtoH" => 4,
        "AtoA" => 5,
        "AtoD" => 6,
        "DtoA" => 7,
        "DtoD" => 8,
        "HtoH" => 9,
        "PtoP" => 10,
        _ => 0,
    };
    let (source, destination) = (memory(source), memory(destination));
    Copy { bytes, direction, source, destination, peer: direction == 10 }
}

fn api_call(f: &Fields<'_>, start: i64, end: i64, part: &mut Part, domain: u8) {
    let a = args(f.args, part);
    let thread = thread(f, part);
    let name = text(part, f.name);
    let packed = a.cbid.map_or(0, |id| call::pack(domain, id));
    let Args { correlation, stack, result, .. } = a;
    part.calls.push(RawCall { start, end, correlation, thread, packed, name, stack, result });
}

fn thread(f: &Fields<'_>, part: &mut Part) -> u32 {
    let key = thread_key(f);
    part.threads.number(key)
}

pub(super) fn thread_key(f: &Fields<'_>) -> ThreadKey {
    let id = |v: &Option<Value<'_>>| match *v {
        Some(Value::Bare(t) | Value::Text(t)) => match whole(t) {
            Some(n) => n,
            // a text names it; numbers of texts differ from block to block, so the text itself
            // makes the id
            None => i64::MIN | (foldhash::quality::FixedState::default().hash_one(t) >> 1) as i64,
        },
        _ => 0,
    };
    let (pid, tid) = (id(&f.pid), id(&f.tid));
    ThreadKey { pid, tid }
}

#[cold]
fn thread_name(f: &Fields<'_>, part: &mut Part) {
    let key = thread_key(f);
    let (mut name, mut own_name, mut index, mut tid) = (None, None, None, None);
    let _ = Scan::new(f.args, 0).object(|k, s| {
        match (k, s.value()?) {
            (b"name", Value::Text(t)) => name = Some(t),
            (b"os name", Value::Text(t)) => own_name = Some(t),
            (b"thread", v) => index = small(v),
            (b"os tid", v) => tid = small(v),
            _ => {}
        }
        Ok(())
    });
    if let Some((index, tid)) = index.zip(tid) {
        let name = own_name.map(|n| text(part, n));
        part.tracks.push((key, RawThread { index, tid, name }));
        return;
    }
    if let Some(name) = name {
        xla::lane(key, name, part);
        let name = text(part, name);
        part.thread_names.push((key, name));
    }
}

#[cold]
fn process_name(f: &Fields<'_>, part: &mut Part) {
    let pid = thread_key(f).pid;
    let _ = Scan::new(f.args, 0).object(|k, s| {
        if let (b"name", Value::Text(name)) = (k, s.value()?) {
            xla::process(pid, name, part);
        }
        Ok(())
    });
}

/// The number of a text as JSON has it; escapes are resolved where there are any.
#[inline]
pub(super) fn text(part: &mut Part, raw: &[u8]) -> u32 {
    if memchr::memchr(b'\\', raw).is_none() {
        return part.texts.number(raw);
    }
    let quoted = [b"\"", raw, b"\""].concat();
    match serde_json::from_slice::<String>(&quoted) {
        Ok(plain) => part.texts.number(plain.as_bytes()),
        Err(_) => part.texts.number(raw),
    }
}

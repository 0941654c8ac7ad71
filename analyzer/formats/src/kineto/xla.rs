// SPDX-License-Identifier: Apache-2.0
//! Profiles of XLA (JAX, TensorFlow): `*.trace.json.gz` as TSL's profiler writes it. Its events
//! have no category: what one is tell its process (`/device:GPU:0`, `/host:CPU`), its lane (`Stream
//! #13(Compute)`, `XLA Modules`, `XLA Ops`, `Steps`) and its name.
//!
//! Kept: what stands on a stream; calls of the runtime on the host, joined by `correlation_id`;
//! Python functions (`$file.py:line function`); all else on the host as operators. Lanes that were
//! derived from the streams repeat them: `XLA Ops` counts only where a device has no stream.
//! What the steps are is found by [`steps`].

mod steps;

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use trace::event::Copy;
use trace::{KernelInfo, Kind};
use verdict::run::RangeKind;

use super::args::{number, numbers, small};
use super::event::{text, thread_key, time, Fields, ROCM_COPIES};
use super::part::{Part, RawCall, RawKernel, RawOp, RawRange, StreamKey, ThreadKey};
use super::scan::{Scan, Value};
use super::time::whole;
use crate::vendors;

/// An event, until its process and lane are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawXla {
    start: i64,
    end: i64,
    key: ThreadKey,
    /// Number in [`Part::texts`].
    name: u32,
    /// What it is if it stands on the host.
    host: OnHost,
    correlation: Option<u32>,
    /// Of the module that it belongs to, or executes: hash of the name; 0: none.
    module: u64,
    /// Hash of the event's own name, less what stands in brackets behind it: `jit_step(1234)`.
    title: u64,
    step: Option<u32>,
    kernel: KernelInfo,
    grid: u32,
    /// `None`: no copy.
    copy: Option<Copy>,
    /// Bytes of a memset.
    fill: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnHost {
    Call,
    Python,
    /// An execution of a module; the lower the more it is that.
    Execution(u8),
    Other,
}

/// What a thread of the trace is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    Stream(u32),
    Modules,
    Ops,
}

/// What a process of the trace is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Process {
    Gpu(u32),
    Tpu,
}

/// What a trace turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// No profile of XLA.
    Nothing,
    /// A profile of XLA, with GPUs.
    Gpus,
    /// A profile of XLA without, of a TPU or of the host alone.
    NoGpu { tpu: bool },
}

/// The hash of a module's name; 0 of none.
fn hash(name: &[u8]) -> u64 {
    if name.is_empty() {
        0
    } else {
        FixedState::default().hash_one(name).max(1)
    }
}

/// One event without a category.
#[inline(never)]
pub(super) fn event(f: &Fields<'_>, part: &mut Part) {
    let span = time(&f.ts).zip(time(&f.dur)).and_then(|(start, length)| {
        let end = start.checked_add(length)?;
        (length >= 0).then_some((start, end))
    });
    let Some((start, end)) = span else {
        part.xla_without_time += 1;
        return;
    };
    let shown = f.name.strip_suffix(b" [clone .kd]").or_else(|| f.name.strip_suffix(b".kd"));
    let shown = shown.unwrap_or(f.name);
    let name = text(part, shown);
    let info = KernelInfo { name, block: [1; 3], ..KernelInfo::default() };
    let mut raw = RawXla {
        start,
        end,
        key: thread_key(f),
        name,
        host: on_host(f.name),
        correlation: None,
        module: 0,
        title: hash(f.name.split(|&b| b == b'(').next().unwrap_or(f.name)),
        step: None,
        kernel: info,
        grid: 1,
        copy: None,
        fill: None,
    };
    if f.name.starts_with(b"Memcpy") || f.name.starts_with(b"memcpy") {
        raw.copy = Some(Copy { direction: direction(f.name), ..Copy::default() });
    } else if f.name.starts_with(b"Memset") || f.name.starts_with(b"memset") {
        raw.fill = Some(0);
    }
    if let OnHost::Execution(_) = raw.host {
        raw.module = hash(executed(f.name));
    }
    if !f.args.is_empty() {
        // what cannot be read stays at its default: the event itself is sound
        let _ = Scan::new(f.args, 0).object(|key, s| {
            match (key, s.value()?) {
                (b"correlation_id", v) => raw.correlation = number(v).map(|n| n as u32),
                (b"hlo_module" | b"module_name", Value::Text(t)) => raw.module = hash(t),
                (b"step_num", v) => raw.step = small(v),
                (b"kernel_details", Value::Text(t)) => launched(t, &mut raw),
                (b"memcpy_details", Value::Text(t)) => copied(t, f.name, &mut raw),
                (b"memset_details", Value::Text(t)) => raw.fill = size(t),
                _ => {}
            }
            Ok(())
        });
    }
    part.xla.push(raw);
}

fn on_host(name: &[u8]) -> OnHost {
    if name.starts_with(b"$") {
        return OnHost::Python;
    }
    match name {
        b"GpuExecutable::ExecuteThunks" => return OnHost::Execution(0),
        n if n.ends_with(b":XLA GPU module") || n.starts_with(b"XlaModule:") => return OnHost::Execution(1),
        n if n.starts_with(b"PjitFunction(") => return OnHost::Execution(2),
        _ => {}
    }
    match std::str::from_utf8(name).ok().and_then(vendors::of_call) {
        Some(_) => OnHost::Call,
        None => OnHost::Other,
    }
}

/// The module that an event executes, by its name: `jit_step:XLA GPU module`, `PjitFunction(step)`,
/// `XlaModule:#hlo_module=jit_step,program_id=3#`.
fn executed(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b":XLA GPU module").unwrap_or(name);
    let name = name.strip_prefix(b"PjitFunction(").and_then(|n| n.strip_suffix(b")")).unwrap_or(name);
    let name = name.strip_prefix(b"XlaModule:#hlo_module=").unwrap_or(name);
    name.split(|&b| b == b',' || b == b'#').next().unwrap_or(name)
}

/// `regs:32 static_shared:0 dynamic_shared:0 grid:24,1,1 block:1024,1,1 occ_pct:100`.
fn launched(details: &[u8], raw: &mut RawXla) {
    for word in details.split(|&b| b == b' ') {
        let Some(colon) = memchr::memchr(b':', word) else { continue };
        let (key, value) = word.split_at(colon);
        let value = value.get(1..).unwrap_or(&[]);
        let small = || whole(value).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        match key {
            b"regs" => raw.kernel.registers = small(),
            b"static_shared" | b"group_mem" => raw.kernel.static_shared = small(),
            b"dynamic_shared" => raw.kernel.dynamic_shared = small(),
            b"block" => raw.kernel.block = numbers(value),
            b"grid" => {
                let blocks = numbers(value).into_iter().try_fold(1u32, |n, g| n.checked_mul(g));
                raw.grid = blocks.unwrap_or(u32::MAX);
            }
            _ => {}
        }
    }
}

/// `kind_src:pageable kind_dst:device size:4 dest:0 async:1`.
fn copied(details: &[u8], name: &[u8], raw: &mut RawXla) {
    let word = |key: &[u8]| {
        let mut words = details.split(|&b| b == b' ');
        words.find_map(|w| w.strip_prefix(key)?.strip_prefix(b":")).unwrap_or(&[])
    };
    const MEMORIES: [&[u8]; 7] =
        [b"pageable", b"pinned", b"device", b"array", b"managed", b"device_static", b"managed_static"];
    let memory = |kind: &[u8]| MEMORIES.iter().position(|m| *m == kind).map_or(0, |at| at as u8 + 1);
    let (source, destination) = (memory(word(b"kind_src")), memory(word(b"kind_dst")));
    let direction = direction(name);
    let bytes = size(details).unwrap_or(0);
    raw.copy = Some(Copy { bytes, direction, source, destination, peer: direction == 10 });
}

fn size(details: &[u8]) -> Option<u64> {
    let size = details.split(|&b| b == b' ').find_map(|w| w.strip_prefix(b"size:"))?;
    whole(size).and_then(|n| u64::try_from(n).ok())
}

/// `MemcpyH2D`, or as ROCm's tracer has it; numbers as CUPTI has them.
fn direction(name: &[u8]) -> u8 {
    if let Some((_, _, way)) = ROCM_COPIES.iter().find(|copy| name.starts_with(copy.0)) {
        return *way;
    }
    match name.get(6..).unwrap_or(&[]) {
        way if way.starts_with(b"H2D") => 1,
        way if way.starts_with(b"D2H") => 2,
        way if way.starts_with(b"D2D") => 8,
        way if way.starts_with(b"H2H") => 9,
        way if way.starts_with(b"P2P") => 10,
        _ => 0,
    }
}

/// The name of a process: kept where it is a device.
pub(super) fn process(pid: i64, name: &[u8], part: &mut Part) {
    let number = |rest: &[u8]| whole(rest).and_then(|n| u32::try_from(n).ok());
    part.of_xla |= name.starts_with(b"/host:") || name.starts_with(b"/device:");
    if let Some(ordinal) = name.strip_prefix(b"/device:GPU:").and_then(number) {
        part.processes.push((pid, Process::Gpu(ordinal)));
    } else if name.starts_with(b"/device:TPU:") {
        part.processes.push((pid, Process::Tpu));
    }
}

/// The name of a thread: kept where it is a lane of a device.
pub(super) fn lane(key: ThreadKey, name: &[u8], part: &mut Part) {
    let lane = match name {
        n if n.starts_with(b"Stream #") => {
            let digits = n.get(8..).unwrap_or(&[]);
            let digits = digits.split(|b| !b.is_ascii_digit()).next().unwrap_or(&[]);
            whole(digits).and_then(|n| u32::try_from(n).ok()).map(Lane::Stream)
        }
        n if n.starts_with(b"XLA Modules") => Some(Lane::Modules),
        n if n.starts_with(b"XLA Ops") => Some(Lane::Ops),
        _ => None,
    };
    part.lanes.extend(lane.map(|lane| (key, lane)));
}

/// An execution of a module: on which device, or thread of the host.
#[derive(Clone, Copy)]
struct Execution {
    start: i64,
    end: i64,
    module: u64,
    key: ThreadKey,
}

/// An operation that a call launched.
#[derive(Clone, Copy)]
struct Launched {
    device: u32,
    start: i64,
    correlation: u32,
    module: u64,
    /// Hash of its name.
    title: u64,
}

/// What all parts say together.
#[derive(Default)]
struct Whole {
    /// Of the `XLA Modules` of each device.
    on_device: HashMap<u32, Vec<Execution>>,
    /// By how much an event of the host is one.
    on_host: [Vec<Execution>; 3],
    annotated: Vec<(Execution, u32)>,
    /// What kernels of a module take.
    taken: HashMap<u64, i64>,
    ops: Vec<Launched>,
    /// By correlation id: thread, begin, end.
    calls: HashMap<u32, (ThreadKey, i64, i64)>,
}

/// Makes operations, calls and ranges of the parts' events, once all of them were read.
pub(super) fn resolve(parts: &mut [Part]) -> Found {
    if !parts.iter().any(|p| p.of_xla) || parts.iter().any(|p| !p.ops.is_empty()) {
        return Found::Nothing;
    }
    let processes: HashMap<i64, Process> = parts.iter().flat_map(|p| p.processes.iter().copied()).collect();
    if !processes.values().any(|p| matches!(p, Process::Gpu(_))) {
        return Found::NoGpu { tpu: processes.values().any(|p| *p == Process::Tpu) };
    }
    let lanes: HashMap<ThreadKey, Lane> = parts.iter().flat_map(|p| p.lanes.iter().copied()).collect();
    let streams: std::collections::HashSet<i64> =
        lanes.iter().filter(|l| matches!(l.1, Lane::Stream(_))).map(|l| l.0.pid).collect();
    // where one call has the id 0 they count from there; else 0 is none
    let from_zero = parts.iter().flat_map(|p| &p.xla).any(|x| x.correlation == Some(0));
    let mut whole = Whole::default();
    for part in parts.iter_mut() {
        part.refused.no_time += part.xla_without_time;
        for mut raw in std::mem::take(&mut part.xla) {
            raw.correlation = raw.correlation.map(|id| id.wrapping_add(u32::from(from_zero)));
            let process = processes.get(&raw.key.pid).copied();
            let lane = lanes.get(&raw.key).copied();
            match (process, lane) {
                (Some(Process::Gpu(device)), Some(Lane::Stream(stream))) => {
                    op(&raw, device, stream, part, &mut whole)
                }
                (Some(Process::Gpu(device)), Some(Lane::Ops)) if !streams.contains(&raw.key.pid) => {
                    op(&raw, device, 0, part, &mut whole);
                }
                (Some(Process::Gpu(device)), Some(Lane::Modules)) => {
                    whole.on_device.entry(device).or_default().push(raw.execution(raw.title));
                }
                (Some(_), _) => {}
                (None, _) => on_the_host(&raw, part, &mut whole),
            }
        }
    }
    steps::mark_steps(parts, whole);
    Found::Gpus
}

impl RawXla {
    fn execution(&self, module: u64) -> Execution {
        Execution { start: self.start, end: self.end, module, key: self.key }
    }
}

fn op(raw: &RawXla, device: u32, stream: u32, part: &mut Part, whole: &mut Whole) {
    let RawXla { start, end, .. } = *raw;
    let correlation = raw.correlation.unwrap_or(0);
    let stream = part.streams.number(StreamKey { device, context: 0, stream });
    let (kind, a, b) = match (raw.copy, raw.fill) {
        (Some(copy), _) => {
            let (a, b) = copy.pack();
            (Kind::Memcpy, a, b)
        }
        (None, Some(bytes)) => (Kind::Memset, bytes as u32, (bytes >> 32) as u32),
        (None, None) => {
            let kernel = RawKernel { own: None, told: false, info: raw.kernel };
            *whole.taken.entry(raw.module).or_default() += end - start;
            (Kind::Kernel, part.kernels.number(kernel), raw.grid)
        }
    };
    part.ops.push(RawOp { start, end, correlation, a, b, stream, graph: 0, kind });
    if correlation != 0 {
        whole.ops.push(Launched { device, start, correlation, module: raw.module, title: raw.title });
    }
}

fn on_the_host(raw: &RawXla, part: &mut Part, whole: &mut Whole) {
    let RawXla { start, end, key, name, .. } = *raw;
    let thread = part.threads.number(key);
    if let Some(step) = raw.step {
        whole.annotated.push((raw.execution(0), step));
    }
    let kind = match raw.host {
        OnHost::Call => {
            let correlation = raw.correlation.unwrap_or(0);
            if correlation != 0 {
                whole.calls.entry(correlation).or_insert((key, start, end));
            }
            part.calls.push(RawCall {
                start,
                end,
                correlation,
                thread,
                packed: 0,
                name,
                stack: 0,
                result: 0,
            });
            return;
        }
        OnHost::Python => RangeKind::Python,
        OnHost::Execution(how) => {
            if let Some(of) = whole.on_host.get_mut(usize::from(how)) {
                of.push(raw.execution(raw.module));
            }
            RangeKind::Operator
        }
        OnHost::Other => RangeKind::Operator,
    };
    // what XLA notes of itself costs little; a tracer of each Python call slows the host
    part.host_events += u64::from(kind == RangeKind::Python);
    part.ranges.push(RawRange { start, end, thread, name, kind, flags: 0 });
}

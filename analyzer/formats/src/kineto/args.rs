// SPDX-License-Identifier: Apache-2.0
//! The arguments of an event that are read, and numbers as traces write them.

use trace::event::{MARK, OPEN_ENDED, PAYLOAD, PAYLOAD_REAL, PAYLOAD_SIGNED, START_END};

use super::part::Part;
use super::scan::{Scan, Value};
use super::time::whole;

/// The arguments that are read.
#[derive(Default)]
pub(super) struct Args<'a> {
    pub(super) correlation: u32,
    pub(super) cbid: Option<u32>,
    pub(super) device: Option<u32>,
    /// A device is told, and none that can be.
    pub(super) no_device: bool,
    pub(super) context: u32,
    pub(super) stream: Option<u32>,
    pub(super) bytes: u64,
    pub(super) registers: u32,
    pub(super) shared: u32,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Of our own traces.
    pub(super) own: OwnArgs<'a>,
    /// Flags of a range or mark.
    pub(super) flags: u8,
    /// Number and length of a step mark.
    pub(super) step: u32,
    pub(super) ns: i64,
    /// Why something was not observed.
    pub(super) code: u32,
    /// Stack of a call, and what it returned, of our own traces.
    pub(super) stack: u32,
    pub(super) result: u32,
}

/// What only our own traces say of an operation.
#[derive(Default)]
pub(super) struct OwnArgs<'a> {
    pub(super) kernel: Option<u32>,
    /// It has the kernel's threads, registers and so on.
    pub(super) told: bool,
    pub(super) full_name: Option<&'a [u8]>,
    pub(super) dynamic: u32,
    pub(super) graph: u32,
    /// A kernel of it: id of the launch that was captured (in gapprobe's own traces).
    pub(super) captured: u32,
    /// Of a range: NVTX domain and number.
    pub(super) domain: Option<&'a [u8]>,
    pub(super) payload: Option<u64>,
}

pub(super) fn args<'a>(text: &'a [u8], part: &mut Part) -> Args<'a> {
    let mut a = Args { block: [1; 3], ..Args::default() };
    if text.is_empty() {
        return a;
    }
    let read = Scan::new(text, 0).object(|key, s| {
        match (key, s.value()?) {
            (b"correlation", v) => a.correlation = number(v).unwrap_or(0) as u32,
            (b"cbid", v) => a.cbid = small(v),
            (b"device", v) => {
                a.device = small(v);
                a.no_device = a.device.is_none();
            }
            (b"context", v) => a.context = small(v).unwrap_or(0),
            (b"stream", v) => a.stream = small(v),
            (b"bytes", v) => a.bytes = number(v).and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            (b"registers per thread", v) => a.registers = small(v).unwrap_or(0),
            (b"shared memory", v) => a.shared = small(v).unwrap_or(0),
            // our own traces: blocks in the grid, threads as a text, registers and shared memory by
            // other names
            (b"grid", v @ Value::Bare(_)) => a.grid = [small(v).unwrap_or(1), 1, 1],
            (b"block", Value::Text(t)) => {
                a.block = numbers(t);
                a.own.told = true;
            }
            (b"registers", v) => a.registers = small(v).unwrap_or(0),
            (b"static shared", v) => a.shared = small(v).unwrap_or(0),
            (b"dynamic shared", v) => a.own.dynamic = small(v).unwrap_or(0),
            (b"kernel", v) => a.own.kernel = small(v),
            (b"full name", Value::Text(t)) => a.own.full_name = Some(t),
            (b"graph", v) => a.own.graph = small(v).unwrap_or(0),
            (b"captured", v) => a.own.captured = small(v).unwrap_or(0),
            (b"end", Value::Text(t)) if t.starts_with(b"open") => a.flags |= OPEN_ENDED,
            (b"style", Value::Text(b"StartEnd")) => a.flags |= START_END,
            (b"style", Value::Text(b"Mark")) => a.flags |= MARK,
            (b"domain", Value::Text(t)) if !t.is_empty() => a.own.domain = Some(t),
            (b"payload", Value::Bare(t) | Value::Text(t)) => {
                if let Some((bits, flags)) = payload(t) {
                    a.own.payload = Some(bits);
                    a.flags |= flags;
                }
            }
            (b"step", v) => a.step = small(v).unwrap_or(0),
            (b"ns", v) => a.ns = number(v).filter(|n| *n >= 0).unwrap_or(0),
            (b"stack id", v) => a.stack = small(v).unwrap_or(0),
            (b"error", v) => a.result = small(v).unwrap_or(0),
            (b"code", v) => a.code = small(v).unwrap_or(0),
            (b"grid", Value::Nested(n)) => a.grid = three(n),
            (b"block", Value::Nested(n)) => a.block = three(n),
            _ => {}
        }
        Ok(())
    });
    // what cannot be read stays at its default: the event itself is sound
    part.refused.broken += u64::from(read.is_err());
    a
}

/// A range's number as bits, and the flags that say of what kind.
fn payload(text: &[u8]) -> Option<(u64, u8)> {
    let text = std::str::from_utf8(text).ok()?;
    let negative = |n: i64| (n as u64, PAYLOAD | PAYLOAD_SIGNED);
    let whole = text.parse().ok().map(|n: u64| (n, PAYLOAD)).or_else(|| text.parse().ok().map(negative));
    whole.or_else(|| text.parse().ok().map(|n: f64| (n.to_bits(), PAYLOAD | PAYLOAD_REAL)))
}

pub(super) fn number(v: Value<'_>) -> Option<i64> {
    match v {
        Value::Bare(t) | Value::Text(t) => whole(t),
        Value::Nested(_) => None,
    }
}

pub(super) fn small(v: Value<'_>) -> Option<u32> {
    number(v).and_then(|n| u32::try_from(n).ok())
}

/// `[x, y, z]`.
fn three(text: &[u8]) -> [u32; 3] {
    numbers(text.get(1..text.len().saturating_sub(1)).unwrap_or(&[]))
}

/// `x,y,z`.
pub(super) fn numbers(text: &[u8]) -> [u32; 3] {
    let mut out = [1; 3];
    for (to, word) in out.iter_mut().zip(text.split(|&b| b == b',')) {
        *to = whole(word.trim_ascii()).and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    }
    out
}

// SPDX-License-Identifier: Apache-2.0
//! One event each: a GPU op, an API call, a range, a step, an idle slice. Only bytes; which ones
//! and when is for `document.rs`.

use std::io::Write;

use trace::event::OPEN_ENDED;
use trace::Kind;

use super::json::{put_micros, put_text};
use super::output::Output;
use super::texts::Texts;
use super::WriteError;
use crate::analysis::{Bucket, IdleSlice, Step};
use crate::run::{Call, Mark, Number, Op, Range, RangeKind, Run, SyncRecord, UnobservedSpan, NONE};

/// Process number and time zero of a trace.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// `pid` of every event.
    pub(super) pid: u32,
    /// CLOCK_MONOTONIC ns that is `ts` 0.
    pub(super) base: u64,
}

impl Frame {
    /// `{"ph":"X","pid":1,"tid":2,"ts":0.000,"dur":1.000`
    pub(super) fn begin<W: Write>(self, out: &mut Output<W>, tid: u32, start: u64, end: u64) {
        out.number(b"{\"ph\":\"X\",\"pid\":", u64::from(self.pid));
        out.number(b",\"tid\":", u64::from(tid));
        out.put(b",\"ts\":");
        put_micros(&mut out.block, start.saturating_sub(self.base));
        out.put(b",\"dur\":");
        put_micros(&mut out.block, end.saturating_sub(start));
    }

    /// One end of an arrow, standing in the slice open at `at` on track `tid`.
    pub(super) fn arrow<W: Write>(
        self,
        out: &mut Output<W>,
        head: bool,
        tid: u32,
        at: u64,
        id: u64,
    ) -> Result<(), WriteError> {
        out.put(if head { b"{\"ph\":\"f\",\"bp\":\"e\",\"pid\":" } else { b"{\"ph\":\"s\",\"pid\":" });
        crate::output::chrome::json::put_u64(&mut out.block, u64::from(self.pid));
        out.number(b",\"tid\":", u64::from(tid));
        out.put(b",\"ts\":");
        put_micros(&mut out.block, at.saturating_sub(self.base));
        out.put(b",\"cat\":\"why idle\",\"name\":\"why idle\"");
        out.number(b",\"id\":", id);
        out.end()
    }
}

/// Names of CUPTI's copy kinds and memory kinds, as torch.profiler writes them.
fn copy_name(direction: u8) -> &'static str {
    match direction {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "unknown",
    }
}

fn memory_name(kind: u8) -> &'static str {
    match kind {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    }
}

/// Before the number of a launch arrow. Read as hexadecimal, so the decimal digits that follow make
/// a number that is its own, and far from those Perfetto counts for arrows of the other form
/// ([`Frame::arrow`]): both share one space.
const BIND: &[u8] = b",\"bind_id\":\"0xf00000";

/// A GPU op. `place` is `"device":0,"context":1,"stream":7`; `arrow`: the launching call's arrow
/// ends here.
pub(super) fn op<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    op: &Op,
    place: &[u8],
    texts: &mut Texts<'_>,
    arrow: Option<u64>,
) -> Result<(), WriteError> {
    frame.begin(out, tid, op.start, op.end);
    let mut more: &[u8] = &[];
    match op.kind {
        Kind::Kernel => {
            let (common, details) = texts.kernel(op.a);
            out.put(common);
            more = details;
        }
        Kind::Memcpy => {
            let c = op.copy();
            out.put(b",\"cat\":\"gpu_memcpy\",\"name\":\"Memcpy ");
            out.put(if op.is_unified() { b"Unified " } else { b"" });
            out.put(copy_name(c.direction).as_bytes());
            out.put(b" (");
            out.put(memory_name(c.source).as_bytes());
            out.put(b" -> ");
            out.put(memory_name(c.destination).as_bytes());
            out.put(b")\",\"args\":{");
            out.number(b"\"bytes\":", c.bytes);
            out.put(b",");
        }
        Kind::Memset => {
            out.put(b",\"cat\":\"gpu_memset\",\"name\":\"Memset\",\"args\":{");
            out.number(b"\"bytes\":", op.bytes());
            out.put(b",");
        }
        _ => out.put(b",\"cat\":\"kernel\",\"name\":\"CUDA graph\",\"args\":{"),
    }
    if op.graph != 0 {
        out.number(b"\"graph\":", u64::from(op.graph));
        out.put(b",");
    }
    if op.captured != 0 {
        out.number(b"\"captured\":", u64::from(op.captured));
        out.put(b",");
    }
    out.put(place);
    if op.kind == Kind::Kernel {
        out.number(b",\"grid\":", u64::from(op.b));
    }
    out.number(b",\"correlation\":", u64::from(op.correlation));
    out.put(more);
    out.put(texts.work(op));
    out.put(texts.operator(op));
    out.put(b"}");
    if let Some(id) = arrow {
        out.number(BIND, id);
        out.put(b"\",\"flow_in\":true");
    }
    out.end()
}

/// An API call; `arrow`: its arrow begins here.
pub(super) fn call<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    call: &Call,
    texts: &mut Texts<'_>,
    arrow: Option<u64>,
) -> Result<(), WriteError> {
    frame.begin(out, tid, call.start, call.end);
    out.put(texts.call(call.packed));
    out.number(b",\"args\":{\"correlation\":", u64::from(call.correlation));
    if call.result != 0 {
        out.number(b",\"error\":", u64::from(call.result));
    }
    if call.site != 0 {
        out.number(b",\"stack id\":", u64::from(call.site));
        out.put(texts.site(call.site).0);
    }
    out.put(b"}");
    if let Some(id) = arrow {
        out.number(BIND, id);
        out.put(b"\",\"flow_out\":true");
    }
    out.end()
}

/// A named range of the program.
pub(super) fn range<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    range: &Range,
    run: &Run,
) -> Result<(), WriteError> {
    frame.begin(out, tid, range.span.start, range.span.end);
    out.put(match range.kind {
        RangeKind::User => b",\"cat\":\"user_annotation\",\"name\":",
        RangeKind::Operator => b",\"cat\":\"cpu_op\",\"name\":",
        RangeKind::Python => b",\"cat\":\"python_function\",\"name\":",
    });
    put_name(out, range, run);
    out.end()
}

/// Name and arguments of a range or moment.
fn put_name<W: Write>(out: &mut Output<W>, range: &Range, run: &Run) {
    let name = Some(run.plain_name(range)).filter(|n| !n.is_empty()).unwrap_or("(no name)");
    put_text(&mut out.block, name);
    let mut before: &[u8] = b",\"args\":{";
    let mut next = |out: &mut Output<W>, text: &[u8]| {
        out.put(std::mem::replace(&mut before, b","));
        out.put(text);
    };
    if range.flags & OPEN_ENDED != 0 {
        next(out, b"\"end\":\"open: the recording ended first\"");
    }
    if range.is_start_end() || range.is_moment() {
        next(out, if range.is_moment() { b"\"style\":\"Mark\"" } else { b"\"style\":\"StartEnd\"" });
    }
    if let Some(domain) = run.definitions.string(range.domain).filter(|d| range.domain != 0 && !d.is_empty())
    {
        next(out, b"\"domain\":");
        put_text(&mut out.block, domain);
    }
    if let Some(number) = range.number() {
        next(out, b"\"payload\":");
        let text = match number {
            Number::Whole(n) => n.to_string(),
            Number::Negative(n) => n.to_string(),
            Number::Real(n) if n.is_finite() => format!("{n:?}"),
            // no number of JSON
            Number::Real(n) => format!("\"{n:?}\""),
        };
        out.put(text.as_bytes());
    }
    if before == b"," {
        out.put(b"}");
    }
}

/// A moment that the program marked, on the track of its thread's ranges.
pub(super) fn moment<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    moment: &Range,
    run: &Run,
) -> Result<(), WriteError> {
    out.number(b"{\"ph\":\"i\",\"s\":\"t\",\"pid\":", u64::from(frame.pid));
    out.number(b",\"tid\":", u64::from(tid));
    out.put(b",\"ts\":");
    put_micros(&mut out.block, moment.span.start.saturating_sub(frame.base));
    out.put(b",\"cat\":\"user_annotation\",\"name\":");
    put_name(out, moment, run);
    out.end()
}

/// A step mark of the program: a moment on the track of its thread's ranges.
pub(super) fn mark<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    mark: &Mark,
) -> Result<(), WriteError> {
    out.number(b"{\"ph\":\"i\",\"s\":\"t\",\"pid\":", u64::from(frame.pid));
    out.number(b",\"tid\":", u64::from(tid));
    out.put(b",\"ts\":");
    put_micros(&mut out.block, mark.span.start.saturating_sub(frame.base));
    out.number(b",\"cat\":\"step mark\",\"name\":\"step mark\",\"args\":{\"step\":", u64::from(mark.number));
    out.number(b",\"ns\":", mark.span.ns());
    if mark.flags & OPEN_ENDED != 0 {
        out.put(b",\"end\":\"open: the recording ended first\"");
    }
    out.put(b"}");
    out.end()
}

/// A wait of a stream for an event of another, as torch.profiler writes it.
pub(super) fn stream_wait<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    wait: &SyncRecord,
) -> Result<(), WriteError> {
    frame.begin(out, tid, wait.span.start, wait.span.end);
    out.put(b",\"cat\":\"cuda_sync\",\"name\":\"Stream Wait Event\",\"args\":{");
    out.number(b"\"stream\":", u64::from(wait.stream));
    out.number(b",\"correlation\":", u64::from(wait.correlation));
    out.put(b"}");
    out.end()
}

/// A step, and whether it is one in which something happened once.
pub(super) fn step<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    (step, is_once): (&Step, bool),
) -> Result<(), WriteError> {
    frame.begin(out, tid, step.span.start, step.span.end);
    out.number(b",\"cat\":\"step\",\"name\":\"step ", u64::from(step.number));
    if step.warm_up {
        out.put(b" (warm-up)\",\"cname\":\"grey\"");
    } else if is_once {
        out.put(b" (once)\",\"cname\":\"grey\"");
    } else if step.odd {
        out.put(b" (odd)\",\"cname\":\"olive\"");
    } else {
        out.put(b"\"");
    }
    out.end()
}

/// Colour of an idle slice: one of the names that trace viewers know.
fn colour(bucket: Bucket) -> &'static [u8] {
    match bucket {
        Bucket::Sync => b"terrible",
        Bucket::Launch => b"bad",
        Bucket::Host => b"thread_state_iowait",
        Bucket::Input => b"yellow",
        Bucket::Alloc => b"rail_animation",
        Bucket::CopyWait | Bucket::Copy => b"rail_load",
        Bucket::DeviceWait | Bucket::Comm => b"rail_response",
        Bucket::KernelGap | Bucket::Compute => b"good",
        Bucket::Unexplained => b"black",
    }
}

/// An idle slice; `blame` is the call that stands for it: the one that held the host up, or the
/// launch that came late; `stood` the stack in which the launching thread stood before (0: not
/// known).
pub(super) fn idle<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    slice: &IdleSlice,
    (blame, stood): (Option<(&Call, &str)>, u32),
    texts: &mut Texts<'_>,
) -> Result<(), WriteError> {
    frame.begin(out, tid, slice.start, slice.end);
    out.put(b",\"cat\":\"idle\",\"name\":\"");
    out.put(slice.bucket.label().as_bytes());
    out.put(b"\",\"cname\":\"");
    out.put(colour(slice.bucket));
    out.put(b"\"");
    // launches late by themselves are as many as the kernels: their slices say all in the name
    let late_launch = matches!(slice.bucket, Bucket::Launch | Bucket::KernelGap);
    if let Some((call, name)) = blame.filter(|_| !late_launch) {
        out.put(if call.is_launch() { b",\"args\":{\"late launch\":" } else { b",\"args\":{\"call\":" });
        put_text(&mut out.block, name);
        out.put(b",\"call us\":");
        put_micros(&mut out.block, call.end.saturating_sub(call.start));
        let stack = if stood != 0 { stood } else { call.site };
        if stack != 0 {
            let (site, stack) = texts.site(stack);
            out.put(site);
            out.put(stack);
        }
        out.put(texts.advice(slice.bucket, call));
        out.put(b"}");
    }
    out.end()
}

/// A span that was not observed.
pub(super) fn blind<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    tid: u32,
    blind: &UnobservedSpan,
) -> Result<(), WriteError> {
    frame.begin(out, tid, blind.span.start, blind.span.end);
    out.put(b",\"cat\":\"unobserved\",\"name\":\"not observed\",\"cname\":\"grey\",\"args\":{\"reason\":");
    put_text(&mut out.block, blind.text());
    out.number(b",\"code\":", u64::from(blind.reason));
    out.put(b"}");
    out.end()
}

/// The number of the arrow from the launching call to an op: the correlation id, which stands
/// beside it anyway and so costs the file nothing. `None` where the op has no call, or seems to
/// start before it.
pub(super) fn launch_arrow(op: &Op, call_start: impl FnOnce(u32) -> Option<u64>) -> Option<u64> {
    (op.call != NONE && call_start(op.call).is_some_and(|s| s <= op.start)).then(|| u64::from(op.correlation))
}

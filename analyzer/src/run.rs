// SPDX-License-Identifier: Apache-2.0
//! The facts of one recording, compact, sorted and joined; no opinions.
//!
//! Here: [`Run`]. `load.rs` fills it. Not here: steps, gaps, buckets (`analysis.rs` and below). Runs on the program's
//! exit thread or in `gapprobe`; nothing here trusts a byte of the recording, nothing panics.
//! Memory: 40 bytes a GPU op or API call, 32 a range or mark.

use trace::call::Class;
use trace::event::{
    Copy, Unobserved, FROM_RECORD, GRAPH_NODE, MARK, OPEN_ENDED, PAYLOAD_REAL, PAYLOAD_SIGNED, START_END,
};
use trace::{Definitions, DeviceInfo, Header, Kind, OpenError, Problems};

/// Why a recording cannot be loaded.
pub type LoadError = OpenError;

/// High byte of [`Call::packed`] where a foreign trace names a call: the rest is a string id.
pub const NAMED_CALL: u32 = 0x7f << 24;

/// "No such thing" in the 32-bit references of [`Op::call`] and the slices of `analysis.rs`.
pub const NONE: u32 = u32::MAX;

/// CUPTI's number for copies to the host.
pub(crate) const TO_HOST: u8 = 2;

/// A launch call may begin this much after its op by the two clocks' disagreement and still be joined, ns.
pub const CLOCK_SLACK_NS: u64 = 1_000_000;

/// Events past this time (73 years after boot) are damage: below it, no sum of times can overflow.
pub const MAX_TIME: u64 = 1 << 61;

/// From (inclusive) and to (exclusive), ns of the recorded CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub struct Span {
    /// Begin, ns.
    pub start: u64,
    /// End, ns; never before `start`.
    pub end: u64,
}

impl Span {
    /// A span; an `end` before `start` becomes `start`.
    pub fn new(start: u64, end: u64) -> Span {
        Span { start, end: end.max(start) }
    }

    /// Length, ns.
    pub fn ns(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The common part (empty where there is none).
    pub fn clip(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// One operation of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// Begin on the device, ns.
    pub start: u64,
    /// End on the device, ns.
    pub end: u64,
    /// CUPTI's id of the call that launched it (wraps in long runs).
    pub correlation: u32,
    /// See [`trace::Kind`]: kernels: kernel definition id; copies, memsets: bytes.
    pub a: u32,
    /// See [`trace::Kind`]: kernels: blocks in the grid.
    pub b: u32,
    /// Graph id, 0 outside graphs.
    pub graph: u32,
    /// Flat number of the launching call ([`Run::call`]), or [`NONE`].
    pub call: u32,
    /// Kernel, Memcpy, Memset or GraphTrace.
    pub kind: Kind,
    /// Flags of `trace::event`.
    pub flags: u8,
}

impl Op {
    /// Begin and end.
    pub fn span(&self) -> Span {
        Span { start: self.start, end: self.end }
    }

    /// What a copy moved; zeros for other kinds.
    pub fn copy(&self) -> Copy {
        if self.kind == Kind::Memcpy {
            Copy::unpack(self.a, self.b)
        } else {
            Copy::default()
        }
    }

    /// Bytes of a copy or memset, 0 for kernels.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Memcpy => self.copy().bytes,
            Kind::Memset => u64::from(self.a) | u64::from(self.b) << 32,
            _ => 0,
        }
    }

    /// A copy from the device to the host.
    pub fn is_copy_to_host(&self) -> bool {
        self.kind == Kind::Memcpy && self.copy().direction == TO_HOST
    }

    /// A node of a CUDA graph launch.
    pub fn is_graph_node(&self) -> bool {
        self.flags & GRAPH_NODE != 0
    }
}

/// One host API call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Begin on the calling thread, ns.
    pub start: u64,
    /// Return, ns.
    pub end: u64,
    /// CUPTI correlation id.
    pub correlation: u32,
    /// Domain and call id, see `trace::call::find`.
    pub packed: u32,
    /// Return value (0 success).
    pub result: u32,
    /// Where in the program it was made: a stack id of [`Run::definitions`], 0 where that is not known.
    pub site: u32,
    /// What it does; `None` for a number this version does not know.
    pub class: Option<Class>,
    /// Flags of `trace::event`.
    pub flags: u8,
}

impl Call {
    /// Begin and return.
    pub fn span(&self) -> Span {
        Span { start: self.start, end: self.end }
    }

    /// The function's name where the table of calls has it; [`Run::call_name`] knows those of foreign traces too.
    pub fn name(&self) -> &'static str {
        trace::call::find(self.packed).map_or("(unknown call)", |c| c.name)
    }

    /// Puts work into a stream (kernel, graph, copy or memset).
    pub fn launches(&self) -> bool {
        matches!(self.class, Some(Class::Launch | Class::GraphLaunch | Class::Copy | Class::Memset))
    }

    /// Seen through an activity record: when it returned is known, whether it blocked is not.
    pub fn from_record(&self) -> bool {
        self.flags & FROM_RECORD != 0
    }
}

/// A CUDA stream of a device.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// CUPTI context id.
    pub context: u32,
    /// CUPTI stream id.
    pub stream: u32,
    /// By start (then end).
    pub ops: Vec<Op>,
}

/// CUPTI's record of a wait (see [`Kind::SyncRecord`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncRecord {
    /// When CUPTI saw the waiting, ns.
    pub span: Span,
    /// CUPTI correlation id of the call.
    pub correlation: u32,
    /// 1 event, 2 stream waits for event, 3 stream, 4 context.
    pub what: u32,
    /// CUDA event id.
    pub event: u32,
    /// CUPTI stream id.
    pub stream: u32,
}

/// A GPU and its streams.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Ordinal in the process.
    pub ordinal: u32,
    /// What the recorder knew of it.
    pub info: DeviceInfo,
    /// In order of context and stream id.
    pub streams: Vec<Stream>,
}

impl Device {
    /// Operations on all streams.
    pub fn ops(&self) -> usize {
        self.streams.iter().map(|s| s.ops.len()).sum()
    }
}

/// What kind of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
#[repr(u8)]
pub enum RangeKind {
    /// The program (or a framework for it) named it: NVTX, `gapprobe_range`, `record_function`.
    #[default]
    User = 0,
    /// An operator of the framework (torch.profiler with CPU activities).
    Operator = 1,
    /// A Python function (torch.profiler `with_stack`).
    Python = 2,
}

/// A named range of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// Begin and end.
    pub span: Span,
    /// Name, a string id of [`Run::definitions`]; with its domain where it has one, as nsys shows it: `NCCL:ncclAllReduce`
    /// (see [`Run::plain_name`]).
    pub name: u32,
    /// Nesting depth, 0 outermost.
    pub depth: u8,
    /// Flags of `trace::event`.
    pub flags: u8,
    /// Who named it.
    pub kind: RangeKind,
    /// NVTX domain, a string id (0: none).
    pub domain: u32,
    /// The number that came with it (for NCCL's ranges: bytes of the collective), as bits: see [`Range::number`].
    pub payload: Option<u64>,
}

/// The number that came with a range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// Zero or more.
    Whole(u64),
    /// Below zero.
    Negative(i64),
    /// With a fraction.
    Real(f64),
}

/// NVTX domains of libraries whose ranges stand around work of theirs, not around a part of the program's step.
pub const LIBRARY_DOMAINS: [&str; 1] = ["NCCL"];

impl Range {
    /// Ended by its handle, on whatever thread (NVTX start and end): it need not nest in other ranges. Else it ended on the
    /// thread it began on, the innermost first (push and pop).
    pub fn is_start_end(&self) -> bool {
        self.flags & START_END != 0
    }

    /// A moment that the program marked (they are in [`Thread::moments`]).
    pub fn is_moment(&self) -> bool {
        self.flags & MARK != 0
    }

    /// The number that came with it.
    pub fn number(&self) -> Option<Number> {
        let bits = self.payload?;
        Some(match (self.flags & PAYLOAD_REAL != 0, self.flags & PAYLOAD_SIGNED != 0) {
            (true, _) => Number::Real(f64::from_bits(bits)),
            (false, true) => Number::Negative(bits as i64),
            (false, false) => Number::Whole(bits),
        })
    }
}

/// A step mark: from this mark to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// From the mark to the next one.
    pub span: Span,
    /// The program's step number.
    pub number: u32,
    /// Flags of `trace::event` (`OPEN_ENDED`: closed by the end of the recording).
    pub flags: u8,
}

/// A host thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Kernel thread id.
    pub tid: u32,
    /// Name when first seen, a string id (0 none).
    pub name: u32,
    /// By start.
    pub calls: Vec<Call>,
    /// By start.
    pub ranges: Vec<Range>,
    /// By start: moments that the program marked (NVTX marks), as ranges of no length. None is a step mark.
    pub moments: Vec<Range>,
    /// By start.
    pub marks: Vec<Mark>,
    /// By start.
    pub samples: Vec<Sample>,
}

impl Thread {
    /// One of its ranges was never closed, and another of the same name began later: its end was forgotten (a `continue` in a loop), and
    /// nobody knows when it was. (What is still open at the end, and the last of its name, may be where the program stands.)
    pub fn is_left_open(&self, r: &Range) -> bool {
        let again = |o: &Range| (o.kind, o.name) == (r.kind, r.name) && o.span.start > r.span.start;
        r.flags & OPEN_ENDED != 0 && self.ranges.iter().any(again)
    }
}

/// Where a host thread stood (the gap sampler), see [`Kind::Sample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The time it stands for: since the thread's sample before.
    pub span: Span,
    /// Stack id, 0 where none could be read.
    pub stack: u32,
    /// System call the thread was blocked in; `None`: in none.
    pub syscall: Option<u32>,
    /// Share of the span on a CPU, permille.
    pub on_cpu: u16,
    /// Share of the span runnable but waiting for a CPU, permille.
    pub run_queue: u16,
    /// Bits of [`trace::event::sample`].
    pub bits: u8,
}

/// A child process in a span, see [`Kind::Process`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// From and to.
    pub span: Span,
    /// Process id.
    pub pid: u32,
    /// CPU time, permille of the span on one CPU (saturated at 65.5 CPUs).
    pub on_cpu: u16,
    /// Time blocked on a disk, permille of the span.
    pub on_disk: u16,
    /// KiB read in the span.
    pub read_kib: u32,
}

/// Where a forked child stood while it ran, see [`Kind::ChildSample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildSample {
    /// Since it was looked at before.
    pub span: Span,
    /// Process id.
    pub pid: u32,
    /// Stack id of its main thread, 0 where none could be read.
    pub stack: u32,
}

/// A number read while recording, see [`Kind::Gauge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// When it was read, or the span over which it counted up.
    pub span: Span,
    /// Number of [`trace::event::Gauge`]; others come from newer recorders.
    pub gauge: u32,
    /// Device ordinal; 0 for the host's.
    pub device: u8,
    /// Value, unit by gauge.
    pub value: u64,
}

/// A span in which the GPU was not observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blind {
    /// From and to.
    pub span: Span,
    /// Number of [`Unobserved`]; other numbers come from newer recorders.
    pub reason: u32,
}

impl Blind {
    /// Were the program's calls recorded all the same?
    pub fn is_host_seen(&self) -> bool {
        self.reason == Unobserved::Front as u32
    }

    /// The reason in words.
    pub fn text(&self) -> &'static str {
        match self.reason {
            r if r == Unobserved::Yielded as u32 => "another profiler held the GPU records",
            r if r == Unobserved::CaptureOff as u32 => "the program switched capture off",
            r if r == Unobserved::Limit as u32 => "recording stopped at a limit",
            r if r == Unobserved::Stopped as u32 => "the process was stopped",
            r if r == Unobserved::Window as u32 => "between two windows",
            r if r == Unobserved::Front as u32 => "what it did then was launched unrecorded",
            _ => "not observed",
        }
    }
}

/// `count` items of `code` were lost at about `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossMark {
    /// ns.
    pub at: u64,
    /// Number of [`trace::Loss`].
    pub code: u32,
    /// How many.
    pub count: u32,
}

/// Who recorded a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recorder {
    /// `libgapprobe.so`.
    #[default]
    Gapprobe,
    /// torch.profiler.
    Torch,
    /// Nsight Systems.
    Nsys,
}

impl Recorder {
    /// All of them.
    pub const ALL: [Recorder; 3] = [Recorder::Gapprobe, Recorder::Torch, Recorder::Nsys];

    /// Name in files.
    pub const fn key(self) -> &'static str {
        match self {
            Recorder::Gapprobe => "gapprobe",
            Recorder::Torch => "torch.profiler",
            Recorder::Nsys => "nsys",
        }
    }
}

/// Operations of another tool's trace without a launching call that can be theirs (`formats/uncalled.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uncalled {
    /// Calls that are missing; one may have launched a graph of many operations.
    pub calls: u64,
    /// Operations they launched.
    pub ops: u64,
    /// Of them, copies.
    pub copies: u64,
    /// Operations whose call is there, and begins later than they do by more than [`CLOCK_SLACK_NS`].
    pub early: u64,
}

/// Everything a recording says.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The header.
    pub header: Header,
    /// What ids stand for.
    pub definitions: Definitions,
    /// What could not be read.
    pub problems: Problems,
    /// By ordinal.
    pub devices: Vec<Device>,
    /// By thread id.
    pub threads: Vec<Thread>,
    /// (monotonic, realtime) ns, by monotonic time; the header's pair comes first.
    pub clocks: Vec<(u64, u64)>,
    /// By start.
    pub waits: Vec<SyncRecord>,
    /// By start.
    pub blind: Vec<Blind>,
    /// By time.
    pub loss_marks: Vec<LossMark>,
    /// By start.
    pub children: Vec<Child>,
    /// Samples of child processes.
    pub child_samples: Vec<ChildSample>,
    /// By start.
    pub readings: Vec<Reading>,
    /// Ops whose launching call is not in the recording.
    pub unjoined: u64,
    /// Of them in another tool's trace, those whose call was lost; 0 of our own recordings, which have counters.
    pub uncalled: Uncalled,
    /// Events read (all kinds).
    pub events: u64,
    /// Of them, older ones that were not kept (`load_newest`).
    pub left_out: u64,
    /// Operations that a foreign trace holds more than once; one of each is kept.
    pub duplicates: u64,
    /// Who recorded it, whatever file it was read from.
    pub recorder: Recorder,
    /// Another tool's trace: what recording it cost is not known.
    pub foreign: bool,
    /// The trace was taken with host operators on (torch.profiler), which slows the host.
    pub slowed_host: bool,
    /// Another tool's trace in which so many processes launch under the same ids (ranks merged into one file); else 0.
    pub merged: u32,
    /// What its recorder says is missing, without saying how much of it; "": nothing.
    pub missing: String,
    /// Begin of the last `ProfilerStep` as torch.profiler shows it on the GPU, too (`tables/hta.rs`).
    pub last_gpu_step: Option<u64>,
    /// Flat number of each thread's first call; one entry more than threads.
    pub(crate) call_base: Vec<u32>,
}

impl Run {
    /// Thread index and call of a flat call number ([`Op::call`]).
    pub fn call(&self, flat: u32) -> Option<(usize, &Call)> {
        let thread = self.call_base.partition_point(|&b| b <= flat).checked_sub(1)?;
        let call = self.threads.get(thread)?.calls.get((flat - self.call_base.get(thread)?) as usize)?;
        Some((thread, call))
    }

    /// The end of the last GPU operation, where operations were recorded and all of them lie behind what a flush that ended says is
    /// whole: they are true, but how many are missing between them nobody knows.
    pub fn unproven(&self) -> Option<u64> {
        let (h, to) = (&self.header, crate::known::complete_to(&self.header));
        let failed = h.state >= trace::header::state::CLOSED && self.flush_failed();
        let ops = || self.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
        if self.foreign || (to > 0 && !failed) || ops().any(|o| o.start < to) {
            return None;
        }
        ops().map(|o| o.end).max()
    }

    /// Did CUPTI keep, or may it have kept, buffers that it was asked for?
    pub fn flush_failed(&self) -> bool {
        let signs = [trace::Loss::ExitFlushLate, trace::Loss::CuptiError, trace::Loss::BufferNotReturned];
        signs.into_iter().any(|loss| self.header.loss(loss) > 0)
    }

    /// How many calls there are: flat numbers lie below it.
    pub(crate) fn calls(&self) -> usize {
        self.threads.iter().map(|t| t.calls.len()).sum()
    }

    /// The frames of a call's site, innermost first; none where it is not known.
    pub fn site(&self, call: &Call) -> impl DoubleEndedIterator<Item = &trace::FrameInfo> {
        self.definitions.stack(call.site)
    }

    /// The stack of Python functions that a call was made from; 0 where there is none, or it is known by its calling function alone.
    pub(crate) fn python_stack(&self, call: &Call) -> u32 {
        let is_caller = self.site(call).next().is_some_and(|f| f.language == trace::Language::Caller);
        if is_caller {
            0
        } else {
            call.site
        }
    }

    /// A range's name without its domain.
    pub fn plain_name(&self, range: &Range) -> &str {
        let name = self.definitions.string(range.name).unwrap_or("");
        let domain = self.definitions.string(range.domain).filter(|d| range.domain != 0 && !d.is_empty());
        domain.and_then(|d| name.strip_prefix(d)?.strip_prefix(':')).unwrap_or(name)
    }

    /// Is the range a library's own ([`LIBRARY_DOMAINS`])?
    pub fn is_librarys(&self, range: &Range) -> bool {
        range.domain != 0
            && self.definitions.string(range.domain).is_some_and(|d| LIBRARY_DOMAINS.contains(&d))
    }

    /// A call's name as users know it.
    pub fn call_name(&self, call: &Call) -> &str {
        self.known_call_name(call.packed).unwrap_or("(unknown call)")
    }

    /// The name of a [`Call::packed`], where it has one.
    pub fn known_call_name(&self, packed: u32) -> Option<&str> {
        match packed & NAMED_CALL {
            NAMED_CALL => self.definitions.string(packed & !NAMED_CALL),
            _ => trace::call::find(packed).map(|c| c.name),
        }
    }

    /// Flat number of the `index`th call of thread `thread`.
    pub fn flat(&self, thread: usize, index: usize) -> u32 {
        self.call_base.get(thread).map_or(NONE, |b| b.saturating_add(index as u32))
    }

    /// An op by device index, stream index and number.
    pub fn op(&self, device: usize, stream: u16, op: u32) -> Option<&Op> {
        self.devices.get(device)?.streams.get(stream as usize)?.ops.get(op as usize)
    }

    /// CLOCK_REALTIME, ns since 1970, of a CLOCK_MONOTONIC time: by the latest pair at or before it (the first pair
    /// for earlier times).
    pub fn realtime(&self, monotonic: u64) -> u64 {
        let at = self.clocks.partition_point(|c| c.0 <= monotonic).saturating_sub(1);
        let (m, r) = self.clocks.get(at).copied().unwrap_or((0, 0));
        if monotonic >= m {
            r.saturating_add(monotonic - m)
        } else {
            r.saturating_sub(m - monotonic)
        }
    }
}

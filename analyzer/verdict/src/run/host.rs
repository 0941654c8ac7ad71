// SPDX-License-Identifier: Apache-2.0
//! What the program's threads and its child processes did.

use trace::call::Class;
use trace::event::{FROM_RECORD, MARK, OPEN_ENDED, PAYLOAD_REAL, PAYLOAD_SIGNED, START_END};

use super::autograd::InBackward;
use super::Span;

/// High byte of [`Call::packed`] where a foreign trace names a call: the rest is a string id.
pub const NAMED_CALL: u32 = 0x7f << 24;

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
    /// Where in the program it was made: a stack id of [`super::Run::definitions`], 0 where that is
    /// not known.
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

    /// The function's name where the table of calls has it; [`super::Run::call_name`] knows those
    /// of foreign traces too.
    pub fn name(&self) -> &'static str {
        trace::call::find(self.packed).map_or("(unknown call)", |c| c.name)
    }

    /// Launches a kernel or a graph.
    pub fn is_launch(&self) -> bool {
        matches!(self.class, Some(Class::Launch | Class::GraphLaunch))
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
    /// Name, a string id of [`super::Run::definitions`]; with its domain where it has one, as nsys
    /// shows it: `NCCL:ncclAllReduce` (see [`super::Run::plain_name`]).
    pub name: u32,
    /// Nesting depth, 0 outermost.
    pub depth: u8,
    /// Flags of `trace::event`.
    pub flags: u8,
    /// Who named it.
    pub kind: RangeKind,
    /// NVTX domain, a string id (0: none).
    pub domain: u32,
    /// The number that came with it (for NCCL's ranges: bytes of the collective), as bits: see
    /// [`Range::number`].
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

/// NVTX domains of libraries whose ranges stand around work of theirs, not around a part of the
/// program's step.
pub const LIBRARY_DOMAINS: [&str; 1] = ["NCCL"];

impl Range {
    /// Ended by its handle, on whatever thread (NVTX start and end): it need not nest in other
    /// ranges. Else it ended on the thread it began on, the innermost first (push and pop).
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
    /// By start: moments that the program marked (NVTX marks), as ranges of no length. None is a
    /// step mark.
    pub moments: Vec<Range>,
    /// By start.
    pub marks: Vec<Mark>,
    /// By start.
    pub samples: Vec<Sample>,
    /// Samples of pauses between windows, by start ([`crate::gaps::pauses`]).
    pub between: Vec<Sample>,
    /// Of its calls those made in a backward pass of PyTorch's, by start.
    pub backward: Vec<InBackward>,
}

/// The next one of a name is looked for among so many ranges behind it: a damaged trace has as many
/// open ones as ranges.
const NEAR: usize = 4096;

impl Thread {
    /// The call that the thread stands in at `at`: the last that had begun, where it had not
    /// returned.
    pub(crate) fn call_at(&self, at: u64) -> Option<&Call> {
        let next = self.calls.partition_point(|c| c.start <= at);
        next.checked_sub(1).and_then(|i| self.calls.get(i)).filter(|c| c.end > at)
    }

    /// One of its ranges was never closed, and another of the same name began later: its end was
    /// forgotten (a `continue` in a loop), and nobody knows when it was. (What is still open at the
    /// end, and the last of its name, may be where the program stands.)
    pub fn is_left_open(&self, r: &Range) -> bool {
        if r.flags & OPEN_ENDED == 0 || r.is_start_end() {
            return false;
        }
        let later = self.ranges.partition_point(|o| o.span.start <= r.span.start);
        let mut later = self.ranges.iter().skip(later).take(NEAR);
        later.any(|o| (o.kind, o.name) == (r.kind, r.name))
    }
}

/// Where a host thread stood (the gap sampler), see [`trace::Kind::Sample`].
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

/// A child process in a span, see [`trace::Kind::Process`].
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
    /// Time in which its main thread waited for a CPU, permille of the span.
    pub run_queue: u16,
}

/// Where a forked child stood while it ran or waited for data, see [`trace::Kind::ChildSample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildSample {
    /// Since it was looked at before.
    pub span: Span,
    /// Process id.
    pub pid: u32,
    /// Stack id of its main thread, 0 where none could be read.
    pub stack: u32,
    /// The system call in which it waited for data ([`trace::event::PAGE_FAULT`]: in none, for a
    /// page).
    pub waits: Option<u32>,
    /// `OUTER` and `PIPE` of [`trace::event::sample`].
    pub bits: u8,
}

// SPDX-License-Identifier: Apache-2.0
//! The facts of one recording, compact, sorted and joined; no opinions.
//!
//! Here: [`Run`], and how it was observed. `device.rs`: what the devices did. `host.rs`: what
//! threads and child processes did. `autograd.rs`: the backward pass by the lines of the forward
//! one. `load/` fills it. Not here: steps, gaps, buckets (`analysis/`). Runs on the program's exit
//! thread or in `gapprobe`; nothing here trusts a byte of the recording, nothing panics. Memory: 40
//! bytes a GPU op or API call, 32 a range or mark.

pub mod autograd;
pub mod complete_to;
mod device;
mod host;
pub mod merge;
pub mod operators;

use std::collections::HashMap;

use trace::event::Unobserved;
use trace::{Definitions, Header, OpenError, Problems};

use autograd::Captured;
pub(crate) use device::TO_HOST;
pub use device::{Device, Op, Stream, SyncRecord};
pub use host::{
    Call, Child, ChildSample, Mark, Number, Range, RangeKind, Sample, Thread, LIBRARY_DOMAINS, NAMED_CALL,
};
use operators::Operators;

/// Why a recording cannot be loaded.
pub type LoadError = OpenError;

/// "No such thing" in the 32-bit references of [`Op::call`] and the slices of
/// `timeline/buckets.rs`.
pub const NONE: u32 = u32::MAX;

/// A launch call may begin this much after its op by the two clocks' disagreement and still be
/// joined, ns.
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

/// A number read while recording, see [`trace::Kind::Gauge`].
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
pub struct UnobservedSpan {
    /// From and to.
    pub span: Span,
    /// Number of [`Unobserved`]; other numbers come from newer recorders.
    pub reason: u32,
}

impl UnobservedSpan {
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
            r if r == Unobserved::Clock as u32 => "CUPTI's clock was not right yet after another profiler",
            r if r == Unobserved::Front as u32 => "what was launched before was not recorded",
            _ => "not observed",
        }
    }
}

/// `count` items of `code` were lost in this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossMark {
    /// ns.
    pub span: Span,
    /// Number of [`trace::Loss`].
    pub code: u32,
    /// How many.
    pub count: u32,
    /// How many of that code before, at least: older marks may have been overwritten.
    pub before: u32,
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
    /// XLA's profiler: JAX, TensorFlow.
    Xla,
}

impl Recorder {
    /// All of them.
    pub const ALL: [Recorder; 4] = [Recorder::Gapprobe, Recorder::Torch, Recorder::Nsys, Recorder::Xla];

    /// Name in files.
    pub const fn key(self) -> &'static str {
        match self {
            Recorder::Gapprobe => "gapprobe",
            Recorder::Torch => "torch.profiler",
            Recorder::Nsys => "nsys",
            Recorder::Xla => "xla",
        }
    }
}

/// Operations of another tool's trace without a launching call that can be theirs
/// (`formats/uncalled.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uncalled {
    /// Calls that are missing; one may have launched a graph of many operations.
    pub calls: u64,
    /// Operations they launched.
    pub ops: u64,
    /// Of them, copies.
    pub copies: u64,
    /// Operations whose call is there, and begins later than they do by more than
    /// [`CLOCK_SLACK_NS`].
    pub early: u64,
    /// Operations of which the trace does not tell which call launched them: their id is 0, or that
    /// of other kernels, too. No loss: the calls may be there.
    pub unidentified: u64,
    /// Of them, kernels.
    pub unidentified_kernels: u64,
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
    pub blind: Vec<UnobservedSpan>,
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
    /// Of them in another tool's trace, those whose call was lost; 0 of our own recordings, which
    /// have counters.
    pub uncalled: Uncalled,
    /// Events read (all kinds).
    pub events: u64,
    /// Of them, older ones that were not kept (`load_newest`).
    pub left_out: u64,
    /// A window cut out of a process that goes on (`gapprobe capture`): the counters of its header
    /// are of another time.
    pub cut_out: bool,
    /// Operations that a foreign trace holds more than once; one of each is kept.
    pub duplicates: u64,
    /// Who recorded it, whatever file it was read from.
    pub recorder: Recorder,
    /// Another tool's trace: what recording it cost is not known.
    pub foreign: bool,
    /// The trace was taken with host operators on (torch.profiler), which slows the host.
    pub slowed_host: bool,
    /// Another tool's trace in which so many processes launch under the same ids (ranks merged into
    /// one file); else 0.
    pub merged: u32,
    /// What its recorder says is missing, without saying how much of it; "": nothing.
    pub missing: String,
    /// Python functions of another tool's trace: ids of frames by the names of ranges.
    pub functions: HashMap<u32, u32>,
    /// Which of PyTorch's operators put what on the GPU.
    pub operators: Operators,
    /// The launches that were captured as kernels of CUDA graphs, by the id of their definition.
    pub captured: HashMap<u32, Captured>,
    /// Flat number of each thread's first call; one entry more than threads.
    pub call_base: Vec<u32>,
}

/// How the names of simulated GPUs begin.
pub const SIMULATED_GPU: &str = "Simulated GPU";

impl Run {
    /// Recorded on gapprobe's simulated driver (tests/sim), which names its GPUs so: no figure is
    /// one of a GPU.
    pub fn is_simulated(&self) -> bool {
        let mut names = self.devices.iter().filter_map(|d| self.definitions.string(d.info.name));
        names.any(|name| name.starts_with(SIMULATED_GPU))
    }

    /// Thread index and call of a flat call number ([`Op::call`]).
    pub fn call(&self, flat: u32) -> Option<(usize, &Call)> {
        let thread = self.call_base.partition_point(|&b| b <= flat).checked_sub(1)?;
        let call = self.threads.get(thread)?.calls.get((flat - self.call_base.get(thread)?) as usize)?;
        Some((thread, call))
    }

    /// The end of the last GPU operation, where operations were recorded and all of them lie behind
    /// what a flush that ended says is whole: they are true, but how many are missing between them
    /// nobody knows.
    pub fn unproven(&self) -> Option<u64> {
        let (h, to) = (&self.header, crate::run::complete_to::complete_to(&self.header));
        let failed = !h.is_unfinished() && self.flush_failed();
        let ops = || self.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
        if self.foreign || (to > 0 && !failed) || ops().any(|o| o.start < to) {
            return None;
        }
        ops().map(|o| o.end).max()
    }

    /// Events that are missing because the file is damaged, at most. Of a file of another writer:
    /// places in it.
    pub(crate) fn damaged_events(&self) -> u64 {
        if self.foreign {
            self.problems.damaged()
        } else {
            self.problems.events()
        }
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

    /// A call's [`Call::site`] where that is a stack of Python functions; 0 where it is the
    /// function of machine code that called, or not known.
    pub fn python_stack(&self, site: u32) -> u32 {
        let is_caller =
            self.definitions.stack(site).next().is_some_and(|f| f.language == trace::Language::Caller);
        if is_caller {
            0
        } else {
            site
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

    /// CLOCK_REALTIME, ns since 1970, of a CLOCK_MONOTONIC time: by the latest pair at or before it
    /// (the first pair for earlier times).
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

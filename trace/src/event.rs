// SPDX-License-Identifier: Apache-2.0
//! One event in 32 bytes (four little-endian u64 words).
//!
//! ```text
//! word 0   start                                   ns, CLOCK_MONOTONIC of the recorded machine
//! word 1   duration bits 0..32 | correlation << 32 correlation: CUPTI's id of the API call, 0 where there is none
//! word 2   a | b << 32                             meaning by kind, see Kind
//! word 3   kind | flags << 8 | x << 16 | duration bits 32..40 << 24 | c << 32
//! ```
//! A duration has 40 bits (1,099 s); a longer one is stored as the largest and flagged
//! [`SATURATED`].

/// Bytes of one encoded event.
pub const EVENT_BYTES: usize = 32;
/// Words of one encoded event.
pub const EVENT_WORDS: usize = 4;
/// Largest duration that can be stored, in ns.
pub const MAX_DURATION: u64 = (1 << 40) - 1;

/// Flag: the true duration is longer than [`MAX_DURATION`].
pub const SATURATED: u8 = 1 << 7;
/// Flag of GPU events: the op is a node of a CUDA graph (`c` = graph id).
pub const GRAPH_NODE: u8 = 1 << 0;
/// Flag of copies: the call was asynchronous in CUPTI's record.
pub const COPY_ASYNC: u8 = 1 << 1;
/// Flag of calls: seen through an activity record, not a callback (no exact blocking semantics, no
/// call site).
pub const FROM_RECORD: u8 = 1 << 2;
/// Flag of calls: a launch that was captured as a node of a CUDA graph.
pub const CAPTURED: u8 = 1 << 0;
/// Flag of such launches: made while a node of PyTorch's autograd graph was evaluated.
pub const IN_NODE: u8 = 1 << 1;
/// Flag of ranges and steps: closed by the end of the recording, not by the program.
pub const OPEN_ENDED: u8 = 1 << 3;

/// Flag of ranges: ended by its handle, on whatever thread (NVTX start and end); it need not nest
/// in other ranges.
pub const START_END: u8 = 1 << 4;
/// Flag of ranges: it has a number, see [`Kind::Range`].
pub const PAYLOAD: u8 = 1 << 5;
/// Flag of ranges: the number is negative (two's complement).
pub const PAYLOAD_SIGNED: u8 = 1 << 0;
/// Flag of ranges: the number is an IEEE 754 binary64.
pub const PAYLOAD_REAL: u8 = 1 << 1;
/// Flag of ranges: a moment that the program marked (NVTX mark), no range; begin and end are one.
pub const MARK: u8 = 1 << 6;

/// Bits of field `x` of a [`Kind::Sample`].
pub mod sample {
    /// The thread held Python's global lock (GIL).
    pub const HOLDS_GIL: u8 = 1;
    /// The thread waited for Python's global lock.
    pub const WAITS_GIL: u8 = 1 << 1;
    /// Python's garbage collector was running in its interpreter.
    pub const COLLECTING: u8 = 1 << 2;
    /// The thread was blocked in nothing at the sample's end: it ran, or waited for a CPU.
    pub const RUNNABLE: u8 = 1 << 3;
    /// The innermost frames of the stack are left out: they moved while they were read.
    pub const OUTER: u8 = 1 << 4;
    /// Of a [`Kind::ChildSample`]: what it waits to read is a pipe or the like, another process and
    /// not storage.
    ///
    /// [`Kind::ChildSample`]: super::Kind::ChildSample
    pub const PIPE: u8 = 1 << 5;
}

/// Stands for the number of a system call where a thread is blocked outside of any: a page of
/// memory is fetched (from a file, say).
pub const PAGE_FAULT: u32 = 0xfffe;

/// What a [`Kind::Gauge`] measures; the number is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Gauge {
    /// NVML's GPU utilisation, percent: the share of its last period in which any kernel ran.
    Utilization = 1,
    /// Power drawn, mW.
    PowerMw = 2,
    /// Clock of the multiprocessors, MHz.
    SmClockMhz = 3,
    /// Why clocks are held down: NVML's bits (`nvmlClocksEventReason*`).
    ThrottleReasons = 4,
    /// Memory in use on the device by all processes, bytes.
    MemoryUsed = 5,
    /// Largest clock of the multiprocessors the device offers, MHz.
    SmClockMaxMhz = 6,
    /// Power limit in force, mW.
    PowerLimitMw = 7,
    /// Share of the cycles, over all multiprocessors, in which a warp was on it: 1/100 percent of
    /// the time from begin to end, as the seven that follow. By NVML's GPM.
    SmActive = 8,
    /// Warps that were on the multiprocessors, of those that there is room for.
    SmOccupancy = 9,
    /// Cycles in which the tensor pipes were active, of all precisions.
    TensorActive = 10,
    /// Memory traffic of the device, of its bandwidth.
    DramActive = 11,
    /// Cycles in which the pipe for 64-bit floating point was active.
    Fp64Active = 12,
    /// The same for 32 bits.
    Fp32Active = 13,
    /// The same for 16 bits, without the tensor pipes.
    Fp16Active = 14,
    /// The same for integers.
    IntegerActive = 15,
    /// Sent over PCIe by the device, bytes a second from begin to end.
    PcieSent = 16,
    /// Received over PCIe, bytes a second.
    PcieReceived = 17,
    /// Received over NVLink, bytes a second.
    NvlinkReceived = 18,
    /// Sent over NVLink, bytes a second.
    NvlinkSent = 19,
    /// Processes that have a context on the device.
    Processes = 20,
    /// Time in which the cgroup's CPU quota stopped this process, ns from begin to end.
    CpuThrottledNs = 32,
    /// Host memory of this process, resident, bytes.
    ResidentBytes = 33,
    /// Between windows: mean time of the steps that began from begin to end, ns, counted without
    /// records.
    StepNs = 34,
    /// Between windows: launches from begin to end, not recorded.
    Launches = 35,
    /// Between windows: time in synchronizing calls from begin to end, ns, summed over threads.
    SyncNs = 36,
    /// CPU time of all threads of this process, the recorder's own among them, ns from begin to
    /// end.
    ProcessCpuNs = 37,
}

impl Gauge {
    /// All of them.
    pub const ALL: [Gauge; 26] = [
        Gauge::Utilization,
        Gauge::PowerMw,
        Gauge::SmClockMhz,
        Gauge::ThrottleReasons,
        Gauge::MemoryUsed,
        Gauge::SmClockMaxMhz,
        Gauge::PowerLimitMw,
        Gauge::SmActive,
        Gauge::SmOccupancy,
        Gauge::TensorActive,
        Gauge::DramActive,
        Gauge::Fp64Active,
        Gauge::Fp32Active,
        Gauge::Fp16Active,
        Gauge::IntegerActive,
        Gauge::PcieSent,
        Gauge::PcieReceived,
        Gauge::NvlinkReceived,
        Gauge::NvlinkSent,
        Gauge::Processes,
        Gauge::CpuThrottledNs,
        Gauge::ResidentBytes,
        Gauge::StepNs,
        Gauge::Launches,
        Gauge::SyncNs,
        Gauge::ProcessCpuNs,
    ];

    /// The gauge with this number; `None` for one this version does not know.
    pub fn from_u32(n: u32) -> Option<Gauge> {
        Gauge::ALL.into_iter().find(|g| *g as u32 == n)
    }
}

/// What an event is; the number is stored. Fields not named are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// GPU kernel. `a` kernel definition id, `b` blocks in the grid (saturated), `c` graph id.
    Kernel = 1,
    /// GPU copy, also peer. `a` bytes bits 0..32, `b` see [`struct@Copy`], `c` graph id.
    Memcpy = 2,
    /// GPU memset. `a` bytes bits 0..32, `b` bytes bits 32..64, `c` graph id.
    Memset = 3,
    /// A wait and what is waited for: CUPTI's synchronization record (start and end of the waiting
    /// as CUPTI saw it), or the same told by the callback of the call (its start and end; types 2
    /// and 3 alone, `b` not known). `a` type (1 event synchronize, 2 stream waits for event, 3
    /// stream synchronize, 4 context synchronize), `b` CUDA event id (`u32::MAX`: not known), `c`
    /// CUPTI stream id.
    SyncRecord = 4,
    /// A whole CUDA graph launch as one op (only with graph-level recording). `c` graph id.
    GraphTrace = 5,
    /// Host API call. `a` = domain << 24 | call id (see `call.rs`), `b` return value,
    /// `x` = `call::Class`, `c` where the program made it: a stack id (0: not known).
    Call = 16,
    /// Step mark by the program: from this mark to the next. `a` step number.
    Step = 32,
    /// Named range by the program. `a` string id, `x` nesting depth, `b` NVTX domain (string id, 0
    /// none); with [`PAYLOAD`]: `correlation` | `c` << 32 is its number (for NCCL's ranges the
    /// bytes of the collective).
    Range = 33,
    /// Where a host thread stood (the gap sampler); begin to end: the time since its sample before,
    /// for which it stands. `a` stack id (0: none to be read), `b` system call it is blocked in + 1
    /// (0: in none), `c` permille of that time on a CPU (bits 0..16) and runnable but waiting for
    /// one (bits 16..32), `x` see [`sample`].
    Sample = 34,
    /// A child process (a DataLoader worker, say) from begin to end. `a` pid, `b` permille of one
    /// CPU it used (bits 0..16, saturated) and permille of the time blocked on a disk (bits
    /// 16..32), `c` KiB it read, `correlation` permille of the time in which its main thread was
    /// runnable and waited for a CPU.
    Process = 35,
    /// Where a child process stood that runs the same Python (a DataLoader worker), when it was
    /// looked at; begin to end: the time since the look before. `a` stack id of its main thread (0:
    /// none to be read), `b` pid, `c` permille of that time on a CPU (bits 0..16, saturated) and
    /// the system call in which it waits for data + 1 (bits 16..32; 0: in none; [`PAGE_FAULT`]),
    /// `x` bits `OUTER` and `PIPE` of [`sample`]. Of those that ran or wait for data; and where one
    /// waited for something else, of no time.
    ChildSample = 37,
    /// A thread made a node of PyTorch's autograd graph, in a forward pass: `start` = `end`. `b`
    /// the node's sequence number (its low 32 bits; each thread counts its own), `c` where the
    /// program stood: a stack id (0: not known), `correlation` PyTorch's number of the thread.
    ForwardNode = 38,
    /// A thread evaluated a node of PyTorch's autograd graph, in a backward pass. `a` mangled name
    /// of the node's type (string id), `b` its sequence number (as of its [`Kind::ForwardNode`];
    /// `u32::MAX`: it has none, it sums up gradients), `c` where the thread stood as it began: a
    /// stack id (0: in no Python), `correlation` PyTorch's number of the thread that made the node.
    BackwardNode = 39,
    /// A number read at `start` (from `start` to `end` where it counts up). `a` = [`Gauge`], `x`
    /// device ordinal (0 for the host's), `b` | `c` << 32 value.
    Gauge = 36,
    /// CLOCK_MONOTONIC (`start`) read together with CLOCK_REALTIME (words a, b: ns since 1970).
    ClockPair = 48,
    /// Nothing of the GPU was observed from `start` to `end`. `a` = reason, see [`Unobserved`].
    Unobserved = 49,
    /// `b` items were lost between `start` and `end`; `a` = `Loss` code, `c` how many of it before
    /// (`u32::MAX`: that many at least). Not before 2026-11-26.
    LossMark = 50,
    /// Stands before each event in the shared overflow track and names the true track of that
    /// event: `x` = 0 stream (`a` device, `b` context, `c` stream) or 1 thread (`a` tid).
    TrackOf = 60,
}

impl Kind {
    /// The kind with this number, or `None` for a number this version does not know.
    pub fn from_u8(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::Kernel,
            2 => Kind::Memcpy,
            3 => Kind::Memset,
            4 => Kind::SyncRecord,
            5 => Kind::GraphTrace,
            16 => Kind::Call,
            32 => Kind::Step,
            33 => Kind::Range,
            34 => Kind::Sample,
            35 => Kind::Process,
            36 => Kind::Gauge,
            37 => Kind::ChildSample,
            38 => Kind::ForwardNode,
            39 => Kind::BackwardNode,
            48 => Kind::ClockPair,
            49 => Kind::Unobserved,
            50 => Kind::LossMark,
            60 => Kind::TrackOf,
            _ => return None,
        })
    }

    /// Work of the device: it makes the device busy.
    pub fn is_device_work(self) -> bool {
        matches!(self, Kind::Kernel | Kind::Memcpy | Kind::Memset | Kind::GraphTrace)
    }
}

/// Why a span was not observed (field `a` of [`Kind::Unobserved`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Unobserved {
    /// Another profiler took the GPU records (torch.profiler, JAX's profiler ...).
    Yielded = 1,
    /// The program switched capture off (`cudaProfilerStop`, `gapprobe_capture(0)`).
    CaptureOff = 2,
    /// Recording stopped at a limit (memory, disk).
    Limit = 3,
    /// The whole process was stopped (SIGSTOP, suspend, a debugger, a frozen container).
    Stopped = 4,
    /// Between two windows (`GAPPROBE_BUDGET`, `GAPPROBE_WINDOW`).
    Window = 5,
    /// Recording had begun again, and the GPU was at work that was launched before, or idle. The
    /// host was seen.
    Front = 6,
    /// Another profiler had given CUPTI back, and its clock was not right yet (found by the reader,
    /// never recorded).
    Clock = 7,
}

/// Direction and memory kinds of a copy, packed in field `b` of [`Kind::Memcpy`]: bits 0..16 bytes
/// bits 32..48, 16..20 direction, 20..24 source memory, 24..28 destination memory, 28 peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copy {
    /// Bytes moved (48 bits).
    pub bytes: u64,
    /// CUPTI's copy kind: 1 HtoD, 2 DtoH, 3 HtoA, 4 AtoH, 5 AtoA, 6 AtoD, 7 DtoA, 8 DtoD, 9 HtoH,
    /// 10 PtoP.
    pub direction: u8,
    /// CUPTI's memory kind of the source: 1 pageable, 2 pinned, 3 device, 4 array, 5 managed, 6
    /// device static.
    pub source: u8,
    /// CUPTI's memory kind of the destination.
    pub destination: u8,
    /// Between two devices.
    pub peer: bool,
}

/// In field `b` of a [`Kind::Memcpy`]: pages of Unified Memory moved, which no call asked for. Set
/// by readers of other tools' traces; no recorder writes it.
pub const UNIFIED: u32 = 1 << 29;

impl Copy {
    /// Fields `a` and `b` of the event.
    pub fn pack(self) -> (u32, u32) {
        let b = ((self.bytes >> 32) as u32 & 0xffff)
            | (u32::from(self.direction) & 15) << 16
            | (u32::from(self.source) & 15) << 20
            | (u32::from(self.destination) & 15) << 24
            | u32::from(self.peer) << 28;
        (self.bytes as u32, b)
    }

    /// The reverse of [`Copy::pack`].
    pub fn unpack(a: u32, b: u32) -> Copy {
        Copy {
            bytes: u64::from(a) | u64::from(b & 0xffff) << 32,
            direction: (b >> 16 & 15) as u8,
            source: (b >> 20 & 15) as u8,
            destination: (b >> 24 & 15) as u8,
            peer: b >> 28 & 1 == 1,
        }
    }

    /// One side is host memory that is not pinned: the driver stages it through a buffer of its
    /// own.
    pub fn is_pageable(self) -> bool {
        self.source == 1 || self.destination == 1
    }
}

/// An event, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Begin, ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// End, ns of CLOCK_MONOTONIC; never before `start`.
    pub end: u64,
    /// CUPTI correlation id of the API call, 0 where there is none. 32 bits: wraps in long runs.
    pub correlation: u32,
    /// What it is.
    pub kind: Kind,
    /// See the flag constants of this module.
    pub flags: u8,
    /// Small field, meaning by kind.
    pub x: u8,
    /// Meaning by kind.
    pub a: u32,
    /// Meaning by kind.
    pub b: u32,
    /// Meaning by kind.
    pub c: u32,
}

impl Event {
    /// An event of `kind` with all other fields 0.
    pub const fn new(kind: Kind, start: u64, end: u64) -> Event {
        Event { start, end, correlation: 0, kind, flags: 0, x: 0, a: 0, b: 0, c: 0 }
    }

    /// Length in ns.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The four words. An `end` before `start` is stored as duration 0 (callers count it as a loss
    /// first).
    pub const fn encode(&self) -> [u64; EVENT_WORDS] {
        let mut duration = self.end.saturating_sub(self.start);
        let mut flags = self.flags;
        if duration > MAX_DURATION {
            duration = MAX_DURATION;
            flags |= SATURATED;
        }
        [
            self.start,
            (duration & 0xffff_ffff) | (self.correlation as u64) << 32,
            self.a as u64 | (self.b as u64) << 32,
            self.kind as u64
                | (flags as u64) << 8
                | (self.x as u64) << 16
                | (duration >> 32) << 24
                | (self.c as u64) << 32,
        ]
    }

    /// The reverse of [`Event::encode`]; `None` for a kind this version does not know or an end
    /// past u64.
    pub fn decode(w: [u64; EVENT_WORDS]) -> Option<Event> {
        let kind = Kind::from_u8(w[3] as u8)?;
        let duration = (w[1] & 0xffff_ffff) | (w[3] >> 24 & 0xff) << 32;
        Some(Event {
            start: w[0],
            end: w[0].checked_add(duration)?,
            correlation: (w[1] >> 32) as u32,
            kind,
            flags: (w[3] >> 8) as u8,
            x: (w[3] >> 16) as u8,
            a: w[2] as u32,
            b: (w[2] >> 32) as u32,
            c: (w[3] >> 32) as u32,
        })
    }

    /// CLOCK_REALTIME ns of a [`Kind::ClockPair`].
    pub fn realtime(&self) -> u64 {
        u64::from(self.a) | u64::from(self.b) << 32
    }

    /// A clock pair: both clocks in ns.
    pub const fn clock_pair(monotonic: u64, realtime: u64) -> Event {
        let mut e = Event::new(Kind::ClockPair, monotonic, monotonic);
        e.a = realtime as u32;
        e.b = (realtime >> 32) as u32;
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_encoding() {
        let e = Event {
            start: u64::MAX - (1 << 41),
            end: u64::MAX - (1 << 41) + MAX_DURATION,
            correlation: u32::MAX,
            kind: Kind::Call,
            flags: GRAPH_NODE | FROM_RECORD,
            x: 7,
            a: 0x0200_00d3,
            b: u32::MAX,
            c: 5,
        };
        assert_eq!(Event::decode(e.encode()), Some(e));
    }

    #[test]
    fn a_duration_past_40_bits_is_saturated_and_says_so() {
        let e = Event::decode(Event::new(Kind::Kernel, 5, 5 + (1 << 40)).encode()).unwrap();
        assert_eq!(e.duration(), MAX_DURATION);
        assert_eq!(e.flags & SATURATED, SATURATED);
    }

    #[test]
    fn an_end_before_the_start_becomes_no_duration() {
        assert_eq!(Event::decode(Event::new(Kind::Kernel, 9, 3).encode()).unwrap().duration(), 0);
    }

    #[test]
    fn unknown_kinds_and_overflowing_ends_are_refused() {
        assert_eq!(Event::decode([0, 0, 0, 0]), None);
        assert_eq!(Event::decode([0, 0, 0, 255]), None);
        assert_eq!(Event::decode([u64::MAX, 1, 0, 1]), None);
    }

    #[test]
    fn a_copy_survives_its_packing() {
        let c = Copy { bytes: (1 << 48) - 1, direction: 10, source: 2, destination: 3, peer: true };
        let (a, b) = c.pack();
        assert_eq!(Copy::unpack(a, b), c);
    }
}

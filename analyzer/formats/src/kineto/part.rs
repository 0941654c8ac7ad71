// SPDX-License-Identifier: Apache-2.0
//! What one block of a trace held: compact events, and tables of what their small numbers stand
//! for. Blocks are read side by side; `join.rs` puts them together in the order of the file.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::FixedState;
use trace::KernelInfo;
use verdict::run::RangeKind;
use verdict::text::plural::counted;

use super::xla::{Lane, Process, RawXla};

/// A table that gives equal things equal numbers, in the order they were first seen.
#[derive(Debug)]
pub(super) struct Table<K> {
    numbers: HashMap<K, u32, FixedState>,
}

impl<K: Eq + Hash> Default for Table<K> {
    fn default() -> Table<K> {
        Table { numbers: HashMap::default() }
    }
}

impl<K: Eq + Hash> Table<K> {
    /// The number of `key`.
    #[inline]
    pub(super) fn number(&mut self, key: K) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(key).or_insert(next)
    }

    /// All keys, by number.
    pub(super) fn into_keys(self) -> Vec<K> {
        let mut pairs: Vec<(u32, K)> = self.numbers.into_iter().map(|(k, n)| (n, k)).collect();
        pairs.sort_unstable_by_key(|p| p.0);
        pairs.into_iter().map(|p| p.1).collect()
    }
}

/// Texts by number; only a text seen for the first time is copied.
#[derive(Debug, Default)]
pub(super) struct Texts {
    table: hashbrown::HashMap<Box<[u8]>, u32, FixedState>,
}

impl Texts {
    /// The number of a text.
    #[inline]
    pub(super) fn number(&mut self, text: &[u8]) -> u32 {
        let next = self.table.len() as u32;
        *self.table.entry_ref(text).or_insert(next)
    }

    /// All texts, by number.
    pub(super) fn into_texts(self) -> Vec<Box<[u8]>> {
        let mut pairs: Vec<(u32, Box<[u8]>)> = self.table.into_iter().map(|(k, n)| (n, k)).collect();
        pairs.sort_unstable_by_key(|p| p.0);
        pairs.into_iter().map(|p| p.1).collect()
    }
}

/// A process's thread, as the trace names it; numbers, or texts by number with the high bit set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(super) struct ThreadKey {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

/// A stream of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(super) struct StreamKey {
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
}

/// What a device did. Times: ns of the trace's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawOp {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) correlation: u32,
    /// Kernels: number in [`Part::kernels`]; else as in `trace::Event`.
    pub(super) a: u32,
    pub(super) b: u32,
    /// Number in [`Part::streams`].
    pub(super) stream: u32,
    /// CUDA graph (our own traces tell), 0: not told.
    pub(super) graph: u32,
    pub(super) kind: trace::Kind,
}

/// A kernel as a slice tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RawKernel {
    /// Our own traces: which one, so that a slice that says no more of it can be joined to the one
    /// that does.
    pub(super) own: Option<u32>,
    /// It says more than the name.
    pub(super) told: bool,
    /// `name`: number in [`Part::texts`].
    pub(super) info: KernelInfo,
}

/// The thread behind a track of one of our own traces, which has several tracks a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RawThread {
    /// Index in the run that was written.
    pub(super) index: u32,
    /// Its number on the machine.
    pub(super) tid: u32,
    /// Number in [`Part::texts`], if it had a name.
    pub(super) name: Option<u32>,
}

impl RawThread {
    /// One key for all its tracks.
    pub(super) fn key(self) -> ThreadKey {
        ThreadKey { pid: i64::MAX, tid: self.index.into() }
    }
}

/// A step mark of one of our own traces.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawMark {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Number in [`Part::threads`].
    pub(super) thread: u32,
    pub(super) number: u32,
    pub(super) flags: u8,
}

/// An API call.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawCall {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) correlation: u32,
    /// Number in [`Part::threads`].
    pub(super) thread: u32,
    /// Domain and id as `trace::call::pack` has them (0: not told).
    pub(super) packed: u32,
    /// Number in [`Part::texts`].
    pub(super) name: u32,
    /// Stack id, of our own traces (0: none).
    pub(super) stack: u32,
    /// What the driver returned, of our own traces (0: success, or not told).
    pub(super) result: u32,
}

/// A named range.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRange {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Number in [`Part::threads`].
    pub(super) thread: u32,
    /// Number in [`Part::texts`].
    pub(super) name: u32,
    pub(super) kind: RangeKind,
    /// Flags of `run::Range`.
    pub(super) flags: u8,
}

/// What few tell of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawTold {
    /// NVTX domain, number in [`Part::texts`].
    pub(super) domain: Option<u32>,
    /// Its number, as bits.
    pub(super) payload: Option<u64>,
    /// Of an operator's inputs shapes, types and values, numbers in [`Part::texts`].
    pub(super) inputs: Option<[u32; 3]>,
}

/// Memory that was allocated (freed: below zero).
#[derive(Clone, Copy, Debug)]
pub(super) struct RawMemory {
    pub(super) at: i64,
    pub(super) bytes: i64,
    pub(super) on_gpu: bool,
}

/// A wait as CUPTI recorded it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawWait {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) correlation: u32,
    pub(super) what: u32,
    pub(super) stream: u32,
}

/// What could not be used, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refused {
    /// Events of the GPU or the host's calls without a time that can be read.
    pub no_time: u64,
    /// ... that end before they begin.
    pub negative: u64,
    /// Places where the text is no JSON; what stood there is lost.
    pub broken: u64,
    /// Events that are no JSON by the quotes in their names, and were read all the same.
    pub recovered: u64,
    /// Events that cannot be read, of kinds that no verdict rests on: frames of Python, operators,
    /// memory, the profiler's own work.
    pub aside: u64,
    /// Events on no device that can be, or of more devices, streams or threads than can be told
    /// apart.
    pub unplaced: u64,
    /// Operations and calls that stand in the file more than once (one of them is kept).
    pub duplicates: u64,
    /// References to what the file does not have (a name, a process); what refers to it is kept,
    /// without.
    pub orphans: u64,
    /// Events that gapprobe left out when it wrote the file, to keep it small, anywhere: the file
    /// does not say what of it is whole.
    pub left_out: u64,
    /// Events that gapprobe left out in front of the part that the file has whole: not lost, no
    /// more than what a recording overwrote.
    pub older: u64,
    /// The file is truncated.
    pub cut: bool,
    /// It goes on, and from some place on cannot be read.
    pub damaged: bool,
}

impl Refused {
    pub(super) fn add(&mut self, other: &Refused) {
        self.no_time += other.no_time;
        self.negative += other.negative;
        self.broken += other.broken;
        self.recovered += other.recovered;
        self.aside += other.aside;
        self.unplaced += other.unplaced;
        self.duplicates += other.duplicates;
        self.orphans += other.orphans;
        self.left_out += other.left_out;
        self.older += other.older;
        self.cut |= other.cut;
        self.damaged |= other.damaged;
    }

    /// Counts an event that cannot be used, by what it was.
    pub(super) fn lost_one(&mut self, aside: bool, reason: impl Fn(&mut Refused) -> &mut u64) {
        match aside {
            true => self.aside += 1,
            false => *reason(self) += 1,
        }
    }

    /// What to say of the events that are nowhere, if there are any.
    pub(crate) fn nowhere(&self) -> Option<String> {
        let what = "on no device that can be, or of more devices, streams or threads than can be told apart";
        (self.unplaced > 0).then(|| format!("{} {what}", counted(self.unplaced, "event")))
    }

    /// What to say of events that were read with an effort, or are lost and cost no verdict.
    pub(crate) fn beside(&self) -> impl Iterator<Item = String> {
        let said = [
            (self.recovered, "with quotes in the name that are not escaped: read all the same"),
            (self.aside, "of Python or of operators that cannot be read: no GPU operation, no call"),
        ];
        let said = said.into_iter().filter(|s| s.0 > 0);
        said.map(|(count, what)| format!("{} {what}", counted(count, "event")))
    }

    /// Items that are missing from the run.
    pub fn lost(&self) -> u64 {
        let ends = u64::from(self.cut) + u64::from(self.damaged);
        self.no_time + self.negative + self.broken + self.unplaced + self.left_out + ends
    }
}

/// What one block held.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) texts: Texts,
    pub(super) kernels: Table<RawKernel>,
    pub(super) streams: Table<StreamKey>,
    pub(super) threads: Table<ThreadKey>,
    pub(super) ops: Vec<RawOp>,
    pub(super) calls: Vec<RawCall>,
    pub(super) ranges: Vec<RawRange>,
    /// More of some of them, by their index (of operators, where shapes were recorded).
    pub(super) details: Vec<(usize, RawTold)>,
    pub(super) waits: Vec<RawWait>,
    pub(super) memory: Vec<RawMemory>,
    /// The profiler's own work: begin and end.
    pub(super) overhead: Vec<(i64, i64)>,
    pub(super) marks: Vec<RawMark>,
    /// Begin, end and reason of what was not observed; each device's track has it.
    pub(super) blind: Vec<(i64, i64, u32)>,
    /// (thread, name): `thread_name` of the metadata.
    pub(super) thread_names: Vec<(ThreadKey, u32)>,
    /// Tracks of our own traces and whose they are.
    pub(super) tracks: Vec<(ThreadKey, RawThread)>,
    /// Events without a category, of a profile of XLA.
    pub(super) xla: Vec<RawXla>,
    /// Further ones, without a time that can be read.
    pub(super) xla_without_time: u64,
    /// What processes and threads of such a profile are.
    pub(super) processes: Vec<(i64, Process)>,
    pub(super) lanes: Vec<(ThreadKey, Lane)>,
    /// Some process is called as XLA calls them.
    pub(super) of_xla: bool,
    /// Events read, of any kind.
    pub(super) events: u64,
    /// Host events that slow the program while it is recorded (operators, Python functions).
    pub(super) host_events: u64,
    pub(super) refused: Refused,
    /// Text that is no JSON was met, and perhaps read: where events begin is only known of the
    /// whole.
    pub(super) odd: bool,
    /// Where reading stopped, an offset into the block.
    pub(super) stopped: usize,
    /// The array of events ended inside this block.
    pub(super) ended: bool,
}

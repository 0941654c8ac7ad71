// SPDX-License-Identifier: Apache-2.0
//! Everything that can be lost or go wrong while recording, by name. Numbers are stored and never
//! reused. Each counter has a severity and a sentence for the user; every report prints the ones
//! that are not zero.

/// How bad a counter above zero is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; no operation of a GPU and no call is missing.
    Note,
    /// Events are missing: figures of the span around it may be off.
    Data,
}

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $severity:ident, $key:literal, $sentence:literal;)*) => {
        /// A named counter of something lost.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Loss { $($(#[$doc])* $name = $code,)* }

        impl Loss {
            /// All counters, by code.
            pub const ALL: &'static [Loss] = &[$(Loss::$name,)*];

            /// The stored number.
            pub const fn code(self) -> u8 { self as u8 }

            /// The counter with this number.
            pub fn from_code(code: u8) -> Option<Loss> {
                match code { $($code => Some(Loss::$name),)* _ => None }
            }

            /// Stable machine-readable name.
            pub const fn key(self) -> &'static str { match self { $(Loss::$name => $key,)* } }

            /// How bad it is.
            pub const fn severity(self) -> Severity { match self { $(Loss::$name => Severity::$severity,)* } }

            /// One sentence for the user; the count stands before it.
            pub const fn sentence(self) -> &'static str { match self { $(Loss::$name => $sentence,)* } }
        }
    };
}

/// Counters the header has room for.
pub const SLOTS: usize = 64;

losses! {
    /// CUPTI reported dropped records.
    CuptiDropped = 0, Data, "cupti_dropped", "records dropped by CUPTI (its device buffers were full)";
    /// All pool buffers were full; the records of the substitute buffer were thrown away.
    BufferExhausted = 1, Data, "buffer_exhausted", "activity buffers thrown away because the drain thread was late (raise GAPPROBE_MAX_MB)";
    /// Records in a buffer whose kind or size could not be understood.
    RecordUnknown = 2, Note, "record_unknown", "CUPTI records of a kind gapprobe did not ask for";
    /// Start and end both zero: CUPTI lost the timestamps.
    ZeroTimestamp = 3, Data, "zero_timestamp", "GPU operations whose timestamps CUPTI lost (both zero)";
    /// End before start.
    BackwardTimestamp = 4, Data, "backward_timestamp", "GPU operations that end before they start";
    /// End zero after a forced flush: the op was still queued or running at exit.
    Unfinished = 5, Note, "unfinished", "GPU operations that CUPTI handed over without their end, as when the program ended or another profiler took over";
    /// A thread's own ring was full.
    HostRingFull = 6, Data, "host_ring_full", "host events dropped because a thread's ring was full";
    /// The shared overflow ring was full.
    OverflowRingFull = 7, Data, "overflow_ring_full", "host events dropped because the shared overflow ring was full";
    /// Kernel name memory was gone or unreadable.
    NameUnreadable = 8, Note, "name_unreadable", "kernel names that could not be read any more (module unloaded)";
    /// The dictionary of strings, kernels and tracks is full.
    DefinitionsFull = 9, Note, "definitions_full", "kernel or range names not stored because the name table was full";
    /// The mirror file could not be written; recording went on in memory.
    MirrorWrite = 10, Note, "mirror_write", "failed writes to the recording file (disk full, quota?): a killed run cannot be recovered past that point";
    /// A panic was caught at our C boundary.
    CaughtPanic = 11, Data, "caught_panic", "internal faults caught before they could reach the program (please report)";
    /// CUPTI returned an error from a call of ours.
    CuptiError = 12, Note, "cupti_error", "errors returned by CUPTI to gapprobe";
    /// A buffer came back that we did not lend.
    ForeignBuffer = 13, Note, "foreign_buffer", "activity buffers of another profiler handed to gapprobe";
    /// We lent a buffer and its last records never came back (another client took the callbacks
    /// over, or recording ended before CUPTI delivered it).
    BufferNotReturned = 14, Data, "buffer_not_returned", "activity buffers with records that CUPTI never gave back";
    // 15 is free: operations that start before their launch are counted by the analyzer, which sees
    // both
    /// The flush at exit hit its time limit.
    ExitFlushLate = 16, Data, "exit_flush_late", "flushes at exit given up at the time limit: the last records may be missing";
    /// Range nesting deeper than can be kept.
    RangeTooDeep = 17, Note, "range_too_deep", "named ranges nested too deep, or too many open at once, to be kept";
    /// The end of a named range whose begin was not recorded.
    RangeUnbalanced = 18, Note, "range_unbalanced", "ends of named ranges without a begin (one before recording began counts)";
    /// Threads beyond the pool of thread rings.
    ThreadOverflow = 19, Note, "thread_overflow", "threads that had to share the overflow ring";
    /// Streams beyond the pool of tracks.
    TrackOverflow = 20, Note, "track_overflow", "streams and threads that had to share the overflow track";
    /// The drain thread could not be started.
    NoDrainThread = 21, Data, "no_drain_thread", "background threads that could not be started: nothing was recorded";
    // 22 was used by an earlier recorder
    /// Calls from new stacks while there was no room for more of them, in the thread's ring or the
    /// name table.
    SiteDropped = 23, Note, "site_dropped", "calls without their Python line: too many different call stacks at once";
    /// Frames whose code object could not be read or was gone when the drain thread looked.
    FrameUnreadable = 24, Note, "frame_unreadable", "Python frames that could not be read";
    /// The sampler's queue to the drain thread was full.
    SampleQueueFull = 25, Note, "sample_queue_full", "samples of host threads lost because the drain thread was late";
    /// A thread's ring had no room left for ranges; the rest of it is for events.
    RangeDropped = 26, Note, "range_dropped", "begins and ends of named ranges dropped because a thread made them faster than they were taken";
    /// Functions that called CUDA (of calls without Python), or lie between a line and its kernel,
    /// that could not be found: no unwind tables, code of no module, a module replaced meanwhile.
    CallerUnknown = 27, Note, "caller_unknown", "functions that called CUDA and could not be found (no unwind tables, or code of no module)";
    /// Such functions from new places while there was no room for more of them.
    CallerDropped = 28, Note, "caller_dropped", "functions that called CUDA, and modules, that were not looked for, and launches captured in CUDA graphs that were forgotten: too many new ones at once, or in all";
    /// Times that lie before the GPU's first use or in the future: of another clock than the
    /// recording's.
    ForeignClock = 29, Data, "foreign_clock", "GPU operations and calls with times of another clock (another profiler's), left out";
    /// Samples of pauses between windows beyond those that a run keeps.
    PausesFull = 30, Note, "pauses_full", "samples of pauses between windows beyond the 16,384 that a run keeps: later pauses are not reported";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_small_and_reversible() {
        for (i, l) in Loss::ALL.iter().enumerate() {
            assert_eq!(Loss::from_code(l.code()), Some(*l));
            assert!((l.code() as usize) < SLOTS);
            assert!(Loss::ALL[i + 1..].iter().all(|m| m.code() != l.code() && m.key() != l.key()));
        }
    }
}

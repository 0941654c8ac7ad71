// SPDX-License-Identifier: Apache-2.0
//! Run-wide totals: kept by the drain thread since attach, never overwritten by the rings.

/// Counters the header has room for.
pub const SLOTS: usize = 64;

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $key:literal;)*) => {
        /// A run-wide counter. Numbers are stored and never reused.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum Total { $($(#[$doc])* $name = $code,)* }

        impl Total {
            /// All counters, by number.
            pub const ALL: &'static [Total] = &[$(Total::$name,)*];
            /// Stable machine-readable name.
            pub const fn key(self) -> &'static str { match self { $(Total::$name => $key,)* } }
        }
    };
}

totals! {
    /// Kernels recorded.
    Kernels = 0, "kernels";
    /// Sum of kernel durations, ns (overlaps counted twice).
    KernelNs = 1, "kernel_ns";
    /// Copies recorded.
    Copies = 2, "copies";
    /// Bytes copied.
    CopyBytes = 3, "copy_bytes";
    /// Sum of copy durations, ns.
    CopyNs = 4, "copy_ns";
    /// Memsets recorded.
    Memsets = 5, "memsets";
    /// Launch calls recorded (kernels; graphs apart).
    Launches = 6, "launches";
    /// Graph launch calls recorded.
    GraphLaunches = 7, "graph_launches";
    /// Synchronizing calls recorded.
    Syncs = 8, "syncs";
    /// Time in synchronizing calls, ns, summed over threads.
    SyncNs = 9, "sync_ns";
    /// Allocating and freeing calls recorded.
    Allocs = 10, "allocs";
    /// Step marks by the program.
    Steps = 11, "steps";
    /// Activity buffers decoded.
    Buffers = 12, "buffers";
    /// CPU time of the drain thread and of the one that writes the file, ns.
    DrainCpuNs = 13, "drain_cpu_ns";
    /// Callbacks served (enter and exit are two).
    Callbacks = 14, "callbacks";
    /// Estimated time in callbacks and buffer handlers on the program's threads, ns (a sample of
    /// calls, scaled up).
    CallbackNs = 15, "callback_ns";
    /// Time spent attaching (subscribe, enable, buffers), ns.
    AttachNs = 16, "attach_ns";
    /// Bytes written to the recording file.
    MirrorBytes = 17, "mirror_bytes";
    /// Segments of the recording written anew (overwritten by design).
    Recycled = 18, "recycled_segments";
    /// Events overwritten by design.
    Overwritten = 19, "overwritten_events";
    /// The longest flush of CUPTI's buffers, ns.
    LongestFlushNs = 20, "longest_flush_ns";
    /// CPU time of the gap sampler, ns.
    SamplerCpuNs = 21, "sampler_cpu_ns";
    /// Samples of host threads taken.
    Samples = 22, "samples";
    /// Samples without a Python stack because it moved while it was read.
    SamplesMoved = 23, "samples_moved";
    /// Samples of a thread that waited for Python's lock, in which its holder could not be told.
    GilHoldersMissed = 24, "gil_holders_missed";
    /// Samples with the outer frames of their Python stack only: the inner ones moved while they
    /// were read.
    SamplesOuter = 25, "samples_outer";
    /// Launches between windows, not recorded, as far as they go through the CUDA runtime's
    /// library.
    LaunchesBetween = 26, "launches_between";
    /// Windows that were recorded; 0: all was.
    Windows = 27, "windows";
    /// Windows that slow or missing steps opened.
    Alarms = 28, "alarms";
    /// Steps of the whole run as counted without records, in windows and between them; 0: not
    /// known.
    ClockSteps = 29, "clock_steps";
    /// Of them, steps between windows.
    StepsBetween = 30, "steps_between";
    /// Synchronizing calls between windows, not recorded, as far as the program's objects make them
    /// through the loader's slots.
    SyncsBetween = 31, "syncs_between";
    /// Time in them, ns, summed over threads.
    SyncBetweenNs = 32, "sync_between_ns";
    /// Usual time of the last steps as counted without records, ns: their median, or their mean
    /// where they are very uneven; 0: not known.
    ClockStepNs = 33, "clock_step_ns";
    /// Time in synchronizing calls a step, ns, summed over threads: mean of the last second or so
    /// with steps in it, as counted without records.
    ClockSyncNs = 34, "clock_sync_ns";
    /// When the last step began as counted without records, CLOCK_MONOTONIC ns; 0: not known.
    LastStepAt = 35, "last_step_at_ns";
    /// When a launch, a step or the end of a synchronizing call was seen last, CLOCK_MONOTONIC ns
    /// (to a quarter of a second); 0: not looked for.
    LastActivityAt = 36, "last_activity_at_ns";
    /// Since when a thread has been in the synchronizing call that is under way longest,
    /// CLOCK_MONOTONIC ns; 0: none is.
    InSyncSince = 37, "in_sync_since_ns";
    /// Which call that is, packed as in a call's event.
    InSyncCall = 38, "in_sync_call";
    /// Traces that the flight recorder wrote (`GAPPROBE_FLIGHT`).
    Flights = 39, "flights";
    /// Longest time between two times at which the rings of the program's threads were emptied, ns:
    /// what a ring must hold.
    LongestPauseNs = 40, "longest_pause_ns";
    /// Longest time that bringing the recording file up to date took, ns.
    LongestWriteNs = 41, "longest_write_ns";
    /// By how much a step is longer while everything is recorded than behind the first time that
    /// recording was switched off, measured in this process, millionths of the latter: the mean (0
    /// where it is less).
    LongerPpm = 42, "longer_ppm";
    /// The lower end of its 95 % interval (0 where it is less).
    LongerLeastPpm = 43, "longer_least_ppm";
    /// The upper end; 0: not measured.
    LongerMostPpm = 44, "longer_most_ppm";
}

/// What CUPTI leaves on each launch of [`Total::LaunchesBetween`] once it was switched on a second
/// time, ns: eager PyTorch in turns with a process without a profiler, 0.8, 1.5 and 2.0 us on three
/// days (H200, CUPTI 13.0: docs/run-cost.md). Instructions of a launch alone, single-stepped, would
/// say 0.6 us (docs/windows.md).
pub const LEFT_BEHIND_NS: u64 = 1500;
/// ... while there was one window only, ns: 1,130 instructions; in turns nothing to be seen
/// (docs/run-cost.md).
pub const LEFT_BEHIND_FIRST_NS: u64 = 250;

/// Which of the two it is. Where graphs were launched the first switching off is off, on and off
/// (docs/windows.md).
pub fn left_behind_ns(windows: u64, graph_launches: u64) -> u64 {
    if windows <= 1 && graph_launches == 0 {
        LEFT_BEHIND_FIRST_NS
    } else {
        LEFT_BEHIND_NS
    }
}

/// What CUPTI keeps in host memory, bytes, for each launch of a kernel that follows the process's
/// first instantiation of a CUDA graph, until the process ends: 24 and malloc's 8 under 13.0 to
/// 13.3, as soon as any client is attached, nothing under 12.8, 12.9, 13.4 and 13.5 (H200:
/// docs/windows.md). `cupti`: `cuptiGetVersion`'s number.
pub const fn kept_bytes(cupti: u32) -> u64 {
    match cupti {
        130_000..=130_399 => 32,
        _ => 0,
    }
}

/// A program hangs that does nothing for so many usual steps, and so long, ns
/// ([`Total::LastActivityAt`]).
pub const HANGS: (u64, u64) = (20, 10_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_the_header_and_are_unique() {
        for (i, t) in Total::ALL.iter().enumerate() {
            assert_eq!(*t as usize, i);
            assert!(i < SLOTS);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a thread was doing when it was sampled: by its frames, the system call it is blocked in,
//! whether it had a CPU.
//!
//! Facts come before guesses: a collector that runs, a lock of the interpreter that is waited for
//! and a CPU that is not given are what the sample itself says, whatever the frames; then the
//! frames, then the system call. What none of them tells is [`Activity::Unknown`].

use trace::event::sample::{COLLECTING, RUNNABLE, WAITS_GIL};

use super::frames::Frames;
use crate::run::{Run, Sample};

/// A thread that waited for a CPU for this part of the time is starved, permille; one that had one
/// for it computes.
pub(crate) const MOSTLY_PERMILLE: u16 = 500;

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Activity {
    /// Reads or prepares data below a loader, in this thread.
    FetchesHere,
    /// Puts samples together to a batch, in this thread.
    Collates,
    /// Waits for a loader's workers.
    FetchesFromWorkers,
    /// In a loader of which it is not known who does the work.
    Fetches,
    /// Python's garbage collector runs.
    Collects,
    /// Waits for Python's global lock.
    WaitsForGil,
    /// Wants to run and is given no CPU.
    Starves,
    /// Compiles kernels or traces Python for it.
    Compiles,
    /// Writes a checkpoint.
    Saves,
    /// Logs, or reports to a tracking service.
    Logs,
    /// Blocked writing to a file or terminal.
    Writes,
    /// Blocked reading a file or pipe.
    Reads,
    /// Blocked on a socket.
    Talks,
    /// Waits for another thread or process.
    Waits,
    /// Waits, without any CUDA call, for a copy from the device (an array of JAX is read): found by
    /// `gaps/sample_index.rs`.
    WaitsForDevice,
    /// Sleeps by its own wish.
    Sleeps,
    /// Waits for somebody to ask for something.
    Idles,
    /// Waits in its own event loop, for its own tasks (a thread of an executor, another process) or
    /// for somebody's requests.
    Awaits,
    /// Allocates or gives back memory of the host.
    Allocates,
    /// Computes.
    Computes,
    /// Computes in native code that its line of Python called, without Python's lock: found by
    /// `gaps/sample_index.rs`.
    ComputesNatively,
    /// Computes in a function of the program's own that never launches (`gaps/concurrent_work.rs`),
    /// between two launches.
    ComputesBeside,
    /// None of these can be told.
    Unknown,
}

impl Activity {
    /// All of them.
    pub const ALL: [Activity; 23] = [
        Activity::FetchesHere,
        Activity::Collates,
        Activity::FetchesFromWorkers,
        Activity::Fetches,
        Activity::Collects,
        Activity::WaitsForGil,
        Activity::Starves,
        Activity::Compiles,
        Activity::Saves,
        Activity::Logs,
        Activity::Writes,
        Activity::Reads,
        Activity::Talks,
        Activity::Waits,
        Activity::WaitsForDevice,
        Activity::Sleeps,
        Activity::Idles,
        Activity::Awaits,
        Activity::Allocates,
        Activity::Computes,
        Activity::ComputesNatively,
        Activity::ComputesBeside,
        Activity::Unknown,
    ];

    /// What the launching thread does, in words.
    pub fn words(self) -> &'static str {
        match self {
            Activity::FetchesHere => "reads data itself",
            Activity::Collates => "puts batches together itself",
            Activity::FetchesFromWorkers => "waits for the workers",
            Activity::Fetches => "waits for the loader",
            Activity::Collects => "runs Python's garbage collector",
            Activity::WaitsForGil => "waits for Python's lock (GIL)",
            Activity::Starves => "is runnable but not scheduled",
            Activity::Compiles => "compiles",
            Activity::Saves => "writes a checkpoint",
            Activity::Logs => "logs",
            Activity::Writes => "writes to a file or terminal",
            Activity::Reads => "reads a file or pipe",
            Activity::Talks => "talks to the network",
            Activity::Waits => "waits for another thread or process",
            Activity::WaitsForDevice => "waits for a copy from the GPU",
            Activity::Sleeps => "sleeps",
            Activity::Idles => "waits for requests",
            Activity::Awaits => "waits in its event loop",
            Activity::Allocates => "allocates host memory",
            Activity::Computes | Activity::ComputesBeside => "computes on the CPU",
            Activity::ComputesNatively => "computes on the CPU in native code",
            Activity::Unknown => "is running other code",
        }
    }

    /// Fetches data, by itself or by others.
    pub fn is_fetching(self) -> bool {
        self.is_fetching_here() || matches!(self, Activity::FetchesFromWorkers | Activity::Fetches)
    }

    /// Fetches data by itself.
    pub fn is_fetching_here(self) -> bool {
        matches!(self, Activity::FetchesHere | Activity::Collates)
    }

    /// It ends when another thread, another process or the clock says so.
    pub fn waits_for_others(self) -> bool {
        use Activity::{Awaits, Fetches, FetchesFromWorkers, Idles, Sleeps, Talks, Waits};
        matches!(self, Awaits | Fetches | FetchesFromWorkers | Idles | Sleeps | Talks | Waits)
    }

    /// Has a CPU or wants one, or reads or writes a file: it is known to be at work, and nobody
    /// else has to do something first.
    pub fn is_work(self) -> bool {
        !self.waits_for_others() && self != Activity::Unknown
    }

    /// Never part of dispatching an operation.
    pub fn is_no_dispatch(self) -> bool {
        !matches!(
            self,
            Activity::Unknown
                | Activity::Computes
                | Activity::ComputesNatively
                | Activity::Waits
                | Activity::Starves
                | Activity::WaitsForGil
                | Activity::Allocates
        )
    }
}

/// System calls of x86-64 Linux, the only one there are recordings of.
mod call {
    pub(super) const READ: [u32; 5] = [0, 17, 19, 295, 327];
    pub(super) const WRITE: [u32; 12] = [1, 18, 20, 26, 40, 74, 75, 77, 277, 296, 326, 328];
    pub(super) const SOCKET: [u32; 8] = [42, 44, 45, 46, 47, 299, 307, 49];
    pub(super) const POLL: [u32; 2] = [7, 271];
    pub(super) const SELECT: [u32; 2] = [23, 270];
    pub(super) const SLEEP: [u32; 2] = [35, 230];
    pub(super) const EVENTS: [u32; 5] = [232, 281, 441, 43, 288];
    pub(super) const FUTEX: [u32; 2] = [202, 449];
    pub(super) const CHILD: [u32; 2] = [61, 247];
    pub(super) const MEMORY: [u32; 5] = [9, 10, 11, 12, 28];
}

/// Blocked on a futex, without any frame: a thread of a pool, autograd's for one.
pub(crate) fn waits_for_its_turn(sample: &Sample) -> bool {
    sample.stack == 0
        && sample.on_cpu < MOSTLY_PERMILLE
        && sample.syscall.is_some_and(|n| call::FUTEX.contains(&n))
}

/// Off the CPU, and not by its own wish or another thread's: in a system call that reads, or in
/// none (a page is fetched). Not who could run: the kernel counts a wait for a CPU when it ends, so
/// that one that goes on is in no figure yet.
pub(crate) fn blocked_reading(sample: &Sample) -> bool {
    let reads = sample.syscall.is_none_or(|n| call::READ.contains(&n) || call::SOCKET.contains(&n));
    reads
        && sample.bits & RUNNABLE == 0
        && sample.on_cpu < MOSTLY_PERMILLE
        && sample.run_queue < MOSTLY_PERMILLE
}

/// Blocked on a futex that is not Python's lock, whatever was done since the sample before.
pub(crate) fn stands_on_futex(sample: &Sample) -> bool {
    sample.bits & (WAITS_GIL | RUNNABLE) == 0 && sample.syscall.is_some_and(|n| call::FUTEX.contains(&n))
}

/// Blocked on a futex by native code that the program's own line, or the reading of an array,
/// called: no lock, queue or event of Python's, whose frames would be there.
pub(crate) fn blocked_natively(sample: &Sample, frames: Frames) -> bool {
    let natively = matches!(frames, Frames::User | Frames::Array);
    natively
        && sample.bits == 0
        && sample.syscall.is_some_and(|n| call::FUTEX.contains(&n))
        && sample.on_cpu < MOSTLY_PERMILLE
}

/// From this release on `time.sleep` waits by a call of the clock's: who selects waits for files.
const SLEEPS_BY_CLOCK: (u32, u32) = (3, 11);

/// The attribute that says of which release Python is: "3.11.4".
pub(crate) const PYTHON_VERSION: &str = "python.version";

/// May a thread that selects, from the program's own line, be in `time.sleep`?
pub(crate) fn sleeps_by_select(run: &Run) -> bool {
    let version = run.definitions.attributes().find(|(key, _)| *key == PYTHON_VERSION).map(|(_, v)| v);
    let mut parts = version.unwrap_or_default().split('.').map(|n| n.parse().unwrap_or(0));
    version.is_none() || (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < SLEEPS_BY_CLOCK
}

/// What the thread did. `selects_to_sleep`: [`sleeps_by_select`].
pub(crate) fn doing(sample: &Sample, frames: Frames, selects_to_sleep: bool) -> Activity {
    if sample.bits & COLLECTING != 0 {
        return Activity::Collects;
    }
    if sample.bits & WAITS_GIL != 0 {
        return Activity::WaitsForGil;
    }
    if sample.run_queue >= MOSTLY_PERMILLE {
        return Activity::Starves;
    }
    match frames {
        Frames::Loader(doing) => return doing,
        Frames::Compile => return Activity::Compiles,
        Frames::Save => return Activity::Saves,
        Frames::Log => return Activity::Logs,
        Frames::Backward => return Activity::Unknown,
        _ => {}
    }
    let Some(n) = sample.syscall else {
        return if sample.on_cpu >= MOSTLY_PERMILLE { Activity::Computes } else { Activity::Unknown };
    };
    let is = |list: &[u32]| list.contains(&n);
    match () {
        () if is(&call::WRITE) => Activity::Writes,
        () if is(&call::READ) && frames == Frames::Pipe => Activity::Waits,
        () if is(&call::READ) => Activity::Reads,
        () if is(&call::SOCKET) => Activity::Talks,
        () if is(&call::SLEEP) => Activity::Sleeps,
        // time.sleep has no frame of its own; a library that selects has
        () if is(&call::SELECT) && frames == Frames::User && selects_to_sleep => Activity::Sleeps,
        () if (is(&call::EVENTS) || is(&call::SELECT) || is(&call::POLL)) && frames == Frames::Tasks => {
            Activity::Awaits
        }
        () if is(&call::EVENTS) => Activity::Idles,
        () if (is(&call::SELECT) || is(&call::POLL)) && frames == Frames::EventLoop => Activity::Idles,
        () if is(&call::POLL) && frames == Frames::Pipe => Activity::Waits,
        () if is(&call::FUTEX) || is(&call::CHILD) => Activity::Waits,
        () if is(&call::MEMORY) => Activity::Allocates,
        () => Activity::Unknown,
    }
}

#[cfg(test)]
mod tests;

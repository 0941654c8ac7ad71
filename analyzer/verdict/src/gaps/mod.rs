// SPDX-License-Identifier: Apache-2.0
//! Where each gap's time goes. The constants of that decision stand here, named.
//!
//! `host.rs`: what the host did between launches, and which calls held it. `attribute`: the walk
//! over a device that gives each gap to a bucket. `input.rs`: when the host fetched data.
//! `sample_index.rs`: what it did, by samples. `others.rs`: what the program's other threads did
//! then. `dispatching.rs`: where it launched while the device waited for launches, by samples.
//! `launch_owner.rs`: which of several devices a wait is about. `aside.rs`: threads that the device
//! does not wait for. `functions.rs`: in which Python function the host was, in traces that hold
//! these. `pauses.rs`: what was seen between windows. Not here: what a fix would
//! win (`replay/`), words (`causes/`).

mod aside;
mod attribute;
mod concurrent_work;
pub mod dispatching;
#[cfg(feature = "readers")]
pub(crate) mod functions;
pub mod host;
pub mod input;
pub mod launch_owner;
pub mod others;
pub mod pauses;
pub mod sample_index;

pub use attribute::{attribute, Attributed, SmallKernels};
pub use host::{Blocker, Hold, HostView};
pub use launch_owner::LaunchOwner;

/// A gap in front of work that was queued in time, up to this long, is the device's own spacing, ns
/// (measured on an H200: 0.26–0.5 µs between graph nodes, about 1 µs eager).
pub const KERNEL_GAP_NS: u64 = 5_000;
/// A kernel launched on an idle device begins this soon after its launch returned, ns. (H200: 99 %
/// within 3 µs, the latest of 80,000 within 12 µs; with another process on the GPU up to 2.4 ms.
/// The rest of the limit is for slower machines.)
pub const STARTS_WITHIN_NS: u64 = 100_000;
/// A stretch between two launches is LAUNCH up to this long, ns, or [`LAUNCH_MEDIANS`] times the
/// median stretch.
pub const LAUNCH_STRETCH_NS: u64 = 150_000;
/// See [`LAUNCH_STRETCH_NS`].
pub const LAUNCH_MEDIANS: u64 = 5;
/// ... but never longer than this, ns: with one launch a step (a CUDA graph) the median stretch is
/// the whole step, and whatever the host does in it is not the launching.
pub const LAUNCH_LONGEST_NS: u64 = 1_000_000;
/// A copy or memset this short on a stream that does not carry the computing does not split a gap,
/// ns.
pub const SMALL_COPY_NS: u64 = 20_000;
/// A pageable copy of at most this many bytes is staged at once: what such a call waits for is the
/// drain, not the transfer.
pub const SMALL_COPY_BYTES: u64 = 64 * 1024;
/// Kernels shorter than this are small, ns.
pub const SMALL_KERNEL_NS: u64 = 10_000;
/// How far back, in calls of the launching thread, a stream's wait for an event is looked for.
pub const WAIT_LOOK_BACK: usize = 4;

/// Name, value and unit of each constant, for `gapprobe explain`.
pub const CONSTANTS: &[(&str, u64, &str)] = &[
    ("KERNEL_GAP_NS", KERNEL_GAP_NS, "ns"),
    ("STARTS_WITHIN_NS", STARTS_WITHIN_NS, "ns"),
    ("LAUNCH_STRETCH_NS", LAUNCH_STRETCH_NS, "ns"),
    ("LAUNCH_MEDIANS", LAUNCH_MEDIANS, "times the median stretch"),
    ("LAUNCH_LONGEST_NS", LAUNCH_LONGEST_NS, "ns"),
    ("SMALL_COPY_NS", SMALL_COPY_NS, "ns"),
    ("SMALL_COPY_BYTES", SMALL_COPY_BYTES, "bytes"),
    ("SMALL_KERNEL_NS", SMALL_KERNEL_NS, "ns"),
];

// SPDX-License-Identifier: Apache-2.0
//! What a fix would win: the recorded steps, replayed through a small model with one cause changed.
//!
//! `prepare.rs` (with `calls.rs`, `ops.rs`, `waits.rs`, `rows.rs`, `pace.rs`, `uneven.rs`) turns
//! recorded calls and ops into items with durations and edges (never absolute times), `model.rs`
//! plays them (`graphs.rs`: what goes into one graph launch). The idea: Daydream (USENIX ATC 2020).
//! Here: the fixes that can be asked for. The recorder's own cost stays in both the measured and
//! the predicted time: both are times with it.
//!
//! What it is held against: random programs and their mended forms (`tests/replay.rs`), and pairs
//! of recordings from the H200 (`tests/recordings.rs`, `tests/replay_h200.rs`). What durations
//! alone do not tell, as measured there: a GPU that no longer waits lowers its clock once its power
//! reaches the limit. The matrix products of host_sleep take 7 to 16 % longer in its fixed form,
//! those of pageable_copies 3 to 7 %, kernels bound by memory 0 to 2 %. Where the recording has
//! readings of power, `causes/power.rs` says by how much kernels are played slower; without any,
//! both are promised about a tenth too short a step. And the host's own speed, which varies by 15 %
//! from process to process, and by what recording it costs (docs/run-cost.md). Compare times of one
//! and the same recorder, not shares: a slow form that waits for its host takes as long as its host
//! (gpt_item 43.2 ms without gapprobe, 53.5 with it in another process: a win of 25 % or of 38 %
//! for the same fixed form).

mod calls;
mod graphs;
pub mod model;
mod ops;
mod pace;
pub mod prepare;
mod recorder;
mod rows;
mod uneven;
mod waits;

use std::time::{Duration, Instant};

pub use model::Kernel;
pub use prepare::Prepared;

/// Ops replayed at most, the latest of the steady span.
pub const MAX_OPS: usize = 200_000;
/// A verdict asks so many replays at most, nearly always (25 recordings of an H200: up to 21;
/// several causes together: more): what a deadline must have time for, or fewer ops are replayed.
const REPLAYS: u32 = 40;
/// However little time there is, so many ops are replayed: some milliseconds.
const LEAST_OPS: usize = 5_000;
/// The driver's launch queue: a launch, of one kernel or of a graph, waits until the one this many
/// before it has begun.
pub const LAUNCH_QUEUE: usize = 1024;
/// The same for launches of graphs alone (an H100, CUDA 13.0: 64 of 150 kernels each, with 256
/// single launches among them, 49 ms of work).
pub const GRAPH_QUEUE: usize = 64;
/// A host stretch between launches up to this long goes with a graph, ns: a compiled region's
/// guards or an optimizer's Python take some hundred microseconds; fetching a batch or writing a
/// file usually takes longer.
pub const CAPTURABLE_NS: u64 = 2_000_000;
/// How well the replay gives the measured time back.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Model {
    /// Measured time of the replayed span, ns (0: nothing replayed).
    pub measured_ns: f64,
    /// The same by the replay with nothing changed, ns.
    pub replayed_ns: f64,
    /// Ops replayed.
    pub ops: u64,
}

impl Model {
    /// Relative error, 0 to 1 (1 where nothing was replayed).
    pub fn error(&self) -> f64 {
        self.off().map_or(1.0, |off| off.abs().min(1.0))
    }

    /// By how much the replay is longer than what was measured (below 0: shorter), a share of that;
    /// `None` where nothing was replayed.
    pub fn off(&self) -> Option<f64> {
        (self.measured_ns > 0.0).then(|| (self.replayed_ns - self.measured_ns) / self.measured_ns)
    }
}

/// What a launch call takes the host where nothing holds it up, and for each node of a graph, ns
/// (H200, with their records on: 645 nodes in 0.86 ms, 493 in 0.68 to 0.93 ms, 134 in 0.18, 266 in
/// 0.45). The first node begins long before it returns: of the last two 8 and 11 us after it began
/// (2026-11-27).
pub const LAUNCH_NS: u64 = 20_000;
/// See [`LAUNCH_NS`].
pub const NODE_NS: u64 = 1_400;
/// The device's spacing where the recording shows none, ns (eager launches on an H200).
pub const SPACING_NS: i64 = 1_000;
/// Copies from pinned memory reach this, bytes per ns (25 GB/s: PCIe 4 x16 with room to spare on
/// newer links).
pub const PINNED_BYTES_PER_NS: u64 = 25;

/// By how much torch.profiler with CPU activities slows the host at most, as a fraction (H200,
/// PyTorch 2.11: steps took 1.37 to 1.7 times as long, ARCHITECTURE.md, "Path of a verdict").
pub const PROFILER_SLOWS: (u64, u64) = (17, 10);

/// By how much CUPTI slows a host that launches, as a fraction of each stretch of its own time.
/// H200 (a virtual host), PyTorch 2.11, CUPTI 13.0, processes with and without us in turn
/// (`tests/gpu/results/2026-11-23-h200-a529ca4-always-on.json.gz`): steps of eager MLP blocks took
/// 1.40 times as long with CUPTI's records of waits (95 %: 1.37 to 1.46; 4.6 us a launch), of a
/// small GPT 1.31 times (1.22 to 1.46; 12 us a launch, with launch calls of 7 us), and as long with
/// torch.profiler, or with handlers that do nothing: it is CUPTI's own cost, most of it outside of
/// the launch calls. A loop of launches in C++: 1.30 times. Stretches of Python without CUDA calls:
/// nothing, hence the limit in launch calls.
///
/// Without CUPTI's records of waits (`trace::header::sources::WAITS_BY_CALLS`) half of it: steps of
/// the MLP blocks took 1.23 times as long (1.14 to 1.26; 2.3 us a launch), where they took 1.52
/// times with them (`2026-11-23-h200-f694da9-always-on-waits.json.gz`).
pub const RECORDER_SLOWS: RecorderSlows =
    RecorderSlows { by: (6, 5), most_calls: (17, 20), node_ns: RECORDED_NODE_NS };
/// As [`RECORDER_SLOWS`], of recordings with CUPTI's records of waits: all before 2026-11-23, and
/// those of processes in which another client holds CUPTI's subscription.
pub const RECORDER_SLOWS_WITH_WAITS: RecorderSlows =
    RecorderSlows { by: (7, 5), most_calls: (17, 10), node_ns: RECORDED_NODE_NS };

/// What recording costs each node of a CUDA graph, ns: graphs of 645 kernels of 2 us +0.26 us
/// (docs/run-cost.md), of eager MLP blocks' training +0.23 to +0.46 (H200, CUPTI 13.0, steps of one
/// process and of another); graphs of empty kernels: 0.9 to 1.4 (docs/windows.md).
pub const RECORDED_NODE_NS: u64 = 350;

/// What recording does to a host that launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecorderSlows {
    /// So many times as long takes a stretch of the host's own time, as a fraction.
    pub by: (u64, u64),
    /// No stretch is taken to be longer by more than so many usual launch calls, as a fraction.
    pub most_calls: (u64, u64),
    /// So much longer is what lies between two nodes of a graph, ns.
    pub node_ns: u64,
}

/// A call with so many operations or more launched a graph.
pub const GRAPH_NODES: u64 = 8;

/// Who made the host slower while it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Slowed {
    /// Nobody, or nobody of whom it is known by how much.
    #[default]
    Unknown,
    /// torch.profiler with CPU activities: each operator, [`PROFILER_SLOWS`].
    ByProfiler,
    /// CUPTI under gapprobe: what goes with a launch, [`RECORDER_SLOWS`].
    ByRecorder(RecorderSlows),
}

/// One thing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fix {
    /// Nothing: must give the measured time back.
    Nothing,
    /// Synchronizing calls and small blocking copies return at once (the value is needed later, or
    /// not at all); rows of small copies are one (`rows.rs`).
    Sync,
    /// One graph launch instead of each stretch of single ones between calls that wait for the
    /// device: launching costs the host nothing but that, the device's spacing stays, so do
    /// synchronizes, copies, optimizers that no graph holds, and host stretches too long to be
    /// dispatch ([`CAPTURABLE_NS`]).
    Launch,
    /// Long host stretches that do not fetch data shrink to the usual one (file written elsewhere).
    Host,
    /// Long host stretches that fetch data shrink to the usual one (the next batch is ready in
    /// time).
    Input,
    /// Large copies from pinned memory on a stream of their own: they block nobody, the link is the
    /// only limit.
    Copy,
    /// No allocating and freeing calls.
    Alloc,
    /// Collectives hidden behind computing; their own time is the only limit.
    Comm,
    /// Half of the small kernels merged into their neighbours: half the spacing and half of their
    /// fixed time go.
    Fuse,
    /// Waits for other streams and events gone.
    DeviceWait,
    /// Not a fix: the host as it may be without what recorded it, [`PROFILER_SLOWS`] and
    /// [`RECORDER_SLOWS`].
    FasterHost,
    /// Not a fix: the host as slow in every step as it is in the slowest tenth of them
    /// (`uneven.rs`).
    SlowerHost,
}

/// Set of fixes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fixes(u16);

impl Fixes {
    /// These fixes together.
    pub fn of(fixes: &[Fix]) -> Fixes {
        Fixes(fixes.iter().fold(0, |all, &f| all | 1 << f as u16))
    }

    /// Contains `fix`.
    pub fn has(self, fix: Fix) -> bool {
        self.0 & 1 << fix as u16 != 0
    }
}

/// What is replayed, and how well the replay gives it back: as many of the latest ops as can be
/// replayed [`REPLAYS`] times before the deadline. `prepare` is asked for a number of them.
pub(crate) fn by(deadline: Option<Instant>, prepare: impl Fn(usize) -> Prepared) -> (Prepared, Model) {
    let prepared = prepare(MAX_OPS);
    let begin = Instant::now();
    let model = prepared.model();
    let took = begin.elapsed().max(Duration::from_nanos(1));
    let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
    let Some(left) = left.filter(|&left| left < took * REPLAYS && prepared.ops() > LEAST_OPS) else {
        return (prepared, model);
    };
    // half of what would fit: preparing it takes as long again
    let share = left.as_secs_f64() / (took.as_secs_f64() * f64::from(2 * REPLAYS));
    let prepared = prepare(((prepared.ops() as f64 * share) as usize).max(LEAST_OPS));
    let model = prepared.model();
    (prepared, model)
}

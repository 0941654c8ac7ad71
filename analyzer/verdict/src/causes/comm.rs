// SPDX-License-Identifier: Apache-2.0
//! GP107 COMM: collectives run while nothing computes.
//!
//! # What it means
//! Kernels that exchange data between ranks (NCCL, NVSHMEM, DeepEP and the like) run alone. The
//! compute kernels wait for them.
//!
//! # How it is recognised
//! Collectives are known by kernel name (`nccl`, `nvshmem`, `deep_ep`, ...). Time counts in which
//! one runs and no compute kernel does. One rank's recording cannot separate the transfer from
//! waiting for a late rank, unless NCCL reports the bytes of its calls (NVTX). Then a collective
//! that takes more than twice as long as others of its kernel and size has waited.
//!
//! # How sure
//! The share is exact. The confidence is never high from one rank: compare the ranks. What overlap
//! wins is not predicted. Compute kernels and collectives slow each other down, and a kernel that
//! fills the GPU delays the start of a collective. Overlap won 0 to 36% of the time that
//! collectives ran alone, in five measurements on H200s with NVLink. For a late rank a win is
//! promised only in a job of two ranks: half of the lateness, as if both had the same work.
//!
//! # Example
//! ```python
//! # slow: DDP reduces the gradients of every micro-batch
//! for x in micro_batches:
//!     model(x).mean().backward()
//! # fixed: only those of the last one
//! with model.no_sync():
//!     for x in micro_batches[:-1]:
//!         model(x).mean().backward()
//! model(micro_batches[-1]).mean().backward()
//! ```
//!
//! # What to change
//! Overlap: larger or earlier gradient buckets, prefetch in FSDP. Send less: `no_sync()` during
//! gradient accumulation, fewer bytes. Look for the late rank: its own line names another cause.

use super::late::late_share;
use super::Case;
use crate::analysis::{Advice, Bucket, Confidence, Fact, Figure, Finding, Win};
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP107";
/// Name in the line.
pub const NAME: &str = "COMM";

/// From this share on they are what the GPU waits for, whatever hiding them wins: nothing else has
/// as much of the time.
pub(super) const ALONE_SHARE: f64 = 0.5;

/// From this part of the share on, waiting for a late rank is what it is about.
const MOSTLY: f64 = 0.5;
/// Of two ranks it is known how the work is to be divided.
const RANKS_OF_A_PROMISE: u32 = 2;

/// It is compared with other causes by what hiding all collectives would win. That is not promised:
/// on H200s with NVLink (2026-11-27), of 2.8, 2.5, 4.7, 2.4 and 4.6 ms a step that ran alone, 1.0,
/// 0.6, 0.8, 0.2 and 0.0 ms were won.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Comm]);
    if share < NOTICED_SHARE {
        return None;
    }
    let win = case.win(&[Fix::Comm], case.touches(&[Bucket::Comm]));
    let mut f = case.finding((CODE, NAME), share, win);
    f.confidence = f.confidence.min(Confidence::Medium);
    f.promise = None;
    let late = late_share(case).min(share);
    if late < share * MOSTLY {
        f.advice = Advice::new(
            "overlap them with the backward pass",
            "overlap collectives with computing, send less, look for the late rank",
        );
        f.facts.say(Fact::new("collectives run alone"));
        f.facts.say(Fact::new("transfer or a late rank cannot be told from one rank"));
        return Some(f);
    }
    f.advice = Advice::new(
        "give the ranks equal work",
        "give the ranks equal work: look for the one that comes late",
    );
    let waits = Figure::Time(late * case.step_ns());
    f.why = "collectives wait for a late rank";
    f.facts.say(Fact::new("collectives wait {time} a step for a rank that comes late").with("time", waits));
    if case.run.header.world_size == RANKS_OF_A_PROMISE {
        // (held up by what needs not be, the other one can be as soon there as this one)
        let half = Win::within(late / 2.0, case.touches(&[Bucket::Comm]));
        f.promise = case.finding((CODE, NAME), share, half).promise;
    }
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP107 COMM: collectives run while nothing computes.
//!
//! # What it means
//! Kernels that exchange data between ranks (NCCL, NVSHMEM, DeepEP and the like) run alone: computing waits for them.
//!
//! # How it is recognised
//! By kernel name (`nccl`, `nvshmem`, `deep_ep`, ...): time in which a collective and no computing
//! runs. How much of it is the transfer and how much is waiting for a late rank is not known from
//! one rank's recording, but where NCCL says how many bytes its calls move (NVTX): those that take
//! more than twice as long as others of their kernel and size waited. What hiding all of them would
//! win is what the cause is compared with others by.
//!
//! # How sure
//! The share is exact. What hiding collectives behind computing wins is not predicted: both take
//! longer beside each other, and a kernel that fills the GPU holds up the collective's begin. H200,
//! NVLink, 2026-11-27: of 2.8, 2.5, 4.7, 2.4 and 4.6 ms a step that ran alone 1.0, 0.6, 0.8, 0.2
//! and 0.0 were won. A late rank is promised in a job of two alone: half of what it is late, as if
//! both had the same work. Compare the ranks before believing it. Never named with high confidence
//! from one rank.
//!
//! # What to change
//! Overlap: larger or earlier gradient buckets, `no_sync()` during gradient accumulation, prefetch in FSDP; fewer
//! bytes; look for the rank that comes late (its own line names another cause).

use super::late::late_share;
use super::Case;
use crate::analysis::{Bucket, Confidence, Finding, Win};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP107";
/// Name in the line.
pub const NAME: &str = "COMM";

/// From this share on they are what the GPU waits for, whatever hiding them wins: nothing else has as much of the time.
pub(super) const ALONE_SHARE: f64 = 0.5;

/// From this part of the share on, waiting for a late rank is what it is about.
const MOSTLY: f64 = 0.5;
/// Of two ranks it is known how the work is to be divided.
const RANKS_OF_A_PROMISE: u32 = 2;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Comm]);
    if share < super::NOTICED_SHARE {
        return None;
    }
    let win = case.win(&[Fix::Comm], case.touches(&[Bucket::Comm]));
    let mut f = case.finding((CODE, NAME), share, win);
    f.confidence = f.confidence.min(Confidence::Medium);
    f.promise = None;
    let late = late_share(case).min(share);
    if late < share * MOSTLY {
        f.fix = "overlap collectives with computing, send less, look for the late rank";
        f.text = "collectives run alone; transfer or a late rank cannot be told from one rank".to_owned();
        return Some(f);
    }
    f.fix = "give the ranks equal work: look for the one that comes late";
    f.text =
        format!("collectives wait {:.1} ms a step for a rank that comes late", late * case.step_ns() / 1e6);
    if case.run.header.world_size == RANKS_OF_A_PROMISE {
        // (held up by what needs not be, the other one can be as soon there as this one)
        let half = Win::within(late / 2.0, case.touches(&[Bucket::Comm]));
        f.promise = case.finding((CODE, NAME), share, half).promise;
    }
    Some(f)
}

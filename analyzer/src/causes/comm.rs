// SPDX-License-Identifier: Apache-2.0
//! GP107 COMM: collectives run while nothing computes.
//!
//! # What it means
//! Kernels that exchange data between ranks (NCCL, NVSHMEM, DeepEP and the like) run alone: computing waits for them.
//!
//! # How it is recognised
//! By kernel name (`nccl`, `nvshmem`, `deep_ep`, ...): time in which a collective and no computing runs. How much of
//! it is the transfer and how much is waiting for a late rank is not known from one rank's recording. The prediction
//! hides collectives behind computing; their own time is the only limit. Where they run alone for more than half of the time and
//! no fix wins enough, hiding them included (a rank that computes little and waits for a late one), they are named all the
//! same, without a prediction.
//!
//! # How sure
//! The share is exact. The prediction is the best that overlapping could reach; compare the ranks before believing
//! it. Never named with high confidence from one rank.
//!
//! # What to change
//! Overlap: larger or earlier gradient buckets, `no_sync()` during gradient accumulation, prefetch in FSDP; fewer
//! bytes; look for the rank that comes late (its own line names another cause).

use super::Case;
use crate::analysis::{Bucket, Confidence, Finding};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP107";
/// Name in the line.
pub const NAME: &str = "COMM";

/// From this share on they are what the GPU waits for, whatever hiding them wins: nothing else has as much of the time.
pub(super) const ALONE_SHARE: f64 = 0.5;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Comm]);
    if share < super::NOTICED_SHARE {
        return None;
    }
    let win = case.win(&[Fix::Comm], share);
    let mut f = case.finding((CODE, NAME), share, win);
    f.confidence = f.confidence.min(Confidence::Medium);
    f.fix = "overlap collectives with computing, send less, look for the late rank";
    f.text = "collectives run alone; transfer or a late rank cannot be told from one rank".to_owned();
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! What a verdict is worth on a trace whose host was slowed by the profiler that took it: the replay with a faster
//! host, and the cause that would be named then. Not a cause, so without a code.

use super::verdict::fix_of;
use super::{gpu_bound, Case, GPU_BOUND_SHARE, NAMED_WIN};
use crate::analysis::{Bucket, Finding, Profiled};
use crate::replay::{Fix, Fixes};

/// The verdict at the other end of the range ([`crate::replay::PROFILER_SLOWS`]); `None` where nothing can be said.
pub(super) fn without(case: &Case, findings: &[Finding]) -> Option<Profiled> {
    if !case.run.slowed_host || !case.trusts_replay() {
        return None;
    }
    // no step is shorter than what another GPU computes in it
    let least = case.elsewhere.compute * case.base;
    let faster = (case.prepared.play(Fixes::of(&[Fix::FasterHost])) as f64).max(least);
    let part = (faster / case.base).clamp(0.0, 1.0);
    if part <= 0.0 {
        return None;
    }
    // the kernels take as long as they did
    let compute = (case.device.buckets.share(Bucket::Compute) / part).min(1.0);
    let wins = findings.iter().filter_map(|f| {
        let fixed = (case.prepared.play(Fixes::of(&[Fix::FasterHost, fix_of(f.code)?])) as f64).max(least);
        Some((1.0 - fixed / faster, f.cause))
    });
    let best = wins.max_by(|x, y| x.0.total_cmp(&y.0)).filter(|b| b.0 >= NAMED_WIN);
    let cause = match best {
        _ if compute >= GPU_BOUND_SHARE => gpu_bound::NAME,
        Some((_, cause)) => cause,
        None => super::mixed::NAME,
    };
    Some(Profiled { cause, step_ns: case.step_ns() * part, busy: (case.device.busy_share() / part).min(1.0) })
}

// SPDX-License-Identifier: Apache-2.0
//! Steps as they are when nobody records them: the replay with the host as fast as it may be then
//! ([`Fix::FasterHost`]). Causes are named by what they cost such steps; what is promised is of
//! recorded ones, for those can be measured again. On a trace of torch.profiler, whose slowing is a
//! range and no estimate, the verdict is of the steps as recorded, and the other end of the range
//! is said beside it.

use super::{
    comm, copy, fix_of, gpu_bound, is_of_kernels, mixed, Case, GPU_BOUND_SHARE, MINOR_WIN, NAMED_WIN,
};
use crate::analysis::{Bucket, Finding, Profiled};
use crate::replay::Fix;

impl Case<'_> {
    /// By how much recording it made what was replayed longer, a share of it as recorded, 0 to 1:
    /// an estimate ([`crate::replay::RECORDER_SLOWS`]). `None` where none can be made.
    pub(crate) fn slowed_by_us(&self) -> Option<f64> {
        (!self.run.foreign && self.trusts_replay()).then(|| 1.0 - self.unrecorded() / self.base)
    }

    /// As [`Case::win`], of a step that nobody records: at most what nothing computes in.
    pub(crate) fn unrecorded_win(&self, fixes: &[Fix]) -> f64 {
        let from = self.unrecorded();
        if from >= self.base {
            return self.replayed(fixes);
        }
        (1.0 - self.faster(fixes) / from).max(0.0)
    }

    /// What a finding's fix wins of a step that is not recorded: the host is slower while it is
    /// recorded, the GPU is not.
    pub(super) fn win_without_us(&self, f: &Finding) -> f64 {
        let win = f.win.share();
        let longer = self.base / self.unrecorded();
        // (NaN and infinity, of a base of 0, too)
        if !(longer > 1.0 && longer.is_finite()) || win.max(f.charged) < MINOR_WIN {
            return win;
        }
        // merging kernels and leaving some out takes the same time from a shorter step
        let Some(fix) = fix_of(f.code).filter(|&fix| fix != Fix::Fuse) else {
            return (win * longer).min(1.0);
        };
        let (recorded, unrecorded) = (self.replayed(&[fix]), self.unrecorded_win(&[fix]));
        // a part of what the replay takes out is the same part here; where more than that was taken
        // out (a checkpoint's copies), it is no launching
        match win / recorded {
            part if (0.0..=1.0).contains(&part) => part * unrecorded,
            _ => win,
        }
    }

    /// Replay of what nobody records, ns; as recorded where another tool did, or the replay is no
    /// good.
    fn unrecorded(&self) -> f64 {
        *self.unrecorded.get_or_init(|| {
            if self.run.foreign || !self.trusts_replay() {
                return self.base;
            }
            self.faster(&[]).clamp(1.0, self.base.max(1.0))
        })
    }

    /// Replay with these fixes and a host that nobody slows, ns: never shorter than what the
    /// devices compute in it.
    fn faster(&self, fixes: &[Fix]) -> f64 {
        let with: Vec<Fix> = fixes.iter().copied().chain([Fix::FasterHost]).collect();
        let least = self.share(&[Bucket::Compute]).max(self.elsewhere.compute) * self.base;
        self.played_everywhere(&with).max(least)
    }
}

/// The verdict at the other end of the range ([`crate::replay::PROFILER_SLOWS`]) on a trace whose
/// host was slowed by the profiler that took it; `None` where nothing can be said.
pub(super) fn without_profiler(case: &Case, findings: &[Finding]) -> Option<Profiled> {
    if !case.run.slowed_host || !case.trusts_replay() {
        return None;
    }
    let faster = case.faster(&[]);
    let part = (faster / case.base).clamp(0.0, 1.0);
    if part <= 0.0 {
        return None;
    }
    // the kernels take as long as they did
    let compute = (case.device.buckets.share(Bucket::Compute) / part).min(1.0);
    let busy = (case.device.busy_share() / part).min(1.0);
    let is_full = busy >= FULL;
    let may_be_named = |f: &&Finding| !is_full || [copy::CODE, comm::CODE].contains(&f.code);
    let wins = findings
        .iter()
        .filter(may_be_named)
        .filter_map(|f| Some((1.0 - case.faster(&[fix_of(f.code)?]) / faster, f.cause)));
    let best = wins.max_by(|x, y| x.0.total_cmp(&y.0)).filter(|b| b.0 >= NAMED_WIN);
    let of_kernels = findings.iter().find(|f| is_of_kernels(f.code) && f.win.share() >= NAMED_WIN);
    let cause = match best {
        _ if compute >= GPU_BOUND_SHARE => of_kernels.map_or(gpu_bound::NAME, |f| f.cause),
        Some((_, cause)) => cause,
        None if is_full => most_of_what_runs(case),
        None => mixed::NAME,
    };
    Some(Profiled { cause, step_ns: case.step_ns() * part, busy })
}

/// A GPU that runs something for this share of the time waits for nothing that the host does: what
/// runs is the limit.
const FULL: f64 = 0.95;

/// The cause that the largest part of a full GPU's time is.
fn most_of_what_runs(case: &Case) -> &'static str {
    let share = |bucket| case.device.buckets.share(bucket);
    let (compute, comm, copy) = (share(Bucket::Compute), share(Bucket::Comm), share(Bucket::Copy));
    match () {
        () if compute >= comm.max(copy) => gpu_bound::NAME,
        () if comm >= copy => comm::NAME,
        () => copy::NAME,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Idle time for no reason seen: too much of it, and there is no verdict.

use super::UNEXPLAINED_SHARE;
use crate::analysis::{share, Analysis, Bucket, DeviceAnalysis, Fact, Figure};
use crate::gaps::STARTS_WITHIN_NS;
use crate::run::Run;
use crate::stats::middle;

/// Stalls shorter than this are not taken for another process's time slice, ns.
const SLICE_NS: u64 = 300_000;

/// Why there can be no verdict although a cause wins `best` (share of wall time of the winning
/// cause).
pub(super) fn too_much(run: &Run, a: &Analysis, device: &DeviceAnalysis, best: f64) -> Option<Fact> {
    let unexplained = device.buckets.share(Bucket::Unexplained);
    let too_much = unexplained > UNEXPLAINED_SHARE || (unexplained > best && unexplained >= super::MINOR_WIN);
    too_much.then(|| {
        let stalls = time_slices(device);
        let ready = stood_ready(run, a, device).filter(|_| stalls.is_none());
        let why = match (stalls, ready) {
            (Some((n, ns)), _) => Fact::new("{share} of the time is idle for no reason seen (another process on the GPU?): {stalls} stalls of {length} with work queued")
                .with("stalls", n)
                .with("length", Figure::Time(ns as f64)),
            (_, Some((n, ns))) => Fact::new("{share} of the time is idle for no reason seen (another process on the GPU?): launched work began up to {length} late, {times}")
                .with("times", Figure::Of(n, "time", "times"))
                .with("length", Figure::Time(ns as f64)),
            _ => Fact::new("{share} of the time is idle for no reason seen"),
        };
        why.with("share", Figure::Share(unexplained))
    })
}

/// Stalls of equal length above [`SLICE_NS`] with work queued: what sharing the GPU by time slices
/// looks like (H200, driver 580: 2.44 ms for two processes, about 0.6 ms for three small ones).
fn time_slices(device: &DeviceAnalysis) -> Option<(usize, u64)> {
    let unexplained = device.slices.iter().filter(|s| s.bucket == Bucket::Unexplained);
    let mut long: Vec<u64> = unexplained.map(|s| s.end - s.start).filter(|&ns| ns > SLICE_NS).collect();
    if long.len() < 5 {
        return None;
    }
    let median = middle(&mut long)?;
    let equal = long.iter().filter(|ns| ns.abs_diff(median) * 20 <= median).count();
    (equal * 10 >= long.len() * 7).then_some((equal, median))
}

/// How often an op that was launched stood ready in front of an idle device, and how long at most,
/// ns; only where that is most of the unexplained time.
fn stood_ready(run: &Run, a: &Analysis, device: &DeviceAnalysis) -> Option<(u64, u64)> {
    let index = run.devices.iter().position(|d| d.ordinal == device.ordinal)?;
    let (mut times, mut longest, mut ready, mut all) = (0, 0, 0u64, 0u64);
    for s in device.slices.iter().filter(|s| s.bucket == Bucket::Unexplained) {
        let ns = a.counts.measure(s.span());
        all = all.saturating_add(ns);
        let call = run.op(index, s.after_stream, s.after).and_then(|op| run.call(op.call));
        if ns > STARTS_WITHIN_NS && call.is_some_and(|(_, c)| c.end <= s.start) {
            (times, longest, ready) = (times + 1, ns.max(longest), ready.saturating_add(ns));
        }
    }
    (share(ready, all) > 0.5).then_some((times, longest))
}

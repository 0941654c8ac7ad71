// SPDX-License-Identifier: Apache-2.0
//! GP101 SYNC: a call that waits for the GPU lets it run dry.
//!
//! # What it means
//! The host waits in a synchronizing call (`cudaStreamSynchronize`, `cudaDeviceSynchronize`, a
//! blocking copy) until the GPU has finished all queued work. `.item()`, `.cpu()`, `print(loss)`
//! and `if torch.isfinite(loss)` make such calls. Then the queue is empty, and the GPU idles until
//! the host launches.
//!
//! # How it is recognised
//! The call drained the queue and no thread launched to the GPU meanwhile. Idle time after the call
//! is charged to it, up to the length of the call. If the host then loads data or does other work,
//! the bar and the trace show INPUT or HOST; the cost of SYNC includes it. Waits are not named if
//! the GPU waits for the host anyway.
//! JAX reads an array (`float(x)`) without a CUDA call; stack samples show the wait. The bar shows
//! SYNC if the copy to the host was recorded, else HOST.
//!
//! # How sure
//! The calls, their times and their Python lines (if recorded) are exact. The prediction assumes
//! that nothing after the call needs the value. If something does, the wait can only be overlapped
//! or batched, and less is won. `needed`: the recording shows that the next launch depends on the
//! value, and nothing is promised. A row of 8 or more small copies at one line is predicted as one.
//! The prediction is for all waits together. `only together with` names the line that would wait
//! instead. After `this line alone wins` the confidence is medium at most.
//!
//! # Example
//! ```python
//! # slow: waits for the GPU in every step
//! for batch in loader:
//!     losses.append(train_step(batch).item())
//! # fixed: waits once, after the loop
//! for batch in loader:
//!     losses.append(train_step(batch).detach())
//! mean = torch.stack(losses).mean().item()
//! ```
//!
//! # What to change
//! Log the loss of the step before, or read values every N steps. `torch.stack` values that are
//! read one by one. Use `torch.where` for `if tensor:`. Copy to pinned memory with
//! `non_blocking=True`; poll `event.query()`, or wait after more launches. Remove `synchronize()`:
//! to time, record `torch.cuda.Event(enable_timing=True)` and read `elapsed_time` some steps later.

use super::{host, needed, sync_calls, Case};
use crate::analysis::{Advice, Bucket, Confidence, Fact, Finding};
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP101";
/// Name in the line.
pub const NAME: &str = "SYNC";

const NEEDED_FIX: Advice =
    Advice::new("launch other work before it", "launch other work before the value is read, read several values at once, or compute without it (torch.where)");

/// What to change, by the call that the text names and by PyTorch's own frame above it.
fn advice_of(case: &Case, flat: u32) -> Advice {
    case.run.call(flat).map_or(sync_calls::READ_LATER, |(_, call)| sync_calls::fix(case.run, call))
}

/// Does the line of this call copy small values in a row?
fn copies_in_rows(case: &Case, flat: u32) -> bool {
    let stack = |flat| case.run.call(flat).map_or(0, |(_, c)| case.run.python_stack(c.site));
    let own = stack(flat);
    own != 0 && case.prepared.copies_in_rows(|call| stack(call) == own)
}

/// The replay lets the same calls return at once ([`Fix::Sync`]). What the host is seen to do after
/// the wait shows as INPUT or HOST, but the wait set it off: share and promise cover both.
///
/// A JAX read is a call of its own (`array_waits.rs`) where the copy to the host was recorded. Else
/// its time stays in HOST's bucket, and [`host::of_kind`] names it where samples show the wait.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Sync]);
    if let Some(unseen) =
        host::of_kind(case, (CODE, NAME), sync_calls::READ_LATER).filter(|f| f.share > share)
    {
        return Some(unseen);
    }
    if share < NOTICED_SHARE {
        return None;
    }
    let with_it: &[Bucket] = match case.trusts_replay() {
        true => &[Bucket::Sync, Bucket::Launch, Bucket::Host, Bucket::CopyWait, Bucket::KernelGap],
        false => &[Bucket::Sync],
    };
    let win = case.win(&[Fix::Sync], case.touches(with_it));
    let mut f = case.finding((CODE, NAME), share, win);
    f.advice = sync_calls::READ_LATER;
    let drains = Fact::new("{function} drains the queue {often}");
    if let Some(spot) = case.spot(Bucket::Sync) {
        let often = case.rhythm_at(Bucket::Sync, &spot);
        let beside = case.beside(&spot, win.share());
        f.facts.say(drains.with("function", &*spot.name).with("often", often));
        f.facts.add(beside.facts);
        f.count = spot.calls;
        f.advice =
            if copies_in_rows(case, spot.flat) { sync_calls::TOGETHER } else { advice_of(case, spot.flat) };
        if beside.unknown {
            f.confidence = f.confidence.min(Confidence::Medium);
        }
        let device = case.recorded_device();
        let needed = device.is_some_and(|d| needed::is_needed(case.run, d, &spot.site));
        if needed || beside.needed {
            // (what goes on is about the other line's value)
            f.facts.say(if beside.needed { needed::THERE } else { needed::HERE });
            f.facts.say(Fact::new("overlap or batch it"));
            (f.promise, f.advice) = (None, NEEDED_FIX);
        }
        spot.into(&mut f);
    } else if let Some(top) = case.top(Bucket::Sync) {
        let often = case.rhythm_by(Bucket::Sync, &top);
        f.facts.say(drains.with("function", top.name).with("often", often));
        (f.call, f.count, f.advice) = (top.flat, top.calls, advice_of(case, top.flat));
    }
    case.name_by_range(&mut f, Bucket::Sync);
    Some(f)
}

// SPDX-License-Identifier: Apache-2.0
//! GP101 SYNC: a call that waits for the GPU lets it run dry.
//!
//! # What it means
//! The host stood in a synchronizing call (`cudaStreamSynchronize`, `cudaDeviceSynchronize`, a blocking copy such as
//! the one behind `.item()`, `.cpu()`, `print(loss)`, `torch.isfinite(x)` in an `if`) until the GPU had finished
//! everything queued. When the call returned the queue was empty, and the GPU waited for the host to launch again.
//!
//! # How it is recognised
//! The call drained the queue and nobody launched to the device while it stood. The time it stood is a credit: each
//! gap after it is charged to it until the credit is spent or the queue is ahead of the GPU again. What removing it
//! would win is replayed: the same calls, returning at once. A synchronize in a program whose GPU waits for the host
//! anyway wins nothing and is not named.
//!
//! Where the host is then seen to fetch data or to do something else, by named ranges or by samples,
//! that time shows as INPUT or HOST in the bar and in the trace. It was set off by the wait all the
//! same, and goes with it: share and prediction are of both.
//!
//! JAX reads an array (`float(x)`, `np.asarray(x)`) without any CUDA call on the program's thread. With samples: at least half of
//! them in long stretches are blocked in native code below the program's line or JAX's array, until a copy to the host has ended and
//! the next launch follows at once. The idle time of such a wait is counted as sync, too, where the copy that it waited for was recorded; else it stays HOST.
//!
//! # How sure
//! The calls, their times and, where the line is told, the Python line that made them are exact. The prediction assumes that nothing after the call needs its value: where
//! the next launches, shapes or the next input depend on it, it can only be overlapped or batched, and less is won. Where the
//! recording shows that they do, the text says "needed" and nothing is promised: the call waits for a small copy to the host, the
//! next launch follows within 150 µs and is of one and the same kernel, the 4 launches before were the same as at other times, and
//! still its grid varies (3 or more in 8 or more times, half of all times at that line).
//!
//! Where one line copies small values in a row, each with its wait (8 or more), the prediction puts
//! them together: one copy stays.
//!
//! What is promised is won by all waits together. Where the line that is named wins less than four fifths of it, it says what it takes
//! beside it: "only together with train.py:9", the line at which the program would wait instead, or, where no other line makes up for it, what
//! this one wins alone (then the confidence is medium at most).
//!
//! # What to change
//! Read the value later (log the loss of the step before), collect values on the GPU and read them
//! every N steps, put values that are copied one by one together first, copy with
//! `non_blocking=True` to pinned memory and check an event, replace `if tensor:` by `torch.where`.
//!
//! `torch.cuda.synchronize()`, or another wait for the whole device: remove it. What it was to time, CUDA events time without a wait:
//! `torch.cuda.Event(enable_timing=True)`, recorded before and behind the work, `elapsed_time` read some steps later (in C++
//! `cudaEventRecord`, `cudaEventElapsedTime`). `event.synchronize()`: ask `event.query()` and go on while it is not done, or
//! wait later, behind more launches. Which of them it is, the call tells, and PyTorch's own frame above it; the advice
//! speaks of them only where it does.

use super::{host, needed, sync_calls, Case};
use crate::analysis::{Bucket, Confidence, Finding};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP101";
/// Name in the line.
pub const NAME: &str = "SYNC";

const NEEDED_FIX: &str =
    "launch other work before the value is read, read several values at once, or compute without it (torch.where)";

/// By the call that the text names.
fn fix_of(case: &Case, flat: u32) -> &'static str {
    case.run.call(flat).map_or(sync_calls::READ_LATER, |(_, call)| sync_calls::fix(case.run, call))
}

/// Does the line of this call copy small values in a row?
fn copies_in_rows(case: &Case, flat: u32) -> bool {
    let stack = |flat| case.run.call(flat).map_or(0, |(_, c)| case.run.python_stack(c));
    let own = stack(flat);
    own != 0 && case.prepared.copies_in_rows(|call| stack(call) == own)
}

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Sync]);
    if let Some(unseen) =
        host::of_kind(case, (CODE, NAME), sync_calls::READ_LATER).filter(|f| f.share > share)
    {
        return Some(unseen);
    }
    if share < super::NOTICED_SHARE {
        return None;
    }
    let with_it: &[Bucket] = match case.trusts_replay() {
        true => &[Bucket::Sync, Bucket::Launch, Bucket::Host, Bucket::CopyWait, Bucket::KernelGap],
        false => &[Bucket::Sync],
    };
    let win = case.win(&[Fix::Sync], case.touches(with_it));
    let mut f = case.finding((CODE, NAME), share, win);
    f.fix = sync_calls::READ_LATER;
    if let Some(top) = case.top(Bucket::Sync) {
        f.text = format!("{} drains the queue {}", top.name, case.rhythm_by(Bucket::Sync, &top));
        f.call = top.flat;
        f.count = top.calls;
        f.fix = fix_of(case, top.flat);
    }
    if let Some(spot) = case.spot(Bucket::Sync) {
        let rhythm = case.rhythm_at(Bucket::Sync, &spot);
        let beside = case.beside(&spot, win.share());
        f.text = format!("{}: {} drains the queue {rhythm}{}", spot.site, spot.name, beside.words);
        f.count = spot.calls;
        f.fix = if copies_in_rows(case, spot.flat) { sync_calls::TOGETHER } else { fix_of(case, spot.flat) };
        if beside.unknown {
            f.confidence = f.confidence.min(Confidence::Medium);
        }
        let device = case.run.devices.iter().find(|d| d.ordinal == case.device.ordinal);
        let needed = device.is_some_and(|d| needed::is_needed(case.run, d, &spot.site));
        if needed || beside.needed {
            // (behind a comma it is the other line's value)
            let then = if beside.needed { ", " } else { "; " };
            f.text = format!("{}{then}{}", f.text, needed::WORDS);
            (f.promise, f.fix) = (None, NEEDED_FIX);
        }
        spot.into(&mut f);
    }
    case.name_by_range(&mut f, Bucket::Sync);
    Some(f)
}

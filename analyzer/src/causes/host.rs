// SPDX-License-Identifier: Apache-2.0
//! GP105 HOST: the host was busy with something else than launching.
//!
//! # What it means
//! Between two launches the launching threads did something long that is not a CUDA call: waited for the next batch,
//! decoded data, ran Python, wrote a checkpoint, slept, waited for a lock or the network.
//!
//! # How it is recognised
//! The next kernel had not been launched when the GPU fell idle, no blocking call had drained the queue, and the
//! host's stretch since the launch before was longer than 150 µs and 5 times the run's median stretch, or than 1 ms.
//! The prediction shrinks these stretches to the usual one, with what stands in them before a waiting call: a GPU that
//! drains while the host works waits for the host, whichever call the host makes next.
//!
//! A wait before the host's work claims the same gap as GP101 SYNC; where the prediction says that more goes with the
//! work than what is left of the gap, that is what it costs.
//!
//! # How sure
//! That the host was not launching is exact; what it did instead is not known without host samples (named ranges
//! over the gaps tell it in the trace). Whether it can all be moved off the critical path is for you to judge.
//!
//! # What to change
//! Have the next batch ready before it is needed (more DataLoader workers, `prefetch_factor`, pinned memory), move
//! logging and checkpoints to a thread, take work out of the loop between steps.

use super::Case;
use crate::analysis::{Bucket, Finding};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP105";
/// Name in the line.
pub const NAME: &str = "HOST";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Host]);
    let win = case.stretch_win(Fix::Host, share)?;
    let mut f = case.finding((CODE, NAME), share.max(win), win);
    f.fix = "have the next input ready in time, move logging and checkpoints off the launching thread";
    let slices = case.device.slices.iter().filter(|s| s.bucket == Bucket::Host);
    let mut longest = 0;
    let mut last = None;
    for s in slices.filter(|s| s.span().clip(case.device.steady).ns() > 0) {
        longest = longest.max(s.end - s.start);
        f.count += u64::from(last != s.call());
        last = s.call();
        if longest == s.end - s.start {
            f.call = s.call;
        }
    }
    if f.count == 0 {
        // its gaps stand under the waits in front of it
        (f.count, longest) = case.prepared.stretches[0];
    }
    f.text = format!(
        "the launching thread is elsewhere {}, up to {:.1} ms",
        case.rhythm(f.count),
        longest as f64 / 1e6
    );
    Some(f)
}

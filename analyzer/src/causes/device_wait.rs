// SPDX-License-Identifier: Apache-2.0
//! GP109 DEVICE-WAIT: queued work waited for another stream.
//!
//! # What it means
//! The host was ahead and the next kernel was queued, but the device did not start it: it waited for an event of
//! another stream, a copy, or a collective.
//!
//! # How it is recognised
//! The launch call had returned when the op before ended, the gap is longer than 5 µs (`KERNEL_GAP_NS`), and an owner of
//! the wait is seen: the launching thread had made the stream wait for an event, or CUPTI recorded such a wait. That the op
//! before ran on another stream is no owner: it had ended. Without one the gap is `unexplained`, never this.
//!
//! # How sure
//! The gap is exact; the owner is inferred from order and time.
//!
//! # What to change
//! Fewer and later `wait_event` / `wait_stream` calls, events recorded earlier; put work that always waits into one
//! stream.

use super::Case;
use crate::analysis::{Bucket, Confidence, Finding};
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP109";
/// Name in the line.
pub const NAME: &str = "DEVICE-WAIT";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::DeviceWait]);
    if share < super::NOTICED_SHARE {
        return None;
    }
    let win = case.win(&[Fix::DeviceWait], case.touches(&[Bucket::DeviceWait]));
    let mut f = case.finding((CODE, NAME), share, win);
    f.confidence = f.confidence.min(Confidence::Medium);
    f.fix = "record events earlier, wait later, or use one stream";
    f.text = "queued work waits for another stream".to_owned();
    if let Some(top) = case.top(Bucket::DeviceWait) {
        f.text = format!("queued work waits after {} {}", top.name, case.rhythm_by(Bucket::DeviceWait, &top));
        f.call = top.flat;
        f.count = top.calls;
    }
    Some(f)
}

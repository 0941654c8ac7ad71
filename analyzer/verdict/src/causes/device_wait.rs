// SPDX-License-Identifier: Apache-2.0
//! GP109 DEVICE-WAIT: queued work waits for another stream.
//!
//! # What it means
//! The host is ahead and the next kernel is queued, but the device does not start it. The kernel
//! waits for an event on another stream, for example of a copy or a collective.
//!
//! # How it is recognised
//! The launch call had returned when the work before ended, and the gap is longer than 5 µs. Or
//! the GPU was idle, and the kernel started more than 100 µs after its launch call returned. In
//! both cases a stream wait must be recorded: the launching thread made a stream wait for an event
//! shortly before, or CUPTI reports such a wait. Without one the gap is `unexplained`.
//!
//! # How sure
//! The gap is exact. What the kernel waited for is inferred from order and time, so the confidence
//! is never high.
//!
//! # Example
//! ```python
//! main, side = torch.cuda.current_stream(), torch.cuda.Stream()
//! # slow: every block switches streams twice
//! for block in blocks:
//!     side.wait_stream(main)
//!     with torch.cuda.stream(side):
//!         x = block(x)
//!     main.wait_stream(side)
//! # fixed: work that always waits stays on one stream
//! for block in blocks:
//!     x = block(x)
//! ```
//!
//! # What to change
//! Use fewer `wait_event` and `wait_stream` calls, and make them later. Record events earlier. Put
//! work that always waits into one stream.

use super::Case;
use crate::analysis::{Advice, Bucket, Confidence, Fact, Finding};
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP109";
/// Name in the line.
pub const NAME: &str = "DEVICE-WAIT";

/// That the op before ran on another stream does not make that stream the one waited for: the op
/// had ended.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::DeviceWait]);
    if share < NOTICED_SHARE {
        return None;
    }
    let win = case.win(&[Fix::DeviceWait], case.touches(&[Bucket::DeviceWait]));
    let mut f = case.finding((CODE, NAME), share, win);
    f.confidence = f.confidence.min(Confidence::Medium);
    f.advice =
        Advice::new("wait later, or use one stream", "record events earlier, wait later, or use one stream");
    let Some(top) = case.top(Bucket::DeviceWait) else {
        f.facts.say(Fact::new("queued work waits for another stream"));
        return Some(f);
    };
    f.facts.say(
        Fact::new("queued work waits after {function} {often}")
            .with("function", top.name)
            .with("often", case.rhythm_by(Bucket::DeviceWait, &top)),
    );
    (f.call, f.count) = (top.flat, top.calls);
    Some(f)
}

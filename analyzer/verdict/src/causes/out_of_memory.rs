// SPDX-License-Identifier: Apache-2.0
//! GP130 OUT-OF-MEMORY: the run ended when an allocation failed.
//!
//! # What it means
//! A device allocation returned out of memory, and the program gave up. This stands beside the
//! verdict, which still says what the steps before it waited for.
//!
//! # How it is recognised
//! A device allocation failed, and no later one on its thread succeeded. After it came fewer
//! launches than a step has (none, where steps are not known). A program that catches the error and
//! goes on with a smaller batch is not reported.
//!
//! # How sure
//! The call, its result and what followed are exact. The line is that of the failing call. The
//! memory in use is the last reading before it. How much was asked for is not recorded.
//!
//! # Example
//! ```python
//! # slow: one batch of 64 does not fit, and the run ends
//! loss_fn(model(x), y).backward()
//! optimizer.step()
//!
//! # fixed: four parts of 16 (the same gradient for a mean loss, without batch norm)
//! for x16, y16 in zip(x.chunk(4), y.chunk(4)):
//!     (loss_fn(model(x16), y16) / 4).backward()
//! optimizer.step()
//! ```
//!
//! # What to change
//! - Use a smaller batch with gradient accumulation, activation checkpointing, or a lower
//!   precision.
//! - With GP119 MEMORY-GROWTH beside it: free what is kept from step to step.
//! - With earlier allocations that failed and were retried:
//!   `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

use trace::event::Gauge;

use super::memory::Failures;
use super::Case;
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding, Win};
use crate::run::Call;
use crate::sites::Sites;

/// Stable code.
pub const CODE: &str = "GP130";
/// Name in the line.
pub const NAME: &str = "OUT-OF-MEMORY";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let failures = Failures::of(case.run);
    let (flat, call) = failures.last?;
    let launches = || case.run.threads.iter().flat_map(|t| &t.calls).filter(|c| c.launches());
    let after = launches().filter(|c| c.start >= call.end).count() as u64;
    let steps = case.analysis.steps.steady();
    let a_step = launches().filter(|c| case.analysis.counts.contains(c.start)).count() / steps.len().max(1);
    if after > 0 && (steps.is_empty() || after >= a_step as u64) {
        return None;
    }
    let mut f = case.finding((CODE, NAME), 0.0, Win::default());
    (f.call, f.count, f.confidence) = (flat, 1, Confidence::High);
    let failed = Fact::new("ended out of memory: {function} failed");
    f.facts.say(failed.with("function", case.run.call_name(&call)));
    f.facts.add(in_use(case, &call));
    f.advice = Advice::new("a smaller batch", "a smaller batch with gradient accumulation, activation checkpointing, or what is kept from step to step");
    let mut sites = Sites::new(case.run);
    if let Some(site) = sites.of(call.site).and_then(|s| sites.get(s)) {
        f.facts.say(Fact::new(" at {site}").with("site", site));
        f.site = Some(site.clone());
    }
    let retried = failures.retried.len();
    if retried > 0 {
        let retries = Figure::Of(retried as u64, "retry", "retries");
        f.facts.say(Fact::new(", after {retries} that succeeded").with("retries", retries));
    }
    Some(f)
}

/// Memory in use on the device at the last reading before it.
fn in_use(case: &Case, call: &Call) -> Option<Fact> {
    let ordinal = case.device.ordinal;
    let of = |r: &&crate::run::Reading| r.gauge == Gauge::MemoryUsed as u32 && u32::from(r.device) == ordinal;
    let mut before = case.run.readings.iter().filter(of).filter(|r| r.span.end <= call.end);
    let memory = case.run.devices.iter().find(|d| d.ordinal == ordinal).map_or(0, |d| d.info.memory);
    let last = before.next_back().filter(|_| memory > 0)?;
    let used = Fact::new(" with {used} of {memory} in use").with("used", Figure::Bytes(last.value as f64));
    Some(used.with("memory", Figure::Bytes(memory as f64)))
}

// SPDX-License-Identifier: Apache-2.0
//! GP119 MEMORY-GROWTH: memory in use grows with every step.
//!
//! # What it means
//! Something is kept that the next step does not need: a loss summed with its graph, outputs
//! collected in a list, a cache with a new key each time. It costs no time until memory is full.
//! Then come GP118 ALLOC-FRAGMENTED, GP130 OUT-OF-MEMORY, or the kernel kills the process.
//!
//! # How it is recognised
//! Memory in use on the device (NVML, all processes) and resident on the host (this process only)
//! is read about once a second. It grows all through the steady state, 15 readings or more: each
//! third has more than the one before, the last third grows at least half as fast as before, and no
//! reading falls by a tenth of the growth. The growth is at least 16 MiB and 1%.
//!
//! Warm-up is left out. So is host memory that CUPTI 13.0 to 13.3 keeps while a recorder is
//! attached: 32 bytes a launch, once the program has used a CUDA graph. The text names it from 5%
//! of the growth on.
//!
//! It is no lost time, so it is never the verdict: the line mentions it beside the verdict.
//!
//! # How sure
//! The readings come from the driver and the kernel. On a shared device other processes' memory is
//! included. Growth on purpose (a replay buffer, a key-value cache) looks the same, so the
//! confidence is medium at most. "Full in about N steps" assumes that the growth goes on as it is.
//!
//! # Example
//! ```python
//! # slow: total keeps the graph of every step
//! total = total + loss
//! # fixed: total keeps a number, on the GPU
//! total = total + loss.detach()
//! ```
//!
//! # What to change
//! Sum `loss.detach()` or `loss.item()`, not `loss`. Keep no lists of tensors that need gradients.
//! Bound caches. `torch.cuda.memory._record_memory_history()` shows who allocated what is left.

use trace::event::Gauge;

use super::memory::Growth;
use super::Case;
use crate::analysis::{Advice, Confidence, Fact, Facts, Figure, Finding, Win};

/// Stable code.
pub const CODE: &str = "GP119";
/// Name in the line.
pub const NAME: &str = "MEMORY-GROWTH";

/// What CUPTI keeps is said from this part of the growth on.
const MIN_KEPT_SHARE: f64 = 0.05;

/// What growth is: `Growth::of`. What CUPTI keeps: `trace::total::kept_bytes`.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let ordinal = case.device.ordinal;
    let device = Growth::of(case.run, case.analysis, Gauge::MemoryUsed, ordinal);
    let host = Growth::of(case.run, case.analysis, Gauge::ResidentBytes, 0);
    let mut facts = Facts::default();
    if let Some(g) = &device {
        grows(&mut facts, Fact::new("GPU memory grows {a_step} a step"), g);
        let memory = case.run.devices.iter().find(|d| d.ordinal == ordinal).map_or(0, |d| d.info.memory);
        if memory > 0 {
            let left = (memory as f64 - g.to).max(0.0) / g.a_step.max(1.0);
            facts.say(Fact::new(", full in about {left} steps").with("left", left.round() as u64));
        }
    }
    if let Some(g) = &host {
        grows(&mut facts, Fact::new("host memory grows {a_step} a step"), g);
    }
    if facts.said.is_empty() {
        return None;
    }
    let mut f = case.finding((CODE, NAME), 0.0, Win::default());
    f.facts = facts;
    f.confidence = f.confidence.min(Confidence::Medium);
    f.advice = Advice::new("keep numbers, not tensors", "keep numbers, not tensors with their graph (loss.item() or .detach() before summing), bound lists and caches");
    Some(f)
}

/// Says how memory grows.
fn grows(facts: &mut Facts, grows: Fact, g: &Growth) {
    facts.say(grows.with("a_step", Figure::Bytes(g.a_step)));
    if g.kept >= g.a_step * MIN_KEPT_SHARE {
        let kept = Figure::Bytes(g.kept);
        facts.say(Fact::new(" (and {kept} that CUPTI keeps of its launches)").with("kept", kept));
    }
    let (from, to) = (Figure::Bytes(g.from), Figure::Bytes(g.to));
    facts.say(Fact::new(", from {from} to {to}").with("from", from).with("to", to));
}

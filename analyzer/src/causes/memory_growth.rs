// SPDX-License-Identifier: Apache-2.0
//! GP119 MEMORY-GROWTH: memory in use grows with every step.
//!
//! # What it means
//! Something is kept that the next step does not need: a loss summed with its graph, outputs collected in a list, a cache with a
//! new key each time. It costs no time until memory is full; then GP118 ALLOC-FRAGMENTED, GP130 OUT-OF-MEMORY, or the end of the
//! process by the kernel.
//!
//! # How it is recognised
//! Memory in use on the device (NVML, all processes) or resident on the host (this process), read about once a second: fifteen
//! readings or more of the steady state, of which each third has more than the one before, the last third grows no less than half
//! as fast, none falls by a tenth of the growth, and that is 16 MiB and 1 % or more. Warm-up is left out, and on the host 32 bytes a
//! launch, which CUPTI keeps while a recorder is attached (H200, CUPTI 13.0.85). It is no lost time and
//! never the verdict; the line's verdict says it beside its own words.
//!
//! # How sure
//! The readings are the driver's and the kernel's. On a device that other processes use, theirs is in it. Growth by plan (a
//! replay buffer, a key-value cache) looks the same: confidence medium at most.
//!
//! # What to change
//! `total += loss.item()` or `loss.detach()`, not `total += loss`; no lists of tensors that need gradients; bound caches.
//! `torch.cuda.memory._record_memory_history()` shows who allocated what is left.

use trace::event::Gauge;

use super::memory::{bytes, Growth};
use super::Case;
use crate::analysis::{Confidence, Finding, Win};

/// Stable code.
pub const CODE: &str = "GP119";
/// Name in the line.
pub const NAME: &str = "MEMORY-GROWTH";

/// What CUPTI keeps is said from this part of the growth on.
const WORTH_A_WORD: f64 = 0.05;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let ordinal = case.device.ordinal;
    let device = Growth::of(case.run, case.analysis, Gauge::MemoryUsed, ordinal);
    let host = Growth::of(case.run, case.analysis, Gauge::ResidentBytes, 0);
    let said = |what: &str, g: &Growth| {
        let a_step = bytes(g.a_step);
        let kept = if g.kept >= g.a_step * WORTH_A_WORD {
            format!(" (and {} that CUPTI keeps of its launches)", bytes(g.kept))
        } else {
            String::new()
        };
        format!("{what} grows {a_step} a step{kept}, from {} to {}", bytes(g.from), bytes(g.to))
    };
    let mut parts: Vec<String> = Vec::new();
    if let Some(g) = &device {
        let memory = case.run.devices.iter().find(|d| d.ordinal == ordinal).map_or(0, |d| d.info.memory);
        let left = (memory as f64 - g.to).max(0.0) / g.a_step.max(1.0);
        let full = if memory > 0 { format!(", full in about {left:.0} steps") } else { String::new() };
        parts.push(format!("{}{full}", said("GPU memory", g)));
    }
    parts.extend(host.iter().map(|g| said("host memory", g)));
    if parts.is_empty() {
        return None;
    }
    let mut f = case.finding((CODE, NAME), 0.0, Win::default());
    f.text = parts.join("; ");
    f.confidence = f.confidence.min(Confidence::Medium);
    f.fix = "keep numbers, not tensors with their graph (loss.item() or .detach() before summing), bound lists and caches";
    Some(f)
}

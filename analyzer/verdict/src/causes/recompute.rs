// SPDX-License-Identifier: Apache-2.0
//! GP133 RECOMPUTE: the backward pass computes parts of the forward one again.
//!
//! # What it means
//! Activation checkpointing drops what a block computed and computes it a second time when the
//! backward pass needs it: less memory, for up to a third more of a step. Where there is memory
//! left, that time is given away.
//!
//! # How it is recognised
//! By where kernels were launched from, in the backward pass: PyTorch's `torch.utils.checkpoint`
//! (both forms), Megatron's and DeepSpeed's. It needs the lines of Python: a recording of
//! gapprobe's own, or torch.profiler's `with_stack=True`.
//!
//! # How sure
//! What is computed again, and for how long, is exact. Whether it would fit into memory is not
//! known, so the confidence is low; where the device was nine tenths full (by NVML's readings,
//! shown in the evidence) nothing is said. The prediction leaves these kernels out, but not the
//! time the host takes to launch them.
//!
//! # Example
//! ```python
//! # slow: every block is computed twice
//! for block in self.blocks:
//!     x = checkpoint(block, x, use_reentrant=False)
//! # fixed: as many as memory asks for
//! for n, block in enumerate(self.blocks):
//!     x = checkpoint(block, x, use_reentrant=False) if n < 4 else block(x)
//! ```
//!
//! # What to change
//! Checkpoint fewer blocks, or only what is cheap to compute and large to keep (activations,
//! norms: selective checkpointing), until memory is nearly full. `torch.compile` does so by
//! itself. With a smaller batch you may need none.

use trace::event::Gauge;
use trace::{FrameInfo, Language};

use super::kernels::Kernels;
use super::Case;
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding};

/// Stable code.
pub const CODE: &str = "GP133";
/// Name in the line.
pub const NAME: &str = "RECOMPUTE";

/// A device that was so full has no room.
const FULL: f64 = 0.9;
/// The ends of files that checkpoint, and the functions in them that compute again: PyTorch 2.1 and
/// newer, before it, the reentrant form and others' after it.
const AGAIN: [(&str, &[&str]); 3] = [
    ("/torch/utils/checkpoint.py", &["recompute_fn", "unpack", "backward"]),
    ("/tensor_parallel/random.py", &["backward"]),
    ("/activation_checkpointing/checkpointing.py", &["backward"]),
];

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let full = fullest(case);
    if full.is_some_and(|full| full >= FULL) {
        return None;
    }
    let again = Kernels::launched_from(case, |stack| computes_again(case, stack))?;
    let seen = Fact::new(
        "for {share} of the time the backward pass computes again what the forward pass had computed",
    )
    .with("share", Figure::Share(again.share()));
    let mut f = again.finding((CODE, NAME), seen)?;
    f.advice = Advice::new(
        "checkpoint less, if memory allows",
        "checkpoint fewer blocks, or only what is cheap to compute and large to keep, as far as memory allows",
    );
    f.confidence = Confidence::Low;
    f.facts.add(
        full.map(|full| {
            Fact::new("the GPU's memory is at most {full} full").with("full", Figure::Share(full))
        }),
    );
    Some(f)
}

/// Does the innermost checkpoint in this stack compute again, with no backward pass further in?
fn computes_again(case: &Case, stack: u32) -> bool {
    let text = |id| case.run.definitions.string(id).unwrap_or("");
    for FrameInfo { language, function, file, .. } in case.run.definitions.stack(stack) {
        let (function, file) = (text(*function), text(*file));
        if *language != Language::Python {
            return false;
        }
        if function.ends_with("__torch_dispatch__") {
            continue; // selective checkpointing looks at each operator
        }
        if let Some((_, functions)) = AGAIN.iter().find(|(end, _)| file.ends_with(end)) {
            return functions.contains(&function.rsplit('.').next().unwrap_or(function));
        }
        if file.contains("/torch/autograd/") && function.ends_with("backward") {
            return false;
        }
    }
    false
}

/// How full the device's memory was at most; `None`: not known.
pub(super) fn fullest(case: &Case) -> Option<f64> {
    let info = case.recorded_device()?.info;
    let readings = case.run.readings.iter();
    let used = readings
        .filter(|r| r.gauge == Gauge::MemoryUsed as u32 && u32::from(r.device) == case.device.ordinal)
        .map(|r| r.value)
        .max()?;
    (info.memory > 0).then(|| used as f64 / info.memory as f64)
}

// SPDX-License-Identifier: Apache-2.0
//! GP136 ALIGNMENT: rows that are not a multiple of 16 bytes keep the tensor cores waiting.
//!
//! # What it means
//! Tensor cores are fed in pieces of 16 bytes: eight 16-bit numbers. If a width is not a multiple
//! of that (4,093 features, a vocabulary of 50,257), cuBLAS falls back to kernels made for older
//! GPUs, which fetch one or two numbers at a time. On an H200 they take three to eight times as
//! long.
//!
//! # How it is recognised
//! By name: a product on tensor cores (`tensorop`) that ends in `align1` or `align2`, of 20 us and
//! more, on Hopper.
//!
//! # How sure
//! That these kernels fetch one or two numbers at a time is certain. The prediction has them take
//! a fifth of their time, or two fifths for an even width and in TF32. Measured on an H200,
//! 2026-11-30: in 16 bits, widths of 4,093 and 50,257 took 5.0 to 8.5 times as long as the next
//! multiple of 8, and 4,092, 4,094 and 4,100 took 2.8 times; in TF32, 4,094 took 3.2 times.
//! Nothing gets faster than its memory traffic allows, where the GPU's counters tell that. Without
//! counters the confidence is low, otherwise medium: the data may dictate a width.
//!
//! # Example
//! ```python
//! # slow
//! head = nn.Linear(1024, 50257)
//! # fixed: the last 47 words are never used
//! head = nn.Linear(1024, 50304)
//! ```
//!
//! # What to change
//! Make widths, heads and the vocabulary multiples of 8, better of 64; pad sequences or batches to
//! such a length (transformers: `pad_to_multiple_of=8`, `resize_token_embeddings(...,
//! pad_to_multiple_of=64)`). `torch.compile` pads matrices by itself where that pays.

use super::kernel_names::is_unaligned;
use super::kernels::Kernels;
use super::Case;
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding};

/// Stable code.
pub const CODE: &str = "GP136";
/// Name in the line.
pub const NAME: &str = "ALIGNMENT";

/// A shorter one is bound by its launch or its few blocks, ns.
const LEAST_NS: u64 = 20_000;
/// What was measured is Hopper's.
const CAPABILITY: (u32, u32) = (9, 0);
/// What is left of the time of kernels for single numbers of 16 bits, and of others, see the page.
const SINGLE: f64 = 0.2;
const OTHERS: f64 = 0.4;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let info = case.recorded_device()?.info;
    if (info.compute_major, info.compute_minor) != CAPABILITY {
        return None;
    }
    // no faster than its memory traffic
    let floor = case.memory_floor();
    let odd = Kernels::named(case, LEAST_NS, |name| {
        let rest: f64 = if name.contains("cutlass_75") { SINGLE } else { OTHERS };
        is_unaligned(name).then_some(rest.max(floor.unwrap_or(0.0)))
    })?;
    let seen = Fact::new(
        "products that fetch one or two numbers at a time run {often} and take {share} of the time",
    )
    .with("often", case.rhythm(odd.count))
    .with("share", Figure::Share(odd.share()));
    let mut f = odd.finding((CODE, NAME), seen)?;
    if floor.is_none() {
        f.confidence = Confidence::Low;
    }
    f.advice = Advice::new(
        "pad to multiples of 8",
        "make widths, heads and the vocabulary multiples of 8 (better of 64), or pad to them",
    );
    Some(f)
}

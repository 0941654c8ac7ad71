// SPDX-License-Identifier: Apache-2.0
//! GP118 ALLOC-FRAGMENTED: allocations fail, and are made again after cached memory is freed.
//!
//! # What it means
//! The framework's allocator holds memory that nobody uses, in pieces of which none is large
//! enough. `cudaMalloc` fails, the cache is freed (each `cudaFree` waits for the device), and
//! `cudaMalloc` succeeds. PyTorch counts this as `num_alloc_retries` in
//! `torch.cuda.memory_stats()`.
//!
//! # How it is recognised
//! Allocating or freeing stops the GPU (GP108 ALLOC), and at least half of that time belongs to
//! such retries: an allocation on the device returned out of memory, the same thread freed device
//! memory, and its next allocation succeeded. The line named is the one that costs most.
//!
//! # How sure
//! The calls, their results and their times are exact. That there was enough memory, in pieces, is
//! inferred: freeing the cache was enough. How large the pieces were is not recorded.
//!
//! Under `torch.cuda.set_per_process_memory_fraction` the allocator itself refuses and no CUDA call
//! fails. That is reported as GP108 ALLOC.
//!
//! # Example
//! ```python
//! # slow: every batch is as long as its longest row, and no cached block fits the next one
//! batch = pad_sequence(rows, batch_first=True).cuda()
//! # fixed: segments that grow (set before torch is imported), and a few lengths only
//! os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
//! batch = pad_sequence(rows, batch_first=True)
//! batch = torch.nn.functional.pad(batch, (0, -batch.shape[1] % 256)).cuda()
//! ```
//!
//! # What to change
//! Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: segments grow instead of being split.
//! Use shapes that vary less (pad to a few lengths), a smaller batch, or run the largest shape
//! first.

use super::memory::Failures;
use super::{alloc, Case};
use crate::analysis::{Advice, Fact, Finding};

/// Stable code.
pub const CODE: &str = "GP118";
/// Name in the line.
pub const NAME: &str = "ALLOC-FRAGMENTED";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = alloc::of_kind(
        case,
        (CODE, NAME),
        Advice::new(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; shapes that vary less, or a smaller batch",
        ),
    )?;
    let inside = |r: &&(usize, crate::run::Span, u32)| case.analysis.counts.contains(r.1.start);
    let retries = Failures::of(case.run).retried.iter().filter(inside).count() as u64;
    f.facts.say(
        Fact::new("an allocation failed {retries}, and succeeded when cached memory had been freed")
            .with("retries", case.rhythm(retries)),
    );
    Some(f)
}

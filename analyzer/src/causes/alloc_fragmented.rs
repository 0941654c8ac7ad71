// SPDX-License-Identifier: Apache-2.0
//! GP118 ALLOC-FRAGMENTED: allocations fail, cached memory is given back, and they are made again.
//!
//! # What it means
//! The framework's allocator holds memory that nobody uses, in pieces none of which is large enough: `cudaMalloc` fails, the cache is
//! freed (`cudaFree` waits for the device, for each piece), and `cudaMalloc` succeeds. In PyTorch: `num_alloc_retries` of
//! `torch.cuda.memory_stats()`.
//!
//! # How it is recognised
//! As GP108 ALLOC; and at least half of that time belongs to calls of such episodes: an allocation on the device returned out of
//! memory, the same thread freed device memory, and its next allocation succeeded. The line is the one that costs most.
//!
//! # How sure
//! The calls, their results and times are exact. That the memory was there, in pieces, follows from freeing the cache having been
//! enough; how large the pieces were is not recorded. Below `torch.cuda.set_per_process_memory_fraction` the allocator refuses by
//! itself and no call fails: that is GP108 ALLOC.
//!
//! # What to change
//! `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: segments grow instead of being cut. Shapes that vary less (padding to a
//! few lengths), a smaller batch, the largest shape first.

use super::memory::Failures;
use super::{alloc, Case};
use crate::analysis::Finding;

/// Stable code.
pub const CODE: &str = "GP118";
/// Name in the line.
pub const NAME: &str = "ALLOC-FRAGMENTED";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = alloc::of_kind(
        case,
        (CODE, NAME),
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; shapes that vary less, or a smaller batch",
    )?;
    let inside = |r: &&(usize, crate::run::Span, u32)| case.analysis.counts.contains(r.1.start);
    let retries = Failures::of(case.run).retried.iter().filter(inside).count() as u64;
    f.text.push_str(&format!(
        "; an allocation failed {}, and succeeded when cached memory had been freed",
        case.rhythm(retries)
    ));
    Some(f)
}

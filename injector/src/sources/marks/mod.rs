// SPDX-License-Identifier: Apache-2.0
// HOT
//! What the program says of itself: steps, ranges, capture on and off, NVTX.

pub(crate) mod nvtx;
pub(crate) mod program;
pub(crate) mod ranges;

// SPDX-License-Identifier: Apache-2.0
// WARM
//! From rings and CUPTI's buffers into the store: the thread that takes them, and the one that asks
//! CUPTI for its buffers.

pub(crate) mod drain;
pub(crate) mod flush;
pub(crate) mod stopped;

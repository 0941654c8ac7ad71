// SPDX-License-Identifier: Apache-2.0
// COLD
//! What the rest stands on: clocks, threads, memory, the loader, the environment, losses, the one
//! line on stderr, and where gapprobe stands in this process. Knows nothing of CUDA.

pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod guard;
pub(crate) mod heap;
pub(crate) mod identity;
pub(crate) mod lifecycle;
pub(crate) mod loader;
pub(crate) mod losses;
pub(crate) mod memory;
pub(crate) mod say;
pub(crate) mod settings;
pub(crate) mod thread_block;
pub(crate) mod threads;
pub(crate) mod ticks;

// SPDX-License-Identifier: Apache-2.0
// COLD
//! From the loader's call to the first recorded event: what the environment says, whether another
//! copy of us or another tool is here, attaching, and what the library exports. The only room that
//! knows all others.

pub(crate) mod attach;
#[cfg(not(test))]
mod build_note;
mod copies;
pub(crate) mod exports;

use crate::platform::say;
use crate::recording::crashes;

/// Why gapprobe does not record, in one line.
fn complain(text: &str) {
    // who complains would have recorded: `gapprobe run` is not to say that nobody used CUDA
    crashes::cuda_was_used();
    say::complain(text);
}

// SPDX-License-Identifier: Apache-2.0
// HOT
//! What happens, into the rings of the threads that it happens on: CUPTI's callbacks and records,
//! marks and ranges, nodes of PyTorch's autograd graph, Python's frames, native callers.

pub(crate) mod above;
pub(crate) mod callers;
pub(crate) mod captured_launches;
pub(crate) mod cupti;
pub(crate) mod hostpool;
mod launch;
pub(crate) mod marks;
pub(crate) mod memo;
pub(crate) mod python;
mod seen;
pub(crate) mod torch;

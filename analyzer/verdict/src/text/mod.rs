// SPDX-License-Identifier: Apache-2.0
//! Text for people: names that others chose, counts, kernels' names.

pub mod duration;
pub mod escape;
pub mod kernel_name;
pub mod plural;

// SPDX-License-Identifier: Apache-2.0
//! What is written of an analysis: the line and its evidence, the summary, the trace.

pub mod chrome;
mod evidence;
pub mod line;
pub mod report;
pub mod sentence;
pub mod summary;

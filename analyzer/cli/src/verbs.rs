// SPDX-License-Identifier: Apache-2.0
//! One file a verb, and what verbs share: exit codes, talk, the folder of recordings, programs and
//! processes.

pub(crate) mod analyze;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod exit;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod figures;
pub(crate) mod http_head;
pub(crate) mod input;
pub(crate) mod man;
pub(crate) mod metrics;
pub(crate) mod misuse;
pub(crate) mod open;
pub(crate) mod output;
pub(crate) mod ps;
pub(crate) mod recover;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod talk;
pub(crate) mod top;
pub(crate) mod version;
mod watched;
pub(crate) mod width;

mod hold;
mod living;
mod preloadable;
#[expect(unsafe_code, reason = "signals and wait need libc")]
mod process;
mod recordings;
mod rows;

// SPDX-License-Identifier: Apache-2.0
//! CUPTI as seen by its clients. `exports` has the C entry points that the libcupti shims forward
//! to, the other files one subject each; which release is emulated is told by the shim (`layout`).

pub(crate) mod activity;
pub(crate) mod buffers;
mod exports;
pub(crate) mod layout;
pub(crate) mod records;
pub(crate) mod second_api;
pub(crate) mod subscriber;
pub(crate) mod switching;
pub(crate) mod timestamps;
mod worker;

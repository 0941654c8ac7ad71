// SPDX-License-Identifier: Apache-2.0
//! Everything that speaks to CUPTI.
//!
//! [`choose`] finds the one library, [`session`] sets it up, [`api_records`] says which calls leave
//! records, [`callbacks`] and [`buffers`] are what CUPTI calls, [`streams`] names the streams that
//! calls wait for, [`graph_nodes`] the launches that graphs were captured from, [`walk`],
//! [`decode`], [`calls`], [`times`] and [`names`] read its records on the drain thread,
//! [`flushing`] asks for them, [`arbiter`] stands between CUPTI and other clients,
//! [`stolen_buffers`] notices those it does not meet. A lock is never held across a call into CUPTI
//! whose callbacks could take it: callbacks take none.

mod api_records;
pub(crate) mod arbiter;
pub(crate) mod buffers;
pub(crate) mod callbacks;
pub(crate) mod calls;
pub(crate) mod choose;
pub(crate) mod decode;
pub(crate) mod devices;
pub(crate) mod flushing;
mod graph_nodes;
pub(crate) mod last_callers;
pub(crate) mod names;
pub(crate) mod neighbours;
pub(crate) mod raw;
pub(crate) mod reroute;
pub(crate) mod session;
pub(crate) mod stolen_buffers;
pub(crate) mod streams;
pub(crate) mod times;
pub(crate) mod walk;
pub(crate) mod warm_up;
pub(crate) mod wrappers;
pub(crate) mod xla;

// SPDX-License-Identifier: Apache-2.0
//! The contract: what a recording is made of, byte for byte.
//!
//! The recorder (`injector/`) writes these bytes from inside a training process; the analyzer reads
//! them from a file that may be cut off, stale, or hostile. The two never call each other: they
//! meet here. No OS calls, no `unsafe`, no dependencies beyond `std`.
//!
//! A recording is one file (or the same bytes in anonymous memory):
//!
//! ```text
//! 0        header, 4 KiB        who, when, versions, valid span, losses, totals       (header.rs, loss.rs, total.rs)
//! 4096     segment 0, 32 KiB    64-byte segment header, then 1022 events of 32 bytes  (segment.rs, event.rs)
//! 36864    segment 1 ...        or definitions: strings, kernels, tracks, devices     (define.rs)
//! ```
//!
//! Every track (a CUDA stream, a host thread, the recorder itself) is a ring of segments taken from
//! one pool; when the pool is used up, the segment whose newest event is the oldest in the whole
//! recording is written anew. `reader.rs` turns the bytes back into events and never trusts one of
//! them.
#![forbid(unsafe_code)]

pub mod build;
pub mod call;
pub mod define;
pub mod definitions;
pub mod event;
pub mod header;
pub mod loss;
pub mod place;
pub mod reader;
pub mod segment;
pub mod setting;
pub mod total;

pub use define::{
    CallerInfo, Definition, DeviceInfo, FrameInfo, KernelInfo, Language, ModuleInfo, TrackInfo,
};
pub use definitions::Definitions;
pub use event::{Event, Kind};
pub use header::Header;
pub use loss::Loss;
pub use reader::{OpenError, Problems, Recording, Source};
pub use total::Total;

// SPDX-License-Identifier: Apache-2.0
//! What the devices did.

use trace::event::{Copy, GRAPH_NODE, UNIFIED};
use trace::{DeviceInfo, Kind};

use super::Span;

/// CUPTI's number for copies to the host.
pub(crate) const TO_HOST: u8 = 2;

/// One operation of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// Begin on the device, ns.
    pub start: u64,
    /// End on the device, ns.
    pub end: u64,
    /// CUPTI's id of the call that launched it (wraps in long runs).
    pub correlation: u32,
    /// See [`trace::Kind`]: kernels: kernel definition id; copies, memsets: bytes.
    pub a: u32,
    /// See [`trace::Kind`]: kernels: blocks in the grid.
    pub b: u32,
    /// Graph id, 0 outside graphs.
    pub graph: u32,
    /// Flat number of the launching call ([`super::Run::call`]), or [`super::NONE`].
    pub call: u32,
    /// Of a kernel of a CUDA graph the launch that it was captured from, by the id of its
    /// definition ([`super::Run::captured`]); 0: not known.
    pub captured: u32,
    /// Kernel, Memcpy, Memset or GraphTrace.
    pub kind: Kind,
    /// Flags of `trace::event`.
    pub flags: u8,
}

impl Op {
    /// Begin and end.
    pub fn span(&self) -> Span {
        Span { start: self.start, end: self.end }
    }

    /// What a copy moved; zeros for other kinds.
    pub fn copy(&self) -> Copy {
        if self.kind == Kind::Memcpy {
            Copy::unpack(self.a, self.b)
        } else {
            Copy::default()
        }
    }

    /// Pages of Unified Memory that moved: no call asked for it, an access did.
    pub fn is_unified(&self) -> bool {
        self.kind == Kind::Memcpy && self.b & UNIFIED != 0
    }

    /// Bytes of a copy or memset, 0 for kernels.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Memcpy => self.copy().bytes,
            Kind::Memset => u64::from(self.a) | u64::from(self.b) << 32,
            _ => 0,
        }
    }

    /// A copy from the device to the host.
    pub fn is_copy_to_host(&self) -> bool {
        self.kind == Kind::Memcpy && self.copy().direction == TO_HOST
    }

    /// A node of a CUDA graph launch.
    pub fn is_graph_node(&self) -> bool {
        self.flags & GRAPH_NODE != 0
    }
}

/// A CUDA stream of a device.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// CUPTI context id.
    pub context: u32,
    /// CUPTI stream id.
    pub stream: u32,
    /// By start (then end).
    pub ops: Vec<Op>,
}

/// A wait, by CUPTI's record or by the call's callback (see [`trace::Kind::SyncRecord`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncRecord {
    /// When CUPTI saw the waiting, or the call stood, ns.
    pub span: Span,
    /// CUPTI correlation id of the call.
    pub correlation: u32,
    /// 1 event, 2 stream waits for event, 3 stream, 4 context.
    pub what: u32,
    /// CUDA event id; `u32::MAX` where it is not known.
    pub event: u32,
    /// CUPTI stream id.
    pub stream: u32,
}

/// A GPU and its streams.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Ordinal in the process.
    pub ordinal: u32,
    /// What the recorder knew of it.
    pub info: DeviceInfo,
    /// In order of context and stream id.
    pub streams: Vec<Stream>,
}

impl Device {
    /// Operations on all streams.
    pub fn ops(&self) -> usize {
        self.streams.iter().map(|s| s.ops.len()).sum()
    }
}

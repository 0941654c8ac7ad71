// SPDX-License-Identifier: Apache-2.0
//! Whose the time in front of an op is: of a host that launched too late, or of a device that did
//! not begin what was queued.

use trace::call::Class;
use trace::Kind;

use super::{Before, Walk};
use crate::gaps::host::held;
use crate::gaps::{KERNEL_GAP_NS, SMALL_COPY_BYTES, STARTS_WITHIN_NS, WAIT_LOOK_BACK};
use crate::run::{Call, Op, SyncRecord, NONE};
use crate::timeline::buckets::Bucket;
use crate::timeline::Placed;

/// Whose a gap is up to the begin of the call that ends it, from there on, and from its return on.
#[derive(Clone, Copy)]
pub(super) struct Reason {
    pub(super) bucket: Bucket,
    pub(super) call: u32,
    /// Up to here the host was late: what it did meanwhile says whose the time is, launch by
    /// launch.
    pub(super) late: u64,
    pub(super) begin: u64,
    pub(super) inside: Bucket,
    pub(super) returned: u64,
    pub(super) stalled: (Bucket, u32),
}

impl Reason {
    pub(super) fn of(bucket: Bucket, call: u32) -> Reason {
        Reason {
            bucket,
            call,
            late: 0,
            begin: u64::MAX,
            inside: bucket,
            returned: u64::MAX,
            stalled: (bucket, call),
        }
    }
}

impl<'a> Walk<'a> {
    /// Whose the time before an op is that the host launched too late, from `end` on. Where the
    /// call itself is long, the host is not elsewhere from its begin on: it launches (a module is
    /// loaded), or the driver stages a copy.
    pub(super) fn late(&self, op: &Op, call: &Call, end: u64, bucket: Bucket) -> Reason {
        let begin = call.start.min(op.start);
        if op.start.saturating_sub(begin.max(end)) <= self.host.limit {
            return Reason::of(bucket, op.call);
        }
        let copies = op.kind == Kind::Memcpy && call.class == Some(Class::Copy);
        let stages = copies && op.bytes() > SMALL_COPY_BYTES && held(call, op);
        let inside = if stages { Bucket::CopyWait } else { Bucket::Launch };
        Reason { begin, inside, ..Reason::of(bucket, op.call) }
    }

    /// The device was idle and the op launched, and still it did not begin: that is not the host's
    /// doing. The nodes of a graph are left out: a large graph takes the device a while to begin.
    pub(super) fn begins_late(&self, op: &Op, call: &Call) -> bool {
        let limit = STARTS_WITHIN_NS.saturating_add(self.clocks_apart);
        !op.is_graph_node() && op.kind != Kind::GraphTrace && op.start > call.end.saturating_add(limit)
    }

    /// What an op that was launched waits for, as far as it is known.
    pub(super) fn stalled(&self, next: Placed<'a>) -> (Bucket, u32) {
        match self.waits_for_event(next.op) {
            Some(call) => (Bucket::DeviceWait, call),
            None if self.stream_wait(next) => (Bucket::DeviceWait, NONE),
            None => (Bucket::Unexplained, NONE),
        }
    }

    /// Work was queued in time and the device did not start it: spacing, or a wait for something
    /// known.
    pub(super) fn queued(&self, next: Placed<'a>, before: Option<Before<'a>>) -> (Bucket, u32) {
        if self.pending_ns() <= KERNEL_GAP_NS || same_graph(before, next.op) {
            return (Bucket::KernelGap, NONE);
        }
        self.stalled(next)
    }

    /// A stream-waits-for-event call shortly before the launch on its thread.
    fn waits_for_event(&self, op: &Op) -> Option<u32> {
        let (thread, _) = self.run.call(op.call)?;
        let index = (op.call - self.run.flat(thread, 0)) as usize;
        let calls = &self.run.threads.get(thread)?.calls;
        let from = index.saturating_sub(WAIT_LOOK_BACK);
        let at = calls.get(from..index)?.iter().rposition(|c| c.class == Some(Class::StreamWait))?;
        Some(self.run.flat(thread, from + at))
    }

    /// CUPTI recorded a wait of the op's stream that reaches into the time before it.
    fn stream_wait(&self, next: Placed<'a>) -> bool {
        let Some(stream) = self.device.streams.get(usize::from(next.stream)) else { return false };
        let near = |w: &&SyncRecord| w.what == 2 && w.stream == stream.stream;
        let to = self.run.waits.partition_point(|w| w.span.start <= next.op.start);
        let from = to.saturating_sub(WAIT_LOOK_BACK);
        let recent = self.run.waits.get(from..to).unwrap_or(&[]);
        recent
            .iter()
            .rev()
            .find(near)
            .is_some_and(|w| w.span.end.saturating_add(KERNEL_GAP_NS) >= next.op.start)
    }
}

/// Both are nodes of one graph launch.
pub(super) fn same_graph(before: Option<Before>, next: &Op) -> bool {
    before
        .is_some_and(|b| b.op.is_graph_node() && next.is_graph_node() && b.op.correlation == next.correlation)
}

// SPDX-License-Identifier: Apache-2.0
//! Where a device's time goes.

use crate::run::{Span, NONE};
use crate::stats::share;

/// A cause with a smaller share of the wall time is not evaluated.
pub const NOTICED_SHARE: f64 = 0.01;

/// Where a nanosecond of a device's wall time goes. The order is the order of the stored numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Bucket {
    /// A kernel that computes (or a memset) runs.
    Compute = 0,
    /// Only copies run.
    Copy = 1,
    /// Only collectives (with or without copies) run.
    Comm = 2,
    /// Gap: a blocking call had drained the queue.
    Sync = 3,
    /// Gap: the host was on its way from launch to launch.
    Launch = 4,
    /// Gap: the device's own spacing between queued ops.
    KernelGap = 5,
    /// Gap: queued work waited for an event, a stream, a copy or a collective.
    DeviceWait = 6,
    /// Gap: the host was busy with something else between launches.
    Host = 7,
    /// Gap: a blocking pageable copy held the host.
    CopyWait = 8,
    /// Gap: an allocating or freeing call held the host.
    Alloc = 9,
    /// Gap of no known cause.
    Unexplained = 10,
    /// Gap: the launching thread was fetching data.
    Input = 11,
}

impl Bucket {
    /// How many there are.
    pub const COUNT: usize = 12;
    /// All, by number.
    pub const ALL: [Bucket; Bucket::COUNT] = [
        Bucket::Compute,
        Bucket::Copy,
        Bucket::Comm,
        Bucket::Sync,
        Bucket::Launch,
        Bucket::KernelGap,
        Bucket::DeviceWait,
        Bucket::Host,
        Bucket::CopyWait,
        Bucket::Alloc,
        Bucket::Unexplained,
        Bucket::Input,
    ];

    /// Stable machine-readable name.
    pub const fn key(self) -> &'static str {
        match self {
            Bucket::Compute => "compute",
            Bucket::Copy => "copy_only",
            Bucket::Comm => "collective_only",
            Bucket::Sync => "sync",
            Bucket::Launch => "launch",
            Bucket::KernelGap => "kernel_gap",
            Bucket::DeviceWait => "device_wait",
            Bucket::Host => "host",
            Bucket::CopyWait => "copy_wait",
            Bucket::Alloc => "alloc",
            Bucket::Unexplained => "unexplained",
            Bucket::Input => "input",
        }
    }

    /// Name for people, upper case as in the line.
    pub const fn label(self) -> &'static str {
        match self {
            Bucket::Compute => "COMPUTE",
            Bucket::Copy => "COPY",
            Bucket::CopyWait => "COPY-WAIT",
            Bucket::Comm => "COMM",
            Bucket::Sync => "SYNC",
            Bucket::Launch => "LAUNCH",
            Bucket::KernelGap => "KERNEL-GAP",
            Bucket::DeviceWait => "DEVICE-WAIT",
            Bucket::Host => "HOST",
            Bucket::Alloc => "ALLOC",
            Bucket::Unexplained => "UNEXPLAINED",
            Bucket::Input => "INPUT",
        }
    }

    /// The device runs nothing in it.
    pub const fn is_gap(self) -> bool {
        !matches!(self, Bucket::Compute | Bucket::Copy | Bucket::Comm)
    }
}

/// ns per [`Bucket`]; they sum exactly to the steady wall time of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Buckets(pub [u64; Bucket::COUNT]);

impl Buckets {
    /// ns in one bucket.
    pub fn get(&self, bucket: Bucket) -> u64 {
        self.0[bucket as usize]
    }

    /// Adds ns to one bucket.
    pub fn add(&mut self, bucket: Bucket, ns: u64) {
        self.0[bucket as usize] += ns;
    }

    /// Takes ns from one bucket.
    pub(crate) fn take(&mut self, bucket: Bucket, ns: u64) {
        let of = &mut self.0[bucket as usize];
        *of = of.saturating_sub(ns);
    }

    /// Sum of all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Sum of the gap buckets.
    pub fn idle(&self) -> u64 {
        Bucket::ALL.iter().filter(|b| b.is_gap()).map(|&b| self.get(b)).sum()
    }

    /// Share of all, 0 to 1; 0 of an empty sum.
    pub fn share(&self, bucket: Bucket) -> f64 {
        share(self.get(bucket), self.total())
    }
}

/// One slice of the "why idle" track of a device. Slices of a device do not overlap and are in time
/// order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleSlice {
    /// Begin, ns.
    pub start: u64,
    /// End, ns.
    pub end: u64,
    /// Number of the op before the gap in `Run.devices[d].streams[before_stream].ops`, or [`NONE`].
    pub before: u32,
    /// Number of the op after the gap, or [`NONE`].
    pub after: u32,
    /// Flat number ([`crate::run::Run::call`]) of the call that is to blame (blocking call, late
    /// launch), or [`NONE`].
    pub call: u32,
    /// What set it off, where that is not what the host does in it: a wait that had drained the
    /// queue. Else as `call`.
    pub set_off_by: u32,
    /// Stream index of `before`.
    pub before_stream: u16,
    /// Stream index of `after`.
    pub after_stream: u16,
    /// Why.
    pub bucket: Bucket,
    /// The bucket of `set_off_by`; causes are judged by it.
    pub charged: Bucket,
}

impl IdleSlice {
    /// Begin and end.
    pub fn span(&self) -> Span {
        Span { start: self.start, end: self.end }
    }

    /// Puts what is to be shown in the place of what it is charged to, or the other way round.
    pub(crate) fn turn(&mut self) {
        std::mem::swap(&mut self.bucket, &mut self.charged);
        std::mem::swap(&mut self.call, &mut self.set_off_by);
    }

    /// The call to blame, as a flat call number.
    pub fn call(&self) -> Option<u32> {
        (self.call != NONE).then_some(self.call)
    }
}

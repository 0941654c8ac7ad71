// SPDX-License-Identifier: Apache-2.0
//! GP106 COPY: the GPU waits for data on its way between host and device.
//!
//! # What it means
//! Copies run while no kernel does, or a copy from or to pageable memory blocks the host so that it
//! launches late. The CPU moves pageable memory through a small pinned buffer: that is slower, and
//! the call blocks.
//!
//! # How it is recognised
//! Two parts: time in which only copies run, and gaps after a blocking copy of more than 64 KiB, up
//! to the time of its transfer. The time in which such a call waits for earlier work is GP101 SYNC.
//!
//! # How sure
//! Times, bytes, directions and kinds of memory are the driver's own. The prediction moves large
//! copies to pinned memory and a stream of their own, at 25 GB/s. It assumes that the data can be
//! fetched one step ahead. Copies to the host still block in the prediction, because the host uses
//! the data.
//!
//! # Example
//! ```python
//! # slow: pageable memory, and the GPU waits for each copy
//! for x in loader:
//!     train_step(x.cuda())
//! # fixed: pin_memory=True in the loader; x is copied while the step before still runs
//! for x in loader:
//!     with torch.cuda.stream(side):  # side = torch.cuda.Stream(), made once
//!         x = x.to("cuda", non_blocking=True)
//!     torch.cuda.current_stream().wait_stream(side)
//!     x.record_stream(torch.cuda.current_stream())
//!     train_step(x)
//! ```
//!
//! # What to change
//! Set `pin_memory=True` in the DataLoader and copy with `.to(device, non_blocking=True)`. Copy the
//! next batch on a side stream. Keep data on the GPU. Send smaller types: uint8 images, normalised
//! on the GPU. For Unified Memory, prefetch the pages (`cudaMemPrefetchAsync`).

use super::spots::Spots;
use super::Case;
use crate::analysis::{Advice, Bucket, Fact, Figure, Finding};
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;
use trace::Kind;

/// Stable code.
pub const CODE: &str = "GP106";
/// Name in the line.
pub const NAME: &str = "COPY";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Copy, Bucket::CopyWait]);
    if share < NOTICED_SHARE {
        return None;
    }
    let with_it: &[Bucket] = match case.trusts_replay() {
        true => &[Bucket::Copy, Bucket::CopyWait, Bucket::Sync, Bucket::Launch],
        false => &[Bucket::Copy, Bucket::CopyWait],
    };
    let mut f = case.finding((CODE, NAME), share, case.win(&[Fix::Copy], case.touches(with_it)));
    // by direction: (time, bytes). What takes longest is named: copies on the device are a hundred
    // times faster
    let (mut moved, mut pageable, mut unified, mut ns) = ([(0u64, 0u64); 3], 0u64, 0u64, 0u64);
    let mut spots = Spots::new(case.run);
    let ordinal = case.device.ordinal;
    for d in case.run.devices.iter().filter(|d| d.ordinal == ordinal) {
        for op in d.streams.iter().flat_map(|s| &s.ops).filter(|o| o.kind == Kind::Memcpy) {
            if case.analysis.counts.measure(op.span()) == 0 {
                continue;
            }
            let copy = op.copy();
            let length = op.end - op.start;
            let direction = &mut moved[match copy.direction {
                1 => 0,
                2 => 1,
                _ => 2,
            }];
            *direction = (direction.0 + length, direction.1 + copy.bytes);
            ns += length;
            pageable += if copy.is_pageable() { length } else { 0 };
            unified += if op.is_unified() { length } else { 0 };
            f.count += 1;
            if let (Some(spots), Some((_, call))) = (&mut spots, case.run.call(op.call)) {
                spots.add(op.call, call, length);
            }
        }
    }
    let names = ["to the device", "to the host", "between devices or on one"];
    let ((_, total), most) = names.iter().zip(moved).map(|(n, m)| (m, *n)).max().unwrap_or_default();
    let steps = case.analysis.steps.steady().len();
    let is_most = |part: u64| part * 2 > ns;
    let memory = match () {
        () if is_most(unified) => "Unified Memory ",
        () if is_most(pageable) => "pageable ",
        () => "",
    };
    f.advice = match is_most(pageable) {
        _ if is_most(unified) => {
            Advice::new("prefetch the pages", "prefetch the pages before they are used (cudaMemPrefetchAsync), or keep the data in device memory")
        }
        true => Advice::new("pin_memory and non_blocking", "pin the memory (pin_memory=True), copy with non_blocking=True and one step ahead"),
        false => Advice::new("copy a step ahead", "keep the data on the GPU, or copy one step ahead on a stream of its own"),
    };
    let copies = match steps {
        0 => Fact::new("{memory}copies {direction}, {bytes}").with("bytes", Figure::Bytes(total as f64)),
        n => Fact::new("{memory}copies {direction}, {bytes_a_step} a step")
            .with("bytes_a_step", Figure::Bytes(total as f64 / n as f64)),
    };
    f.facts.say(copies.with("memory", Figure::Word(memory)).with("direction", Figure::Word(most)));
    if let Some(top) = case.top(Bucket::CopyWait) {
        f.call = top.flat;
    }
    if let Some(spot) = spots.and_then(Spots::worst) {
        f.facts.add(spot.rest());
        spot.into(&mut f);
    }
    case.name_by_range(&mut f, Bucket::CopyWait);
    Some(f)
}

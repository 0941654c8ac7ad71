// SPDX-License-Identifier: Apache-2.0
//! What must be in the file when not everything can be: which idle slices, the operations beside
//! them, the calls that block for them; and the arrows between slices and calls. Chooses by length
//! and neighbourhood only; draws nothing.

use crate::analysis::{Analysis, Bucket, IdleSlice};
use crate::run::Run;

/// Compressed bytes of an idle slice with the operations beside it, its call and its arrow, and
/// half of the file for the rest.
const GAP_BYTES: u64 = 120;
/// One bit an event.
#[derive(Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn of(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }

    fn set(&mut self, i: usize) {
        if let Some(word) = self.0.get_mut(i / 64) {
            *word |= 1 << (i % 64);
        }
    }

    pub(super) fn get(&self, i: usize) -> bool {
        self.0.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }
}

/// What must be in the file: idle slices from a length on, the ops beside them, the calls that
/// block for them.
pub(super) struct Essential {
    /// By device, stream and number.
    pub(super) ops: Vec<Vec<Bits>>,
    /// By flat number.
    pub(super) calls: Bits,
}

/// One arrow between an idle slice and the call that stands for it.
pub(super) struct Arrow {
    /// Flat number of the call.
    pub(super) call: u32,
    /// Begin of the slice.
    pub from: u64,
    /// Its number.
    pub(super) id: u64,
}

/// The length from which idle slices are drawn, so that they and what belongs to them take about
/// half of `room` compressed bytes: 0 where all fit.
pub(super) fn shortest_gap(analysis: &Analysis, room: u64) -> u64 {
    let most = room / GAP_BYTES;
    let count: usize = analysis.devices.iter().map(|d| d.slices.len()).sum();
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if count <= most {
        return 0;
    }
    let mut lengths: Vec<u64> =
        analysis.devices.iter().flat_map(|d| &d.slices).map(|s| s.span().ns()).collect();
    let at = lengths.len() - most.max(1);
    *lengths.select_nth_unstable(at).1 + 1
}

pub(super) fn choose(run: &Run, analysis: &Analysis, shortest: u64) -> Essential {
    let mut ops: Vec<Vec<Bits>> =
        run.devices.iter().map(|d| d.streams.iter().map(|s| Bits::of(s.ops.len())).collect()).collect();
    let mut calls = Bits::of(run.threads.iter().map(|t| t.calls.len()).sum());
    for (index, device) in analysis.devices.iter().enumerate() {
        for slice in device.slices.iter().filter(|s| s.span().ns() >= shortest) {
            if let Some(call) = blocking(slice) {
                calls.set(call as usize);
            }
            for (stream, op) in [(slice.before_stream, slice.before), (slice.after_stream, slice.after)] {
                if run.op(index, stream, op).is_none() {
                    continue;
                }
                if let Some(bits) = ops.get_mut(index).and_then(|d| d.get_mut(usize::from(stream))) {
                    bits.set(op as usize);
                }
            }
        }
    }
    Essential { ops, calls }
}

/// A blocking call stands for this slice: an arrow joins the two.
pub(super) fn blocking(slice: &IdleSlice) -> Option<u32> {
    slice.call().filter(|_| matches!(slice.bucket, Bucket::Sync | Bucket::CopyWait | Bucket::Alloc))
}

pub(super) fn arrows(run: &Run, analysis: &Analysis, shortest: u64) -> Vec<Arrow> {
    let slices = analysis.devices.iter().flat_map(|d| &d.slices).filter(|s| s.span().ns() >= shortest);
    let mut arrows: Vec<Arrow> = slices
        .filter_map(|s| Some((s, blocking(s)?)))
        .filter(|&(_, call)| run.call(call).is_some())
        .enumerate()
        .map(|(i, (s, call))| Arrow { call, from: s.start, id: i as u64 + 1 })
        .collect();
    arrows.sort_by_key(|a| (a.call, a.from));
    arrows
}

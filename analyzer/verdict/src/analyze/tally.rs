// SPDX-License-Identifier: Apache-2.0
//! Where all observed time of a stretch went, and which steps ended in it: for counters that many
//! stretches add up in. No step is left out and nothing is judged.

use super::charged_to_the_host;
use crate::analysis::Buckets;
use crate::gaps::{attribute, HostView, LaunchOwner};
use crate::run::{Run, Span};
use crate::steps;
use crate::timeline::kernels::KernelTable;
use crate::timeline::Observed;

/// What a stretch holds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Same index as `Run.devices`: where its observed time went, to the nanosecond, and how many
    /// operations began in it.
    pub devices: Vec<(Buckets, u64)>,
    /// Steps that end in it, ns each, by time.
    pub steps: Vec<u64>,
}

/// The tally of `counted`. What `run` holds around it tells what the time at its edges is, and
/// where steps begin that end in it.
pub fn tally(run: &Run, counted: Span) -> Tally {
    let kernels = KernelTable::new(run);
    let collectives = kernels.collectives();
    let observed = Observed::new(counted, &run.blind);
    let whose = LaunchOwner::new(run);
    let of_device = |device| {
        let host = HostView::of(run, device, &whose);
        let seen = (&observed, counted);
        let found = attribute(run, device, &host, &collectives, seen, seen);
        let mut buckets = found.buckets;
        found.slices.iter().for_each(|s| charged_to_the_host(&mut buckets, s, &observed));
        (buckets, found.ops)
    };
    let mut all = steps::find(run, &kernels, super::valid_span(run)).all();
    all.pop(); // where the last one ends only the next one tells
    let ends_here = |s: &&steps::Step| s.span.end > counted.start && s.span.end <= counted.end;
    Tally {
        devices: run.devices.iter().map(of_device).collect(),
        steps: all.iter().filter(ends_here).map(|s| s.span.ns()).collect(),
    }
}

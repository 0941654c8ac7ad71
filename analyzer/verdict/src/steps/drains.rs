// SPDX-License-Identifier: Apache-2.0
//! Steps of a loop that synchronizes once a step, where launches alone show only a small tile (the
//! same few kernels over and over: layers, an inner loop): the outermost structure is the step.
//! Copies that wait are tokens of the sequence themselves and no matter of this file. Runs where
//! the analysis runs.

use trace::call::Class;

use super::cut::{join, Segment};
use super::period::{Anchor, Profile, OUTER_SHARE};
use super::sequence::Sequence;
use super::Step;
use super::MIN_STEPS;
use crate::run::Run;
use crate::stats::share;

/// The stretches between synchronizing calls, if they are alike and each is a `tile` or more.
pub(super) fn find(run: &Run, sequence: &Sequence, tile: &Anchor) -> Option<Vec<Step>> {
    let calls = run.threads.iter().flat_map(|t| &t.calls);
    let mut syncs: Vec<u64> = calls.filter(|c| c.class == Some(Class::Sync)).map(|c| c.start).collect();
    syncs.sort_unstable();
    let mut next = syncs.iter().peekable();
    let pieces: Vec<(Vec<Segment>, u64)> = sequence
        .pieces()
        .map(|piece| {
            let mut segments: Vec<Segment> = Vec::new();
            for t in piece.tokens {
                let mut drained = segments.is_empty();
                while next.next_if(|&&s| s <= t.launch).is_some() {
                    drained = true;
                }
                if drained {
                    segments.push(Segment { start: t.start, profile: Profile::default() });
                }
                if let Some(s) = segments.last_mut() {
                    s.profile.count(t, sequence.type_of(t));
                }
            }
            (segments, piece.end)
        })
        .collect();
    let mut by_length: Vec<&Segment> = pieces.iter().flat_map(|p| &p.0).collect();
    by_length.sort_by_key(|s| s.profile.length());
    let reference = by_length.get(by_length.len() / 2)?.profile;
    let work = |of: &dyn Fn(&Segment) -> bool| -> u64 {
        by_length.iter().filter(|s| of(s)).map(|s| s.profile.work).sum()
    };
    let alike = |s: &Segment| s.profile.is_like(&reference);
    let enough = share(work(&alike), work(&|_| true)) >= OUTER_SHARE;
    if !enough || reference.length() < tile.reference.length() {
        return None;
    }
    let mut steps = Vec::new();
    for (segments, end) in &pieces {
        let first = segments.iter().position(alike).unwrap_or(segments.len());
        steps.extend(join(segments.get(first..).unwrap_or(&[]), &reference, *end));
    }
    (steps.len() >= MIN_STEPS).then_some(steps)
}

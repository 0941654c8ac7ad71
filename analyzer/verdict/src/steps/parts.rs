// SPDX-License-Identifier: Apache-2.0
//! Whether the steps that a period gave are the program's, or parts of them: of a trace shorter
//! than a few steps the layers repeat. (Of a trace that holds nothing but layers, nobody can tell.)

use super::period::{INNER_SHARE, NEW_WORK_SHARE};
use super::sequence::{Sequence, Token};
use super::Step;
use crate::run::Run;
use crate::stats::share;

/// Whether the steps may be repetitions within a longer period that was seen less than a few times:
/// much work is of types that no alike step has, or little is in alike steps at all. (H200, four
/// steps of three programs, cut to windows of a fifth to a half: where layers, or updates of single
/// parameters, are found, 0.23 to 0.77 is other work; of the whole recordings at most 0.1, and what
/// a program warms up with.)
pub(super) fn may_be(run: &Run, sequence: &Sequence, steps: &[Step], optimizer: bool) -> bool {
    // what a program does first, seen from its first launch on, is no step cut in two
    let whole = !run.foreign && run.header.valid_from <= run.header.start_monotonic;
    let from = if whole { steps.first().map_or(0, |s| s.span.start) } else { 0 };
    let tokens = || sequence.tokens.iter().filter(|t| t.start >= from);
    let alike = |t: &Token| {
        let at = steps.partition_point(|s| s.span.end <= t.start);
        steps.get(at).is_some_and(|s| !s.odd && s.span.start <= t.start)
    };
    let mut known = vec![false; sequence.types.len()];
    let (mut inside, mut all) = (0u64, 0u64);
    for t in tokens() {
        all = all.saturating_add(u64::from(t.work));
        if alike(t) {
            inside = inside.saturating_add(u64::from(t.work));
            if let Some(k) = known.get_mut(t.kind as usize) {
                *k = true;
            }
        }
    }
    let new = tokens().filter(|t| known.get(t.kind as usize) == Some(&false));
    let new: u64 = new.map(|t| u64::from(t.work)).fold(0, u64::saturating_add);
    share(new, all) >= NEW_WORK_SHARE || (!optimizer && share(inside, all) < INNER_SHARE)
}

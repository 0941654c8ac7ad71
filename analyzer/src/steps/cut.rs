// SPDX-License-Identifier: Apache-2.0
//! Cuts the whole sequence at an anchor into steps: the first and the last one need care, and segments that are
//! longer or shorter than a step (an evaluation) are joined to the step before them.

use super::period::{Anchor, Profile, TOLERANCE};
use super::sequence::{Sequence, Token};
use super::step;
use crate::analysis::Step;
use crate::run::Span;

/// A segment shorter than this share of a step is no step of its own.
const SHORT_SEGMENT: f64 = 0.5;

/// Unusual steps in front of the first usual one are looked for among the later ones this often.
const MOST_LEADING: usize = 16;
/// An unusual segment is a step if this many later ones are like it.
const RECURS: usize = 2;

/// A piece of the sequence that may be a step.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// Device begin, ns.
    pub(super) start: u64,
    pub(super) profile: Profile,
}

/// The steps, side by side, the last one to `last_op`.
pub(super) fn cut(sequence: &Sequence, anchor: &Anchor, last_op: u64) -> Vec<Step> {
    let reference = &anchor.reference;
    let usual = reference.length() as f64;
    let (segments, from) = segments(sequence, anchor);
    // the first step is the first segment that is like the reference: what is before it is start-up ...
    let mut first = segments.iter().position(|s| s.profile.is_like(reference)).unwrap_or(segments.len());
    let mut leading = 0;
    // ... except for steps that hold a whole step and more (the first one makes the optimizer's state), or run other
    // variants of the kernels, as others do later on (the first token of each request)
    while let Some(before) = first.checked_sub(1).and_then(|i| segments.get(i)) {
        let later = segments.get(first..).unwrap_or(&[]);
        if !(before.profile.holds(reference)
            || is_whole(&before.profile, anchor)
            || (leading < MOST_LEADING && recurs(&before.profile, later, usual)))
        {
            break;
        }
        first -= 1;
        leading += 1;
    }
    let mut kept: Vec<Segment> = Vec::new();
    if first == 0 && !segments.is_empty() {
        kept.extend(head(sequence, anchor, from));
    }
    kept.extend(segments.get(first..).unwrap_or(&[]));
    join(&kept, reference, last_op)
}

/// Steps of segments side by side; what is too short for one belongs to the step before.
pub(super) fn join(kept: &[Segment], reference: &Profile, last_op: u64) -> Vec<Step> {
    let usual = reference.length() as f64;
    let mut steps: Vec<Step> = Vec::new();
    for (i, s) in kept.iter().enumerate() {
        let end = kept.get(i + 1).map_or(last_op, |next| next.start);
        let last = i + 1 == kept.len();
        let whole = s.profile.length() as f64 >= usual * if last { 1.0 - TOLERANCE } else { SHORT_SEGMENT };
        match steps.last_mut() {
            _ if whole => {
                let mut new = step(Span::new(s.start, end), steps.len() as u32);
                new.odd = !s.profile.is_like(reference);
                steps.push(new);
            }
            Some(before) => {
                before.span.end = before.span.end.max(end);
                before.odd = true;
            }
            None => {}
        }
    }
    steps
}

/// Segments from anchor to anchor, the last to the end; and the position of the first anchor.
fn segments(sequence: &Sequence, anchor: &Anchor) -> (Vec<Segment>, usize) {
    let mut segments: Vec<Segment> = Vec::new();
    let mut from = sequence.tokens.len();
    let mut seen: Option<usize> = None;
    for (i, t) in sequence.tokens.iter().enumerate() {
        if t.kind == anchor.kind {
            if seen.is_none_or(|s| i - s > anchor.apart as usize) {
                from = from.min(i);
                segments.push(Segment { start: t.start, profile: Profile::default() });
            }
            seen = Some(i);
        }
        if let Some(s) = segments.last_mut() {
            s.profile.count(t.kind, sequence.is_optimizer(t));
        }
    }
    (segments, from)
}

/// About as long as a step, with the optimizer once: a step, whatever its kernels are called.
fn is_whole(profile: &Profile, anchor: &Anchor) -> bool {
    let (length, usual) = (profile.length() as f64, anchor.reference.length() as f64);
    let (optimizer, once) = (f64::from(profile.optimizer), f64::from(anchor.reference.optimizer));
    anchor.optimizer
        && once > 0.0
        && (length - usual).abs() <= usual * TOLERANCE
        && (optimizer - once).abs() <= once * TOLERANCE
}

/// Nearly a step's length, and like later segments that count as steps.
fn recurs(profile: &Profile, later: &[Segment], usual: f64) -> bool {
    profile.length() as f64 >= usual * SHORT_SEGMENT
        && later.iter().filter(|s| s.profile.is_like(profile)).take(RECURS).count() == RECURS
}

/// Where the anchor stands at the end of a step, the first step lies before the first anchor, behind the start-up.
fn head(sequence: &Sequence, anchor: &Anchor, from: usize) -> Option<Segment> {
    let begin = from.checked_sub(anchor.reference.length() as usize)?;
    let tokens: &[Token] = sequence.tokens.get(begin..from)?;
    let mut profile = Profile::default();
    for t in tokens {
        profile.count(t.kind, sequence.is_optimizer(t));
    }
    let whole = profile.is_like(&anchor.reference) || is_whole(&profile, anchor);
    whole.then_some(Segment { start: tokens.first()?.start, profile })
}

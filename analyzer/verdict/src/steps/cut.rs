// SPDX-License-Identifier: Apache-2.0
//! Cuts the whole sequence at an anchor into steps: the first and the last one need care (what
//! comes before or after all steps is none of them), and between steps what is longer or shorter
//! than one (an evaluation) belongs to the step before it.

use super::period::{Anchor, Profile, TOLERANCE};
use super::sequence::{Piece, Sequence, Token};
use super::step;
use super::Step;
use crate::run::Span;

/// A segment shorter than this share of a step is no step of its own.
const SHORT_SEGMENT: f64 = 0.5;

/// For so many unusual segments at the ends, others like them are looked for.
const MOST_LOOKED_FOR: usize = 16;
/// An unusual segment is a step if this many others are like it.
const RECURS: usize = 2;

/// A piece of the sequence that may be a step.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// Device begin, ns.
    pub(super) start: u64,
    pub(super) profile: Profile,
}

/// The steps of a piece, side by side.
pub(super) fn cut(sequence: &Sequence, piece: Piece<'_>, anchor: &Anchor) -> Vec<Step> {
    let reference = &anchor.reference;
    let marks: Vec<usize> = anchor.marks(piece.tokens).collect();
    let mut segments = segments(sequence, piece.tokens, &marks);
    let mut end = piece.end;
    if let Some((step, behind)) = marks.last().and_then(|&m| tail(sequence, piece.tokens, anchor, m)) {
        end = behind;
        if let Some(s) = segments.last_mut() {
            s.profile = step;
        }
    }
    // at both ends a step is a segment like the reference, or one that holds a whole step and more
    // (the first one makes the optimizer's state), or runs other variants of the kernels as others
    // do (the first token of each request)
    let mut looked = 0;
    let mut counts = |s: &Segment, others: &[Segment]| {
        let profile = &s.profile;
        looked += 1;
        profile.holds(reference)
            || is_whole(profile, anchor)
            || (looked <= MOST_LOOKED_FOR && recurs(profile, others, reference.length() as f64))
    };
    let alike = |s: &Segment| s.profile.is_like(reference);
    let mut first = segments.iter().position(alike).unwrap_or(segments.len());
    while let Some((s, later)) = first.checked_sub(1).and_then(|i| segments.get(i..)?.split_first()) {
        if !counts(s, later) {
            break;
        }
        first -= 1;
    }
    if let Some((s, earlier)) = segments.split_last() {
        if !alike(s) && !counts(s, earlier) {
            end = s.start;
            segments.pop();
        }
    }
    let head = marks.first().filter(|_| first == 0).and_then(|&m| head(sequence, piece.tokens, anchor, m));
    let kept: Vec<Segment> =
        head.into_iter().chain(segments.get(first..).unwrap_or(&[]).iter().copied()).collect();
    join(&kept, reference, end)
}

/// Steps of segments side by side up to `end`; what is too short for one belongs to the step
/// before, an unfinished last one to none.
pub(super) fn join(kept: &[Segment], reference: &Profile, end: u64) -> Vec<Step> {
    let usual = reference.length() as f64;
    let mut steps: Vec<Step> = Vec::new();
    // streams run at their own pace: a step begins no later on the device than the next one
    let mut starts: Vec<u64> = kept.iter().map(|s| s.start).collect();
    let end = end.max(starts.last().copied().unwrap_or(0));
    let mut earliest = end;
    for start in starts.iter_mut().rev() {
        earliest = earliest.min(*start);
        *start = earliest;
    }
    for (i, (s, &start)) in kept.iter().zip(&starts).enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(end);
        let last = i + 1 == kept.len();
        let whole = s.profile.length() as f64 >= usual * if last { 1.0 - TOLERANCE } else { SHORT_SEGMENT };
        match steps.last_mut() {
            _ if whole && start == end => {}
            _ if whole => {
                let mut new = step(Span::new(start, end), 0);
                new.odd = !s.profile.is_like(reference);
                steps.push(new);
            }
            Some(before) if !last => {
                before.span.end = before.span.end.max(end);
                before.odd = true;
            }
            _ => {}
        }
    }
    steps
}

/// Segments from mark to mark, the last to the end.
fn segments(sequence: &Sequence, tokens: &[Token], marks: &[usize]) -> Vec<Segment> {
    let nexts = marks.iter().skip(1).copied().chain([tokens.len()]);
    let segment = |(&from, to): (&usize, usize)| {
        let tokens = tokens.get(from..to)?;
        let mut profile = Profile::default();
        for t in tokens {
            profile.count(t, sequence.type_of(t));
        }
        Some(Segment { start: tokens.first()?.start, profile })
    };
    marks.iter().zip(nexts).filter_map(segment).collect()
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

/// Nearly a step's length, and like other segments that count as steps.
fn recurs(profile: &Profile, others: &[Segment], usual: f64) -> bool {
    profile.length() as f64 >= usual * SHORT_SEGMENT
        && others.iter().filter(|s| s.profile.is_like(profile)).take(RECURS).count() == RECURS
}

/// Where other work follows the last step (a final evaluation, another phase, a wait for the other
/// ranks at the end): the step without it, and where it begins. The last step holds no more
/// launches than the usual one.
fn tail(sequence: &Sequence, tokens: &[Token], anchor: &Anchor, last: usize) -> Option<(Profile, u64)> {
    let mut step = Profile::default();
    for t in tokens.get(last..)? {
        if step.length() >= anchor.reference.length() {
            return Some((step, t.start));
        }
        step.count(t, sequence.type_of(t));
    }
    None
}

/// Where the anchor stands at the end of a step, the first step lies before the first anchor,
/// behind the start-up.
fn head(sequence: &Sequence, tokens: &[Token], anchor: &Anchor, from: usize) -> Option<Segment> {
    let mut profile = Profile::default();
    let mut start = None;
    for t in tokens.get(..from)?.iter().rev() {
        if profile.length() >= anchor.reference.length() {
            break;
        }
        profile.count(t, sequence.type_of(t));
        start = Some(t.start);
    }
    let whole = profile.is_like(&anchor.reference) || is_whole(&profile, anchor);
    whole.then_some(Segment { start: start?, profile })
}

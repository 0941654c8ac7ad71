// SPDX-License-Identifier: Apache-2.0
//! Cuts the whole sequence at an anchor into steps: the first and the last one need care (what comes before or after all
//! steps is none of them), and between steps what is longer or shorter than one (an evaluation) belongs to the step
//! before it.

use super::period::{Anchor, Profile, TOLERANCE};
use super::sequence::{Piece, Sequence, Token};
use super::step;
use crate::analysis::Step;
use crate::run::Span;

/// A segment shorter than this share of a step is no step of its own, and so much more than a step no part of the last.
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

/// The steps of a piece, side by side.
pub(super) fn cut(sequence: &Sequence, piece: Piece<'_>, anchor: &Anchor) -> Vec<Step> {
    let reference = &anchor.reference;
    let usual = reference.length() as f64;
    let marks: Vec<usize> = anchor.marks(piece.tokens).collect();
    let segments = segments(sequence, piece.tokens, &marks);
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
    if first == 0 {
        kept.extend(marks.first().and_then(|&m| head(sequence, piece.tokens, anchor, m)));
    }
    kept.extend(segments.get(first..).unwrap_or(&[]));
    let mut end = piece.end;
    if let Some((step, behind)) = marks.last().and_then(|&m| tail(sequence, piece.tokens, anchor, m)) {
        end = behind;
        if let Some(s) = kept.last_mut() {
            s.profile = step;
        }
    }
    join(&kept, reference, end)
}

/// Steps of segments side by side up to `end`; what is too short for one belongs to the step before, an unfinished last
/// one to none.
pub(super) fn join(kept: &[Segment], reference: &Profile, end: u64) -> Vec<Step> {
    let usual = reference.length() as f64;
    let mut steps: Vec<Step> = Vec::new();
    for (i, s) in kept.iter().enumerate() {
        let end = kept.get(i + 1).map_or(end, |next| next.start);
        let last = i + 1 == kept.len();
        let whole = s.profile.length() as f64 >= usual * if last { 1.0 - TOLERANCE } else { SHORT_SEGMENT };
        match steps.last_mut() {
            _ if whole => {
                let mut new = step(Span::new(s.start, end), 0);
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

/// Nearly a step's length, and like later segments that count as steps.
fn recurs(profile: &Profile, later: &[Segment], usual: f64) -> bool {
    profile.length() as f64 >= usual * SHORT_SEGMENT
        && later.iter().filter(|s| s.profile.is_like(profile)).take(RECURS).count() == RECURS
}

/// Where other work follows the last step (a final evaluation, another phase): the step without it, and where it begins.
/// A little more (a last copy) belongs to the step.
fn tail(sequence: &Sequence, tokens: &[Token], anchor: &Anchor, last: usize) -> Option<(Profile, u64)> {
    let usual = anchor.reference.length();
    let mut all = Profile::default();
    let mut end = None;
    for t in tokens.get(last..)? {
        if end.is_none() && all.length() >= usual {
            end = Some((all, t.start));
        }
        all.count(t, sequence.type_of(t));
    }
    end.filter(|_| all.length() as f64 > usual as f64 * (1.0 + SHORT_SEGMENT))
}

/// Where the anchor stands at the end of a step, the first step lies before the first anchor, behind the start-up.
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

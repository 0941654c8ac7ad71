// SPDX-License-Identifier: Apache-2.0
//! The period of a launch sequence.
//!
//! Every type of token is tried as a mark ("anchor"): its occurrences cut the sequence into
//! segments, and a good anchor is one whose segments are alike. Segments are compared by what they
//! hold (counts in a few groups of types), not by order, with a tolerance: kernel variants, a
//! logging copy now and then, do not matter; a CUDA graph's launch counts as the launches it stands
//! for. How much of the program a period explains is measured in work, the time of computing: a few
//! eager steps are more launches, and less work, than the graph launches behind them. Periods nest
//! (layers in micro-steps in steps, steps in epochs): starting from the innermost, a longer period
//! is taken only if it adds work that the shorter one does not have. One kernel over and over is no
//! step: who times a loop of it, or draws its variants at random, does not call each launch a step;
//! with a copy, a wait or a graph launch each time it is one. Every token is looked at a constant
//! number of times.

use std::collections::HashSet;

use super::cut::cut;
use super::sequence::{Grain, Sequence, Token, TokenType};
use super::Step;
use crate::run::{Run, Span};
use crate::stats::share;
use crate::timeline::kernels::KernelTable;

/// Groups of types that segments are compared by.
const GROUPS: usize = 8;
/// Segments are alike if their counts differ by at most this share of the reference's length.
pub const TOLERANCE: f64 = 0.15;
/// An innermost period covers at least this share of the work.
pub const INNER_SHARE: f64 = 0.6;
/// A longer period is considered if it covers at least this share.
pub const OUTER_SHARE: f64 = 0.7;
/// A period that holds the optimizer is left for a longer one only if this share of the longer
/// one's work is of types that the shorter does not have (a parameter's update -> a step; not: a
/// step -> an epoch with evaluation).
pub const NEW_WORK_SHARE: f64 = 0.2;
/// ... or if this share of the longer one's types is new (many parameters, each updated by a few
/// launches).
pub const NEW_TYPES_SHARE: f64 = 0.5;
/// A period holds the optimizer if this share of its segments does.
const HOLDS_SHARE: f64 = 0.8;
/// The anchor is chosen on at most this many launches (the latest), then applied to all.
pub const SAMPLE: usize = 300_000;
/// A period of at most this many launches may be a tile of something larger.
const MOST_TILE: u64 = 16;
/// Fewer alike segments than this are no period.
const MIN_SEGMENTS: usize = super::MIN_STEPS;
/// Alike segments must cover this share of the sample's work, or be many.
const MIN_COVER: f64 = 0.3;
/// See [`MIN_COVER`].
const MANY_SEGMENTS: usize = 20;

/// What was found.
pub(super) struct Found {
    pub(super) steps: Vec<Step>,
    pub(super) micro: u32,
    /// See [`crate::steps::Steps::may_be_parts`].
    pub(super) may_be_parts: bool,
}

/// Counts of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Profile {
    /// Launches, a graph's by [`TokenType::launches`].
    groups: [u64; GROUPS],
    /// Launches that update weights; not compared.
    pub(super) optimizer: u32,
    /// See [`Token::work`], ns; not compared: the same launches take longer with longer inputs.
    pub(super) work: u64,
}

impl Profile {
    pub(super) fn length(&self) -> u64 {
        self.groups.iter().sum()
    }

    pub(super) fn since(&self, earlier: &Profile) -> Profile {
        let mut p = *self;
        for (g, e) in p.groups.iter_mut().zip(earlier.groups) {
            *g -= e.min(*g);
        }
        p.optimizer -= earlier.optimizer.min(p.optimizer);
        p.work -= earlier.work.min(p.work);
        p
    }

    pub(super) fn is_like(&self, reference: &Profile) -> bool {
        let off: u64 = self.groups.iter().zip(reference.groups).map(|(a, b)| a.abs_diff(b)).sum();
        off as f64 <= reference.length() as f64 * TOLERANCE
    }

    /// Has all that the reference has (within the tolerance), and perhaps more, up to three times
    /// as much.
    pub(super) fn holds(&self, reference: &Profile) -> bool {
        let least = |(&a, b): (&u64, u64)| a as f64 >= b as f64 * (1.0 - TOLERANCE);
        self.groups.iter().zip(reference.groups).all(least) && self.length() <= 3 * reference.length()
    }

    pub(super) fn count(&mut self, t: &Token, what: TokenType) {
        self.optimizer += u32::from(what.optimizer);
        self.work += u64::from(t.work);
        // the graphs of one step for several batch sizes are like one another
        let group = if what.graph { 0 } else { (t.kind.wrapping_mul(0x9e37_79b1) >> 16) as usize % GROUPS };
        if let Some(g) = self.groups.get_mut(group) {
            *g += u64::from(what.launches);
        }
    }
}

/// A type of token as a mark between steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) kind: u32,
    /// Only occurrences with more than this many tokens since the one before.
    pub(super) apart: u32,
    /// Alike segments, the unfinished last one included if it is alike.
    alike: usize,
    /// Share of the work (from the first alike segment on) that lies in alike segments.
    share: f64,
    pub(super) reference: Profile,
    /// Tokens of a segment that stands for them, positions in the sample.
    sample: (usize, usize),
    /// (Nearly) every segment holds launches that update weights.
    pub(super) optimizer: bool,
    /// Position of the first occurrence, or tokens since the optimizer before it.
    phase: usize,
}

impl Anchor {
    /// Where in `tokens` it marks the begin of a segment.
    pub(super) fn marks<'a>(&'a self, tokens: &'a [Token]) -> impl Iterator<Item = usize> + 'a {
        let mut seen: Option<usize> = None;
        let mut at = tokens.iter().enumerate().filter(|(_, t)| t.kind == self.kind).map(|(i, _)| i);
        std::iter::from_fn(move || at.find(|&i| seen.replace(i).is_none_or(|s| i - s > self.apart as usize)))
    }
}

/// Finds the steps of the device with the most launches, in the parts of the run that were
/// `observed`.
pub(super) fn find(run: &Run, kernels: &KernelTable, observed: &[Span]) -> Option<Found> {
    let device = run.devices.iter().max_by_key(|d| d.ops())?;
    for grain in [Grain::Family, Grain::FamilyAndGrid] {
        let sequence = Sequence::new(run, device, kernels, observed, grain);
        let from = sequence.tokens.len().saturating_sub(SAMPLE);
        let sample = Sample::new(&sequence, sequence.tokens.get(from..).unwrap_or(&[]));
        if let Some((anchor, micro)) = sample.choose() {
            if sample.is_tile(&anchor) {
                if let Some(steps) = super::drains::find(run, &sequence, &anchor) {
                    // a step that waits after each layer has as many drains as layers
                    let may_be_parts = steps.len() < FEW_DRAINS;
                    return Some(Found { steps, micro: 1, may_be_parts });
                }
                // one kernel over and over is a part of anything: nothing says where a step begins
                if sample.types_of(&anchor).len() < 2 {
                    continue;
                }
            }
            let steps: Vec<Step> = sequence.pieces().flat_map(|p| cut(&sequence, p, &anchor)).collect();
            if steps.len() >= MIN_SEGMENTS {
                let may_be_parts = super::parts::may_be(run, &sequence, &steps, anchor.optimizer);
                return Some(Found { steps, micro, may_be_parts });
            }
        }
    }
    None
}

/// Of fewer steps that were found by waits for the device it is not said that they are whole: a
/// single step that waits after each layer looks the same. (A choice: a window's steps; a run that
/// anybody judges has more.)
const FEW_DRAINS: usize = 20;

struct Sample<'a> {
    sequence: &'a Sequence,
    tokens: &'a [Token],
    /// Counts before each token, and at the end.
    before: Vec<Profile>,
}

impl<'a> Sample<'a> {
    fn new(sequence: &'a Sequence, tokens: &'a [Token]) -> Sample<'a> {
        let mut before = Vec::with_capacity(tokens.len() + 1);
        let mut p = Profile::default();
        for t in tokens {
            before.push(p);
            p.count(t, sequence.type_of(t));
        }
        before.push(p);
        Sample { sequence, tokens, before }
    }

    fn profile(&self, from: usize, to: usize) -> Profile {
        match (self.before.get(from), self.before.get(to)) {
            (Some(a), Some(b)) => b.since(a),
            _ => Profile::default(),
        }
    }

    /// Every type of token as an anchor, the ones that make periods, most segments first.
    fn anchors(&self) -> Vec<Anchor> {
        // positions by type (counting sort), and the distance to the optimizer before
        let mut first = vec![0usize; self.sequence.types.len() + 1];
        for t in self.tokens {
            if let Some(n) = first.get_mut(t.kind as usize + 1) {
                *n += 1;
            }
        }
        for i in 1..first.len() {
            first[i] += first[i - 1];
        }
        let mut next = first.clone();
        let mut positions = vec![0u32; self.tokens.len()];
        for (i, t) in self.tokens.iter().enumerate() {
            let Some(n) = next.get_mut(t.kind as usize) else { continue };
            if let Some(p) = positions.get_mut(*n) {
                *p = i as u32;
            }
            *n += 1;
        }
        let mut anchors: Vec<Anchor> = Vec::new();
        for (kind, w) in first.windows(2).enumerate() {
            let at = positions.get(w[0]..w[1]).unwrap_or(&[]);
            anchors.extend(self.anchor(kind as u32, at, 0));
            // a type that comes in bursts (an optimizer's kernels, layers) marks a period by each
            // burst's first
            let (bursts, apart) = bursts(at);
            if bursts.len() < at.len() {
                anchors.extend(self.anchor(kind as u32, &bursts, apart));
            }
        }
        anchors.sort_by(|a, b| b.alike.cmp(&a.alike).then(b.share.total_cmp(&a.share)));
        anchors
    }

    fn anchor(&self, kind: u32, at: &[u32], apart: u32) -> Option<Anchor> {
        if at.len() < MIN_SEGMENTS {
            return None;
        }
        let mut lengths: Vec<(u32, u32)> =
            at.windows(2).enumerate().map(|(i, w)| (w[1] - w[0], i as u32)).collect();
        let middle = lengths.len() / 2;
        let (_, index) = *lengths.select_nth_unstable(middle).1;
        let from = *at.get(index as usize)? as usize;
        let to = *at.get(index as usize + 1)? as usize;
        let reference = self.profile(from, to);
        let end = self.tokens.len();
        let (mut alike, mut covered, mut begin) = (0, 0, None);
        // an alike segment without and one with the optimizer, and how many hold it
        let (mut samples, mut holding) = ([None; 2], 0);
        let nexts = at.iter().skip(1).map(|&n| n as usize).chain([end]);
        for (&a, b) in at.iter().zip(nexts) {
            let a = a as usize;
            let profile = self.profile(a, b);
            if profile.is_like(&reference) {
                alike += 1;
                covered += profile.work;
                begin = begin.or(Some(a));
                let holds = profile.optimizer > 0;
                holding += usize::from(holds);
                samples[usize::from(holds)] = Some((a, b));
            }
        }
        let begin = begin?;
        let cover = share(covered, self.profile(0, end).work);
        if alike < MIN_SEGMENTS || (cover < MIN_COVER && alike < MANY_SEGMENTS) {
            return None;
        }
        let share = share(covered, self.profile(begin, end).work);
        let phase = self.phase(from).unwrap_or(begin);
        let optimizer = holding as f64 >= HOLDS_SHARE * alike as f64;
        let sample = samples[usize::from(optimizer)].unwrap_or((from, to));
        Some(Anchor { kind, apart, alike, share, reference, sample, optimizer, phase })
    }

    /// Tokens since the optimizer before position `at`, within one step's reach.
    fn phase(&self, at: usize) -> Option<usize> {
        const REACH: usize = 4096;
        let back = self.tokens.get(at.saturating_sub(REACH)..at)?.iter().rev();
        back.enumerate().find(|(_, t)| self.sequence.type_of(t).optimizer).map(|(n, _)| n)
    }

    /// The step's anchor and the number of equal parts in it.
    fn choose(&self) -> Option<(Anchor, u32)> {
        let anchors = self.anchors();
        let at = anchors.iter().position(|a| a.share >= INNER_SHARE)?;
        let mut chosen = *anchors.get(at)?;
        let inner = chosen;
        let mut types = self.types_of(&chosen);
        for outer in anchors.iter().skip(at + 1) {
            let longer =
                outer.reference.length() as f64 > chosen.reference.length() as f64 * (1.0 + 2.0 * TOLERANCE);
            if outer.share >= OUTER_SHARE && longer && self.adds_work(&chosen, &types, outer) {
                chosen = *outer;
                types = self.types_of(&chosen);
            }
        }
        // of the equally good anchors, the one nearest to the begin of the step
        let close = |a: &&Anchor| {
            a.alike.abs_diff(chosen.alike) <= 1 + chosen.alike / 32
                && a.share >= chosen.share - 0.05
                && a.reference.is_like(&chosen.reference)
        };
        // bursts only where nothing occurs once: where a burst begins is less certain than where a
        // token is
        let order =
            |a: &&Anchor| (!self.is_kernel(a.kind), a.apart > 0, std::cmp::Reverse(a.alike), a.phase, a.kind);
        let best = anchors.iter().filter(close).min_by_key(order).copied().unwrap_or(chosen);
        Some((best, self.micro_steps(&inner, &best)))
    }

    /// Micro-steps: about equal parts without the optimizer, one after the other with nothing else
    /// between them, and little but the optimizer besides (layers have an embedding before them, a
    /// loss and a backward pass behind them). The first may be up to half a part shorter: it sets
    /// the gradients to which the others add.
    fn micro_steps(&self, inner: &Anchor, step: &Anchor) -> u32 {
        if !step.optimizer || inner.optimizer {
            return 1;
        }
        let part = inner.reference.length() as f64;
        let types = self.types_of(inner);
        let all = self.profile(step.sample.0, step.sample.1).length();
        let (mut same, mut run) = (0, 0);
        // one step follows the other: twice, as the mark may stand anywhere in it
        for t in self.segment(step).iter().chain(self.segment(step)) {
            let launches = u64::from(self.sequence.type_of(t).launches);
            run = if types.contains(&t.kind) { run + launches } else { 0 };
            same = all.min(run).max(same);
        }
        let parts = (same as f64 / part).round();
        if parts >= 2.0 && ((all - same) as f64) < part {
            parts as u32
        } else {
            1
        }
    }

    /// A handful of kernels over and over: more likely a part of a step than a step.
    fn is_tile(&self, a: &Anchor) -> bool {
        let graph = |kind: &u32| self.sequence.types.get(*kind as usize).is_some_and(|t| t.graph);
        a.reference.length() <= MOST_TILE && !a.optimizer && !self.types_of(a).iter().any(graph)
    }

    fn is_kernel(&self, kind: u32) -> bool {
        self.sequence.types.get(kind as usize).is_some_and(|t| t.kernel)
    }

    fn segment(&self, a: &Anchor) -> &[Token] {
        self.tokens.get(a.sample.0..a.sample.1).unwrap_or(&[])
    }

    fn types_of(&self, a: &Anchor) -> HashSet<u32> {
        self.segment(a).iter().map(|t| t.kind).collect()
    }

    /// Is `outer` more than repetitions of `inner`?
    fn adds_work(&self, inner: &Anchor, inner_types: &HashSet<u32>, outer: &Anchor) -> bool {
        let whole = self.profile(outer.sample.0, outer.sample.1);
        let mut new = Profile::default();
        let mut kernel = false;
        for t in self.segment(outer).iter().filter(|t| !inner_types.contains(&t.kind)) {
            new.count(t, self.sequence.type_of(t));
            kernel |= self.is_kernel(t.kind);
        }
        if inner.optimizer {
            let types = self.types_of(outer);
            let new_types = types.iter().filter(|t| !inner_types.contains(t)).count();
            return share(new.work, whole.work) >= NEW_WORK_SHARE
                || new_types as f64 >= NEW_TYPES_SHARE * types.len() as f64;
        }
        if outer.optimizer {
            return true;
        }
        let part = self.profile(inner.sample.0, inner.sample.1).length().max(1);
        let repeats = (whole.length() / part).max(1);
        let extra = whole.length().saturating_sub(repeats * part);
        kernel && new.length() * 4 >= extra
    }
}

/// The first occurrence of each burst, and the distance that parts bursts: half of the distance at
/// which half of all tokens lie in longer segments.
fn bursts(at: &[u32]) -> (Vec<u32>, u32) {
    let mut gaps: Vec<u32> = at.windows(2).map(|w| w[1] - w[0]).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = gaps.iter().map(|&g| u64::from(g)).sum();
    let mut sum = 0;
    let half = gaps.iter().find(|&&g| {
        sum += u64::from(g);
        sum * 2 >= total
    });
    let apart = half.map_or(0, |g| g / 2);
    let firsts = at.windows(2).filter(|w| w[1] - w[0] > apart).map(|w| w[1]);
    (at.first().copied().into_iter().chain(firsts).collect(), apart)
}

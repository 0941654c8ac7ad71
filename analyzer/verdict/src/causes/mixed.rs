// SPDX-License-Identifier: Apache-2.0
//! GP191 MIXED: no single fix wins 10%.
//!
//! # What it means
//! The GPU is idle for several reasons. Each wins less than 10% of the step when fixed alone.
//!
//! # How it is recognised
//! The GPU computes for less than 85% of the time, and no fix alone wins 10% of the step. What a
//! fix wins comes from a replay of the run without the cost of recording (docs/run-cost.md).
//!
//! Fixes of the four largest causes are replayed in pairs and triples. The line names the smallest
//! set that wins 10%, else the three largest causes. Two exceptions:
//! - One fix wins more than half of what its set wins: its cause is the verdict, not MIXED. It
//!   stays MIXED if 5% of the step or more are won only by all of the set.
//! - No set wins 10%: a wait that costs nothing today (SYNC, ALLOC, COPY) is tried beside each
//!   cause. It may hold up the GPU as soon as that cause is gone.
//!
//! # How sure
//! The confidence is medium at most, and low where no set wins 10%. The evidence for each cause is
//! on its own page. The line of code is that of the first cause named.
//!
//! No step time is promised where no set wins 10%, where one of the causes has no promise of its
//! own, or where COMM is one of them.
//!
//! # Example
//! ```sh
//! # idle time by cause, and the calls to blame
//! gapprobe analyze trace.json.gz
//! gapprobe stats trace.json.gz -r gaps -r syncs
//! # after each change: what moved
//! gapprobe diff before.json.gz after.json.gz
//! ```
//!
//! # What to change
//! Fix the named causes together, cheapest first.

use super::cpus::Cpus;
use super::verdict::of_one;
use super::{alloc, copy, fix_of, sync, Case, MINOR_WIN, NAMED_WIN};
use crate::analysis::{
    Advice, Analysis, Bound, Bucket, Confidence, Fact, Figure, Finding, Promise, Verdict, Win,
};
use crate::replay::Fix;
use crate::run::NONE;

/// Stable code.
pub const CODE: &str = "GP191";
/// Name in the line.
pub const NAME: &str = "MIXED";

/// One of several causes that are to be fixed together.
#[derive(Clone, Copy)]
struct Part<'a> {
    cause: &'static str,
    fix: Fix,
    share: f64,
    /// `None`: nothing is charged to it.
    finding: Option<&'a Finding>,
}

impl<'a> Part<'a> {
    fn of(f: &'a Finding) -> Option<Part<'a>> {
        Some(Part { cause: f.cause, fix: fix_of(f.code)?, share: f.charged, finding: Some(f) })
    }
}

/// Causes whose fixes win enough together.
struct Set<'a> {
    parts: Vec<Part<'a>>,
    /// What they win of a recorded step, and of one that nobody records.
    win: Win,
    unrecorded_win: f64,
}

/// One fix of a set that wins more than this part of what the set wins is what is to be done: the
/// others go with it.
const MOST_OF_A_SET: f64 = 0.5;

impl<'a> Set<'a> {
    /// The one that wins most of what all of it wins. None where one that wins nothing by itself is
    /// needed, or what only all together win is worth a word: it stands behind the other, and has
    /// to be named beside it.
    fn leader(&self) -> Option<&'a Finding> {
        let won = || self.parts.iter().filter_map(|p| p.finding);
        let leader = won().max_by(|x, y| x.unrecorded_win.total_cmp(&y.unrecorded_win))?;
        let only_together = self.unrecorded_win - won().map(|f| f.unrecorded_win).sum::<f64>();
        let stands_behind = self.parts.iter().any(|p| p.finding.is_none()) || only_together >= MINOR_WIN;
        let is_most = leader.unrecorded_win > self.unrecorded_win * MOST_OF_A_SET;
        (is_most && !stands_behind).then_some(leader)
    }

    /// The largest of the others that costs no more than this one.
    fn next(&self, to: &Finding) -> Option<(&'static str, f64)> {
        let is_next = |p: &&Part<'_>| p.cause != to.cause && p.share > 0.0 && p.share <= to.share;
        let others = self.parts.iter().filter(is_next);
        others.max_by(|x, y| x.share.total_cmp(&y.share)).map(|p| (p.cause, p.share))
    }
}

/// Waits that stand in for each other: with one gone the GPU drains at the next, which cost nothing
/// before.
const STAND_INS: [(&str, Fix); 3] =
    [(sync::NAME, Fix::Sync), (alloc::NAME, Fix::Alloc), (copy::NAME, Fix::Copy)];

/// The smallest set of these whose fixes win enough together; of two as small, the better.
fn together<'a>(case: &Case, sets: impl Iterator<Item = Vec<Part<'a>>>) -> Option<Set<'a>> {
    let idle = Bound::idle(&case.device.buckets, case.device.buckets.total(), &Bucket::ALL);
    let mut best: Option<Set<'a>> = None;
    for parts in sets {
        let fixes: Vec<Fix> = parts.iter().map(|p| p.fix).collect();
        let win = case.win(&fixes, idle);
        let better =
            best.as_ref().is_none_or(|b| (parts.len(), -win.share()) < (b.parts.len(), -b.win.share()));
        if win.share() < NAMED_WIN || !better {
            continue;
        }
        let unrecorded_win = case.unrecorded_win(&fixes);
        if unrecorded_win >= NAMED_WIN {
            best = Some(Set { parts, win, unrecorded_win });
        }
    }
    best
}

/// The largest causes, where no set of them is worth naming.
fn listed(parts: &[(&'static str, f64)]) -> Fact {
    let causes = Figure::Causes(parts.to_vec());
    match parts {
        [] => Fact::new("no cause above 1%"),
        // were its fix worth more, it would be the verdict
        [_] => Fact::new("only {causes}, of which its fix wins less than {least} of an unrecorded step")
            .with("causes", causes)
            .with("least", Figure::Share(NAMED_WIN)),
        _ => Fact::new("{causes}").with("causes", causes),
    }
}

/// No single cause passes: the smallest set of the four largest that does, else one of them with a
/// wait that would take its place, else the three largest.
pub(super) fn mix(a: &Analysis, case: &Case, findings: &[Finding]) -> Verdict {
    let mut largest: Vec<&Finding> = findings.iter().collect();
    largest.retain(|f| f.charged > 0.0 || fix_of(f.code).is_some());
    largest.sort_by(|x, y| y.charged.total_cmp(&x.charged));
    largest.truncate(4);
    let parts: Vec<Part<'_>> = largest.iter().filter_map(|&f| Part::of(f)).collect();
    let chosen = |set: u8| -> Vec<Part<'_>> {
        parts.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, p)| *p).collect()
    };
    let sets = (1u8..1 << parts.len()).map(chosen).filter(|s| (2..=3).contains(&s.len()));
    let hidden = STAND_INS.iter().filter(|(cause, _)| findings.iter().all(|f| f.cause != *cause));
    let pairs = hidden.flat_map(|&(cause, fix)| {
        parts.iter().map(move |&p| vec![p, Part { cause, fix, share: 0.0, finding: None }])
    });
    let best = match case.trusts_replay() {
        true => together(case, sets).or_else(|| together(case, pairs)),
        false => None,
    };
    if let Some((set, f)) = best.as_ref().and_then(|set| Some((set, set.leader()?))) {
        let mut v = of_one(a, case, findings, f);
        v.then = v.then.or(set.next(f));
        return v;
    }
    let step = case.analysis.steps.mean_ns;
    let mut v = Verdict {
        code: CODE,
        cause: NAME,
        advice: Advice::new("", "the named causes together, cheapest first"),
        confidence: Confidence::Low,
        step_ns: step,
        call: NONE,
        ..Verdict::default()
    };
    let first = match best {
        Some(Set { parts, win, .. }) => {
            v.parts = parts.iter().map(|p| (p.cause, p.share)).collect();
            v.facts.say(
                Fact::new("{causes} together {together}")
                    .with("causes", Figure::Together(parts.iter().map(|p| p.cause).collect()))
                    .with("together", Figure::Share(win.share())),
            );
            v.share = parts.iter().map(|p| p.share).sum();
            // (of one nothing is predicted: it comes irregularly, say; what hiding collectives wins
            // beside others is not known)
            let is_known = |p: &Part<'_>| p.fix != Fix::Comm && p.finding.is_none_or(|f| f.promise.is_some());
            if step > 0.0 && parts.iter().all(is_known) {
                let error_ns = step * (case.analysis.model.error() + win.share() * 0.1);
                let promise = Promise::new(step, win, error_ns);
                v.promise = promise.and_then(|p| Cpus::of(case).promise(case, CODE, p));
            }
            v.confidence = case.confidence(win.share()).min(Confidence::Medium);
            parts.iter().find_map(|p| p.finding)
        }
        None => {
            v.parts = largest.iter().take(3).map(|f| (f.cause, f.charged)).filter(|p| p.1 > 0.0).collect();
            v.facts.say(listed(&v.parts));
            v.share = largest.iter().take(3).map(|f| f.charged).sum();
            largest.first().copied()
        }
    };
    if let Some(f) = first {
        (v.call, v.site) = (f.call, f.site.clone());
        if let Some(site) = &f.site {
            v.facts
                .say(Fact::new("{cause} at {site}").with("cause", Figure::Word(f.cause)).with("site", site));
        }
    }
    v
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_cause_is_no_list() {
        assert_eq!(super::listed(&[("COPY", 0.18), ("HOST", 0.04)]).text(), "COPY 18%, HOST 4%");
        assert_eq!(
            super::listed(&[("COPY", 0.18)]).text(),
            "only COPY 18%, of which its fix wins less than 10% of an unrecorded step"
        );
    }
}

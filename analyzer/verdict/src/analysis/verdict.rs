// SPDX-License-Identifier: Apache-2.0
//! What is wrong, how sure that is, and what its fix wins.

use super::{Fact, Facts, Profiled, Promise, Win};
use crate::sites::Site;

/// How sure a verdict is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub enum Confidence {
    /// Take it as a hint.
    #[default]
    Low,
    /// Probably.
    Medium,
    /// The evidence is direct.
    High,
}

impl Confidence {
    /// As printed.
    pub const fn key(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// What to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advice {
    /// In a few words, for the line. What stands in brackets is said where its figures (by their
    /// names in braces) are known: "fetch ahead in workers[, num_workers={wanted}]". Empty where
    /// there is nothing to be said so shortly.
    pub short: &'static str,
    /// In a sentence.
    pub long: &'static str,
}

impl Advice {
    /// In a few words, and in a sentence.
    pub const fn new(short: &'static str, long: &'static str) -> Advice {
        Advice { short, long }
    }
}

/// One cause's evidence and what its fix would win.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable code, `GP101`.
    pub code: &'static str,
    /// Name as in the line, `SYNC`.
    pub cause: &'static str,
    /// Share of the steady wall time lost to it, 0 to 1: its idle time, or what its fix wins where
    /// that is more.
    pub share: f64,
    /// Of it, what the buckets charge to it: the rest counts for other causes, which go with it (a
    /// wait that keeps the host from running ahead of its own pauses).
    pub charged: f64,
    /// What its realisable fix wins by the replay.
    pub win: Win,
    /// The same of a step that nobody records, a share of it, 0 to 1: what causes are named by.
    /// [`Self::win`] where that is not known, and of findings under 5 %.
    pub unrecorded_win: f64,
    /// After the fix; `None` where nothing is promised.
    pub promise: Option<Promise>,
    /// Why the GPU waits, in the line's words ([`crate::causes::Cause::why`]).
    pub why: &'static str,
    /// What was seen.
    pub facts: Facts,
    /// What to change.
    pub advice: Advice,
    /// How sure.
    pub confidence: Confidence,
    /// Flat number of the call that stands for it ([`crate::run::Run::call`]), or
    /// [`crate::run::NONE`].
    pub call: u32,
    /// How often (calls, gaps).
    pub count: u64,
    /// The line of the program that costs most; `None` where that is not known.
    pub site: Option<Site>,
    /// Further lines that cost about as much.
    pub more_lines: u32,
}

impl Finding {
    /// Of this line of the program, which is said in front of what was seen.
    pub fn place(&mut self, site: Site) {
        self.facts.at = Some(site.clone());
        self.site = Some(site);
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Verdict {
    /// Stable code (`GP101`; `GP190` GPU-BOUND, `GP191` MIXED, `GP199` INCONCLUSIVE).
    pub code: &'static str,
    /// Name as in the line.
    pub cause: &'static str,
    /// Why the GPU waits, in the line's words; empty where the cause is no reason to wait.
    pub why: &'static str,
    /// What was seen.
    pub facts: Facts,
    /// What to change.
    pub advice: Advice,
    /// How sure.
    pub confidence: Confidence,
    /// Share of the steady wall time lost to it, 0 to 1.
    pub share: f64,
    /// Step time now, ns (0: no steps found).
    pub step_ns: f64,
    /// After the fix; `None` where nothing is promised, and without steps.
    pub promise: Option<Promise>,
    /// Another cause whose fix, another one, wins as much; `None` where one alone wins.
    pub tied: Option<Tied>,
    /// The next cause worth naming (label, share 0 to 1).
    pub then: Option<(&'static str, f64)>,
    /// Of MIXED: the causes and the shares charged to them, 0 to 1.
    pub parts: Vec<(&'static str, f64)>,
    /// Set with INCONCLUSIVE: why.
    pub inconclusive: Option<Fact>,
    /// The trace was taken by a profiler that slows the host: what may be true without it.
    pub profiled: Option<Profiled>,
    /// Flat number of the call that stands for it, or [`crate::run::NONE`].
    pub call: u32,
    /// The line of the program that costs most; `None` where that is not known.
    pub site: Option<Site>,
}

/// A cause as good as the one that is named: their wins differ by less than the model's error or a
/// fifth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tied {
    /// Stable code.
    pub code: &'static str,
    /// Name as in the line.
    pub cause: &'static str,
    /// Why the GPU waits, in the line's words.
    pub why: &'static str,
    /// What to change.
    pub advice: Advice,
    /// Its fix is more work than that of the named one, by the registry's order.
    pub more_work: bool,
    /// Share of the steady wall time lost to it, 0 to 1.
    pub share: f64,
    /// After its fix alone; `None` as for [`Verdict::promise`].
    pub promise: Option<Promise>,
}

/// Steps recorded in windows that take another time than those of the whole run, which were counted
/// (`causes/unlike.rs`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Unlike {
    /// Mean of the steps that were recorded, ns.
    pub recorded_ns: f64,
    /// Mean of all steps, ns.
    pub all_ns: f64,
    /// So far off that what was recorded carries no verdict.
    pub far: bool,
}

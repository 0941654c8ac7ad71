// SPDX-License-Identifier: Apache-2.0
//! Many summaries (`.summary.json`, one a rank) into one table and one line.
//!
//! `read.rs` reads one summary and trusts nothing in it; here: what follows from all of them;
//! `words.rs` writes it out.
//!
//! **The worst rank.** In data-parallel training every rank's step takes as long as the slowest
//! one's, because the others wait for it in their collectives. So the rank to look at is not the
//! one with the longest step but the one with the most work of its own: step time less the time in
//! which only collectives ran and less waits on other streams. It is named where it is
//! [`STANDS_OUT`] above the median; else the ranks are even, and the one with the most idle time is
//! the one the line quotes.
//!
//! What makes a rank slow is what it has more of than the others, which its own verdict cannot
//! know: of a rank that computes longer the line says that, and never COMM, which is what the
//! others suffer from.
//!
//! **Runs that are no job's.** All of that is true of ranks that work together. Summaries without a
//! rank, of a world of one, or of different commands are of separate runs: each is listed, nothing
//! is added up, none waits for another ([`Fleet::apart`]). Beside the ranks of a job those without
//! a rank, or of a world of one, are left out ([`Fleet::beside`]).

mod read;
mod words;

use serde_json::{json, Value};
use verdict::stats::lower_middle;

pub use read::{is_a_trace, read, Rank, Unusable, MOST_BYTES};
pub use words::{line, table};

/// A rank's own time this much above the median of all ranks makes it the worst one.
pub const STANDS_OUT: f64 = 0.05;

/// All ranks of a job, or separate runs.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// By rank; separate runs by their begin.
    pub ranks: Vec<Rank>,
    /// Why these are separate runs; `None`: ranks of a job.
    pub apart: Option<&'static str>,
    /// Separate runs beside the ranks of a job, left out.
    pub beside: Vec<Rank>,
    /// Ranks that the world size asks for and no summary has.
    pub missing: Vec<u32>,
    /// World sizes that the summaries tell, ascending: more than one is more than one job.
    pub worlds: Vec<u32>,
    /// Older summaries of a rank that has a newer one, left out.
    pub older: usize,
    /// Copies of a process's summary, left out.
    pub repeated: usize,
    /// Index of the worst rank.
    pub worst: Option<usize>,
    /// The worst one stands out (see the module's doc); else the ranks are even.
    pub stands_out: bool,
}

impl Fleet {
    /// Puts ranks together. Of several summaries of one rank of a job the latest counts.
    pub fn new(mut ranks: Vec<Rank>) -> Fleet {
        ranks.sort_by(|a, b| {
            let key = |r: &Rank| (r.rank.is_none(), r.rank, std::cmp::Reverse(r.start_unix_ns));
            key(a).cmp(&key(b)).then_with(|| (&a.host, a.pid, &a.file).cmp(&(&b.host, b.pid, &b.file)))
        });
        let given = ranks.len();
        // a process has one number, begin and name; where none is known, nothing tells two apart
        let process =
            |r: &Rank| (r.pid > 0 && r.start_unix_ns > 0).then(|| (r.start_unix_ns, r.host.clone(), r.pid));
        ranks.dedup_by(|b, a| a.rank == b.rank && process(a).is_some() && process(a) == process(b));
        let repeated = given - ranks.len();
        let (mut ranks, beside): (Vec<Rank>, Vec<Rank>) = ranks.into_iter().partition(is_of_a_job);
        let first = ranks.first().and_then(|r| r.rank);
        let several = ranks.iter().any(|r| r.rank != first);
        let apart =
            if beside.is_empty() || several { differ(&ranks) } else { Some(no_rank(&ranks, &beside)) };
        if apart.is_some() {
            ranks.extend(beside);
            ranks.sort_by(|a, b| (a.start_unix_ns, &a.file).cmp(&(b.start_unix_ns, &b.file)));
            let mut fleet = Fleet { ranks, apart, repeated, ..Fleet::default() };
            fleet.worst = fleet.idlest();
            return fleet;
        }
        let all = ranks.len();
        ranks.dedup_by(|b, a| a.rank.is_some() && a.rank == b.rank);
        let older = all - ranks.len();
        let mut worlds: Vec<u32> = ranks.iter().map(|r| r.world_size).filter(|&n| n > 0).collect();
        worlds.sort_unstable();
        worlds.dedup();
        let world = worlds.last().map_or(0, |&n| n.min(MOST_RANKS));
        let have: std::collections::HashSet<u32> = ranks.iter().filter_map(|r| r.rank).collect();
        let missing = (0..world).filter(|r| !have.is_empty() && !have.contains(r)).collect();
        let mut fleet = Fleet { ranks, beside, missing, worlds, older, repeated, ..Fleet::default() };
        fleet.find_worst();
        fleet
    }

    /// What the worst rank has most more of, where it stands out: bucket, its ns a step, the median
    /// of the others' (ns).
    pub fn more(&self) -> Option<(&str, f64, f64)> {
        let worst = self.worst.filter(|_| self.stands_out)?;
        let rank = self.ranks.get(worst)?;
        let others = |key: &str| {
            let others = self.ranks.iter().enumerate().filter(|(i, _)| *i != worst);
            let mut all: Vec<f64> = others.filter_map(|(_, r)| r.own_part(key)).collect();
            lower_middle(&mut all)
        };
        let parts = rank
            .buckets
            .iter()
            .filter_map(|(key, _)| Some((key.as_str(), rank.own_part(key)?, others(key)?)));
        parts.filter(|p| p.1 > p.2).max_by(|x, y| (x.1 - x.2).total_cmp(&(y.1 - y.2)))
    }

    fn find_worst(&mut self) {
        let mut own: Vec<f64> = self.ranks.iter().filter_map(Rank::own_ns).collect();
        let usual = lower_middle(&mut own);
        let indexed = || self.ranks.iter().enumerate();
        let slowest = indexed()
            .filter_map(|(i, r)| Some((r.own_ns()?, i)))
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        if let (Some((ns, i)), Some(usual)) = (slowest, usual) {
            if own.len() > 1 && ns > usual * (1.0 + STANDS_OUT) {
                (self.worst, self.stands_out) = (Some(i), true);
                return;
            }
        }
        self.worst = self.idlest();
    }

    fn idlest(&self) -> Option<usize> {
        let indexed = self.ranks.iter().enumerate();
        let most = indexed.max_by(|a, b| a.1.idle_share().total_cmp(&b.1.idle_share()).then(b.0.cmp(&a.0)));
        most.map(|(i, _)| i)
    }

    /// Several runs of which nothing can be added up.
    fn is_a_list(&self) -> bool {
        self.apart.is_some() && self.ranks.len() > 1
    }

    /// Step times of the ranks that found steps: (shortest, median, longest), ns.
    pub fn steps(&self) -> Option<(f64, f64, f64)> {
        let mut all: Vec<f64> = self.ranks.iter().filter_map(|r| r.median_ns).collect();
        let middle = lower_middle(&mut all)?;
        Some((*all.first()?, middle, *all.last()?))
    }

    /// Share of all ranks' wall time by bucket, largest first; the sum is 1 (nothing observed:
    /// empty).
    pub fn buckets(&self) -> Vec<(String, f64)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for (key, ns) in self.ranks.iter().flat_map(|r| &r.buckets) {
            match sums.iter_mut().find(|s| s.0 == *key) {
                Some(sum) => sum.1 = sum.1.saturating_add(*ns),
                None => sums.push((key.clone(), *ns)),
            }
        }
        let all: u64 = sums.iter().map(|s| s.1).fold(0, u64::saturating_add);
        sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let part = |ns| verdict::analysis::share(ns, all);
        sums.into_iter().filter(|s| s.1 > 0).map(|(key, ns)| (key, part(ns))).collect()
    }

    /// Everything, for programs. Times ns, shares 0 to 1, unknown `null`; of several separate runs
    /// nothing together.
    pub fn json(&self) -> Value {
        let steps = self.steps().filter(|_| !self.is_a_list());
        let buckets = if self.is_a_list() { Vec::new() } else { self.buckets() };
        json!({
            "ranks_version": RANKS_VERSION,
            "line": line(self),
            "one_job": self.apart.is_none(),
            "ranks": self.ranks.iter().map(Rank::json).collect::<Vec<_>>(),
            "separate_runs": self.beside.iter().map(Rank::json).collect::<Vec<_>>(),
            "missing_ranks": self.missing,
            "world_sizes": self.worlds,
            "older_summaries": self.older,
            "repeated_summaries": self.repeated,
            "worst": self.worst.and_then(|w| self.ranks.get(w)).map(|r| json!({
                "rank": r.rank, "file": r.file, "stands_out": self.stands_out,
                "more": self.more().map(|(key, ns, others)| json!({"bucket": key, "ns": ns, "others_ns": others})),
            })),
            "steps": steps.map(|(least, median, most)| json!({
                "shortest_ns": least, "median_ns": median, "longest_ns": most,
            })),
            "buckets": buckets.into_iter().map(|(k, v)| (k, json!(v))).collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// A launcher gave it a rank among others (how many need not be known).
fn is_of_a_job(rank: &Rank) -> bool {
    rank.rank.is_some() && rank.world_size != 1
}

/// Why `beside` makes all of these separate runs.
fn no_rank(ranks: &[Rank], beside: &[Rank]) -> &'static str {
    match ranks.iter().chain(beside).all(|r| r.rank.is_none()) {
        true => "none has a rank",
        false => "not all have a rank in a world of several",
    }
}

/// Why these ranks are of separate runs.
fn differ(ranks: &[Rank]) -> Option<&'static str> {
    let mut commands = ranks.iter().map(|r| program(&r.command)).filter(|c| !c.is_empty());
    let first = commands.next();
    commands.any(|c| Some(&c) != first.as_ref()).then_some("their commands differ")
}

/// A command without its numbers: ranks of a job may have been told theirs (`--local_rank=3`).
fn program(command: &str) -> String {
    let mut out = String::new();
    for c in command.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// Version of the keys of [`Fleet::json`].
const RANKS_VERSION: u32 = 1;

/// World sizes beyond this are damage.
const MOST_RANKS: u32 = 1 << 20;

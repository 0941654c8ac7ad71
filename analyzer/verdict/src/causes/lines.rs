// SPDX-License-Identifier: Apache-2.0
//! What each line that waits would win by itself: the replay with the waits, blocking copies and
//! allocations of this line alone taken out, the other lines as they are. And two lines that win
//! little alone and much together: with the one gone the program waits at the other. Not part of
//! the verdict; `gapprobe analyze` asks for it.

use std::collections::HashMap;

use trace::call::Class;

use super::stand_ins::WAITS;
use super::{needed, Case, MINOR_WIN, NAMED_WIN};
use crate::analysis::{Analysis, Bucket};
use crate::gaps::HostView;
use crate::replay::Prepared;
use crate::run::{Run, Span};
use crate::sites::{Site, Sites};
use crate::timeline::kernels::KernelTable;

/// Lines looked at, those that held the host longest.
const MOST_LINES: usize = 8;
/// Two lines are named together if that wins so much more than both alone.
const MORE_TOGETHER: f64 = MINOR_WIN;
/// A line that waits.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which.
    pub site: Site,
    /// Calls there that can hold the host, in the steady steps.
    pub calls: u64,
    /// How long they stood, ns.
    pub blocked_ns: u64,
    /// Share of the step that is won if it does not wait; `None` where nothing can be promised.
    pub win: Option<f64>,
    /// The next launch depends on the value ([`super::needed`]): no promise.
    pub needed: bool,
}

/// Two lines, by their places among [`Lines::lines`], and what both together win.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The first.
    pub one: usize,
    /// The second.
    pub other: usize,
    /// Share of the step.
    pub win: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// What wins most first; what cannot be promised last.
    pub lines: Vec<Line>,
    /// The pair that wins most more than its parts.
    pub pair: Option<Pair>,
}

impl Lines {
    /// Of the device that the verdict is about; empty where it has no calls with a line. Nothing is
    /// promised where the verdict abstains or the replay does not give the measured time back. O(n)
    /// for each line and pair.
    pub fn of(run: &Run, a: &Analysis) -> Lines {
        let found = a.worst.and_then(|w| Some((a.devices.get(w)?, run.devices.get(w)?)));
        let Some((analysis, device)) = found else { return Lines::default() };
        let (by_call, mut lines) = waiting(run, a.steady);
        if lines.is_empty() {
            return Lines::default();
        }
        for (_, line) in &mut lines {
            line.needed = needed::is_needed(run, device, &line.site);
        }
        let host = HostView::new(run, device);
        let collectives = KernelTable::new(run).collectives();
        let prepared = Prepared::new(run, device, &host, &collectives, a.undisturbed());
        let case = Case::new(run, a, analysis, &prepared);
        let promises = case.trusts_replay() && a.verdict.inconclusive.is_none();
        let idle = (1.0 - case.share(&[Bucket::Compute])).min(case.elsewhere.room()).max(0.0);
        let win =
            |at: &dyn Fn(u32) -> bool| ((case.base - case.played(&WAITS, at)) / case.base).clamp(0.0, idle);
        let is = |flat: u32, number: u32| by_call.get(&flat) == Some(&number);
        for (number, line) in lines.iter_mut().filter(|l| promises && !l.1.needed) {
            line.win = Some(win(&|flat| is(flat, *number)));
        }
        lines.sort_by(|x, y| y.1.win.unwrap_or(-1.0).total_cmp(&x.1.win.unwrap_or(-1.0)));
        let mut pair: Option<(f64, Pair)> = None;
        for (i, (a, one)) in lines.iter().enumerate() {
            for (k, (b, two)) in lines.iter().enumerate().skip(i + 1) {
                let (Some(first), Some(second)) = (one.win, two.win) else { continue };
                if first >= NAMED_WIN || second >= NAMED_WIN {
                    continue;
                }
                let both = win(&|flat| is(flat, *a) || is(flat, *b));
                let more = both - first - second;
                if both >= NAMED_WIN && more >= MORE_TOGETHER && pair.is_none_or(|(most, _)| more > most) {
                    pair = Some((more, Pair { one: i, other: k, win: both }));
                }
            }
        }
        Lines { lines: lines.into_iter().map(|l| l.1).collect(), pair: pair.map(|p| p.1) }
    }
}

/// The lines of calls that can hold the host: by flat number of the call, and those that stood
/// longest.
fn waiting(run: &Run, steady: Span) -> (HashMap<u32, u32>, Vec<(u32, Line)>) {
    let mut sites = Sites::new(run);
    let mut by_call = HashMap::new();
    let mut lines: HashMap<u32, (u64, u64)> = HashMap::new();
    for (t, thread) in run.threads.iter().enumerate() {
        for (i, call) in thread.calls.iter().enumerate() {
            let holds = matches!(call.class, Some(Class::Sync | Class::Copy | Class::Alloc | Class::Free));
            if !holds || call.start < steady.start || call.start >= steady.end {
                continue;
            }
            let Some(site) = sites.of(call.site) else { continue };
            by_call.insert(run.flat(t, i), site);
            let line = lines.entry(site).or_default();
            *line = (line.0 + 1, line.1.saturating_add(call.span().ns()));
        }
    }
    let mut longest: Vec<(u32, (u64, u64))> = lines.into_iter().collect();
    longest.sort_by_key(|&(site, (_, ns))| (std::cmp::Reverse(ns), site));
    longest.truncate(MOST_LINES);
    let line = |(number, (calls, blocked_ns)): (u32, (u64, u64))| {
        let site = sites.get(number)?.clone();
        Some((number, Line { site, calls, blocked_ns, win: None, needed: false }))
    };
    let lines = longest.into_iter().filter_map(line).collect();
    (by_call, lines)
}

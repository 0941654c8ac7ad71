// SPDX-License-Identifier: Apache-2.0
//! What of a promise the named line wins by itself. A promise is of all waits; where another wait
//! follows at once, the program stands there instead once the first is gone, and the line says so:
//! by the other line where two are enough, else by what this one wins alone. `lines.rs` is the same
//! question asked of each line, for `gapprobe analyze`.

use std::collections::{HashMap, HashSet};

use trace::call::Class;

use super::spots::Spot;
use super::{needed, Case, NAMED_WIN};
use crate::analysis::{Fact, Figure};
use crate::replay::Fix;
use crate::sites::{Site, Sites};

/// Lines that win this part of a promise win it, as far as can be said.
const ENOUGH: f64 = 0.8;
/// Everything a line can wait by.
pub(super) const WAITS: [Fix; 3] = [Fix::Sync, Fix::Copy, Fix::Alloc];

/// What the promise of a line takes beside it.
#[derive(Clone, Debug, Default)]
pub(super) struct Together {
    /// What is to be said of it.
    pub(super) facts: Vec<Fact>,
    /// Which lines win what is promised is not known.
    pub(super) unknown: bool,
    /// The next launch depends on a value that is read there.
    pub(super) needed: bool,
}

/// The calls that can hold the host, by line.
struct Waiting<'a> {
    sites: Sites<'a>,
    by_call: HashMap<u32, u32>,
    /// Lines whose wait is the first behind one of the asked line's: how often, and how often as a
    /// synchronize.
    next: HashMap<u32, (u32, u32)>,
}

impl Case<'_> {
    /// What `win` takes beside the line that is named for it: one replay where the line wins it
    /// alone, at most three.
    pub(super) fn beside(&self, spot: &Spot, win: f64) -> Together {
        let none = || Together { facts: spot.rest().into_iter().collect(), ..Together::default() };
        if win < NAMED_WIN || !self.trusts_replay() {
            return none();
        }
        let waiting = Waiting::of(self, &spot.site);
        let own = waiting.numbers(std::slice::from_ref(&spot.site));
        let wins = |more: &[u32]| {
            let all: HashSet<u32> = own.iter().chain(more).copied().collect();
            let at = |flat: u32| waiting.by_call.get(&flat).is_some_and(|line| all.contains(line));
            (1.0 - self.played(&WAITS, &at) / self.base).max(0.0)
        };
        let alone = wins(&[]);
        if alone >= win * ENOUGH {
            return none();
        }
        let as_dear = waiting.numbers(&spot.others);
        let sets = [as_dear].into_iter().filter(|s| !s.is_empty()).chain(waiting.behind());
        for set in sets.take(2) {
            if wins(&set) >= win * ENOUGH {
                return self
                    .together_with(&set.iter().filter_map(|&s| waiting.sites.get(s)).collect::<Vec<_>>());
            }
        }
        let alone = Fact::new("this line alone wins {alone}, all that wait together the rest")
            .with("alone", Figure::Share(alone));
        Together { facts: spot.rest().into_iter().chain([alone]).collect(), unknown: true, needed: false }
    }

    fn together_with(&self, lines: &[&Site]) -> Together {
        let device = self.run.devices.iter().find(|d| d.ordinal == self.device.ordinal);
        let needed = device.is_some_and(|d| lines.iter().any(|line| needed::is_needed(self.run, d, line)));
        let which = match lines {
            [one] => Figure::Place((*one).clone()),
            more => Figure::Of(more.len() as u64, "more line", "more lines"),
        };
        let facts = vec![Fact::new("only together with {which}").with("which", which)];
        Together { facts, unknown: false, needed }
    }
}

impl<'a> Waiting<'a> {
    /// Of the whole run: what lies outside of the steady steps is not replayed.
    fn of(case: &Case<'a>, line: &Site) -> Waiting<'a> {
        let mut w = Waiting { sites: Sites::new(case.run), by_call: HashMap::new(), next: HashMap::new() };
        for (t, thread) in case.run.threads.iter().enumerate() {
            // the asked line waited, and no other since
            let mut asked = false;
            let mut waits = false;
            for (i, call) in thread.calls.iter().enumerate() {
                let holds =
                    matches!(call.class, Some(Class::Sync | Class::Copy | Class::Alloc | Class::Free));
                let Some(site) = holds.then(|| w.sites.of(call.site)).flatten() else { continue };
                w.by_call.insert(case.run.flat(t, i), site);
                let is_sync = call.class == Some(Class::Sync);
                if w.sites.get(site).is_some_and(|s| s.is_same_line(line)) {
                    (asked, waits) = (true, true);
                } else if asked || (waits && is_sync) {
                    let next = w.next.entry(site).or_default();
                    *next = (next.0 + u32::from(asked), next.1 + u32::from(waits && is_sync));
                    (asked, waits) = (false, waits && !is_sync);
                }
            }
        }
        w
    }

    /// The numbers of these lines.
    fn numbers(&self, lines: &[Site]) -> Vec<u32> {
        let all: HashSet<u32> = self.by_call.values().copied().collect();
        let is_one = |n: &u32| self.sites.get(*n).is_some_and(|s| lines.iter().any(|l| s.is_same_line(l)));
        all.into_iter().filter(is_one).collect()
    }

    /// The lines to be tried with the asked one, the likelier first: whose synchronize comes next,
    /// and whose call of any kind.
    fn behind(&self) -> Vec<Vec<u32>> {
        let most = |by: fn(&(u32, u32)) -> u32| {
            let most = self.next.iter().max_by_key(|(&site, n)| (by(n), u32::MAX - site));
            most.filter(|(_, n)| by(n) > 0).map(|(&site, _)| site)
        };
        let mut lines: Vec<u32> = [most(|n| n.1), most(|n| n.0)].into_iter().flatten().collect();
        lines.dedup();
        lines.into_iter().map(|line| vec![line]).collect()
    }
}

// SPDX-License-Identifier: Apache-2.0
// WARM
//! What a recording and the program's stderr report of the windows: which there are, and why
//! there are none. While the program runs, too: one that is killed has no last word.

use trace::{define, total};

use super::{launches, safepoint, step_clock, By, Phase, Schedule, Source, Windows};
use crate::platform::say;
use crate::platform::settings::{Settings, Wish};
use crate::store::Store;

/// Launches that are seen are seen by then, ns from the start.
const SEEN_BY: u64 = 12_000_000_000;
/// Steps, where there are any to be told, are known by then, ns from the start, and after so many
/// launches.
const KNOWN_BY: u64 = 30_000_000_000;
const ENOUGH: u64 = 10_000;
/// Between two words of a recording about its windows, ns: at first, and at most. Twice as long
/// after each (they are never overwritten).
const PAUSE: u64 = 2_000_000_000;
const LONGEST_PAUSE: u64 = 3_600_000_000_000;

/// What was reported so far.
pub(super) struct Report {
    began: u64,
    /// On stderr, too.
    speaks: bool,
    /// Why there is no flight recorder, as far as was reported; and once steps were known, no more
    /// is.
    flight: Option<&'static str>,
    knew_steps: bool,
    windows: String,
    next: u64,
    pause: u64,
}

impl Report {
    pub(super) fn new(settings: &Settings, now: u64) -> Report {
        Report {
            began: now,
            speaks: settings.speaks(),
            flight: None,
            knew_steps: false,
            windows: String::new(),
            next: now,
            pause: PAUSE,
        }
    }

    /// Is this to be written down now?
    fn is_news(&mut self, now: u64, text: &str) -> bool {
        if now < self.next || self.windows == text {
            return false;
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        text.clone_into(&mut self.windows);
        true
    }
}

impl Windows {
    /// At the end.
    pub(crate) fn finish(&mut self, now: u64, totals: &[u64; total::SLOTS], store: &mut Store) {
        if self.phase != Phase::Open {
            self.between.count(now, true, store);
        }
        let unseen = safepoint::are_unseen(&launches(totals));
        if self.flies && step_clock::source() == Source::None {
            let why = if unseen { Some(define::UNSEEN) } else { self.report.flight };
            if let Some(why) = why {
                store.attribute(define::FLIGHT, why);
            }
        }
        if let Some(text) = self.describe(now, unseen) {
            store.attribute(define::WINDOWS, &text);
            let has_windows = ![define::UNSEEN, define::ENDED].contains(&text.as_str());
            if let Some((key, value)) = self.budget.describe().filter(|_| has_windows) {
                store.attribute(key, &value);
            }
        }
    }

    /// While the program runs.
    pub(super) fn tell(
        &mut self,
        now: u64,
        has_steps: bool,
        totals: &[u64; total::SLOTS],
        store: &mut Store,
    ) {
        let ran = now.saturating_sub(self.report.began);
        if ran < SEEN_BY {
            return;
        }
        let unseen = safepoint::are_unseen(&launches(totals));
        if self.flies && !self.report.knew_steps {
            self.report.knew_steps = has_steps;
            match self.report.flight {
                None if !has_steps => self.tell_flight(ran, unseen, store),
                Some(_) if has_steps => {
                    self.report.flight = None;
                    store.attribute(define::FLIGHT, "on");
                }
                _ => {}
            }
        }
        let text = self.describe(now, unseen).unwrap_or_default();
        if (!text.is_empty() || !self.report.windows.is_empty()) && self.report.is_news(now, &text) {
            store.attribute(define::WINDOWS, &text);
        }
    }

    /// The flight recorder can tell nothing: said while there is time to do something about it,
    /// once.
    fn tell_flight(&mut self, ran: u64, unseen: bool, store: &mut Store) {
        let why = match unseen {
            true => "launches are not seen without CUPTI, and no steps are marked",
            false if ran < KNOWN_BY || step_clock::launches() < ENOUGH => return,
            false => "so far no steps are known: no kernel comes once a step, and none are marked",
        };
        let known = if unseen { define::UNSEEN } else { define::NO_STEPS };
        self.report.flight = Some(known);
        store.attribute(define::FLIGHT, known);
        if self.report.speaks {
            say::line(&format!("gapprobe: no flight recorder (GAPPROBE_FLIGHT): {why}; gapprobe_step() marks them (include/gapprobe.h, or the Python package)"));
        }
    }

    /// Which windows there are, or why there are none; `None` where none are needed.
    fn describe(&self, now: u64, unseen: bool) -> Option<String> {
        if self.wish == Wish::All {
            return None;
        }
        if self.has_ended {
            return Some(define::ENDED.to_owned());
        }
        if unseen {
            return self.is_needed(now).then(|| define::UNSEEN.to_owned());
        }
        if self.between.launches() == 0 && matches!(self.schedule, Schedule::All | Schedule::First(..)) {
            return None;
        }
        Some(match self.schedule {
            Schedule::All | Schedule::First(..) | Schedule::Again(..) => "all".to_owned(),
            _ if self.has_closed() => self.schedule_in_words(),
            Schedule::Windows(_, By::Steps)
                if safepoint::is_possible() && step_clock::source() == Source::None =>
            {
                define::NO_STEPS.to_owned()
            }
            _ => "none: the run was too short".to_owned(),
        })
    }

    /// Windows were asked for, or recording everything costs more than its budget.
    fn is_needed(&self, now: u64) -> bool {
        match self.wish {
            Wish::All => false,
            Wish::Fixed { .. } => true,
            Wish::Budget(share) => self.budget.is_spent(now, share),
        }
    }

    /// Something was left out.
    pub(super) fn has_closed(&self) -> bool {
        self.begun > 1 || self.phase != Phase::Open || self.between.launches() > 0
    }

    fn schedule_in_words(&self) -> String {
        match self.schedule {
            Schedule::All | Schedule::First(..) | Schedule::Again(..) => "all".to_owned(),
            Schedule::Measuring => "none yet: what recording costs is being measured".to_owned(),
            Schedule::Asked => "none but those asked for".to_owned(),
            Schedule::Windows(p, By::Steps) => format!("{} of {} steps", p.length, p.every),
            Schedule::Windows(p, By::Clock) => {
                let [length, every] = [p.length, p.every].map(|n| n as f64 * self.window_ns as f64 / 1e9);
                format!("{length} of {every} s")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_and_again_is_told_more_and_more_seldom() {
        let mut report = Report {
            began: 0,
            speaks: false,
            flight: None,
            knew_steps: false,
            windows: String::new(),
            next: 0,
            pause: PAUSE,
        };
        assert!(
            report.is_news(1, "20 of 500 steps") && !report.is_news(2, "20 of 480 steps"),
            "within the pause"
        );
        assert!(!report.is_news(10 * PAUSE, "20 of 500 steps"), "nothing new");
        // two plans by turns, looked at four times a second for three weeks
        let weeks = 3 * 7 * 24 * 3600 * 4_u64;
        let news = (0..weeks)
            .filter(|n| report.is_news(n * 250_000_000, if n % 2 == 0 { "a" } else { "b" }))
            .count();
        assert!((400..600).contains(&news), "{news}");
    }
}

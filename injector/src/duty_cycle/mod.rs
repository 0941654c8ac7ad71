// SPDX-License-Identifier: Apache-2.0
// WARM
//! Recording in windows, so that what gapprobe costs stays within `GAPPROBE_BUDGET`: from the start
//! until the budget is spent, then some steps in many. Between two windows nothing of CUPTI is
//! switched on.
//!
//! | file | |
//! |---|---|
//! | `plan` | which steps are recorded: arithmetic |
//! | `measured` | what recording costs: steps before it was switched off for the first time against those behind it |
//! | `budget` | what was spent, by that, or by a bound until it is known |
//! | `step_clock` | launches and steps, counted without CUPTI |
//! | `runtime`, `driver` | where the launches come from |
//! | `dlsym_hook`, `static_cudart` | who asks for launches, by `dlsym` and `cuGetProcAddress` |
//! | `safepoint` | when CUPTI may be switched: while no thread is inside a launch |
//! | `switch` | what CUPTI is to be, on or off, and what it is |
//! | `comeback` | when we come back after another client of CUPTI's |
//! | `thread_slots` | what a launch reads and writes for `step_clock` and `safepoint` |
//! | `sync_clock`, `waits` | synchronizing calls and the time in them, counted without CUPTI, and where they come from |
//! | `between` | what is known of the time between windows |
//! | `watch`, `alarm` | steps that have become slow, or do not come |
//! | `orders` | what the flight recorder is to write |
//! | `pauses` | where the program stands while a step does not come, by the sampler alone |
//! | `report` | which windows there were, and why there are none, in words |
//! | here | opening and closing, on the drain thread |

mod alarm;
mod between;
mod budget;
pub(crate) mod comeback;
pub(crate) mod dlsym_hook;
mod driver;
mod measured;
pub(crate) mod orders;
mod pauses;
mod plan;
mod report;
mod runtime;
pub(crate) mod safepoint;
pub(crate) mod static_cudart;
mod step_clock;
pub(crate) mod switch;
mod sync_clock;
mod thread_slots;
mod waits;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trace::event::Unobserved;
use trace::{total, Total};

pub(crate) use budget::{launch_ns, Spent};
pub(crate) use pauses::Pauses;
pub(crate) use step_clock::on_mark;

use crate::hooks::imports;
use crate::platform::settings::{Settings, Wish};
use crate::platform::{clock, identity};
use crate::recording::writer;
use crate::sources::cupti::warm_up::{FirstOp, Front};
use crate::sources::cupti::{choose, session};
use crate::sources::marks::program::Capture;
use crate::sources::torch;
use crate::store::Store;
use between::Between;
use budget::Budget;
use orders::Open;
use plan::Plan;
use report::Report;
use step_clock::Source;
use switch::Switch;
use watch::Watch;

/// What windows are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Steps,
    /// Time of day, in units of a window (`settings::WINDOW_NS`): where no steps are known, or
    /// ranks may number them differently. Clocks of the nodes of a job differ by less than that.
    Clock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Everything is recorded.
    Open,
    /// Nothing is wanted any more; CUPTI is to be switched off.
    Closing,
    Closed,
    /// CUPTI is to be switched on.
    Opening,
}

/// Which windows there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Schedule {
    /// All is recorded.
    All,
    /// All is recorded up to this step (or unit of time), at which all ranks end the first stretch.
    First(u64, By),
    /// Nothing is, until it is known what recording costs.
    Measuring,
    /// All is recorded again from this step (or unit of time) on.
    Again(u64, By),
    Windows(Plan, By),
    /// None but those that are asked for.
    Asked,
}

/// Opens and closes windows. Of the drain thread.
pub(crate) struct Windows {
    wish: Wish,
    /// A window lasts about this long, ns (`settings::WINDOW_NS` but in tests).
    window_ns: u64,
    /// Other ranks are to have the same windows.
    has_ranks: bool,
    schedule: Schedule,
    phase: Phase,
    budget: Budget,
    watch: Watch,
    /// The flight recorder is on: slow and missing steps are looked for all the time.
    flies: bool,
    report: Report,
    search: step_clock::Search,
    /// Recorded up to this step or this time whatever the schedule says.
    asked: Option<Requested>,
    last_look: u64,
    between: Between,
    /// Windows begun, and those that an alarm opened.
    begun: u64,
    alarms: u64,
    /// Launches when it was looked last whether they are seen.
    compared: safepoint::Launches,
    /// What rang where a window would leave more behind than the budget allows: is it worth it?
    doubt: Option<alarm::Doubt>,
    /// No moment is known at which CUPTI may be switched, and enough is recorded: there is no more.
    has_ended: bool,
    pub(crate) pauses: Pauses,
}

/// A window that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Requested {
    until_step: u64,
    until: u64,
}

/// Between two looks at costs and steps, ns.
const LOOK: u64 = 250_000_000;
/// A window that an alarm opens lasts so long at least and at most, ns.
const ALARM_NS: u64 = 5_000_000_000;

/// What a window's opening has to wait for, and what it ends with.
pub(crate) struct Around<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) capture: &'a mut Capture,
    pub(crate) totals: &'a [u64; total::SLOTS],
    pub(crate) front: &'a mut Front,
    pub(crate) first_op: &'a mut FirstOp,
}

impl Windows {
    /// As the settings say, from now on.
    pub(crate) fn new(settings: &Settings, now: u64) -> Windows {
        let wish = if settings.capture_waits { Wish::All } else { settings.windows };
        let schedule = match wish {
            Wish::Fixed { steps, every } => Schedule::Windows(Plan { length: steps, every }, By::Steps),
            _ => Schedule::All,
        };
        Windows {
            wish,
            window_ns: settings.window_ns,
            has_ranks: identity::ranks().1.is_some_and(|size| size > 1),
            schedule,
            phase: Phase::Open,
            budget: Budget::new(now, settings.free_ns),
            watch: Watch::new(settings.slow_step),
            flies: settings.flight_ns > 0,
            report: Report::new(settings, now),
            search: step_clock::Search::default(),
            asked: None,
            last_look: 0,
            between: Between::default(),
            begun: 1,
            alarms: 0,
            compared: safepoint::Launches::default(),
            doubt: None,
            has_ended: false,
            pauses: Pauses::default(),
        }
    }

    /// One round, before rings and buffers are taken. `now` is no later than any event that is
    /// still in them.
    pub(crate) fn round(&mut self, now: u64, around: &mut Around<'_>) {
        if self.wish == Wish::All && !self.flies {
            return;
        }
        if now.saturating_sub(self.last_look) >= LOOK {
            self.look(now, around);
        }
        if self.wish == Wish::All {
            return;
        }
        if self.phase != Phase::Open {
            self.between.count(now, false, around.store);
        }
        match around.capture.off_since().filter(|_| self.phase == Phase::Closed) {
            Some(since) => {
                self.pauses.look(now, since, (step_clock::last_step_at(), self.watch.usual_step()))
            }
            None => self.pauses.end(now),
        }
        let is_asked = around.capture.is_the_programs() || writer::is_held(now);
        let wanted = !self.has_ended && (self.is_wanted(now) || is_asked);
        match self.phase {
            Phase::Open if !wanted => {
                around.capture.window(false, now, around.store);
                around.front.cut(now);
                self.between.begin(now);
                let for_graphs = self.budget.has_graphs();
                switch::ask(match () {
                    () if self.has_ended => Switch::OffForGood,
                    () if for_graphs => Switch::OffForGraphs,
                    () => Switch::Off,
                });
                if for_graphs {
                    self.budget.reopened();
                }
                self.phase = Phase::Closing;
            }
            Phase::Closing if switch::is_done(false) => {
                self.budget.measured.switched_off(step_clock::steps());
                self.phase = Phase::Closed;
            }
            Phase::Closed if wanted => {
                switch::ask(Switch::On);
                self.phase = Phase::Opening;
            }
            Phase::Opening if switch::is_done(true) => {
                around.capture.window(true, now, around.store);
                self.between.count(now, true, around.store);
                around.front.begin(now, around.first_op, around.store);
                self.begun += 1;
                self.budget.measured.switched_on();
                self.compared = launches(around.totals);
                self.budget.reopened();
                self.phase = Phase::Open;
            }
            _ => {}
        }
    }

    /// Is everything recorded now?
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Counters for the header.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Total, u64)> {
        let is_windowed = self.has_closed();
        let is_watched = self.wish != Wish::All || self.flies;
        let steps = if is_watched { step_clock::counted() } else { 0 };
        let watched = is_watched.then(|| self.watch.totals());
        let own = [
            (Total::Windows, if is_windowed { self.begun } else { 0 }),
            (Total::Alarms, self.alarms),
            (Total::ClockSteps, steps),
        ];
        let between = self.between.totals().into_iter().chain(self.budget.measured.totals());
        own.into_iter().chain(between).chain(watched.into_iter().flatten())
    }

    fn is_wanted(&mut self, now: u64) -> bool {
        let begun = step_clock::steps();
        let step = begun.saturating_sub(1);
        if self.asked.is_some_and(|a| step >= a.until_step || now >= a.until) {
            self.asked = None;
        }
        // (without a moment at which nothing is launched CUPTI is not switched at all)
        if self.asked.is_some() || !safepoint::is_possible() {
            return true;
        }
        match self.schedule {
            Schedule::All => true,
            Schedule::Asked | Schedule::Measuring => false,
            Schedule::First(at, by) | Schedule::Again(at, by) => {
                if by == By::Steps {
                    step_clock::wake_at(at + 1);
                }
                let is_first = matches!(self.schedule, Schedule::First(..));
                (self.unit(by, step) < at) == is_first
            }
            // which step it is, is not known: nothing is left out
            Schedule::Windows(_, By::Steps) if step_clock::source() == Source::None => true,
            Schedule::Windows(plan, By::Steps) => {
                step_clock::wake_at(plan.next_change(step) + 1);
                plan.records(step)
            }
            Schedule::Windows(plan, by) => plan.records(self.unit(by, step)),
        }
    }

    /// Where the program stands: at this step, or by the time of day.
    fn unit(&self, by: By, step: u64) -> u64 {
        match by {
            By::Steps => step,
            By::Clock => clock::pair().1 / self.window_ns.max(1),
        }
    }

    /// Costs, steps, and what follows from them.
    fn look(&mut self, now: u64, around: &mut Around<'_>) {
        self.last_look = now;
        lead_calls();
        let step_ns = self.budget.step_ns();
        step_clock::forget_stale(now, step_ns);
        let has_steps = self.search.look(now);
        self.watch.look(now, step_ns, Spent::of(around.totals).launches());
        self.tell(now, has_steps, around.totals, around.store);
        if self.wish == Wish::All {
            self.watch.alarm(now, has_steps, self.unobserved(around.capture));
            return;
        }
        if self.phase == Phase::Open && (self.begun == 1 || session::tells_launches()) {
            let all = launches(around.totals);
            if safepoint::compare(&all.since(&self.compared)) {
                self.compared = all;
            }
        }
        let recorded = match self.phase {
            Phase::Open => Some(true),
            Phase::Closed => Some(false),
            Phase::Closing | Phase::Opening => None,
        };
        self.budget.switching_took(safepoint::spent());
        self.budget.look(now, recorded, Spent::of(around.totals), step_clock::launches());
        if self.phase == Phase::Closed {
            self.heed_alarm(now, has_steps, around.capture);
        } else if self.flies {
            self.watch.alarm(now, has_steps, self.unobserved(around.capture));
        }
        if around.capture.is_the_programs() {
            return;
        }
        if let Wish::Budget(share) = self.wish {
            self.plan(now, share, has_steps, step_ns);
        }
        self.has_ended |= self.phase == Phase::Open
            && self.budget.is_over(now, self.wish.share())
            && safepoint::are_unseen(&launches(around.totals));
    }

    /// What is to be recorded from now on.
    fn plan(&mut self, now: u64, share: f64, has_steps: bool, step_ns: u64) {
        let agree = step_clock::do_ranks_agree() || !self.has_ranks;
        let by = if has_steps && step_ns > 0 && agree { By::Steps } else { By::Clock };
        let is_closed = self.phase == Phase::Closed;
        self.schedule = match self.schedule {
            Schedule::All if self.budget.measured.is_begun() => match self.budget.is_spent(now, share) {
                true => self.windows(share, by, step_ns),
                false => return,
            },
            Schedule::All if !self.budget.holds_enough(now, share) => return,
            Schedule::All if self.has_ranks && self.budget.is_half_spent(now, share) => {
                Schedule::First(self.turn(by), by)
            }
            Schedule::All if self.budget.is_spent(now, share) => Schedule::Measuring,
            Schedule::First(..) if is_closed => Schedule::Measuring,
            Schedule::Measuring if is_closed && self.budget.measured.is_done() => {
                match self.windows(share, by, step_ns) {
                    Schedule::Windows(..) if !self.budget.is_spent(now, share) && self.has_ranks => {
                        Schedule::Again(self.turn(by), by)
                    }
                    Schedule::Windows(..) if !self.budget.is_spent(now, share) => Schedule::All,
                    windows => windows,
                }
            }
            Schedule::Again(..) if self.phase == Phase::Open => Schedule::All,
            // not within a window, which would be cut short
            Schedule::Windows(..) | Schedule::Asked if is_closed => self.windows(share, by, step_ns),
            _ => return,
        };
    }

    /// The windows that the budget allows from now on.
    fn windows(&self, share: f64, by: By, step_ns: u64) -> Schedule {
        let length = if by == By::Steps { plan::window_steps(step_ns, self.window_ns) } else { 1 };
        match (Plan::within(share, self.budget.costs(), length), self.schedule) {
            // the length stays as it is: it would change with every wavering of the step time
            (Some(p), Schedule::Windows(old, b)) if b == by => {
                Schedule::Windows(Plan { length: old.length, every: p.every / p.length * old.length }, b)
            }
            (Some(p), _) => Schedule::Windows(p, by),
            (None, Schedule::Windows(..)) => self.schedule,
            (None, _) => Schedule::Asked,
        }
    }

    /// Where all ranks turn next, without a word between them: the next step that is a power of
    /// two, or the next time of day.
    fn turn(&self, by: By) -> u64 {
        const CLOCK: u64 = 4;
        match by {
            By::Steps => step_clock::steps().max(1).next_power_of_two(),
            By::Clock => (self.unit(by, 0) + 1).next_multiple_of(CLOCK),
        }
    }

    /// Opens a window where steps have become slow or do not come. Where it would leave more of
    /// CUPTI behind than the budget allows, for the rest of the run, only where that is worth it
    /// ([`alarm::Doubt`]).
    fn heed_alarm(&mut self, now: u64, has_steps: bool, capture: &Capture) {
        let usual = match self.schedule {
            Schedule::All | Schedule::First(..) | Schedule::Measuring | Schedule::Again(..) => false,
            Schedule::Windows(_, By::Clock) => has_steps,
            Schedule::Windows(_, By::Steps) | Schedule::Asked => true,
        };
        if !usual || self.asked.is_some() {
            if self.flies {
                self.watch.alarm(now, has_steps, self.unobserved(capture));
            }
            return;
        }
        let rings = self.watch.alarm(now, has_steps, self.unobserved(capture));
        let is_dear = self.schedule == Schedule::Asked && self.begun == 1;
        if !is_dear || !has_steps {
            self.doubt = None;
        } else if let (None, Some(reason)) = (&self.doubt, rings) {
            self.doubt = alarm::Doubt::of(reason, step_clock::steps(), now);
        }
        let judged = self.doubt.as_ref().and_then(|d| d.is_over(self.watch.alarm.factor(), now));
        if judged.is_some() {
            self.doubt = None;
        }
        if judged == Some(true) || !is_dear && rings.is_some() {
            self.alarms += 1;
            let length = plan::window_steps(self.watch.alarm.usual_step(), self.window_ns);
            self.ask(step_clock::steps() + length, now + ALARM_NS);
        }
    }

    /// Since when nothing is recorded, and why, while nothing is.
    fn unobserved(&self, capture: &Capture) -> Option<Open> {
        let why = if self.phase == Phase::Open { Unobserved::CaptureOff } else { Unobserved::Window };
        capture.off_since().map(|since| Open { since, why })
    }

    /// A window from now on, whatever the schedule says.
    fn ask(&mut self, until_step: u64, until: u64) {
        self.asked = Some(Requested { until_step, until });
    }
}

/// Launches so far.
fn launches(totals: &[u64; total::SLOTS]) -> safepoint::Launches {
    safepoint::Launches {
        recorded: Spent::of(totals).launches(),
        seen: step_clock::launches(),
        unhooked: session::tells_launches().then(safepoint::unhooked),
    }
}

/// Before the first launch, while the program waits for us: every launch counts, or ranks would
/// number their steps differently. COLD.
pub(crate) fn prepare(settings: &Settings) {
    if may_be_used(settings) {
        step_clock::learns();
        lead_calls();
    }
}

/// Are steps and launches to be counted without CUPTI?
fn may_be_used(settings: &Settings) -> bool {
    settings.windows != Wish::All || settings.flight_ns > 0
}

/// Was a launch seen since then? As exact as the question is asked often.
fn has_launched_since(then: u64) -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    static AT: AtomicU64 = AtomicU64::new(0);
    let launches = step_clock::launches();
    if LAST.swap(launches, Ordering::Relaxed) != launches {
        AT.store(clock::monotonic(), Ordering::Relaxed);
    }
    launches > 0 && AT.load(Ordering::Relaxed) >= then
}

/// Has the launches and waits of what was mapped since the last time counted, too; and of what was
/// left alone then, at the second, fourth, eighth look after it, and so on.
fn lead_calls() {
    static LOADS: AtomicU64 = AtomicU64::new(0);
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    static LEFT: AtomicBool = AtomicBool::new(false);
    dlsym_hook::lead();
    let loads = choose::load_count();
    let is_new = LOADS.swap(loads, Ordering::Relaxed) != loads;
    let looks = if is_new { 0 } else { LOOKS.load(Ordering::Relaxed) + 1 };
    LOOKS.store(looks, Ordering::Relaxed);
    if is_new || looks.is_power_of_two() && LEFT.load(Ordering::Relaxed) {
        let (mut launches, mut by_driver, mut waits) = (runtime::leads(), driver::leads(), waits::leads());
        let mut launchers = dlsym_hook::Launchers { only: None };
        let mut nodes = torch::leads();
        imports::rewrite(&mut imports::Several::new([
            &mut launches,
            &mut by_driver,
            &mut waits,
            &mut launchers,
            &mut nodes,
        ]));
        let left = launches.has_left() || by_driver.has_left() || waits.has_left();
        LEFT.store(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;

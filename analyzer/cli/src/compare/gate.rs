// SPDX-License-Identifier: Apache-2.0
//! Conditions that a run must meet, for CI.
//!
//! The verdict itself is always one of them: a trace without a verdict (empty, lossy, too short)
//! meets nothing, because what is missing could be what fails. On such a trace no figure is judged,
//! neither way.
//!
//! Figures of the one trace (idle share, step time) are facts about it and are held against their
//! limit as they are. A comparison with a baseline has a band ([`super::noise`]), and its limit can
//! lie in one of three places:
//!
//! ```text
//! the whole band meets the limit        ok                  also where the run may be a little slower or faster
//! the whole band misses it              failed
//! the limit lies inside the band        cannot be judged    the runs are too short or too noisy for so tight a limit
//! ```
//! Only the same work is compared, or nearly the same: then the band is wider by what the work
//! differs by. Where the user vouches for the work ([`Conditions::same_work`]) its kernels are not
//! asked; that a step is the same unit still is.
//!
//! So a small regression within the noise passes where the limit is wider than the noise, and
//! nothing passes or fails by luck. Median steps are compared: a single long step is no regression.
//! Where the mean step is clearly on the other side of the limit (many long steps, or one very long
//! one), it cannot be judged either.

use verdict::analysis::{passing, DeviceAnalysis, Verdict};
use verdict::causes;
use verdict::causes::{inconclusive, Cause};
use verdict::run::RangeKind;
use verdict::text::plural::counted;

use super::noise::{Difference, Place};
use super::unit::{self, same_unit};
use super::work::Sameness;
use super::{compare, other_gpus, other_numbers, words, Comparison, Options, Side};

/// Ranges named where one is missing, at most.
const NAMED: usize = 8;

/// What is demanded.
#[derive(Clone, Default)]
pub struct Conditions {
    /// The GPU idles for at most this share of the steps' time, 0 to 1.
    pub max_idle: Option<f64>,
    /// The median step takes at most this, ns.
    pub max_step_ns: Option<f64>,
    /// The median step takes at most this share longer than the baseline's.
    pub max_regression: Option<f64>,
    /// The baseline's median step takes at least this many times as long.
    pub min_speedup: Option<f64>,
    /// Causes that the verdict may not name.
    pub forbid: Vec<&'static Cause>,
    /// Named ranges that must occur.
    pub ranges: Vec<String>,
    /// The user says that the baseline does the same work, whatever its kernels
    /// ([`Options::same_work`]).
    pub same_work: bool,
    /// What two runs of one program differ by ([`Options::run_noise`]).
    pub run_noise: Option<f64>,
}

/// How a condition came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Met.
    Ok,
    /// Not met.
    Failed,
    /// The trace does not tell.
    Unjudged,
}

impl Answer {
    /// Stable machine-readable name.
    pub const fn key(self) -> &'static str {
        match self {
            Answer::Ok => "ok",
            Answer::Failed => "failed",
            Answer::Unjudged => "unjudged",
        }
    }

    /// As printed.
    pub const fn words(self) -> &'static str {
        match self {
            Answer::Ok => "ok",
            Answer::Failed => "FAILED",
            Answer::Unjudged => "cannot be judged",
        }
    }

    fn met(yes: bool) -> Answer {
        if yes {
            Answer::Ok
        } else {
            Answer::Failed
        }
    }
}

/// One condition, judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Its option, without dashes; `verdict` for the one that always holds.
    pub condition: &'static str,
    /// Of what, where it may be demanded more than once: a cause, a range.
    pub of: Option<String>,
    /// How it came out.
    pub result: Answer,
    /// What was found: a share, a ratio, ns; `None` where there is no figure.
    pub value: Option<f64>,
    /// The limit in the same unit.
    pub limit: Option<f64>,
    /// Half the width of the 95 % band, in units of the baseline's median (of the value itself
    /// where there is no baseline).
    pub band: Option<f64>,
    /// Of a comparison: share of the kernels' time in kernels that both runs have
    /// ([`super::work::Work::common`]).
    pub common: Option<f64>,
    /// Figures and limit, in words.
    pub text: String,
}

impl Judged {
    fn new(condition: &'static str, result: Answer, text: String) -> Judged {
        Judged { condition, of: None, result, value: None, limit: None, band: None, common: None, text }
    }

    fn figures(self, value: f64, limit: f64) -> Judged {
        Judged { value: Some(value), limit: Some(limit), ..self }
    }

    fn of(self, of: &str) -> Judged {
        Judged { of: Some(of.to_owned()), ..self }
    }
}

/// What all conditions together come to: the worst, failed before unjudged.
pub fn all(judged: &[Judged]) -> Answer {
    let any = |r: Answer| judged.iter().any(|j| j.result == r);
    match () {
        () if any(Answer::Failed) => Answer::Failed,
        () if any(Answer::Unjudged) || judged.is_empty() => Answer::Unjudged,
        () => Answer::Ok,
    }
}

/// Judges every condition, the verdict first.
pub fn check(side: &Side<'_>, baseline: Option<&Side<'_>>, conditions: &Conditions) -> Vec<Judged> {
    let v = &side.analysis.verdict;
    let sure = v.code != inconclusive::CODE;
    let mut judged = vec![Judged::new(
        "verdict",
        if sure { Answer::Ok } else { Answer::Unjudged },
        match sure {
            true => {
                let lost = side.lost().map_or(String::new(), |lost| format!("; {lost}"));
                format!("{} {} ({}){lost}", v.code, v.cause, v.text())
            }
            false => format!("{} INCONCLUSIVE: {}", v.code, v.text()),
        },
    )];
    let unlike = side.analysis.unlike.map(|u| u.fact().text());
    let mut add = |j: Judged| {
        judged.push(match &unlike {
            _ if j.condition == "require-range" => j,
            // what was recorded is not the run
            Some(words) if sure => {
                Judged { result: Answer::Unjudged, text: format!("{words}; {}", j.text), ..j }
            }
            _ if sure => j,
            // losses make gaps: neither way
            _ => Judged { result: Answer::Unjudged, text: format!("INCONCLUSIVE; {}", j.text), ..j },
        });
    };
    if let Some(limit) = conditions.max_idle {
        add(max_idle(side, limit));
    }
    if let Some(limit) = conditions.max_step_ns {
        add(max_step(side, limit));
    }
    if let Some(baseline) = baseline {
        let (run_noise, same_work) = (conditions.run_noise, conditions.same_work);
        let options = Options { run_noise, same_work, ..Options::default() };
        let c = compare(baseline, side, options);
        let common = (c.work.sameness != Sameness::Unknown).then_some(c.work.common);
        let against = |condition, most| Judged { common, ..against(&c, condition, most) };
        if let Some(limit) = conditions.max_regression {
            add(against("max-regression", 1.0 + limit));
        }
        if let Some(limit) = conditions.min_speedup {
            add(against("min-speedup", 1.0 / limit));
        }
    }
    for cause in &conditions.forbid {
        add(forbid(v, cause).of(cause.name));
    }
    for name in &conditions.ranges {
        add(require(side, name).of(name));
    }
    judged
}

fn max_idle(side: &Side<'_>, limit: f64) -> Judged {
    let (idle, of) = idle_of(side);
    let mut text =
        format!("the GPU idles for {:.1}% of the {of}, at most {:.1}%", idle * 100.0, limit * 100.0);
    // (what the profiler makes longer is known of the steps, and of what lies outside of them
    // nothing)
    let profiled = side.analysis.verdict.profiled.filter(|_| !is_mostly_outside(side));
    if let Some(p) = profiled {
        text.push_str(&format!(" (under the profiler; without it from {})", words::percent(1.0 - p.busy)));
    }
    for d in passing(&side.analysis.devices) {
        text.push_str(&format!(
            " (not counted: GPU {}, with under a tenth of the work, idle for {})",
            d.ordinal,
            words::percent(1.0 - d.busy_share())
        ));
    }
    let without = profiled.map(|p| 1.0 - p.busy);
    Judged::new("max-idle", slowed(idle, without, limit), text).figures(idle, limit)
}

/// The share of the time that is held against the limit, and what time it is of. Another tool's
/// trace of no more than two steps, or whose steps are a small part of an idle whole, is judged by
/// the whole where that idles more: else a limit would be met by what was left out.
fn idle_of(side: &Side<'_>) -> (f64, &'static str) {
    let of_steps = side.idle();
    let few = side.run.foreign && side.steps.len() < verdict::steps::MIN_STEPS;
    let device = side.device.and_then(|d| side.analysis.devices.get(d));
    let whole = device.filter(|_| few || is_mostly_outside(side));
    match whole.map(|d| d.whole_idle_share()) {
        Some(idle) if side.steps.is_empty() || idle + AS_MUCH >= of_steps => (idle, WHOLE),
        _ if side.steps.is_empty() => (of_steps, "time"),
        _ => (of_steps, "steps"),
    }
}

fn is_mostly_outside(side: &Side<'_>) -> bool {
    let device = side.device.and_then(|d| side.analysis.devices.get(d));
    side.run.foreign && device.is_some_and(DeviceAnalysis::is_mostly_outside)
}

/// Of steps that idle more than the whole by no more than this, the whole is judged.
const AS_MUCH: f64 = 0.01;
/// See [`idle_of`].
const WHOLE: &str = "whole trace, from its first to its last GPU operation";

fn max_step(side: &Side<'_>, limit: f64) -> Judged {
    if side.steps.is_empty() {
        return Judged::new("max-step-ms", Answer::Unjudged, "no steps found".to_owned());
    }
    let median = side.median().value;
    let mut text = format!("median step {:.3} ms, at most {} ms", median / 1e6, limit / 1e6);
    let without = side.analysis.verdict.profiled.map(|p| p.step_ns);
    if let Some(ns) = without {
        text.push_str(&format!(" (under the profiler; without it from {:.3} ms)", ns / 1e6));
    }
    Judged::new("max-step-ms", slowed(median, without, limit), text).figures(median, limit)
}

/// A figure that may be at most `limit`; `without`: what it may be without the profiler that slows
/// the host. A limit between the two is for no one to judge.
fn slowed(value: f64, without: Option<f64>, limit: f64) -> Answer {
    match without {
        Some(least) if value > limit && least <= limit => Answer::Unjudged,
        _ => Answer::met(value <= limit),
    }
}

/// The median step may take at most `most` times the baseline's (A).
fn against(c: &Comparison<'_>, condition: &'static str, most: f64) -> Judged {
    let speedup = condition == "min-speedup";
    let limit = match speedup {
        true => format!("at least {:.3}x", 1.0 / most),
        false => format!("at most {}", words::signed_percent(most - 1.0)),
    };
    let unjudged = |why: String| Judged::new(condition, Answer::Unjudged, format!("{why}; {limit}"));
    let base = &c.a.analysis.verdict;
    if base.code == inconclusive::CODE {
        return unjudged(format!("the baseline is INCONCLUSIVE: {}", base.text()));
    }
    let (Some(median), Some(step)) = (c.median.filter(|m| m.a.value > 0.0 && m.b.value > 0.0), c.step) else {
        return unjudged("no steps in one of the runs".to_owned());
    };
    match c.work.sameness {
        Sameness::Same | Sameness::Nearly => {}
        _ if c.same_work && same_unit(c.a, c.b, &c.work, true) => {}
        _ if c.same_work => {
            let why = unit::why_not(c.a, c.b);
            return unjudged(format!(
                "--same-work, but a step may be another unit than the baseline's: {why}"
            ));
        }
        // a step of less work is no faster step
        Sameness::Other => {
            let units = match same_unit(c.a, c.b, &c.work, false) {
                true => "",
                false => "; the steps were found by their launches: they may be other units",
            };
            return unjudged(format!(
                "other work than the baseline's: {}{units}{}",
                words::common(&c.work),
                words::SAME_WORK
            ));
        }
        Sameness::Unknown => {
            return unjudged(format!("whether it is the baseline's work is not known: {}", c.work.why));
        }
    }
    if let Some(numbers) = other_numbers(c.a, c.b) {
        return unjudged(format!("{numbers} (A: the baseline)"));
    }
    if let Some((base, new)) = other_gpus(c.a, c.b) {
        return unjudged(format!("the baseline's GPU is another: {base} and {new}"));
    }
    if c.a.run.slowed_host != c.b.run.slowed_host {
        return unjudged("one trace alone comes from a host that its profiler slowed".to_owned());
    }
    let (a, b) = (median.a.value, median.b.value);
    // what the work differs by may be all of it time of a step
    let work_ns = if c.same_work { 0.0 } else { c.work.differs() * a.max(b) };
    let d = Difference::new(&median.a, &median.b, most, median.run_ns + work_ns);
    let ratio = b / a;
    let Some(band) = d.band.map(|ns| ns / a) else {
        return unjudged(format!(
            "{} and {}: too few for a band",
            c.a.steps.len(),
            counted(c.b.steps.len() as u64, "step")
        ));
    };
    // the mean lies beyond the limit by more than the band, the other way
    let mean = step.b.value / step.a.value;
    let contradicted = match d.place() {
        Some(Place::Below) => mean - band > most,
        Some(Place::Above) => mean + band < most,
        _ => false,
    };
    let result = match d.place() {
        _ if contradicted => Answer::Unjudged,
        Some(Place::Below) => Answer::Ok,
        Some(Place::Above) => Answer::Failed,
        // a limit met exactly by runs without any noise
        _ if band == 0.0 => Answer::Ok,
        _ => Answer::Unjudged,
    };
    let mut text = format!("median step {} -> {}: ", words::time(a), words::time(b));
    let (value, limit_value) = match speedup {
        true => {
            let low = 1.0 / (ratio + band);
            let high = if ratio > band { format!("{:.3}", 1.0 / (ratio - band)) } else { "any".to_owned() };
            text.push_str(&format!("{:.3}x ({low:.3} to {high}), {limit}", 1.0 / ratio));
            (1.0 / ratio, 1.0 / most)
        }
        false => {
            text.push_str(&format!(
                "{} (±{:.1}%), {limit}",
                words::signed_percent(ratio - 1.0),
                band * 100.0
            ));
            (ratio - 1.0, most - 1.0)
        }
    };
    if contradicted {
        let by = words::change(&step.a, &step.b);
        text.push_str(&format!(": the mean step says otherwise: {by}"));
    } else if result == Answer::Unjudged {
        text.push_str(match work_ns > median.run_ns {
            true => ": the limit lies within what the work differs by",
            false => ": the limit lies within the noise",
        });
    } else if (mean - ratio).abs() > band {
        text.push_str(&format!(" (the mean step: {})", words::change(&step.a, &step.b)));
    }
    if c.same_work && c.work.sameness != Sameness::Same {
        text.push_str(&format!(" ({})", words::waived(c.a, c.b, &c.work)));
    } else if c.work.sameness == Sameness::Nearly {
        text.push_str(&format!(" (nearly the baseline's work: {})", words::common(&c.work)));
    }
    Judged { band: Some(band), ..Judged::new(condition, result, text).figures(value, limit_value) }
}

fn forbid(v: &Verdict, cause: &'static Cause) -> Judged {
    // forbidding HOST forbids its kinds, too: with samples the same program has one of them
    let named = v.code == cause.code || causes::kind_of(v.code) == Some(cause.code);
    if let Some(p) = v.profiled.filter(|p| (p.cause == cause.name) != named) {
        let text =
            format!("{} under a profiler that slows the host, perhaps {} without it", v.cause, p.cause);
        return Judged::new("forbid-cause", Answer::Unjudged, text);
    }
    let text = match named {
        true => format!("the verdict is {}", v.cause),
        false => format!("the verdict is {}, not {}", v.cause, cause.name),
    };
    Judged::new("forbid-cause", Answer::met(!named), text)
}

fn require(side: &Side<'_>, name: &str) -> Judged {
    let run = side.run;
    let ranges = || run.threads.iter().flat_map(|t| &t.ranges).filter(|r| r.kind != RangeKind::Python);
    let ids = |r: &&verdict::run::Range| run.definitions.string(r.name) == Some(name);
    let (count, ns) =
        ranges().filter(ids).fold((0u64, 0u64), |(n, ns), r| (n + 1, ns.saturating_add(r.span.ns())));
    if count > 0 {
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let text = format!("{name:?} occurs {times}, {} in all", words::time(ns as f64));
        return Judged { value: Some(count as f64), ..Judged::new("require-range", Answer::Ok, text) };
    }
    if !side.whole() {
        let text = format!("{name:?} does not occur, but the trace is not whole");
        return Judged::new("require-range", Answer::Unjudged, text);
    }
    let mut known: Vec<&str> = ranges()
        .filter(|r| r.kind == RangeKind::User)
        .filter_map(|r| run.definitions.string(r.name))
        .collect();
    known.sort_unstable();
    known.dedup();
    let more = known.len().saturating_sub(NAMED);
    known.truncate(NAMED);
    let there = match known.as_slice() {
        [] => "no named ranges".to_owned(),
        names if more > 0 => format!("there are {} and {more} more", names.join(", ")),
        names => format!("there are {}", names.join(", ")),
    };
    let text = format!("{name:?} does not occur: {there}");
    Judged { value: Some(0.0), ..Judged::new("require-range", Answer::Failed, text) }
}

// SPDX-License-Identifier: Apache-2.0
//! The evidence of a verdict in words, and the formats of its numbers; nothing is computed. The
//! line is in `sentence.rs`.

use std::fmt::Write;

use trace::define;
use trace::loss::Severity;

use crate::analysis::{
    passing, working, Analysis, Cost, OncePlace, Parts, Profiled, Promise, StepSource, Tied, Verdict,
};
use crate::causes::{fp32_matmul, inconclusive, is_computing, mixed, small_kernels, MODEL_ERROR};
use crate::run::Run;
use crate::text::duration::long;
use crate::text::escape::visible;
use crate::text::plural;
use crate::text::plural::counted;

/// A warm-up longer than this share of what was seen is named.
const LONG_WARM_UP: f64 = 0.1;
/// What happened once is named where it took more than this share of what was seen.
const LONG_ONCE: f64 = 0.02;
/// Time of another tool's trace before its first GPU operation and its first step is named from
/// this share of it on.
const LONG_FRONT: f64 = 0.25;
/// The share of the recorded time that the steps are is named below this: "GPU busy" and the
/// verdict are of them.
const MIN_STEADY_SHARE: f64 = 0.8;

/// All that there is to say of a verdict, a statement each: what is found, and what that rests on.
pub fn evidence(run: &Run, a: &Analysis) -> Vec<String> {
    let mut all = finding(a);
    all.extend(rests_on(run, a));
    all.iter().map(|said| visible(said).into_owned()).collect()
}

/// What that rests on: how busy the GPU was, how much was seen, what recording cost, what is lost.
fn rests_on(run: &Run, a: &Analysis) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(d) = a.worst.and_then(|w| a.devices.get(w)) {
        let busy = percent(d.busy_share());
        let gpu = match (a.devices.len(), working(&a.devices).count()) {
            (0 | 1, _) => format!("GPU busy {busy}"),
            (_, 0 | 1) => format!("GPU {} busy {busy}", d.ordinal),
            (_, n) => format!("GPU {} busy {busy}, worst of {n}", d.ordinal),
        };
        let rest = not_counted(a).map_or_else(String::new, |rest| format!(" ({rest})"));
        all.push(gpu + &rest);
    }
    all.push(seen(a));
    if !run.foreign {
        all.push(format!("cost {}{}", cost(&a.cost), not_possible(run)));
    }
    all.push(format!("losses {}", losses(run, a)));
    all
}

/// The GPUs whose idle time is in no figure, for they did next to nothing; `None` where there are
/// none.
pub fn not_counted(a: &Analysis) -> Option<String> {
    const WHY: &str = "with under a tenth of the work";
    let rest: Vec<_> = passing(&a.devices).collect();
    match rest.as_slice() {
        [] => None,
        [d] => Some(format!("GPU {}, busy {} {WHY}, not counted", d.ordinal, percent(d.busy_share()))),
        more => Some(format!("{} GPUs {WHY} not counted", more.len())),
    }
}

/// What the verdict is worth on a trace whose host was slowed by its profiler.
pub fn under_the_profiler(v: &Verdict, p: &Profiled) -> String {
    let now = Time::of(p.step_ns);
    let same = match v.cause == p.cause {
        true => format!("still {}", p.cause),
        false => format!("perhaps {}", p.cause),
    };
    let busy = match percent(p.busy) {
        least if least.starts_with('<') => format!("under {}", least.trim_start_matches('<')),
        most => format!("up to {most}"),
    };
    format!(
        "under the profiler, which slows the host up to 1.7 times: without it from {} {} {}, GPU busy {busy}, {same}",
        now.text(p.step_ns),
        now.unit,
        if v.step_ns > 0.0 { "a step" } else { "in all" },
    )
}

/// What is found, or why nothing can be said.
pub fn finding(a: &Analysis) -> Vec<String> {
    let v = &a.verdict;
    let mut all = v.facts.statements();
    if v.code != inconclusive::CODE {
        // (what kernels compute is not lost)
        if !is_computing(v.code) && ![mixed::CODE, small_kernels::CODE, fp32_matmul::CODE].contains(&v.code) {
            all.push(format!("{} costs {} of the time", v.cause, percent(v.share)));
        }
        all.extend(step(v));
        all.extend(replayed(a));
        all.extend(v.profiled.map(|p| under_the_profiler(v, &p)));
        all.extend(v.tied.map(|t| as_good(&t, v.step_ns)));
        all.extend(v.then.map(|(cause, share)| format!("then {cause} {}", percent(share))));
    }
    if a.steps.warm_up > 0 && a.steps.warm_up_ns as f64 > LONG_WARM_UP * a.coverage.seen_ns as f64 {
        let (steps, time) = (counted(a.steps.warm_up as u64, "step"), long(a.steps.warm_up_ns));
        all.push(format!("warm-up left out ({steps}, {time})"));
    }
    let told = a.once.iter().filter(|o| o.place != OncePlace::Before);
    let told = told.filter(|o| o.ns as f64 > LONG_ONCE * a.coverage.seen_ns as f64);
    all.extend(told.map(|once| format!("once {}", once.words())));
    all.extend(a.pauses.as_ref().map(|pauses| format!("between windows {}", pauses.words())));
    all
}

/// "44.8 -> about 21.1 ms a step (±3.1)".
fn step(v: &Verdict) -> Option<String> {
    let unit = Time::of(v.step_ns);
    let now = (v.step_ns > 0.0).then(|| unit.text(v.step_ns))?;
    Some(match v.promise {
        Some(promise) => {
            let (then, error) = (unit.text(promise.ns()), give_or_take(&unit, promise));
            format!("{now} -> about {then} {} a step ({error})", unit.unit)
        }
        None => format!("{now} {} a step", unit.unit),
    })
}

/// How far off a predicted step may be; "26 at most" where it may be off by more than it is: no
/// step takes less than nothing.
fn give_or_take(unit: &Time, promise: Promise) -> String {
    let (ns, error_ns) = (promise.ns(), promise.error_ns());
    match error_ns < ns {
        true => format!("±{}", unit.text(error_ns.max(unit.least()))),
        false => format!("{} at most", unit.text(ns + error_ns)),
    }
}

/// How well the replay that made the predictions gives the measured step back, of verdicts that
/// rest on it: "replay with nothing changed: +1.2 %".
pub fn replayed(a: &Analysis) -> Option<String> {
    let off = a.model.off().filter(|_| a.verdict.step_ns > 0.0)?;
    let said = format!("replay with nothing changed: {}", signed(off));
    match a.model.error() > MODEL_ERROR {
        true => Some(format!("{said}, so nothing is predicted")),
        false => a.verdict.promise.map(|_| said),
    }
}

/// A share with its sign, to a tenth of a percent: "-0.4 %"; no sign where it is less.
fn signed(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    match tenths == 0.0 {
        true => "0.0%".to_owned(),
        false => format!("{:+.1}%", tenths / 10.0),
    }
}

/// The cause that is as good as the named one. `step_ns`: the step now, whose unit its time is in.
fn as_good(t: &Tied, step_ns: f64) -> String {
    let more = if t.more_work { ", more work" } else { "" };
    let mut out = format!("worth as much{more}: {}", t.cause);
    if ![small_kernels::CODE, fp32_matmul::CODE].contains(&t.code) {
        let _ = write!(out, " {}", percent(t.share));
    }
    if let Some(promise) = t.promise {
        let unit = Time::of(step_ns);
        let _ = write!(
            out,
            " -> about {} {} ({})",
            unit.text(promise.ns()),
            unit.unit,
            give_or_take(&unit, promise)
        );
    }
    out
}

/// Steps and span that were seen.
pub fn seen(a: &Analysis) -> String {
    let c = &a.coverage;
    let mut out = match a.steps.source {
        StepSource::None => match &a.steps.parts {
            Some(p) => format!("no steps found ({})", parts(p)),
            None => "no steps found".to_owned(),
        },
        // of what came behind the last flush nobody knows, "15 of 15" would say that it was nothing
        _ if c.cut && c.steps_run <= c.steps_seen => {
            format!("{} seen before the recording was cut", counted(c.steps_seen, "step"))
        }
        _ if c.cut => format!("{} of at least {} steps seen", c.steps_seen, c.steps_run),
        _ if c.steps_unknown => format!("{} seen", counted(c.steps_seen, "step")),
        _ if c.steps_estimated => format!("{} of about {} steps seen", c.steps_seen, c.steps_run),
        _ => format!("{} of {} {} seen", c.steps_seen, c.steps_run, plural::of(c.steps_run, "step", "steps")),
    };
    if a.steps.are_few() {
        let parts = a.steps.parts.map_or(String::new(), |p| format!("; {}", parts(&p)));
        let _ = write!(out, " (too few to tell warm-up{parts})");
    }
    if a.steps.unplaced > 0 {
        let have = if a.steps.unplaced == 1 { "has" } else { "have" };
        let _ = write!(out, " ({} {have} no known begin or end on the GPU)", a.steps.unplaced);
    }
    if a.steps.may_be_parts {
        out.push_str(" (periods of the launches, perhaps parts of a step)");
    }
    if let Some(share) = a.steady_share().filter(|s| *s < MIN_STEADY_SHARE) {
        let _ = write!(out, ", steady steps are {} of the recorded {}", percent(share), long(c.seen_ns));
    }
    if c.front_ns as f64 > LONG_FRONT * c.run_ns as f64 {
        let _ = write!(out, ", the first {} without GPU work not counted", long(c.front_ns));
    }
    let part = c.run_ns > 0 && (c.seen_ns as f64) < 0.9 * c.run_ns as f64;
    if c.overwritten {
        let _ = write!(out, " (seen: last {} of {})", long(c.seen_ns), long(c.run_ns));
    } else if part || a.steps.source == StepSource::None {
        let _ = write!(out, " (seen: {} of {})", long(c.seen_ns), long(c.run_ns.max(c.seen_ns)));
    }
    match c.signal {
        Some(signal) if c.killed => {
            let _ = write!(out, ", the program was killed by signal {signal}");
        }
        _ if c.killed => {
            out.push_str(", the program ended without its exit handlers, or before they were done")
        }
        _ => {}
    }
    out
}

/// A period that is no step: "12 periods of 560 us, parts of a step".
fn parts(p: &Parts) -> String {
    format!("{} of {}, parts of a step", counted(p.count as u64, "period"), long(p.median_ns))
}

/// Events, kernels and calls that are known to be missing.
pub(crate) fn lost(run: &Run, a: &Analysis) -> u64 {
    let known = a.losses.iter().map(|l| l.1).fold(run.damaged_events(), u64::saturating_add);
    known.saturating_add(a.unanswered).saturating_add(run.uncalled.calls)
}

/// As [`lost`], without what left no event or call out (a recording file that could not be
/// written).
pub(crate) fn missing_records(run: &Run, a: &Analysis) -> u64 {
    let notes = a.losses.iter().filter(|l| l.0.severity() == Severity::Note).map(|l| l.1);
    lost(run, a).saturating_sub(notes.fold(0, u64::saturating_add))
}

/// How many are missing, and of which kind the most: `12 (host_ring_full)`.
pub fn losses(run: &Run, a: &Analysis) -> String {
    let (damaged, calls, total) = (run.damaged_events(), run.uncalled.calls, lost(run, a));
    match a.losses.iter().max_by_key(|l| l.1) {
        Some((loss, _)) => format!("{total} ({})", loss.key()),
        None if a.unanswered > damaged.max(calls) => format!("{total} (kernel records missing)"),
        None if calls > damaged => format!("{total} (launching calls missing)"),
        None if damaged > run.problems.damaged() => format!("up to {total} (damaged)"),
        None if damaged > 0 => format!("{total} (damaged)"),
        None if !run.missing.is_empty() => "of unknown number".to_owned(),
        None => "0".to_owned(),
    }
}

/// Cost with its interval, or the model's range; memory that CUPTI keeps, where it is more than the
/// recorder's own.
pub fn cost(c: &Cost) -> String {
    let kept = match c.kept_bytes {
        0..=MIN_KEPT_BYTES => String::new(),
        n => format!(" and up to {:.1} GB that CUPTI keeps", n as f64 / 1e9),
    };
    let [share, least, most] = [c.share, c.least, c.most].map(|share| share * 100.0);
    match c.measured {
        true => format!("{share:.1}% ({least:.1} to {most:.1}){kept}"),
        false if most == 0.0 => format!("0.0 %{kept}"),
        false if least < 0.5 || least.round() >= most.ceil() => {
            format!("at most {:.0}% (not measured){kept}", most.ceil())
        }
        false => format!("{least:.0} to {:.0}% (not measured){kept}", most.ceil()),
    }
}

/// Recording could not be switched on and off, though that was asked for.
pub(crate) fn has_no_windows(run: &Run) -> bool {
    let said = run.definitions.attributes().filter(|a| a.0 == define::WINDOWS).last();
    said.is_some_and(|a| [define::ENDED, define::UNSEEN, define::NO_STEPS].contains(&a.1))
}

/// Recording ended for good before the program did.
pub(crate) fn has_ended(run: &Run) -> bool {
    let said = run.definitions.attributes().filter(|a| a.0 == define::WINDOWS).last();
    said.is_some_and(|a| a.1 == define::ENDED)
}

/// What was asked for to keep the cost low, or to see a hang, and could not be had; empty where
/// nothing was.
fn not_possible(run: &Run) -> String {
    let names = [(define::WINDOWS, "no windows"), (define::FLIGHT, "no flight recorder")];
    let parts = [define::ENDED, define::UNSEEN, define::NO_STEPS].into_iter().filter_map(|value| {
        // (the last word counts: it may be told otherwise later)
        let has =
            |key| run.definitions.attributes().filter(|a| a.0 == key).last().is_some_and(|a| a.1 == value);
        let missing: Vec<&str> = names.into_iter().filter(|n| has(n.0)).map(|n| n.1).collect();
        let (_, why) = value.split_once(": ").filter(|_| !missing.is_empty())?;
        Some(format!("{}: {why}", missing.join(", ")))
    });
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" ({})", parts.join("; ")),
    }
}

/// Bytes: what the recorder itself may take, where `GAPPROBE_MAX_MB` is not set.
const MIN_KEPT_BYTES: u64 = 256 << 20;

pub(crate) fn percent(share: f64) -> String {
    let p = share * 100.0;
    match p {
        p if p > 0.0 && p < 1.0 => "<1%".to_owned(),
        // 99.7 % busy is not 100 %
        p if p > 99.0 && p < 100.0 => ">99%".to_owned(),
        p => format!("{p:.0}%"),
    }
}

/// A step's time with its unit: "6.0 ms".
pub(crate) fn step_time(ns: f64) -> String {
    let unit = Time::of(ns);
    format!("{} {}", unit.text(ns), unit.unit)
}

/// Step times in a unit that fits the measured one.
pub(crate) struct Time {
    pub(crate) unit: &'static str,
    ns: f64,
}

impl Time {
    pub(crate) fn of(ns: f64) -> Time {
        match ns {
            ns if ns >= 1e9 => Time { unit: "s", ns: 1e9 },
            ns if ns >= 1e5 => Time { unit: "ms", ns: 1e6 },
            _ => Time { unit: "us", ns: 1e3 },
        }
    }

    /// Three digits or one decimal.
    pub(crate) fn text(&self, ns: f64) -> String {
        let v = ns / self.ns;
        match v {
            v if v >= 100.0 => format!("{v:.0}"),
            v if v >= 1.0 => format!("{v:.1}"),
            _ => format!("{v:.2}"),
        }
    }

    /// The smallest ± that is printed.
    fn least(&self) -> f64 {
        self.ns / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Bound, Bucket, Buckets, Model, Win};

    #[test]
    fn how_far_the_replay_is_off_is_said_with_its_sign_where_something_rests_on_it() {
        let mut idle = Buckets::default();
        idle.add(Bucket::Sync, 1);
        let bound = Bound::idle(&idle, 1, &[Bucket::Sync]);
        let said = |replayed_ns: f64, promised_ns: Option<f64>| {
            let model = Model { measured_ns: 1e6, replayed_ns, ops: 1 };
            let win = |ns: f64| Win::within(1.0 - ns / 1e6, bound);
            let promise = promised_ns.and_then(|ns| Promise::new(1e6, win(ns), 0.0));
            let verdict = Verdict { step_ns: 1e6, promise, ..Verdict::default() };
            replayed(&Analysis { model, verdict, ..Analysis::default() })
        };
        let of = |percent: &str| Some(format!("replay with nothing changed: {percent}"));
        assert_eq!(said(0.996e6, Some(5e5)), of("-0.4%"));
        assert_eq!(said(1.0234e6, Some(5e5)), of("+2.3%"));
        // no sign of nothing
        assert_eq!((said(0.9997e6, Some(5e5)), said(1.0003e6, Some(5e5))), (of("0.0%"), of("0.0%")));
        assert_eq!(said(0.996e6, None), None, "nothing is predicted, and not because of that");
        assert_eq!(
            said((1.01 + MODEL_ERROR) * 1e6, None),
            of(&format!("+{:.1}%, so nothing is predicted", (MODEL_ERROR + 0.01) * 100.0))
        );
        assert_eq!(replayed(&Analysis::default()), None, "nothing was replayed");
    }
}

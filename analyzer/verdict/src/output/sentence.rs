// SPDX-License-Identifier: Apache-2.0
//! The line that people read, and the sentence that opens screen, page and trace: what the GPU did,
//! what it waited for, where, what to change, what that wins. At most [`MAX_CHARS`] characters;
//! what it rests on is said elsewhere (`line.rs`), and of that here the exceptions alone.

use trace::Total;

use crate::analysis::{
    working, Analysis, Bucket, Confidence, DeviceAnalysis, Facts, Figure, Often, StepSource, Verdict,
};
use crate::causes::{
    efficient, gpu_bound, inconclusive, is_computing, is_of_kernels, memory_growth, mixed, out_of_memory,
};
use crate::output::evidence;
use crate::output::line;
use crate::output::line::Time;
use crate::run::Run;
use crate::text::escape::visible;
use crate::text::plural;
use crate::text::plural::thousands;

/// Characters of the line in front of the trace's name, at most.
pub const MAX_CHARS: usize = 160;
/// Of a place in the program the last so many characters are shown: its line is at the end.
const MAX_PLACE_CHARS: usize = 44;
/// Recording is said to cost something from this share of the run on.
const MIN_COST: f64 = 0.05;
/// Seen is said to be a part of the run below this share of it.
const MAX_PART_SEEN: f64 = 0.5;

/// The line of a run, without a line feed. `trace`: where the trace file is, `None` where none was
/// written.
pub fn line(run: &Run, a: &Analysis, trace: Option<&str>) -> String {
    let mut out = format!("gapprobe: {}", sentence(run, a));
    if let Some(path) = trace {
        out.push_str(" Trace: ");
        out.push_str(path);
    }
    visible(&out).into_owned()
}

/// What is found, its code, and what is out of the ordinary.
pub fn sentence(run: &Run, a: &Analysis) -> String {
    let mut behind = format!(" [{}]", a.verdict.code);
    let room = MAX_CHARS - "gapprobe: ".len();
    for exception in exceptions(run, a) {
        // (what was found comes first: half of the line is its own)
        if behind.chars().count() + exception.chars().count() + 2 <= room / 2 {
            behind.push_str(", ");
            behind.push_str(&exception);
        }
    }
    let mut out = found(a, room - behind.chars().count());
    out.push_str(&behind);
    out
}

/// What is found, without its code; `None` where nothing can be said.
pub fn verdict(a: &Analysis) -> Option<String> {
    let v = &a.verdict;
    (v.code != inconclusive::CODE && !v.code.is_empty()).then(|| found(a, MAX_CHARS))
}

/// What is found in at most `room` characters: what can be done without is left out, figures and
/// folders first, what to change after them, last of all the end.
fn found(a: &Analysis, room: usize) -> String {
    let v = &a.verdict;
    let time = times(v);
    let place = v.site.as_ref().map(|s| shown(&s.place()));
    let file =
        place.as_deref().and_then(|p| p.rsplit('/').next()).map(|p| format!(" ({p})")).unwrap_or_default();
    let place = place.as_ref().map(|p| format!(" ({p})")).unwrap_or_default();
    let change = change(v).map(|c| format!("; {c}")).unwrap_or_default();
    let (what, bare) = (what(a, Some(&v.facts)), what(a, None));
    let ways = [
        format!("{what}{place}{change}{time}"),
        format!("{bare}{place}{change}{time}"),
        format!("{bare}{file}{change}{time}"),
        format!("{what}{place}{time}"),
        format!("{bare}{place}{time}"),
        format!("{bare}{time}"),
        bare.clone(),
    ];
    let fits = |way: &&String| way.chars().count() <= room;
    match ways.iter().find(fits) {
        Some(way) => way.clone(),
        None => cut(&bare, room),
    }
}

/// The whole clauses of a text that fit, where these are half of the room; else as much as fits.
fn cut(text: &str, room: usize) -> String {
    let begins = [": ", "; ", " ("].into_iter().flat_map(|clause| text.match_indices(clause));
    let clauses = begins.filter_map(|(at, _)| text.get(..at)).max_by_key(|whole| {
        let length = whole.chars().count();
        if length <= room {
            length
        } else {
            0
        }
    });
    match clauses.filter(|whole| (room / 2..=room).contains(&whole.chars().count())) {
        Some(whole) => whole.to_owned(),
        None => text.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// A place in the program, without the parameters of a function.
fn shown(place: &str) -> String {
    let parameters = place.find('(').zip(place.rfind(')')).filter(|(begin, end)| begin < end);
    let place = match parameters.and_then(|(begin, end)| place.get(..begin).zip(place.get(end + 1..))) {
        Some((before, behind)) => format!("{before}{behind}"),
        None => place.to_owned(),
    };
    let all = place.chars().count();
    match all <= MAX_PLACE_CHARS {
        true => place,
        false => ['…'].into_iter().chain(place.chars().skip(all - MAX_PLACE_CHARS + 1)).collect(),
    }
}

/// What the GPU did, and what it waited for, with the figures that are given.
fn what(a: &Analysis, figures: Option<&Facts>) -> String {
    let v = &a.verdict;
    let device = a.worst.and_then(|w| a.devices.get(w));
    let (Some(d), false) = (device, v.code == inconclusive::CODE) else {
        let why = v.why_inconclusive().unwrap_or_else(|| "nothing was recorded".to_owned());
        return format!("no verdict: {why}");
    };
    let sure = match v.confidence {
        Confidence::High => "",
        Confidence::Medium => "likely ",
        Confidence::Low => "maybe ",
    };
    let compute = d.buckets.share(Bucket::Compute);
    match v.code {
        // (the share is the time in which this GPU does not compute; else another one is busy)
        code if is_computing(code) && (v.share + compute - 1.0).abs() < 1e-9 => {
            let used = figures.and_then(|_| used(d)).unwrap_or_default();
            let well = if code == efficient::CODE { " and well used" } else { "" };
            let compute = percent(compute);
            format!("{}{sure}GPU-bound{well}: kernels run {compute} of the time{used}", of_several(a, d))
        }
        gpu_bound::CODE => format!("{sure}GPU-bound: GPU {} waits while another one computes", d.ordinal),
        mixed::CODE => {
            let part = |&(cause, share): &(&str, f64)| match share {
                0.0 => format!("then {cause}"), // (it would wait in the other's place)
                _ => format!("{cause} {}", percent(share)),
            };
            let parts = v.parts.iter().map(part);
            let parts = parts.collect::<Vec<_>>().join(", ");
            let all = if v.promise.is_some() { "together" } else { "no single fix wins 10%" };
            match parts.is_empty() {
                true => format!("{}: no single fix wins 10%", does(a, d)),
                false => format!("{}: {sure}{all}: {parts}", does(a, d)),
            }
        }
        _ => {
            // (of two causes the figures are too many)
            let why = match &v.tied {
                Some(t) => format!("{} or {}", filled(v.why, None), filled(t.why, None)),
                None => filled(v.why, figures),
            };
            format!("{}: {sure}{why}", does(a, d))
        }
    }
}

/// ", tensor cores 12%, memory bandwidth 81%", where its counters tell that.
fn used(d: &DeviceAnalysis) -> Option<String> {
    let counters = d.counters.as_ref()?.own()?;
    let (tensor, memory) = (percent(counters.tensor?), percent(counters.memory?));
    Some(format!(", tensor cores {tensor}, memory bandwidth {memory}"))
}

/// "GPU idle 62%", or how much it computes, where what is lost is no idle time.
fn does(a: &Analysis, d: &DeviceAnalysis) -> String {
    let (idle, compute) = (1.0 - d.busy_share(), d.buckets.share(Bucket::Compute));
    let gpu = match (a.devices.len(), working(&a.devices).count()) {
        (0 | 1, _) => "GPU".to_owned(),
        (_, 0 | 1) => format!("GPU {}", d.ordinal),
        (_, n) => format!("GPU {} of {n}", d.ordinal),
    };
    match idle * 2.0 >= 1.0 - compute {
        // (of kernels that do little the time is not idle)
        _ if is_of_kernels(a.verdict.code) => {
            format!("{gpu} busy {}", percent(d.busy_share()))
        }
        true => format!("{gpu} idle {}", percent(idle)),
        false => format!("{gpu} computes {} of the time", percent(compute)),
    }
}

/// "GPU 1 of 4: ", where there are several.
fn of_several(a: &Analysis, d: &DeviceAnalysis) -> String {
    match working(&a.devices).count() {
        0 | 1 => String::new(),
        n => format!("GPU {} of {n}: ", d.ordinal),
    }
}

/// Words of the line with what stands in brackets, where its figures are known; without it else.
fn filled(words: &str, figures: Option<&Facts>) -> String {
    let Some((before, rest)) = words.split_once('[') else { return words.to_owned() };
    let (inside, after) = rest.split_once(']').unwrap_or((rest, ""));
    let inside = figures.and_then(|facts| with_figures(inside, facts)).unwrap_or_default();
    format!("{before}{inside}{after}")
}

/// `None` where a figure is not known.
fn with_figures(words: &str, facts: &Facts) -> Option<String> {
    let (mut out, mut rest) = (String::new(), words);
    while let Some((before, name, after)) = evidence::next_figure(rest) {
        out.push_str(before);
        out.push_str(&short(facts.figure(name)?)?);
        rest = after;
    }
    Some(out + rest)
}

/// A figure as the line has it; `None` where it is no news.
fn short(figure: &Figure) -> Option<String> {
    Some(match figure {
        Figure::Count(n) => thousands(n),
        Figure::Often(Often::EveryStep) => "in every step".to_owned(),
        Figure::Often(Often::PerStep(n)) => format!("{n:.0}x per step"),
        Figure::Often(Often::EverySteps(n)) => format!("every {n} steps"),
        // (not alike in all of them: a mean)
        Figure::Often(Often::Among { times, steps }) => match *times as f64 / *steps as f64 {
            per if per >= 1.5 => format!("{per:.0}x per step"),
            per if per >= 0.8 => "in most steps".to_owned(),
            _ => return None,
        },
        Figure::Often(_) => return None,
        other => other.to_string(),
    })
}

/// What to change; nothing where two causes are as good, for their changes differ, nor where
/// nothing can be promised although a step is known.
fn change(v: &Verdict) -> Option<String> {
    let is_said = v.tied.is_none() && (v.promise.is_some() || v.step_ns == 0.0);
    (is_said && !v.advice.short.is_empty()).then(|| filled(v.advice.short, Some(&v.facts)))
}

/// ": 27.8 -> ~19.7 ms/step".
fn times(v: &Verdict) -> String {
    if v.step_ns <= 0.0 || v.code == inconclusive::CODE {
        return String::new();
    }
    let unit = Time::of(v.step_ns);
    let now = unit.text(v.step_ns);
    match v.promise {
        Some(p) => format!(": {now} -> ~{} {}/step", unit.text(p.ns()), unit.unit),
        None => format!(": {now} {}/step", unit.unit),
    }
}

/// What is not as usual, each in a few words, the worst first.
fn exceptions(run: &Run, a: &Analysis) -> Vec<String> {
    let (c, cost) = (&a.coverage, &a.cost);
    let mut found = Vec::new();
    if run.is_simulated() {
        found.push("SIMULATED".to_owned());
    }
    match line::missing_records(run, a) {
        0 if run.missing.is_empty() => {}
        0 => found.push("records are missing".to_owned()),
        n => found.push(format!("{} {} lost", thousands(n), plural::of(n, "record", "records"))),
    }
    match c.signal {
        Some(signal) if c.killed => found.push(format!("killed by signal {signal}")),
        _ if c.killed => found.push("ended without exit handlers".to_owned()),
        _ => {}
    }
    if a.unlike.is_some_and(|u| !u.far) {
        found.push("recorded steps are not typical".to_owned());
    }
    let has = |code: &str| a.findings.iter().any(|f| f.code == code);
    if has(out_of_memory::CODE) {
        found.push("ended out of memory".to_owned());
    }
    if has(memory_growth::CODE) {
        found.push("memory grows".to_owned());
    }
    if a.verdict.profiled.is_some() {
        found.push("host slowed by the profiler".to_owned());
    }
    if !run.foreign {
        if cost.measured && cost.share >= MIN_COST {
            found.push(format!("recording cost {}", percent(cost.share)));
        } else if cost.most >= MIN_COST {
            // not measured, or known to more than that only
            found.push(format!("recording cost up to {}", percent(cost.most)));
        }
        let in_windows = run.header.total(Total::Windows) > 0;
        let seen = match (a.steps.source, c.steps_run) {
            (StepSource::None, _) | (_, 0) => ("run", c.seen_ns as f64 / c.run_ns.max(1) as f64),
            (_, n) => ("steps", c.steps_seen as f64 / n as f64),
        };
        if (!in_windows || line::has_ended(run)) && seen.1 < MAX_PART_SEEN {
            found.push(format!("saw {} of the {}", percent(seen.1), seen.0));
        }
        if line::has_no_windows(run) {
            found.push("no recording windows".to_owned());
        }
    }
    found
}

fn percent(share: f64) -> String {
    line::percent(share).replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Advice, Bound, Buckets, Fact, Promise, Tied, Win};
    use crate::causes::{self, input_main, launch, sync};
    use crate::sites::Site;

    const MS: u64 = 1_000_000;

    fn why(code: &str) -> &'static str {
        causes::find(code).unwrap().why
    }

    /// One GPU that idles for 36 of 100 ms, and a verdict about it.
    fn found_of(code: &'static str, confidence: Confidence) -> Analysis {
        let mut buckets = Buckets::default();
        buckets.add(Bucket::Compute, 64 * MS);
        buckets.add(Bucket::Sync, 36 * MS);
        let bound = Bound::idle(&buckets, 100 * MS, &[Bucket::Sync]);
        let promise = Promise::new(27.8e6, Win::within(0.29, bound), 1e6);
        let site = Site { file: "train.py".into(), line: 17, ..Site::default() };
        let verdict = Verdict {
            code,
            why: why(code),
            advice: Advice::new("read values later[, num_workers={wanted}]", ""),
            confidence,
            step_ns: 27.8e6,
            promise,
            site: Some(site),
            share: 0.3,
            ..Verdict::default()
        };
        let device = DeviceAnalysis { buckets, wall_ns: 100 * MS, ops: 100, ..DeviceAnalysis::default() };
        Analysis { devices: vec![device], worst: Some(0), verdict, ..Analysis::default() }
    }

    /// Of which neither cost nor coverage is said.
    fn of_another_tool() -> Run {
        Run { foreign: true, ..Run::default() }
    }

    #[test]
    fn one_sentence_says_what_where_and_what_it_wins() {
        let a = found_of(sync::CODE, Confidence::High);
        let said = "GPU idle 36%: the host waits for the GPU (train.py:17); read values later: \
                    27.8 -> ~19.7 ms/step";
        assert_eq!(found(&a, MAX_CHARS), said);
        assert_eq!(sentence(&of_another_tool(), &a), format!("{said} [GP101]"));
    }

    #[test]
    fn what_is_not_sure_is_likely_or_maybe_and_two_causes_are_both_named() {
        let begins = |a: &Analysis| found(a, MAX_CHARS).split(" (").next().map(str::to_owned);
        let likely = found_of(launch::CODE, Confidence::Medium);
        assert_eq!(
            begins(&likely).as_deref(),
            Some("GPU idle 36%: likely launch-bound, kernels wait for the host")
        );
        let mut both = found_of(sync::CODE, Confidence::Low);
        both.verdict.tied = Some(Tied {
            code: input_main::CODE,
            cause: input_main::NAME,
            why: why(input_main::CODE),
            advice: Advice::default(),
            more_work: false,
            share: 0.3,
            promise: None,
        });
        let said = "GPU idle 36%: maybe the host waits for the GPU or data is loaded in the main process";
        assert_eq!(begins(&both).as_deref(), Some(said));
        assert!(!found(&both, MAX_CHARS).contains(';'), "what to change would be of one of them");
    }

    #[test]
    fn figures_are_said_where_they_are_known_and_news() {
        let mut a = found_of(launch::CODE, Confidence::High);
        let fact = Fact::new("{waiting} of {kernels}").with("waiting", 2089u64).with("kernels", 2172u64);
        a.verdict.facts = fact.with("wanted", 4u64).into();
        let said = found(&a, MAX_CHARS);
        assert!(
            said.starts_with("GPU idle 36%: launch-bound, 2,089 of 2,172 kernels wait for the host ("),
            "{said}"
        );
        assert!(said.contains("; read values later, num_workers=4: "), "{said}");
        let often = |often: Often| {
            let mut a = found_of(sync::CODE, Confidence::High);
            a.verdict.facts = Fact::new("{often}").with("often", often).into();
            found(&a, MAX_CHARS).split(" (").next().unwrap().to_owned()
        };
        assert_eq!(often(Often::PerStep(44.8)), "GPU idle 36%: the host waits for the GPU 45x per step");
        assert_eq!(often(Often::EverySteps(20)), "GPU idle 36%: the host waits for the GPU every 20 steps");
        assert_eq!(often(Often::Times(7)), "GPU idle 36%: the host waits for the GPU");
    }

    #[test]
    fn where_there_is_too_little_room_the_change_goes_then_the_place_then_the_end() {
        let a = found_of(sync::CODE, Confidence::High);
        assert!(!found(&a, 90).contains("read values later") && found(&a, 90).contains("train.py:17"));
        assert!(!found(&a, 70).contains("train.py:17") && found(&a, 70).ends_with(" ms/step"));
        let why = Fact::new("{why}").with("why", &*"x".repeat(400));
        let verdict = Verdict { code: inconclusive::CODE, inconclusive: Some(why), ..Verdict::default() };
        let said = sentence(&of_another_tool(), &Analysis { verdict, ..Analysis::default() });
        assert_eq!(said.chars().count(), MAX_CHARS - "gapprobe: ".len());
        assert!(said.ends_with("… [GP199]"), "{said}");
        let bare = found(&a, 70).split(": ").take(2).collect::<Vec<_>>().join(": ");
        assert_eq!(found(&a, bare.chars().count()), bare, "whole, where it fits alone");
        assert_eq!(cut("idle (another process?): work began late, often", 30), "idle (another process?)");
        assert_eq!(cut("idle (another process?): work began late, often", 12), "idle (anoth…");
    }

    #[test]
    fn of_a_long_place_the_end_is_shown_and_of_a_function_no_parameters() {
        assert_eq!(shown("train.py:88"), "train.py:88");
        assert_eq!(shown("step(int, float)+0x1c in libtrain.so"), "step+0x1c in libtrain.so");
        let long = shown(&format!("{}/train.py:88", "deep/".repeat(20)));
        assert!(long.starts_with('…') && long.ends_with("/train.py:88"), "{long}");
        assert_eq!(long.chars().count(), MAX_PLACE_CHARS);
    }
}

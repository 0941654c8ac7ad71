// SPDX-License-Identifier: Apache-2.0
//! The screen. About forty lines, as wide as the page is (`page.rs`); what would not fit is
//! counted.

use std::fmt::Write;

use verdict::analysis::{working, Analysis, Bucket, Counters, DeviceAnalysis, StepSource, Verdict};
use verdict::causes::lines::{Line, Lines};
use verdict::causes::{inconclusive, is_computing, is_of_kernels};
use verdict::output::chrome::document::first_time;
use verdict::output::line;
use verdict::output::sentence::sentence;
use verdict::run::Run;
use verdict::text::escape::{visible, word};
use verdict::text::plural;
use verdict::text::plural::counted;
use verdict::timeline::buckets::NOTICED_SHARE;

use super::page::{name, Page};
use super::rows::{Fields, Rows};
use super::{gauges, ncu, whence, Overview};
use crate::phases::{Phase, Phases};
use crate::tables::syncs::meanwhile;
use crate::terminal_width::{bytes, thousands};

/// Columns of a full bar.
const BAR: usize = 40;
/// Columns in front of a bar.
const BEFORE_BAR: usize = 38;
/// Buckets below this share are not drawn.
const DRAWN: f64 = 0.005;

/// The overview as text. `width`: columns of a line, at most; `None`: nobody says, then a hundred,
/// but for names, paths and commands.
pub fn screen(o: &Overview<'_>, width: Option<usize>) -> String {
    let a = o.source.analysis();
    let mut out = Page::new(width);
    let out = &mut out;
    head(out, o);
    verdict(out, &o.input.run, a);
    if let Some(d) = a.worst.and_then(|w| a.devices.get(w)) {
        bars(out, a, d);
        let said = gauges(&o.input.run, a);
        for sentence in &said {
            out.sentence("", sentence);
        }
        if !said.is_empty() {
            out.text.push('\n');
        }
    }
    steps(out, o, a);
    phases(out, o, a);
    gaps(out, o);
    kernels(out, o);
    calls(out, o);
    copies(out, o);
    foot(out, o, a);
    std::mem::take(&mut out.text)
}

fn head(out: &mut Page, o: &Overview<'_>) {
    let (run, a) = (&o.input.run, o.source.analysis());
    let names: Vec<&str> = run.devices.iter().filter_map(|d| run.definitions.string(d.info.name)).collect();
    let gpus = match (run.devices.len(), names.first()) {
        (1, Some(name)) => visible(name).into_owned(),
        (n, Some(name)) => format!("{n} GPUs, {}", visible(name)),
        (n, None) => format!("{n} GPU{}", if n == 1 { "" } else { "s" }),
    };
    let format = o.input.format.name();
    let events = format!("{} {}", thousands(o.input.events), plural::of(o.input.events, "event", "events"));
    let seen = time(a.coverage.seen_ns);
    out.line(&format!("{}: {format}, {events}, {gpus}, {seen} seen", visible(o.file)));
    out.text.push('\n');
}

fn verdict(out: &mut Page, run: &Run, a: &Analysis) {
    let v = &a.verdict;
    out.sentence("", &sentence(run, a));
    out.text.push('\n');
    let sure = if v.code == inconclusive::CODE { String::new() } else { format!(", {}", v.confidence.key()) };
    out.sentence("", &format!("Evidence [{}{sure}]", v.code));
    for said in line::finding(a) {
        out.sentence("  ", &said);
    }
    let callers = whence::callers(run, a);
    if !callers.is_empty() {
        out.sentence("  ", &format!("called from {}", visible(&callers.join(", "))));
    }
    if !v.advice.long.is_empty() {
        out.sentence("  ", &format!("to change: {}", v.advice.long));
    }
    if let Some(t) = v.tied.filter(|t| !t.advice.long.is_empty()) {
        out.sentence("  ", &format!("or ({}): {}", t.cause, t.advice.long));
    }
    out.text.push('\n');
}

/// The part of the screen that says where the time of the worst GPU goes; empty without one.
pub fn buckets(a: &Analysis, width: Option<usize>) -> String {
    let mut out = Page::new(width);
    if let Some(d) = a.worst.and_then(|w| a.devices.get(w)) {
        bars(&mut out, a, d);
    }
    out.text
}

fn bars(out: &mut Page, a: &Analysis, d: &DeviceAnalysis) {
    let steps = a.steps.steady().len().max(1) as f64;
    let per = if a.steps.source == StepSource::None { "in all" } else { "a step" };
    let gpu = match (a.devices.len(), working(&a.devices).count()) {
        (0 | 1, _) => "the GPU".to_owned(),
        (_, 0 | 1) => format!("GPU {}", d.ordinal),
        (_, n) => format!("GPU {} (the worst of {n})", d.ordinal),
    };
    let wall = time((d.wall_ns as f64 / steps) as u64);
    out.sentence("", &format!("Where the time of {gpu} goes ({wall} {per})"));
    let mut all: Vec<Bucket> = Bucket::ALL.to_vec();
    all.sort_by_key(|&b| (b.is_gap(), std::cmp::Reverse(d.buckets.get(b))));
    let mut rest = 0.0;
    for b in all {
        let share = d.buckets.share(b);
        if share < DRAWN {
            rest += share;
            continue;
        }
        let mark = if b.is_gap() { '░' } else { '█' };
        let ns = d.buckets.get(b) as f64 / steps;
        let _ = write!(out.text, "  {:<17}{:>5.1}%  {:>8}", words(b), share * 100.0, time(ns as u64));
        let room = BAR.min(out.room(BEFORE_BAR));
        if room > 0 {
            out.text.push_str("  ");
            let length = (share * room as f64).round().max(1.0) as usize;
            out.text.extend(std::iter::repeat_n(mark, length.min(room)));
        }
        out.text.push('\n');
    }
    if rest >= 0.0005 {
        let _ = writeln!(out.text, "  {:<17}{:>5.1}%", "less than 0.5%", rest * 100.0);
    }
    if let Some(rest) = line::not_counted(a) {
        out.sentence("  ", &rest);
    }
    out.text.push('\n');
}

/// A bucket for people; gaps say that the GPU is idle in them.
fn words(b: Bucket) -> String {
    let key = b.key().replace('_', " ");
    if b.is_gap() {
        format!("idle: {key}")
    } else {
        key
    }
}

fn steps(out: &mut Page, o: &Overview<'_>, a: &Analysis) {
    let steady = a.steps.steady();
    if steady.is_empty() {
        let parts = a.steps.parts.map_or(String::new(), |p| {
            format!(" ({} of {} are parts of one)", counted(p.count as u64, "period"), time(p.median_ns))
        });
        out.sentence("", &format!("Steps: none found{parts}; figures are shares of the whole time."));
        out.text.push('\n');
        return;
    }
    let mut times: Vec<u64> = steady.iter().map(|s| s.span.ns()).collect();
    times.sort_unstable();
    let p95 = times.get((times.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0);
    let micro = if a.steps.micro > 1 { format!(" of {} micro-steps", a.steps.micro) } else { String::new() };
    let warm = match a.steps.warm_up {
        _ if a.steps.are_few() => ", too few to tell warm-up".to_owned(),
        0 => String::new(),
        n => format!(", {n} of warm-up left out"),
    };
    let mut text = format!(
        "Steps: {}{micro} (by {}{warm}), mean {}, median {}, p95 {}",
        steady.len(),
        match a.steps.source {
            StepSource::Marks => "marks",
            StepSource::Ranges => "named ranges",
            _ if a.steps.may_be_parts => "the period of the launches, perhaps parts of a step",
            _ => "the period of the launches",
        },
        time(a.steps.mean_ns as u64),
        time(a.steps.median_ns),
        time(p95)
    );
    if let Some(p) = a.steps.parts {
        let (many, length) = (counted(p.count as u64, "period"), time(p.median_ns));
        let _ = write!(text, "; {many} of {length} in them are parts of a step");
    }
    if let Some(why) = slowest(o, a) {
        let _ = write!(text, "; {why}");
    }
    out.sentence("", &text);
    for once in &a.once {
        out.sentence("  ", &format!("once, in no share: {}", once.words()));
    }
    if let Some(pauses) = &a.pauses {
        out.sentence("  ", &format!("between windows, in no share: {}", pauses.words()));
    }
    out.text.push('\n');
}

/// Dataload, forward, backward, optimizer: how much of a step each has, what of it the GPU idles,
/// and how that is known.
fn phases(out: &mut Page, o: &Overview<'_>, a: &Analysis) {
    let Some(phases) = Phases::of(&o.input.run, a) else { return };
    let each = |ns: u64| time((ns as f64 / phases.steps.max(1) as f64) as u64);
    let part = |what: &str, ns: u64, idle: u64, counters: Option<Counters>| {
        let idle =
            if phases.share(idle) >= DRAWN { format!(", {} of it idle", each(idle)) } else { String::new() };
        let units = counters.map_or_else(String::new, |c| {
            let used = [(c.tensor, "tensor cores"), (c.memory, "memory bandwidth")];
            let said = |(share, name): (Option<f64>, &str)| Some(format!(", {name} {:.0}%", share? * 100.0));
            used.into_iter().filter_map(said).collect()
        });
        format!("{what} {:.0}% ({}{idle}{units})", phases.share(ns) * 100.0, each(ns))
    };
    let of = |p: &Phase| part(p.kind.key(), p.ns(), p.idle_ns, p.counters);
    let mut parts: Vec<String> = phases.parts.iter().map(of).collect();
    let other = &phases.other;
    if phases.share(other.ns()) >= DRAWN {
        parts.push(part("other", other.ns(), other.idle_ns, other.counters));
    }
    out.sentence("", &format!("Phases of a step: {}.", parts.join(", ")));
    out.sentence("  ", &format!("known by: {}.", phases.known_by()));
    for remark in &phases.remarks {
        out.sentence("  ", remark);
    }
    out.text.push('\n');
}

/// The slowest step against the median one: what it has more of.
fn slowest(o: &Overview<'_>, a: &Analysis) -> Option<String> {
    let ordinal = f64::from(a.worst.and_then(|w| a.devices.get(w))?.ordinal);
    let table = Rows::of(o.source, "steps")?;
    let mut rows: Vec<Fields<'_>> = table
        .iter()
        .filter(|r| r.number("device") == ordinal && !r.text("flags").contains("warm-up"))
        .collect();
    rows.sort_by(|x, y| x.number("step_ns").total_cmp(&y.number("step_ns")));
    let (usual, slow) = (rows.get((rows.len().checked_sub(1)?) / 2)?, rows.last()?);
    let more = slow.number("step_ns") - usual.number("step_ns");
    if more < usual.number("step_ns") * 0.1 {
        return None;
    }
    let part = |b: Bucket| {
        let key = format!("{}_ns", b.key());
        slow.number(&key) - usual.number(&key)
    };
    let most = Bucket::ALL.into_iter().max_by(|&x, &y| part(x).total_cmp(&part(y)))?;
    let (step, grown) = (slow.number("step"), part(most).max(0.0));
    Some(match grown > more {
        true => format!(
            "the slowest, step {step:.0}, takes {} more: {} more {}, less of the rest",
            time(more as u64),
            time(grown as u64),
            words(most)
        ),
        false => format!(
            "the slowest, step {step:.0}, takes {} more, {} of it {}",
            time(more as u64),
            time(grown as u64),
            words(most)
        ),
    })
}

fn gaps(out: &mut Page, o: &Overview<'_>) {
    let Some(table) = Rows::of(o.source, "gaps") else { return };
    let analysis = o.source.analysis();
    let (begin, counts) = (first_time(&o.input.run, analysis), &analysis.counts);
    let judged: Vec<f64> = working(&o.source.analysis().devices).map(|(_, d)| f64::from(d.ordinal)).collect();
    // of another tool's trace the longest of all: what lies outside of its steps is seen beside
    // them
    let whole = o.input.run.foreign;
    let counts = |r: &Fields<'_>| counts.contains((r.number("start_ns") as u64).saturating_add(begin));
    let inside = |r: &Fields<'_>| (whole || counts(r)) && judged.contains(&r.number("device"));
    out.section("Longest idle", table.iter().filter(inside).take(3), |r, most| {
        let call = match r.text("call") {
            "" => String::new(),
            call => format!(", {}", visible(call)),
        };
        let name = |key: &str| match r.text(key) {
            "" => "(nothing)".to_owned(),
            text => name(text, most),
        };
        let gpu = match judged.len() {
            0 | 1 => String::new(),
            _ => format!("GPU {}, ", r.number("device")),
        };
        let place = if counts(r) { "" } else { " (outside of the steps)" };
        format!(
            "{:>9}  {gpu}{}{call}: {} .. {}{place}",
            time(r.number("length_ns") as u64),
            r.text("cause"),
            name("before"),
            name("after")
        )
    });
}

fn kernels(out: &mut Page, o: &Overview<'_>) {
    let Some(table) = Rows::of(o.source, "cuda_gpu_kern_sum") else { return };
    let mut classes: Vec<(&str, f64)> = Vec::new();
    let mut all = 0.0;
    for r in table.iter() {
        let (class, ns) = (r.text("class"), r.number("total_ns"));
        all += ns;
        match classes.iter_mut().find(|c| c.0 == class) {
            Some(c) => c.1 += ns,
            None => classes.push((class, ns)),
        }
    }
    classes.sort_by(|x, y| y.1.total_cmp(&x.1));
    let part = |c: &(&str, f64)| format!("{} {:.0}%", c.0, c.1 * 100.0 / all.max(1.0));
    let title = format!(
        "Kernels, of all that was recorded ({})",
        classes.iter().take(4).map(part).collect::<Vec<_>>().join(", ")
    );
    out.section(&title, table.iter().take(4), |r, most| {
        format!(
            "{:>5.1}%  {:>7} x {:>9}  {}",
            r.number("time_pct"),
            thousands(r.number("instances") as u64),
            time(r.number("avg_ns") as u64),
            name(r.text("name"), most)
        )
    });
}

/// Calls that block: what they cost, and those that cost nothing.
fn calls(out: &mut Page, o: &Overview<'_>) {
    let Some(table) = Rows::of(o.source, "syncs") else { return };
    let lines = Lines::of(&o.input.run, o.source.analysis());
    let line = |n: usize| lines.lines.get(n).map(|l| l.site.to_string()).unwrap_or_default();
    let pair = lines.pair.as_ref().map(|pair| {
        let (one, other, win) = (line(pair.one), line(pair.other), pair.win * 100.0);
        format!("neither wins much alone: {one} and {other} together {win:.0}%")
    });
    let v = &o.source.analysis().verdict;
    let accused = v.site.as_ref().map(ToString::to_string);
    let is_accused = |r: &Fields<'_>| accused.as_deref() == Some(r.text("site"));
    let is_most_of_its_line = |r: &Fields<'_>| {
        let idle = r.number("idle_ns");
        let others = table.iter().filter(|o| o.text("site") == r.text("site"));
        idle > 0.0 && others.into_iter().all(|o| o.number("idle_ns") <= idle)
    };
    let row = |r: &Fields<'_>, most: usize| {
        let cost = match r.number("idle_ns") {
            0.0 => format!("costs 0: {}", meanwhile(o.source, r.text("name"), r.text("site"))),
            ns => {
                let whose = match o.input.run.devices.len() {
                    0 | 1 => String::new(),
                    n => format!(" of {n} GPUs together"),
                };
                let busy = match r.number("host_busy_ns") {
                    0.0 => String::new(),
                    busy => format!(" (the host is busy in {} of it)", time(busy as u64)),
                };
                let percent = r.number("idle_pct");
                format!("costs {}{whose}, {percent:.1}% of all idle time{busy}", time(ns as u64))
            }
        };
        let site = match r.text("site") {
            "" => String::new(),
            site => format!(" ({})", name(site, most)),
        };
        format!(
            "{}{site}: {} call{}, {} blocked, {cost}{}",
            name(r.text("name"), most),
            thousands(r.number("num_calls") as u64),
            if r.number("num_calls") == 1.0 { "" } else { "s" },
            time(r.number("blocked_ns") as u64),
            // (what the line wins is said once: where it costs most)
            if is_most_of_its_line(r) {
                alone(&lines, r.text("site"), is_accused(r).then_some(v))
            } else {
                String::new()
            }
        )
    };
    // the one that the line speaks of first, where it is among them: what was loaded once before
    // the first step may have cost more
    let mut rows: Vec<Fields<'_>> = table.iter().collect();
    rows.sort_by_key(|r| !is_accused(r));
    out.section_with(
        "Blocking calls, of all that was recorded",
        rows.into_iter().take(4),
        row,
        pair.as_deref(),
    );
}

/// What a line wins by itself, where that is worth a word. `accused`: the verdict, where it speaks
/// of this line; what it promises may be more than these calls' part (a checkpoint's writing, what
/// is allocated again), and then one figure is enough.
fn alone(lines: &Lines, site: &str, accused: Option<&Verdict>) -> String {
    let is = |l: &&Line| !site.is_empty() && l.site.to_string() == site;
    let promised = accused.and_then(|v| Some(1.0 - v.promise?.ns() / v.step_ns)).unwrap_or(0.0);
    let is_all = |l: &&Line| l.needed || l.win.is_none_or(|win| win >= promised * MOST_OF_A_PROMISE);
    match lines.lines.iter().find(is).filter(is_all) {
        Some(line) if line.needed => "; needed: overlap or batch it".to_owned(),
        Some(Line { site, win: Some(win), .. }) if *win >= NOTICED_SHARE => {
            format!("; this {} alone wins {:.0}%", site.word(), win * 100.0)
        }
        _ => String::new(),
    }
}

/// See [`alone`].
const MOST_OF_A_PROMISE: f64 = 0.8;

fn copies(out: &mut Page, o: &Overview<'_>) {
    let (Some(times), Some(sizes)) =
        (Rows::of(o.source, "cuda_gpu_mem_time_sum"), Rows::of(o.source, "cuda_gpu_mem_size_sum"))
    else {
        return;
    };
    out.section("Copies", times.iter().take(3), |r, _| {
        let name = r.text("operation");
        let size = sizes.iter().find(|s| s.text("operation") == name).map_or(0.0, |s| s.number("total_mb"));
        let rate = size * 1e6 / r.number("total_ns").max(1.0);
        format!(
            "{name}: {} x, {} in {} ({}/s)",
            thousands(r.number("count") as u64),
            bytes(size * 1e6),
            time(r.number("total_ns") as u64),
            bytes(rate * 1e9)
        )
    });
}

fn foot(out: &mut Page, o: &Overview<'_>, a: &Analysis) {
    let (run, v) = (&o.input.run, &a.verdict);
    let cost = if run.foreign { String::new() } else { format!("; cost {}", line::cost(&a.cost)) };
    out.sentence("", &format!("{}{cost}; losses {}.", capital(&line::seen(a)), line::losses(run, a)));
    if let Some(command) = ncu::command(o.source.run, a) {
        out.command(&format!("Next: {command}"));
    }
    let has_lines = || run.threads.iter().flat_map(|t| &t.calls).any(|c| c.site != 0);
    let kernels = || run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let has_operators = || kernels().any(|op| run.operator_of(op).is_some());
    let tables = match is_computing(v.code) || is_of_kernels(v.code) {
        false => "-r gaps -r syncs",
        true if has_lines() => "-r gpu_lines -r gpu_modules",
        true if has_operators() => "-r cuda_gpu_kern_sum -r gpu_ops",
        true => "-r cuda_gpu_kern_sum",
    };
    out.command(&format!("Next: gapprobe explain {}; gapprobe stats {} {tables}", v.code, word(o.file)));
}

/// A time in three digits: 284 us, 1.84 ms, 45.2 ms, 9.31 s.
fn time(ns: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let (size, unit) = units.into_iter().find(|u| ns as f64 >= u.0).unwrap_or((1.0, "ns"));
    match ns as f64 / size {
        x if x >= 100.0 || unit == "ns" => format!("{x:.0} {unit}"),
        x if x >= 10.0 => format!("{x:.1} {unit}"),
        x => format!("{x:.2} {unit}"),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

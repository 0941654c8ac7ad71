// SPDX-License-Identifier: Apache-2.0
//! The report and the line of a [`Comparison`]. Nothing is computed here.

use std::fmt::{Display, Write};

use verdict::analysis::Bucket;
use verdict::causes::{inconclusive, is_computing};
use verdict::text::escape::visible;
use verdict::text::plural;
use verdict::text::plural::counted;

use super::noise::{Estimate, RUN_GPU, RUN_HOST};
use super::work::{Change, Changed, Sameness, Work, MIN_SHARE_SAID};
use super::{unit, Comparison, Figure, Outcome, Side};
use crate::terminal_width;

/// Kernels named one by one, at most.
const NAMED: usize = 8;
/// Buckets below this share of both steps are left out of the table.
const SHOWN: f64 = 0.0005;

/// The report: both runs, what to know first, the step by bucket. Without the line. `most`:
/// columns, at most.
pub(super) fn report(c: &Comparison<'_>, run_noise: Option<f64>, most: Option<usize>) -> String {
    let mut out = String::new();
    for (letter, side) in [("A", c.a), ("B", c.b)] {
        let _ = writeln!(out, "{letter}  {}: {}", visible(&side.name), run(side));
    }
    for caution in &c.cautions {
        let _ = writeln!(out, "!  {}", visible(caution));
    }
    for remark in &c.remarks {
        let _ = writeln!(out, "   {}", visible(remark));
    }
    out.push_str(&kernels(c));
    if let Some(step) = &c.step {
        out.push('\n');
        out.push_str(&table(c, step, most));
        out.push_str(&match run_noise {
            _ if step.difference.band.is_none() => String::new(),
            Some(share) => {
                format!("±: 95% by the steps' spread, and {} from run to run (--run-noise)\n", percent(share))
            }
            None => format!(
                "±: 95% by the steps' spread, and from run to run {} of compute and copies, {} of the rest (--run-noise)\n",
                percent(RUN_GPU),
                percent(RUN_HOST)
            ),
        });
    }
    if let Some(scaling) = &c.scaling {
        let _ = writeln!(out, "\nscaling: {}", scaling.text());
    }
    terminal_width::lines(&out, most)
}

/// One line: what can be said, how far the step and its gaps moved, where the bottleneck is now.
pub(super) fn line(c: &Comparison<'_>) -> String {
    let mut out = String::from("gapprobe diff: ");
    let first = c.cautions.first().map_or("", String::as_str);
    out.push_str(&match c.outcome {
        Outcome::Inconclusive | Outcome::OtherSteps => format!("no claim, {first}. "),
        Outcome::OtherProfiler => {
            "no claim, one trace alone comes from a host that its profiler slowed. ".to_owned()
        }
        Outcome::NoSteps => "no claim, a run has no steps. ".to_owned(),
        Outcome::TooFewSteps => "no claim, too few steps for a band. ".to_owned(),
        _ if c.cautions.is_empty() => String::new(),
        _ => format!("{first}. "),
    });
    if let (Outcome::NoDifference, Some(step)) = (c.outcome, &c.step) {
        let _ = write!(
            out,
            "no difference beyond the noise: step {} -> {}",
            time(step.a.value),
            time(step.b.value)
        );
        let _ = write!(out, " ({}{}), ", change(&step.a, &step.b), band(step));
        let _ = write!(out, "gaps {} -> {} of it", percent(c.a.idle()), percent(c.b.idle()));
    } else {
        let _ = write!(out, "gaps {} -> {} of the ", percent(c.a.idle()), percent(c.b.idle()));
        match &c.step {
            Some(step) => {
                let _ = write!(out, "step, {} -> {}", time(step.a.value), time(step.b.value));
                if let Some(band) = step.difference.band {
                    let _ = write!(out, " (±{})", time(band));
                }
                out.push_str(&match c.outcome {
                    Outcome::Faster => format!(", {:.2}x faster", step.a.value / step.b.value),
                    Outcome::Slower => format!(", {:.2}x slower", step.b.value / step.a.value),
                    _ => String::new(),
                });
            }
            None => out.push_str("time"),
        }
        if let Some((bucket, figure)) = most(c) {
            let _ = write!(out, ", most of it {} ({})", self::bucket(bucket), signed(figure.difference.ns));
        }
    }
    if let Some(bottleneck) = bottleneck(c) {
        let _ = write!(out, "; {bottleneck}");
    }
    out.push('.');
    visible(&out).into_owned()
}

/// The bucket that moved most, the way the step went.
fn most<'a>(c: &'a Comparison<'_>) -> Option<(Bucket, &'a Figure)> {
    let way = match c.outcome {
        Outcome::Faster => -1.0,
        Outcome::Slower => 1.0,
        _ => return None,
    };
    let moved = c.buckets.iter().filter(|(_, f)| f.moved() && f.difference.ns * way > 0.0);
    moved.max_by(|x, y| (x.1.difference.ns * way).total_cmp(&(y.1.difference.ns * way))).map(|(b, f)| (*b, f))
}

/// The way out where kernels are not the same.
pub(super) const SAME_WORK: &str = " (a fix that changes kernels: --same-work)";

/// What became of the bottleneck. Runs that did other work, or may have, are two programs: what the
/// one waits for is neither still nor no longer there in the other.
fn bottleneck(c: &Comparison<'_>) -> Option<String> {
    let (a, b) = (&c.a.analysis.verdict, &c.b.analysis.verdict);
    if !c.same_work && !matches!(c.work.sameness, Sameness::Same | Sameness::Nearly) {
        return None;
    }
    if [a.code, b.code].contains(&inconclusive::CODE)
        || c.outcome == Outcome::NoDifference && a.code == b.code
    {
        return None;
    }
    let name = |code: &str, cause: &'static str| if is_computing(code) { "the GPU" } else { cause };
    Some(match a.code == b.code {
        true => format!("the bottleneck is still {}", name(b.code, b.cause)),
        false => format!("the bottleneck was {}, now {}", name(a.code, a.cause), name(b.code, b.cause)),
    })
}

/// A run in one line.
fn run(side: &Side<'_>) -> String {
    let v = &side.analysis.verdict;
    let mut out = match side.steps.len() {
        0 => "no steps found".to_owned(),
        n => format!(
            "{} ({}), mean {}, median {}",
            counted(n as u64, "step"),
            side.analysis.steps.source.key(),
            time(side.mean().value),
            time(side.median().value)
        ),
    };
    let _ = write!(out, "; {} {}", v.code, v.cause);
    let device = side.device.and_then(|d| side.analysis.devices.get(d));
    if let Some(device) = device.filter(|_| side.analysis.devices.len() > 1) {
        let _ = write!(out, "; GPU {} of {}", device.ordinal, side.analysis.devices.len());
    }
    out
}

/// Kernels that changed.
fn kernels(c: &Comparison<'_>) -> String {
    let all = |side: &Side<'_>| {
        side.all_kernels.values().map(|k| k.ns).sum::<u64>() as f64 / side.steps.len().max(1) as f64
    };
    let (a, b) = (all(c.a), all(c.b));
    let worth = |k: &&Changed| k.ns.0 > a * MIN_SHARE_SAID || k.ns.1 > b * MIN_SHARE_SAID;
    let named: Vec<&Changed> = c.work.changed.iter().filter(worth).take(NAMED).collect();
    let mut out = String::new();
    let unit = if c.step.is_some() { " a step" } else { "" };
    for k in &named {
        let (name, x, y) = (visible(&k.name), count(k.count.0), count(k.count.1));
        let _ = match k.change {
            Change::Appeared => writeln!(out, "   appeared: {name} ({y}{unit}, {})", time(k.ns.1)),
            Change::Vanished => writeln!(out, "   vanished: {name} ({x}{unit}, {})", time(k.ns.0)),
            Change::Count => {
                writeln!(out, "   {x} -> {y}{unit}: {name} ({} -> {})", time(k.ns.0), time(k.ns.1))
            }
            Change::Grid => writeln!(
                out,
                "   {} -> {} {}: {name} ({} -> {})",
                count(k.blocks.0),
                count(k.blocks.1),
                if k.blocks.1 == 1.0 { "block" } else { "blocks" },
                time(k.ns.0),
                time(k.ns.1)
            ),
        };
    }
    let more = c.work.changed.len() - named.len();
    if more > 0 {
        let _ = writeln!(out, "   {more} more {} changed", plural::of(more as u64, "kernel", "kernels"));
    }
    out
}

fn table(c: &Comparison<'_>, step: &Figure, most: Option<usize>) -> String {
    let mut rows: Vec<[String; 6]> =
        vec![["per step", "A", "B", "B - A", "", "share of the step"].map(str::to_owned)];
    let mut row = |name: &str, f: &Figure, share: String| {
        let verdict = match f.difference.band {
            None => String::new(),
            Some(band) if f.moved() => format!("±{}", time(band)),
            Some(band) => format!("±{} noise", time(band)),
        };
        rows.push([
            name.to_owned(),
            time(f.a.value),
            time(f.b.value),
            signed(f.difference.ns),
            verdict,
            share,
        ]);
    };
    row("step, mean", step, String::new());
    if let Some(median) = &c.median {
        row("step, median", median, String::new());
    }
    let shown = |f: &Figure| f.a.value > step.a.value * SHOWN || f.b.value > step.b.value * SHOWN;
    let of = |f: &Figure| {
        format!("{} -> {}", percent(f.a.value / step.a.value), percent(f.b.value / step.b.value))
    };
    for (bucket, f) in c.buckets.iter().filter(|(_, f)| shown(f)) {
        row(&self::bucket(*bucket), f, of(f));
    }
    if let Some(f) = c.not_seen.as_ref().filter(|f| shown(f)) {
        row("not seen", f, of(f));
    }
    let wanted = |column: usize| {
        let cells = || rows.iter().filter_map(move |r| r.get(column)).map(|s| s.chars().count());
        let (width, heading) = (cells().max().unwrap_or(0), cells().next().unwrap_or(0));
        terminal_width::Wanted { width, heading, text: column == 0, says: true, keep: column == 3, weight: 0 }
    };
    let wanted: Vec<terminal_width::Wanted> = (0..6).map(wanted).collect();
    // no gap behind the last column
    let widths = terminal_width::layout(&wanted, most.map(|m| m.saturating_add(2)));
    let mut out = String::new();
    for cells in &rows {
        let mut text = String::new();
        for (n, (cell, &w)) in cells.iter().zip(&widths).enumerate() {
            let Some(w) = w else { continue };
            let _ = match n {
                0 => write!(text, "{:<w$}  ", terminal_width::middle(cell, w)),
                4 | 5 => write!(text, "{cell:<w$}  "),
                _ => write!(text, "{cell:>w$}  "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// How much of the kernels' time is in common.
pub(super) fn common(work: &Work) -> String {
    let mut text = format!("{} of the kernels' time is in common", percent(work.common));
    if work.reshaped > 0.01 {
        text.push_str(&format!(", {} of it in grids of another size", percent(work.reshaped)));
    }
    text
}

/// That the comparison of the kernels was waived, and by how much they differ.
pub(super) fn waived(a: &Side<'_>, b: &Side<'_>, work: &Work) -> String {
    let mut text = "--same-work: kernels not compared; ".to_owned();
    match work.sameness {
        Sameness::Unknown => text.push_str(&work.why),
        _ => {
            let (x, y) = (count(a.kernels_a_step()), count(b.kernels_a_step()));
            text.push_str(&format!("{}, {x} -> {y} kernels a step", common(work)));
        }
    }
    if unit::bytes_differ(a, b) {
        text.push_str(&format!(", {}", from_host(a, b)));
    }
    text
}

/// What a step gets from the host in both.
pub(super) fn from_host(a: &Side<'_>, b: &Side<'_>) -> String {
    format!(
        "{} -> {} from the host a step",
        terminal_width::bytes(a.bytes_from_host),
        terminal_width::bytes(b.bytes_from_host)
    )
}

/// Key in words.
pub(super) fn bucket(bucket: Bucket) -> String {
    match bucket {
        Bucket::Compute | Bucket::Copy | Bucket::Comm => bucket.key().replace('_', " "),
        // a gap as on the why-idle track
        gap => gap.label().to_owned(),
    }
}

/// ", ±3 %": the band as a share of A's step.
fn band(step: &Figure) -> String {
    let share = step.difference.band.filter(|_| step.a.value > 0.0).map(|b| b / step.a.value);
    share.map_or_else(String::new, |s| format!(", ±{}", percent(s)))
}

/// "+3 %": how far a figure moved, as a share of A's.
pub(super) fn change(a: &Estimate, b: &Estimate) -> String {
    match a.value > 0.0 {
        true => signed_percent(b.value / a.value - 1.0),
        false => signed(b.value - a.value),
    }
}

/// With its sign, one decimal below 10 %.
pub(super) fn signed_percent(share: f64) -> String {
    let p = share * 100.0;
    match p.abs() {
        x if x < 0.05 => "±0%".to_owned(),
        x if x < 9.95 => format!("{p:+.1}%"),
        _ => format!("{p:+.0}%"),
    }
}

/// A share for people.
pub(super) fn percent(share: f64) -> String {
    let p = share * 100.0;
    match p {
        p if p <= 0.0 => "0%".to_owned(),
        p if p < 1.0 => "<1%".to_owned(),
        p if p > 99.0 && p < 100.0 => ">99%".to_owned(),
        p => format!("{p:.0}%"),
    }
}

/// Three digits and a unit.
pub(super) fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        x if x >= 1e9 => (ns / 1e9, "s"),
        x if x >= 1e5 => (ns / 1e6, "ms"),
        0.0 => return "0".to_owned(),
        _ => (ns / 1e3, "us"),
    };
    match value.abs() {
        x if x >= 99.95 => format!("{value:.0} {unit}"),
        x if x >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

fn signed(ns: f64) -> String {
    match ns {
        0.0 => "0".to_owned(),
        ns if ns > 0.0 => format!("+{}", time(ns)),
        ns => time(ns),
    }
}

/// Whole numbers as such, others with one decimal.
fn count(n: f64) -> impl Display {
    match (n - n.round()).abs() < 0.05 {
        true => format!("{n:.0}"),
        false => format!("{n:.1}"),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The table and the line of a [`Fleet`].

use std::borrow::Cow;
use std::fmt::Write;

use verdict::analysis::Bucket;
use verdict::causes::{comm, inconclusive};
use verdict::text::escape::visible;
use verdict::text::plural::counted;

use super::{Fleet, Rank};
use crate::terminal_width;
use crate::terminal_width::Wanted;

/// Key of the bucket in which kernels compute.
const COMPUTE: &str = Bucket::Compute.key();
/// Missing ranks named one by one, at most.
const NAMED: usize = 8;

/// One line: how many, how even, which is worst and why, where the time goes, what is missing. Of
/// separate runs: how many, from what step time to what, the one that idles most.
pub fn line(fleet: &Fleet) -> String {
    visible(&fleet.apart.map_or_else(|| job(fleet), |why| runs(fleet, why))).into_owned()
}

fn job(fleet: &Fleet) -> String {
    let mut out = format!("gapprobe: {} rank{}", fleet.ranks.len(), plural(fleet.ranks.len()));
    match fleet.steps() {
        Some((least, median, most)) => {
            let _ = write!(out, ", step {} ms (median; {} to {})", ms(median), ms(least), ms(most));
        }
        None => out.push_str(", no steps found"),
    }
    if let Some(worst) = fleet.worst.and_then(|w| fleet.ranks.get(w)) {
        let how = match fleet.stands_out {
            true => "slowest: ",
            false if fleet.ranks.len() > 1 => "even; most idle: ",
            false => "",
        };
        let _ = write!(out, "; {how}{}: ", named(&worst.name(), worst));
        match fleet.more().filter(|more| more.0 == COMPUTE || worst.code == comm::CODE) {
            Some((bucket, ns, others)) => {
                let (what, s) = match bucket {
                    COMPUTE => ("computes".to_owned(), ""),
                    _ => (format!("{} takes", words(bucket)), "'"),
                };
                let (ns, others) = (ms(ns), ms(others));
                let _ = write!(out, "{what} {ns} ms a step, the others{s} {others}: they wait for it");
            }
            None => out.push_str(&verdict(worst)),
        }
        if let (true, Some(own)) = (fleet.stands_out, worst.own_ns()) {
            let _ = write!(out, ", {} ms of its own a step", ms(own));
        }
    }
    if let Some(parts) = parts(fleet) {
        let _ = write!(out, ". All ranks: {parts}");
    }
    out.push('.');
    doubts(&mut out, fleet);
    if !fleet.missing.is_empty() {
        let named: Vec<String> = fleet.missing.iter().take(NAMED).map(u32::to_string).collect();
        let more = fleet.missing.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = write!(out, " No summary of rank{} {}{more}.", plural(fleet.missing.len()), named.join(", "));
    }
    if let [least, .., most] = fleet.worlds.as_slice() {
        let _ = write!(out, " World sizes from {least} to {most}: summaries of several jobs?");
    }
    out
}

fn runs(fleet: &Fleet, why: &str) -> String {
    let several = fleet.ranks.len() > 1;
    let mut out = format!("gapprobe: {}", counted(fleet.ranks.len() as u64, "run"));
    if several {
        let _ = write!(out, ", not the ranks of one job ({why})");
    }
    let _ = match fleet.steps() {
        Some((least, _, most)) if several => write!(out, ", steps from {} to {} ms", ms(least), ms(most)),
        Some((_, step, _)) => write!(out, ", step {} ms (median)", ms(step)),
        None => write!(out, ", no steps found"),
    };
    if let Some(worst) = fleet.worst.and_then(|w| fleet.ranks.get(w)) {
        let how = if several { "most idle: " } else { "" };
        let _ = write!(out, "; {how}{}: {}", named(&format!("process {}", worst.pid), worst), verdict(worst));
    }
    if let Some(parts) = parts(fleet).filter(|_| !several) {
        let _ = write!(out, ". Its time: {parts}");
    }
    out.push('.');
    doubts(&mut out, fleet);
    out
}

/// A rank or run of this name, and where it was.
fn named(name: &str, r: &Rank) -> String {
    let at = if r.host.is_empty() { String::new() } else { format!(" on {}", r.host) };
    format!("{name}{at}")
}

/// The first cell of a row; `apart`: of separate runs, where ranks alone tell nobody which.
fn who(r: &Rank, apart: bool) -> String {
    match r.rank {
        Some(rank) if !apart => rank.to_string(),
        Some(rank) if r.world_size > 1 => format!("pid {}, rank {rank}", r.pid),
        _ => format!("pid {}", r.pid),
    }
}

/// Where all the time goes, the largest parts.
fn parts(fleet: &Fleet) -> Option<String> {
    let buckets = fleet.buckets().into_iter().filter(|b| b.1 >= 0.01).take(4);
    let parts: Vec<String> =
        buckets.map(|(key, share)| format!("{} {:.0}%", words(&key), share * 100.0)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Adds how many are not to be relied on.
fn doubts(out: &mut String, fleet: &Fleet) {
    let unsure = fleet.ranks.iter().filter(|r| r.code == inconclusive::CODE).count();
    if unsure > 0 {
        let _ = write!(out, " {unsure} INCONCLUSIVE.");
    }
    let simulated = fleet.ranks.iter().filter(|r| r.simulated).count();
    if simulated > 0 {
        let _ = write!(out, " {simulated} SIMULATED.");
    }
    let killed = fleet.ranks.iter().filter(|r| r.killed).count();
    if killed > 0 {
        let _ = write!(
            out,
            " {killed} ended without exit handlers, or before they were done: what came last is not in it."
        );
    }
}

fn verdict(r: &Rank) -> String {
    match r.cause.as_str() {
        "" => "no verdict".to_owned(),
        "GPU-BOUND" | "EFFICIENT" | "INCONCLUSIVE" | "MIXED" | "SMALL-KERNELS" => {
            format!("{} ({})", r.cause, r.text)
        }
        cause => format!("{cause} costs {:.0}% ({})", r.share * 100.0, r.text),
    }
}

/// One row a rank or run, in lines of at most `most` columns (`None`: as wide as they are), and how
/// many columns are left out for that.
pub fn table(fleet: &Fleet, most: Option<usize>) -> (String, usize) {
    let apart = fleet.apart.is_some();
    let first = if apart { "run" } else { "rank" };
    let heads =
        [first, "host", "step ms", "p95 ms", "own ms", "busy %", "verdict", "costs %", "lost", "command"];
    // ranks have one command
    let heads = if apart { &heads[..] } else { &heads[..9] };
    let mut rows: Vec<Vec<String>> = vec![heads.iter().map(|&h| h.to_owned()).collect()];
    for (i, r) in fleet.ranks.iter().enumerate() {
        let time = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), ms);
        let mark = if fleet.worst == Some(i) { " <" } else { "" };
        let mut row = vec![
            who(r, apart),
            visible(&r.host).into_owned(),
            time(r.median_ns),
            time(r.p95_ns),
            time(r.own_ns()),
            format!("{:.0}", r.busy_share() * 100.0),
            format!("{}{mark}", visible(&r.cause)),
            format!("{:.0}", r.share * 100.0),
            r.losses.to_string(),
        ];
        row.extend(apart.then(|| visible(&r.command).into_owned()));
        rows.push(row);
    }
    // texts stand left, figures right; the verdict is the last to go
    let text = |n: usize| matches!(n, 1 | 6 | 9);
    let wanted: Vec<Wanted> = (0..heads.len())
        .map(|n| {
            let cells = || rows.iter().filter_map(|r| r.get(n));
            Wanted {
                width: cells().map(|c| terminal_width::width(c)).max().unwrap_or(0),
                heading: cells().next().map_or(0, |c| terminal_width::width(c)),
                text: text(n),
                says: cells().skip(1).any(|c| !matches!(c.as_str(), "" | "0" | "-")),
                keep: n == 6,
                weight: 0,
            }
        })
        .collect();
    let widths = terminal_width::layout(&wanted, most);
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        terminal_width::line(
            &mut out,
            cells.map(|(n, (cell, width))| (text(n), *width, Cow::Borrowed(cell.as_str()))),
        );
    }
    (out, widths.iter().filter(|w| w.is_none()).count())
}

fn words(key: &str) -> String {
    key.replace('_', " ")
}

fn ms(ns: f64) -> String {
    let ms = ns / 1e6;
    if ms >= 100.0 {
        format!("{ms:.0}")
    } else {
        format!("{ms:.1}")
    }
}

fn plural(n: usize) -> &'static str {
    if n == 1 {
        ""
    } else {
        "s"
    }
}

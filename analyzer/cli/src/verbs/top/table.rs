// SPDX-License-Identifier: Apache-2.0
//! `top` as a table: a row a process and GPU.

use cli::live::counted::{Counted, Hang};
use cli::live::{DeviceFigures, Figures};
use cli::terminal_width;
use cli::terminal_width::Wanted;
use verdict::analysis::{Bucket, Buckets};
use verdict::text::duration::long;

use super::program_lines;
use crate::verbs::rows::lay_out;
use crate::verbs::watched::Watched;

/// Figures that are older say so, ns.
const OLD: u64 = 60_000_000_000;

/// Shown of the time, in this order; what they share is all of it.
const PARTS: [(&str, &[Bucket]); 9] = [
    ("COMPUTE", &[Bucket::Compute]),
    ("COPY", &[Bucket::Copy, Bucket::CopyWait]),
    ("COMM", &[Bucket::Comm]),
    ("SYNC", &[Bucket::Sync]),
    ("LAUNCH", &[Bucket::Launch]),
    ("HOST", &[Bucket::Host]),
    ("INPUT", &[Bucket::Input]),
    ("ALLOC", &[Bucket::Alloc]),
    ("OTHER", &[Bucket::KernelGap, Bucket::DeviceWait, Bucket::Unexplained]),
];

/// A table laid out.
pub(super) struct Table {
    pub(super) lines: Vec<String>,
    /// Columns there are, and those that had room.
    pub(super) columns: usize,
    pub(super) shown: usize,
}

/// What the GPU's own counters say: its tensor cores at work, its memory bandwidth in use.
const USED: [&str; 2] = ["TENSOR %", "MEMORY %"];

/// The table; where its width is limited without the parts that nobody has, and then without what
/// says least. What a process does and why stays: step, busy, verdict. `lines`: below the rows of a
/// process those of the program.
pub(super) fn of(all: &[Watched], most: Option<usize>, lines: bool) -> Table {
    let parts: Vec<usize> = (0..PARTS.len())
        .filter(|&p| {
            let has = |d: &DeviceFigures| part(&d.buckets, p) >= 0.005;
            most.is_none() || all.iter().flat_map(|w| &w.figures).flat_map(|f| &f.devices).any(has)
        })
        .collect();
    let shown = &parts;
    let mut headings = vec!["PID", "RANK", "GPU", "STEP ms", "P90 ms", "STEPS", "BUSY %"];
    headings.extend(shown.iter().map(|&p| PARTS[p].0));
    let used = all.iter().flat_map(|w| &w.figures).flat_map(|f| &f.devices).any(|d| d.counters.is_some());
    if used {
        headings.extend(USED);
    }
    let counts = all.iter().any(|w| w.counted().is_some_and(|c| c.between.is_some()));
    headings.extend(["COST %", "LOSSES", "SEEN"]);
    headings.extend(counts.then_some("COUNTED"));
    headings.extend(["RECORDING", "VERDICT", "PROGRAM"]);
    let mut rows = vec![headings.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let mut ends = Vec::new();
    for w in all {
        match w.figures.as_ref().map(|f| (f, f.devices.as_slice())) {
            Some((f, [])) => rows.push(row(w, Some(f), None, (shown, used, counts))),
            Some((f, devices)) => {
                rows.extend(devices.iter().map(|d| row(w, Some(f), Some(d), (shown, used, counts))))
            }
            None => rows.push(row(w, None, None, (shown, used, counts))),
        }
        ends.push(rows.len());
    }
    let columns = rows.first().map_or(0, Vec::len);
    if let Some(most) = most {
        let several = all.iter().flat_map(|w| &w.figures).any(|f| f.devices.len() > 1);
        rows = fitting(&rows, several, most);
    }
    let is_text =
        |heading: &String| ["COUNTED", "RECORDING", "VERDICT", "PROGRAM"].contains(&heading.as_str());
    let headings = rows.first().map_or(&[][..], Vec::as_slice);
    let texts: Vec<usize> = headings.iter().enumerate().filter(|(_, h)| is_text(h)).map(|(n, _)| n).collect();
    let shown = headings.len();
    let mut laid_out = lay_out(&rows, &texts, None);
    if lines {
        for (w, end) in all.iter().zip(ends).rev() {
            laid_out.splice(end..end, program_lines::texts(w, most));
        }
    }
    Table { lines: laid_out, columns, shown }
}

/// The columns that fit, headings first, their texts shortened. `several`: a process has more than
/// one GPU, and its rows differ by that.
fn fitting(rows: &[Vec<String>], several: bool, most: usize) -> Vec<Vec<String>> {
    let Some((headings, cells)) = rows.split_first() else { return Vec::new() };
    let wanted = headings.iter().enumerate().map(|(n, heading)| {
        let column = || cells.iter().filter_map(move |row| row.get(n)).map(String::as_str);
        let heading_width = terminal_width::width(heading);
        let is_part = PARTS.iter().any(|p| p.0 == heading);
        Wanted {
            width: column().map(terminal_width::width).max().unwrap_or(0).max(heading_width),
            heading: heading_width,
            // a verdict is not shortened: LAUNCH and LAUNCH-OPTIMIZER are two
            text: matches!(heading.as_str(), "COUNTED" | "RECORDING" | "PROGRAM"),
            says: column().any(|cell| !matches!(cell, "" | "-" | "0" | "0.00" | "on")),
            keep: matches!(heading.as_str(), "STEP ms" | "BUSY %" | "VERDICT") || several && heading == "GPU",
            weight: match heading.as_str() {
                "RANK" | "GPU" => u128::MAX, // behind the parts
                _ if is_part => column().filter_map(|cell| cell.parse::<u128>().ok()).sum(),
                _ => 0,
            },
        }
    });
    // no gap in front of the first column
    let widths = terminal_width::layout(&wanted.collect::<Vec<_>>(), Some(most.saturating_add(2)));
    let shortened = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        cells.filter_map(|(cell, width)| Some(terminal_width::middle(cell, (*width)?).into_owned())).collect()
    };
    rows.iter().map(shortened).collect()
}

fn row(
    w: &Watched,
    f: Option<&Figures>,
    d: Option<&DeviceFigures>,
    (shown, used, counts): (&[usize], bool, bool),
) -> Vec<String> {
    let counted = w.counted();
    let dash = || "-".to_owned();
    let ms = |ns: Option<u64>| ns.map_or_else(dash, |ns| format!("{:.2}", ns as f64 / 1e6));
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let has_time = |d: &&DeviceFigures| d.buckets.total() > 0;
    let mut row = vec![
        w.process.header.pid.to_string(),
        w.process.rank(),
        d.map_or_else(dash, |d| d.ordinal.to_string()),
        ms(f.and_then(|f| f.step_ns)),
        ms(f.and_then(|f| f.p90_ns)),
        f.map_or_else(dash, |f| f.steps.to_string()),
        d.filter(has_time).map_or_else(dash, |d| percent(d.busy)),
    ];
    let parts = shown.iter().map(|&p| d.filter(has_time).map_or_else(dash, |d| percent(part(&d.buckets, p))));
    row.extend(parts);
    if used {
        let counters = d.and_then(|d| d.counters);
        let shares = [counters.and_then(|c| c.tensor), counters.and_then(|c| c.memory)];
        row.extend(shares.map(|share| share.map_or_else(dash, percent)));
    }
    row.extend([
        f.map_or_else(dash, |f| format!("{:.2}", f.cost.share * 100.0)),
        w.process.losses().to_string(),
        f.map_or_else(dash, |f| long(f.seen_ns)),
    ]);
    row.extend(counts.then(|| counted.and_then(|c| between(&c)).unwrap_or_else(dash)));
    row.extend([
        standing(w, counted.and_then(|c| c.hang)),
        f.map_or_else(dash, |f| match f.lost {
            Some(lost) => format!("{} {}%", f.verdict.1, percent(lost)),
            None => f.verdict.1.to_owned(),
        }),
        w.process.program(),
    ]);
    row
}

/// What is counted between windows: "3.21 ms a step, 0.80 in syncs".
fn between(c: &Counted) -> Option<String> {
    c.between?;
    let ms = |ns: u64| ns as f64 / 1e6;
    c.step_ns.map(|ns| format!("{:.2} ms a step, {:.2} in syncs", ms(ns), ms(c.sync_ns)))
}

/// How its recording stands, and from when the figures are: "off, figures 12 min old".
fn standing(w: &Watched, hang: Option<Hang>) -> String {
    let mut text = match hang {
        Some(hang) => hung(hang),
        None => w.process.standing().word().to_owned(),
    };
    if w.process.age() > OLD {
        text.push_str(&format!(", figures {} old", long(w.process.age())));
    }
    text
}

fn hung(hang: Hang) -> String {
    let call = hang.call.map_or(String::new(), |name| format!(" in {name}"));
    format!("hung for {}{call}", long(hang.ns))
}

fn part(buckets: &Buckets, part: usize) -> f64 {
    PARTS[part].1.iter().map(|&b| buckets.share(b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_all_of_the_time_each_once() {
        let mut buckets = Buckets::default();
        for (n, &b) in Bucket::ALL.iter().enumerate() {
            buckets.add(b, 1 << n);
        }
        let all: f64 = (0..PARTS.len()).map(|p| part(&buckets, p)).sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        assert_eq!(PARTS.iter().map(|p| p.1.len()).sum::<usize>(), Bucket::COUNT);
    }
}

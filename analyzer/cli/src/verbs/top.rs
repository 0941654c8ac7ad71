// SPDX-License-Identifier: Apache-2.0
//! `gapprobe top`: what the recorded processes do, again and again, in the terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use cli::live::counted::{Counted, Hang};
use cli::live::{DeviceFigures, Figures};
use cli::terminal_width;
use cli::terminal_width::Wanted;
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{self, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use serde_json::json;
use verdict::analysis::{Bucket, Buckets};
use verdict::text::duration::long;
use verdict::text::escape::visible;
use verdict::text::plural::counted;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::rows::lay_out;
use crate::verbs::watched::{Watch, Watched};
use crate::verbs::width::Width;
use crate::verbs::{figures, living, process, talk};
use crate::Outcome;

mod json;
mod program_lines;

/// Version of the keys of `--json`.
const TOP_VERSION: u32 = 1;

/// Figures that are older say so, ns.
const OLD: u64 = 60_000_000_000;

const EXAMPLES: &str = "\
Examples:
  gapprobe top                         every 2 seconds, until q
  gapprobe top --once                  one table, for scripts
  gapprobe top --once --json | jq .rows[].step_ns
  gapprobe top --last 30s --every 5s   figures of the last 30 seconds
  gapprobe top --lines                 and the lines of your program that the GPUs work for";

/// Watch your recorded processes: step time, how busy the GPUs are, why idle
///
/// A row a process and GPU. STEP and P90 are the median and the 90th percentile of its last steps.
/// BUSY is the time in which anything ran on the GPU; COMPUTE to OTHER is where all of the time
/// went, and sums up to 100 %. COST is what recording adds to the steps looked at, a share of them,
/// or of the whole run where that cannot be told: an estimate. SEEN is what the figures rest on: of
/// a program with very many launches less than was asked for. Of a process that records in windows
/// COUNTED is what it counts between them: the median of its steps now, and of it the time in
/// synchronizing calls (of all threads). One that did nothing for 20 steps and ten seconds is said
/// to be hung, and in what call a thread waits. RECORDING is as in gapprobe ps, with the age of
/// figures of more than a minute ago. What cannot be said is a dash. Where the lines are too short
/// for all columns, those that say least are left out.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// One table, then end (also where the output goes elsewhere than to a terminal)
    #[arg(long)]
    once: bool,
    /// Print one JSON object, then end
    #[arg(long, requires = "once")]
    json: bool,
    /// Figures of the last so many seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = figures::time)]
    last: Duration,
    /// Between two looks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = figures::time)]
    every: Duration,
    /// Below each process the lines of the program that its GPUs work for most, with their modules
    /// of PyTorch's: shares of the time of its GPU operations, as in gapprobe stats -r gpu_lines;
    /// what has no line is unattributed
    #[arg(long)]
    lines: bool,
    #[command(flatten)]
    width: Width,
}

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

/// One table, or one after the other until the user ends it.
pub(crate) fn run(args: &Args) -> Outcome {
    process::give_way();
    let mut watch = if args.lines { Watch::with_lines() } else { Watch::default() };
    // (keys come from the same terminal)
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let all = watch.look(args.last, true)?;
        if args.json {
            let rows = all.iter().flat_map(|w| json::objects(w, args.lines)).collect::<Vec<_>>();
            talk::print_json(format!("{:#}", json!({"top_version": TOP_VERSION, "rows": rows})))?;
        } else if !all.is_empty() {
            let table = table(&all, args.width.most(), args.lines);
            talk::print(table.lines.join("\n"))?;
            if table.shown < table.columns {
                let (shown, all) = (table.shown, table.columns);
                talk::say(format!("gapprobe: top: {shown} of {all} columns; --width 0 prints all"));
            }
        }
        return match all.is_empty() {
            true if args.json => Ok(Exit::NotRecorded),
            true => Err(living::nobody()),
            false => Ok(Exit::Ok),
        };
    }
    process::end_when_asked(); // the terminal is given back as it was
    let screen = Screen::new().map_err(|e| Failure::new(Exit::Problem, format!("the terminal: {e}")))?;
    let ended = watching(args, &mut watch);
    drop(screen);
    ended.map(|()| Exit::Ok)
}

fn watching(args: &Args, watch: &mut Watch) -> Result<(), Failure> {
    loop {
        let all = watch.look(args.last, false)?;
        let drawn = Instant::now();
        draw(&all, args).map_err(|e| Failure::new(Exit::Problem, format!("the terminal: {e}")))?;
        // at most a quarter of a CPU for looking on
        let pause = args.every.max(watch.took * 3);
        while drawn.elapsed() < pause {
            match asked(pause.saturating_sub(drawn.elapsed())) {
                Asked::End => return Ok(()),
                Asked::Again => {
                    draw(&all, args)
                        .map_err(|e| Failure::new(Exit::Problem, format!("the terminal: {e}")))?;
                }
                Asked::Nothing => {}
            }
        }
    }
}

enum Asked {
    End,
    Again,
    Nothing,
}

/// Between two looks whether a signal came.
const SIGNALS: Duration = Duration::from_millis(200);

/// What the user asks for, if that comes in time.
fn asked(within: Duration) -> Asked {
    if process::was_asked_to_end() {
        return Asked::End;
    }
    match event::poll(within.min(SIGNALS)) {
        Ok(true) => {}
        Ok(false) => return Asked::Nothing,
        Err(_) => return Asked::End, // the terminal is gone
    }
    match event::read() {
        Ok(Event::Key(key)) => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => Asked::End,
                KeyCode::Char('c' | 'd') if control => Asked::End,
                _ => Asked::Nothing,
            }
        }
        Ok(Event::Resize(..)) => Asked::Again,
        Ok(_) => Asked::Nothing,
        Err(_) => Asked::End, // as above
    }
}

/// The terminal as it was comes back with the end of this.
struct Screen;

impl Screen {
    fn new() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        // from now on another size is an event, also one that comes while the first frame is drawn
        event::poll(Duration::ZERO)?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide, terminal::DisableLineWrap)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // nobody can be told where that fails
        let _ = execute!(io::stdout(), terminal::EnableLineWrap, cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Draws over what is there, in one write: nothing is seen half drawn.
fn draw(all: &[Watched], args: &Args) -> io::Result<()> {
    let (columns, rows) = terminal::size().unwrap_or((80, 24));
    let processes = counted(all.len() as u64, "process");
    let mut title = format!("gapprobe top: {processes}, the last {} s; q ends", args.last.as_secs_f64());
    let table = match all {
        [] => vec!["no process of yours is recorded now".to_owned()],
        all => {
            let most = args.width.told().unwrap_or(usize::MAX).min(columns.into());
            let table = table(all, Some(most), args.lines);
            if table.shown < table.columns {
                title.push_str(&format!("; {} of {} columns", table.shown, table.columns));
            }
            table.lines
        }
    };
    // below the title, an empty line and the headings
    let (there, room) = (table.len().saturating_sub(1), usize::from(rows).saturating_sub(3));
    if there > room {
        title.push_str(&format!("; {room} of {there} rows"));
    }
    let lines = [title, String::new()].into_iter().chain(table);
    let mut frame = Vec::new();
    queue!(frame, terminal::BeginSynchronizedUpdate)?;
    let mut below = 0;
    for (row, line) in (0..rows).zip(lines) {
        let line = visible(&line).chars().take(usize::from(columns)).collect::<String>();
        // (behind a line that fills the row the cursor stands on its last character)
        let fills = terminal_width::width(&line) >= columns.into();
        queue!(frame, cursor::MoveTo(0, row), Print(line))?;
        if !fills {
            queue!(frame, terminal::Clear(ClearType::UntilNewLine))?;
        }
        below = row + 1;
    }
    if below < rows {
        queue!(frame, cursor::MoveTo(0, below), terminal::Clear(ClearType::FromCursorDown))?;
    }
    queue!(frame, terminal::EndSynchronizedUpdate)?;
    let mut out = io::stdout().lock();
    out.write_all(&frame)?;
    out.flush()
}

/// A table laid out.
struct Table {
    lines: Vec<String>,
    /// Columns there are, and those that had room.
    columns: usize,
    shown: usize,
}

/// What the GPU's own counters say: its tensor cores at work, its memory bandwidth in use.
const USED: [&str; 2] = ["TENSOR %", "MEMORY %"];

/// The table; where its width is limited without the parts that nobody has, and then without what
/// says least. What a process does and why stays: step, busy, verdict. `lines`: below the rows of a
/// process those of the program.
fn table(all: &[Watched], most: Option<usize>, lines: bool) -> Table {
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

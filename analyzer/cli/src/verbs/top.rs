// SPDX-License-Identifier: Apache-2.0
//! `gapprobe top`: what the recorded processes do, again and again, in the terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use cli::terminal_width;
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{self, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use serde_json::json;
use verdict::text::escape::visible;
use verdict::text::plural::counted;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::watched::{Watch, Watched};
use crate::verbs::width::Width;
use crate::verbs::{figures, living, process, talk};
use crate::Outcome;

mod json;
mod program_lines;
mod table;

/// Version of the keys of `--json`.
const TOP_VERSION: u32 = 1;

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
/// went, and sums up to 100 %. TENSOR and MEMORY, where a GPU has counters for it, are how busy its
/// tensor cores were, and how much of its memory bandwidth was used. COST is what recording adds to
/// the steps looked at, a share of them, or of the whole run where that cannot be told: an
/// estimate. SEEN is what the figures rest on: of a program with very many launches less than was
/// asked for. Of a process that records in windows
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
            let table = table::of(&all, args.width.most(), args.lines);
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
            let table = table::of(all, Some(most), args.lines);
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

// SPDX-License-Identifier: Apache-2.0
//! `gapprobe analyze`: any trace on one screen.

use std::io::{self, Write};
use std::path::PathBuf;

use cli::overview;
use cli::overview::Overview;
use cli::tables;
use cli::tables::{hta, NameStyle, Source};
use serde_json::{json, Value};
use verdict::causes::inconclusive;

use crate::verbs::exit::Exit;
use crate::verbs::width::Width;
use crate::verbs::{input, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe analyze trace.json.gz               why was the GPU idle, on one screen
  gapprobe analyze trace.json.gz --line        in one line
  gapprobe analyze trace.json.gz --json | jq .verdict
  gapprobe analyze rank*.json.gz --line        several, a line each
  gapprobe analyze trace.json.gz --hta         with the figures of Holistic Trace Analysis";

/// Why was the GPU idle? Verdict, time by cause, steps, gaps, kernels, blocking calls
///
/// FILE is a recording (.gpr), or a trace of torch.profiler (Chrome JSON), nsys (SQLite) or
/// gapprobe, also compressed by gzip; what it is, its content tells.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Traces
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// One JSON object a file instead
    #[arg(long, conflicts_with = "line")]
    json: bool,
    /// Only the line
    #[arg(long)]
    line: bool,
    /// Also each stream's idle time as Holistic Trace Analysis sorts it (host_wait, kernel_wait,
    /// other), beside our causes
    ///
    /// HTA Idle, Ratio and Intervals are what HTA 0.5.0 prints for the file, its 30 µs rule and its
    /// faults included: times rounded inward to whole µs, without the last ProfilerStep and what
    /// has no call in the file, overlaps as negative time, equal stream numbers of several devices
    /// as one. Time and Intervals are the same rule, exactly, over everything; the columns behind
    /// them split that Time by our causes. More: docs/hta.md.
    #[arg(long, conflicts_with = "line")]
    hta: bool,
    #[command(flatten)]
    width: Width,
    /// End with 5 where a verdict is INCONCLUSIVE
    #[arg(long)]
    strict: bool,
}

/// Prints each file. One that cannot be read is named, the others are printed all the same.
pub(crate) fn run(args: &Args) -> Outcome {
    let (mut unread, mut unsure) = (None, false);
    for (n, path) in args.files.iter().enumerate() {
        let input = match input::open(path) {
            Ok(input) => input,
            Err(failure) if args.files.len() == 1 => return Err(failure),
            Err(failure) => {
                talk::fail(&failure);
                unread = Some(failure.exit);
                continue;
            }
        };
        let source = Source::new(&input.run, NameStyle::Short);
        let a = source.analysis();
        unsure |= a.verdict.code == inconclusive::CODE;
        let file = path.display().to_string();
        let overview = Overview { file: &file, input: &input, source: &source };
        if args.json {
            let mut all = overview::json(&overview);
            if let Some(keys) = all.as_object_mut().filter(|_| args.hta) {
                keys.insert("hta".to_owned(), hta_json(&source));
            }
            talk::print_json(format!("{all:#}"))?;
        } else if args.line {
            talk::print(verdict::output::sentence::line(&input.run, a, Some(&file)))?;
        } else {
            let rule = if n > 0 { "\n" } else { "" };
            talk::print(format!("{rule}{}", overview::screen(&overview, args.width.most()).trim_end()))?;
            if args.hta {
                talk::to_stdout(|out| hta_table(&source, args.width.most(), out))?;
            }
        }
    }
    Ok(match unread {
        Some(exit) => exit,
        None if unsure && args.strict => Exit::Inconclusive,
        None => Exit::Ok,
    })
}

/// The table below the screen; what did not fit is counted.
fn hta_table(source: &Source<'_>, most: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let table = hta::REPORT.table(source);
    if table.rows.is_empty() {
        talk::say(format!("gapprobe: hta: not in this trace: no {}", hta::REPORT.needs));
        return Ok(());
    }
    writeln!(out, "\n{}:\n", hta::REPORT.title)?;
    let left_out = tables::write_fitting(&table, 0, most, None, out)?;
    out.flush()?; // talk comes behind what it is about
    if left_out > 0 {
        let (all, shown) = (table.columns.len(), table.columns.len() - left_out);
        talk::say(format!("gapprobe: hta: {shown} of {all} columns; --width 0 prints all"));
    }
    Ok(())
}

/// The same for programs.
fn hta_json(source: &Source<'_>) -> Value {
    let mut text = Vec::new();
    let written = tables::write(&hta::REPORT.table(source), 0, tables::Format::Json, &mut text);
    let rows = written.ok().and_then(|()| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null);
    json!({"version": hta::VERSION, "consecutive_kernel_delay_us": hta::DELAY_US, "rows": rows})
}

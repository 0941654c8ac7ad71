// SPDX-License-Identifier: Apache-2.0
//! `gapprobe analyze`: any trace on one screen.

use std::path::PathBuf;

use cli::overview;
use cli::overview::Overview;
use cli::tables::{NameStyle, Source};
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
  gapprobe analyze rank*.json.gz --line        several, a line each";

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
            talk::print_json(format!("{:#}", overview::json(&overview)))?;
        } else if args.line {
            talk::print(verdict::output::sentence::line(&input.run, a, Some(&file)))?;
        } else {
            let rule = if n > 0 { "\n" } else { "" };
            talk::print(format!("{rule}{}", overview::screen(&overview, args.width.most()).trim_end()))?;
        }
    }
    Ok(match unread {
        Some(exit) => exit,
        None if unsure && args.strict => Exit::Inconclusive,
        None => Exit::Ok,
    })
}

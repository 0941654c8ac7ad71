// SPDX-License-Identifier: Apache-2.0
//! `gapprobe analyze`: any trace on one screen.

use std::path::PathBuf;

use cli::overview;
use cli::overview::Overview;
use cli::tables::{NameStyle, Source};
use trace::define::STEP_TFLOP;
use verdict::analysis::peaks;
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
  gapprobe analyze trace.json.gz --step-tflop 212    with MFU";

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
    /// What a step does on one GPU, TFLOP as the author of the model counts them: then MFU is told
    #[arg(long, value_name = "N", value_parser = tflop, allow_negative_numbers = true)]
    step_tflop: Option<f64>,
    #[command(flatten)]
    width: Width,
    /// End with 5 where a verdict is INCONCLUSIVE
    #[arg(long)]
    strict: bool,
}

/// As `GAPPROBE_STEP_TFLOP` has it.
fn tflop(text: &str) -> Result<f64, String> {
    let n = text.parse().ok().filter(|n: &f64| (1e-6..=1e9).contains(n));
    n.ok_or_else(|| "a number from 0.000001 to 1000000000 is meant".to_owned())
}

/// Prints each file. One that cannot be read is named, the others are printed all the same.
pub(crate) fn run(args: &Args) -> Outcome {
    let (mut unread, mut unsure) = (None, false);
    for (n, path) in args.files.iter().enumerate() {
        let mut input = match input::open(path) {
            Ok(input) => input,
            Err(failure) if args.files.len() == 1 => return Err(failure),
            Err(failure) => {
                talk::fail(&failure);
                unread = Some(failure.exit);
                continue;
            }
        };
        if let Some(tflop) = args.step_tflop {
            input.run.definitions.set_attribute(STEP_TFLOP, &tflop.to_string());
        }
        let source = Source::new(&input.run, NameStyle::Short);
        let a = source.analysis();
        unsure |= a.verdict.code == inconclusive::CODE;
        let file = path.display().to_string();
        let device = a.worst.and_then(|w| a.devices.get(w));
        if args.step_tflop.is_some() && device.and_then(|d| peaks::mfu(&input.run, a, d)).is_none() {
            talk::say(format_args!(
                "gapprobe: {file}: no MFU: it takes steps, and a GPU whose peak is known"
            ));
        }
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

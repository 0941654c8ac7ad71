// SPDX-License-Identifier: Apache-2.0
//! The command `gapprobe`: its verbs, and how it ends. stdout is data, stderr is talk.
#![deny(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verdict::text::escape::is_hidden;

mod verbs;

use verbs::exit::{Failure, EXIT_CODES};

const EXAMPLES: &str = "\
Examples:
  gapprobe run python train.py        record a run; at its end one line says why the GPU was idle
  gapprobe recover                    the same from a run that was killed
  gapprobe analyze trace.json.gz      a trace of torch.profiler, nsys or gapprobe on one screen
  gapprobe stats trace.json.gz        tables of a trace: kernels, calls, copies, ranges, idle time
  gapprobe report trace.json.gz       a page to look at: where the time went, one step in detail
  gapprobe open                       the newest trace in Perfetto, its worst step in view
  gapprobe export trace.json.gz       the same for Perfetto, with a why-idle track
  gapprobe summary .                  all ranks of a job in one line
  gapprobe diff a.json.gz b.json.gz   what a change did to the steps, beyond the noise
  gapprobe check trace.json.gz        a run held against limits, for CI
  gapprobe ps                         who is recorded now
  gapprobe top                        what they do: step time, busy, why idle
  gapprobe capture 4242 --steps 20    a trace of the next steps of one, while it runs on
  gapprobe metrics --textfile prom    metrics of all of them for Prometheus, or by OTLP
  gapprobe explain GP101              what a verdict means and what to change
  gapprobe doctor                     is everything there?";

/// Why is the GPU idle, and what would fixing it win?
#[derive(Parser)]
#[command(name = "gapprobe", before_help = EXAMPLES, after_help = EXIT_CODES, max_term_width = 110)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Print the version
    #[arg(short = 'V', long)]
    version: bool,
    /// With --version one JSON object: commit, the recordings' format, the library
    #[arg(long, requires = "version")]
    json: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    Run(verbs::run::Args),
    Recover(verbs::recover::Args),
    Analyze(verbs::analyze::Args),
    Stats(verbs::stats::Args),
    Gaps(verbs::stats::Gaps),
    Steps(verbs::stats::Steps),
    Report(verbs::report::Args),
    Open(verbs::open::Args),
    Export(verbs::export::Args),
    Summary(verbs::summary::Args),
    Diff(verbs::diff::Args),
    Check(verbs::check::Args),
    Ps(verbs::ps::Args),
    Top(verbs::top::Args),
    Capture(verbs::capture::Args),
    Metrics(verbs::metrics::Args),
    Doctor(verbs::doctor::Args),
    Explain(verbs::explain::Args),
    Completions(verbs::completions::Args),
    Man(verbs::man::Args),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|e| {
        let arguments: Vec<_> = std::env::args_os().collect();
        wrong_use(&verbs::misuse::with_tip(e, &arguments))
    });
    let Some(verb) = cli.verb else { return ended(verbs::version::print(cli.json).map(ExitCode::from)) };
    ended(match verb {
        Verb::Run(args) => verbs::run::run(&args),
        Verb::Recover(args) => verbs::recover::run(&args).map(ExitCode::from),
        Verb::Analyze(args) => verbs::analyze::run(&args).map(ExitCode::from),
        Verb::Stats(args) => verbs::stats::run(&args).map(ExitCode::from),
        Verb::Gaps(args) => verbs::stats::run(&args.into()).map(ExitCode::from),
        Verb::Steps(args) => verbs::stats::run(&args.into()).map(ExitCode::from),
        Verb::Export(args) => verbs::export::run(&args).map(ExitCode::from),
        Verb::Report(args) => verbs::report::run(&args).map(ExitCode::from),
        Verb::Open(args) => verbs::open::run(&args).map(ExitCode::from),
        Verb::Summary(args) => verbs::summary::run(&args).map(ExitCode::from),
        Verb::Diff(args) => verbs::diff::run(&args).map(ExitCode::from),
        Verb::Check(args) => verbs::check::run(&args).map(ExitCode::from),
        Verb::Ps(args) => verbs::ps::run(&args).map(ExitCode::from),
        Verb::Top(args) => verbs::top::run(&args).map(ExitCode::from),
        Verb::Capture(args) => verbs::capture::run(&args).map(ExitCode::from),
        Verb::Metrics(args) => verbs::metrics::run(&args).map(ExitCode::from),
        Verb::Doctor(args) => verbs::doctor::run(&args).map(ExitCode::from),
        Verb::Explain(args) => verbs::explain::run(&args).map(ExitCode::from),
        Verb::Completions(args) => verbs::completions::run(&args).map(ExitCode::from),
        Verb::Man(args) => verbs::man::run(&args).map(ExitCode::from),
    })
}

fn ended(result: Outcome<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        verbs::talk::fail(&failure);
        failure.exit.into()
    })
}

/// Help, or wrong use: clap says which, ends with 0 or 2 (Exit::WrongUse), and repeats arguments as
/// they are. Where one holds what a terminal would obey, the same without colours and made visible.
fn wrong_use(error: &clap::Error) -> ! {
    let odd = std::env::args_os().any(|a| a.to_string_lossy().contains(is_hidden));
    if !odd {
        let printed = error.print().and_then(|()| io::stdout().flush());
        let exit = match verbs::talk::written(printed) {
            // what goes to stdout was asked for
            Err(failure) if !error.use_stderr() => {
                verbs::talk::fail(&failure);
                failure.exit as i32
            }
            _ => error.exit_code(),
        };
        std::process::exit(exit);
    }
    for line in error.render().to_string().lines() {
        verbs::talk::say(line);
    }
    std::process::exit(error.exit_code());
}

/// What a verb returns: how to end, or why not.
type Outcome<T = verbs::exit::Exit> = Result<T, Failure>;

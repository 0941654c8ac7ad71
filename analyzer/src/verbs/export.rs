// SPDX-License-Identifier: Apache-2.0
//! `gapprobe export`: a trace for Perfetto and for other programs.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use analyzer::chrome::{self, ChromeOptions, WriteError};
use analyzer::plural::counted;
use analyzer::{export, line, Analysis, Run};
use clap::ValueEnum;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::{input, output, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe export trace.json.gz                      a trace for Perfetto with a why-idle track
  gapprobe export nsys.sqlite -o perfetto.json.gz    of any input
  gapprobe export trace.json.gz --to csv             one row an event
  gapprobe export trace.json.gz --to parquet         the same, for DuckDB, Polars, pandas
  gapprobe export trace.json.gz --to folded -o - | flamegraph.pl > idle.svg";

/// Write a trace for Perfetto, a table of all events, or idle time as stacks
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace: a recording (.gpr), or one of gapprobe, torch.profiler or nsys
    file: PathBuf,
    /// What to write
    #[arg(long, visible_alias = "format", value_enum, default_value_t = Kind::Chrome)]
    to: Kind,
    /// Where it goes, - is stdout [default: FILE's name with another ending, in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Chrome JSON, compressed: opens in ui.perfetto.dev
    Chrome,
    /// RFC 4180, one row an event; a name that begins with = + - @ stands behind a ', or a spreadsheet would run it
    Csv,
    /// Apache Parquet: the rows and columns of csv, typed and compressed, names as they are
    Parquet,
    /// Idle time as folded stacks, in microseconds
    Folded,
}

impl Kind {
    fn is_binary(self) -> bool {
        matches!(self, Kind::Chrome | Kind::Parquet)
    }

    fn ending(self) -> &'static str {
        match self {
            Kind::Chrome => ".gapprobe.json.gz",
            Kind::Csv => ".events.csv",
            Kind::Parquet => ".events.parquet",
            Kind::Folded => ".idle.folded",
        }
    }
}

/// Reads, analyses, writes; stdout says where it is.
pub(crate) fn run(args: &Args) -> Outcome {
    let default = || PathBuf::from(output::stem(&args.file) + args.to.ending());
    let output = args.output.clone().unwrap_or_else(default);
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        output::is_free(&output, args.force, &[&args.file])?;
    }
    if to_stdout && args.to.is_binary() && io::stdout().is_terminal() {
        return Err(Failure::new(Exit::WrongUse, "compressed data is not for a terminal")
            .hint("-o FILE writes a file; or pipe it into another program"));
    }
    let input = input::open(&args.file)?;
    let analysis = analyzer::analyze(&input.run);
    if to_stdout {
        return talk::to_stdout(|out| write(args.to, &input.run, &analysis, out)).map(|()| Exit::Ok);
    }
    output::write(&output, args.force, |file: &mut File| write(args.to, &input.run, &analysis, file))?;
    talk::print(output.display()).map(|()| Exit::Ok)
}

fn write(kind: Kind, run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    match kind {
        Kind::Chrome => {
            let line = line::line(run, analysis, None);
            let bar = talk::Progress::new();
            let show = |done, all| bar.show("writing", done, all);
            let options = ChromeOptions { line: &line, progress: Some(&show), ..ChromeOptions::default() };
            let written = chrome::write(run, analysis, Vec::new(), &options);
            bar.clear();
            let (bytes, written) = written.map_err(|e| match e {
                WriteError::Io(e) => e,
                WriteError::Late => io::Error::other("no time left"),
            })?;
            let left = written.ops_left_out + written.calls_left_out + written.ranges_left_out;
            if left > 0 {
                talk::say(format!(
                    "gapprobe: {} far from idle time left out, to stay below 50 MB",
                    counted(left, "event")
                ));
            }
            out.write_all(&bytes)?;
        }
        Kind::Csv => export::csv(run, analysis, &mut out)?,
        Kind::Parquet => export::parquet(run, analysis, &mut out)?,
        Kind::Folded => export::folded(run, analysis, &mut out)?,
    }
    out.flush()
}

// SPDX-License-Identifier: Apache-2.0
//! `gapprobe export`: a trace for Perfetto and for other programs.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use cli::export;
use cli::lost::Lost;
use flate2::read::GzDecoder;
use verdict::output::chrome;
use verdict::output::chrome::{ChromeOptions, WriteError};
use verdict::text::plural::counted;
use verdict::{Analysis, Run};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::{input, output, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe export trace.json.gz                      a trace for Perfetto with a why-idle track
  gapprobe export nsys.sqlite -o perfetto.json.gz    of any input
  gapprobe export trace.json.gz -o events.csv        one row an event
  gapprobe export trace.json.gz --to parquet         the same, for DuckDB, Polars, pandas
  gapprobe export trace.json.gz --to folded -o - | flamegraph.pl > idle.svg
  gapprobe export trace.json.gz --to gpu-folded -o - | flamegraph.pl > gpu.svg";

/// Write a trace for Perfetto, a table of all events, or idle and GPU time as stacks
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace: a recording (.gpr), or one of gapprobe, torch.profiler or nsys
    file: PathBuf,
    /// What to write [default: what the ending of -o says (.json.gz, .json, .csv, .parquet,
    /// .folded, .gpu.folded), else chrome]
    #[arg(long, visible_alias = "format", value_enum)]
    to: Option<Kind>,
    /// Where it goes, - is stdout [default: FILE's name with another ending, in the current
    /// directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Chrome JSON, compressed (where -o ends in .json: plain): opens in ui.perfetto.dev
    Chrome,
    /// RFC 4180, one row an event; a name that begins with = + - @ stands behind a ', or a
    /// spreadsheet would run it
    Csv,
    /// Apache Parquet: the rows and columns of csv, typed and compressed, names as they are
    Parquet,
    /// Idle time as folded stacks, in microseconds
    Folded,
    /// Time of GPU operations as folded stacks, by what launched them, in microseconds
    GpuFolded,
}

/// Of the traces that `export` writes.
pub(crate) const CHROME_ENDING: &str = ".gapprobe.json.gz";

impl Kind {
    fn is_binary(self) -> bool {
        matches!(self, Kind::Chrome | Kind::Parquet)
    }

    fn ending(self) -> &'static str {
        match self {
            Kind::Chrome => CHROME_ENDING,
            Kind::Csv => ".events.csv",
            Kind::Parquet => ".events.parquet",
            Kind::Folded => ".idle.folded",
            Kind::GpuFolded => ".gpu.folded",
        }
    }

    /// What a file of this name holds: nobody may find compressed JSON in a file called .csv.
    ///
    /// # Errors
    /// [`Exit::WrongUse`] where the name promises what is not written.
    fn named(output: &Path) -> Result<Kind, Failure> {
        let name = output::name(output).to_lowercase();
        let (name, packed) = name.strip_suffix(".gz").map_or((name.as_str(), false), |inner| (inner, true));
        let ending = Path::new(name).extension().and_then(|e| e.to_str());
        match (ending, packed) {
            (None | Some("json"), _) => Ok(Kind::Chrome),
            (Some("csv"), false) => Ok(Kind::Csv),
            (Some("parquet"), false) => Ok(Kind::Parquet),
            (Some("folded"), false) if name.ends_with(Kind::GpuFolded.ending()) => Ok(Kind::GpuFolded),
            (Some("folded"), false) => Ok(Kind::Folded),
            _ => {
                let what = format!("{}: its ending is of no format that export writes", output.display());
                Err(Failure::new(Exit::WrongUse, what)
                    .hint("--to says which (chrome, csv, parquet, folded or gpu-folded), or an ending does: .json.gz, .csv, .parquet, .folded, .gpu.folded"))
            }
        }
    }
}

/// Chrome JSON that is not compressed.
fn is_plain(output: &Path) -> bool {
    output.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
}

/// Reads, analyses, writes; stdout says where it is.
pub(crate) fn run(args: &Args) -> Outcome {
    let kind = match (args.to, args.output.as_deref()) {
        (Some(kind), _) => kind,
        (None, Some(output)) => Kind::named(output)?,
        (None, None) => Kind::Chrome,
    };
    let default = || PathBuf::from(output::stem(&args.file) + kind.ending());
    let output = args.output.clone().unwrap_or_else(default);
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        output::is_free(&output, args.force, &[&args.file])?;
    }
    if to_stdout && kind.is_binary() && io::stdout().is_terminal() {
        return Err(Failure::new(Exit::WrongUse, "compressed data is not for a terminal")
            .hint("-o FILE writes a file; or pipe it into another program"));
    }
    let input = input::open(&args.file)?;
    let analysis = verdict::analyze(&input.run);
    if let Some(losses) = Lost::of(&input.run).text() {
        talk::say(format!("gapprobe: {}: {losses}", args.file.display()));
    }
    let write = |out: &mut dyn Write| write(kind, is_plain(&output), &input.run, &analysis, out);
    if to_stdout {
        return talk::to_stdout(write).map(|()| Exit::Ok);
    }
    output::write(&output, args.force, |file: &mut File| write(file))?;
    talk::print(output.display()).map(|()| Exit::Ok)
}

/// `plain`: no compression where it is the format's own choice.
fn write(kind: Kind, plain: bool, run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    match kind {
        Kind::Chrome => {
            let bytes = chrome(run, analysis)?;
            match plain {
                true => io::copy(&mut GzDecoder::new(bytes.as_slice()), &mut out).map(|_| ())?,
                false => out.write_all(&bytes)?,
            }
        }
        Kind::Csv => export::csv(run, analysis, &mut out)?,
        Kind::Parquet => export::parquet(run, analysis, &mut out)?,
        Kind::Folded => export::folded(run, analysis, &mut out)?,
        Kind::GpuFolded => export::gpu_folded(run, analysis, &mut out)?,
    }
    out.flush()
}

/// The trace for Perfetto, compressed.
///
/// # Errors
/// Where memory cannot be written.
pub(crate) fn chrome(run: &Run, analysis: &Analysis) -> io::Result<Vec<u8>> {
    let line = verdict::output::sentence::line(run, analysis, None);
    let bar = talk::Progress::new();
    let show = |done, all| bar.show("writing", done, all);
    let options = ChromeOptions { line: &line, progress: Some(&show), ..ChromeOptions::default() };
    let written = chrome::write(run, analysis, Vec::new(), &options);
    bar.clear();
    let (bytes, written) = written.map_err(|e| match e {
        WriteError::Io(e) => e,
        WriteError::Late => io::Error::other("no time left"),
    })?;
    let left = written.left_out();
    if left > 0 {
        talk::say(format!(
            "gapprobe: {} far from idle time left out, to stay below 50 MB",
            counted(left, "event")
        ));
    }
    Ok(bytes)
}

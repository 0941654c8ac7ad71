// SPDX-License-Identifier: Apache-2.0
//! `gapprobe stats`: tables of a trace, by the names `nsys stats` gives them. The tables
//! themselves: `cli::tables`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use cli::lost::Lost;
use cli::tables;
use cli::tables::{NameStyle, Report, Source, Table};
use cli::terminal_width;
use serde_json::Value;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::width::Width;
use crate::verbs::{input, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe stats trace.json.gz                                  the usual tables
  gapprobe stats trace.json.gz --report cuda_gpu_kern_sum --limit 10
  gapprobe stats trace.json.gz -r gaps -r syncs                 what the GPU's idle time is made of
  gapprobe stats trace.json.gz -r cuda_api_sum --sort avg       the slowest calls first
  gapprobe stats trace.json.gz -r steps --format csv > steps.csv
  gapprobe stats trace.json.gz -r gaps --json | jq .gaps[0]
  gapprobe stats --list                                         the reports there are";

/// Version of the keys of reports as JSON.
const STATS_VERSION: u32 = 1;

/// Tables of a trace: kernels, API calls, copies, ranges, steps, idle time
///
/// Names and columns are those of `nsys stats`; the figures behind a kernel's name, and the reports
/// syncs, gaps, steps, phases, gpu_lines, gpu_modules, gpu_ops and roofline are gapprobe's own, hta
/// has HTA's, ops and ops_shapes have torch.profiler's.
/// FILE is a recording (.gpr), or a trace of gapprobe, torch.profiler or nsys.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// A report; may be given more than once [default: those marked * by --list]
    #[arg(short, long = "report", value_name = "NAME", value_delimiter = ',')]
    reports: Vec<String>,
    /// How tables are printed: csv takes one report, and writes a text that begins with = + - @
    /// behind a ', or a spreadsheet would run it; json is an object of arrays of rows, with what
    /// was lost as `losses`
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print one JSON object: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Sort by a column (heading, or key as in json): numbers down, texts up [default: total time]
    #[arg(short, long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Print the first N rows only; 0: all [default: all; of gaps, phases, roofline as tables 50]
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Kernel names: whole as in the source, or short: without parameters and namespaces, of 96
    /// characters at most
    #[arg(long, value_enum, default_value_t = Names::Whole)]
    names: Names,
    #[command(flatten)]
    width: Width,
    /// List the reports
    #[arg(long)]
    list: bool,
}

/// A report that is a verb of its own.
#[derive(clap::Args)]
pub(crate) struct One {
    /// The trace
    file: PathBuf,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print one JSON object: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Sort by a column (heading, or key as in json): numbers down, texts up
    #[arg(short, long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Print the first N rows only; 0: all
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    width: Width,
}

impl One {
    fn report(self, name: &str) -> Args {
        let One { file, format, json, sort, limit, width } = self;
        let (file, reports) = (Some(file), vec![name.to_owned()]);
        Args { file, reports, format, json, sort, limit, names: Names::Short, width, list: false }
    }
}

const GAPS_EXAMPLES: &str = "\
Examples:
  gapprobe gaps trace.json.gz                  the longest stretches of idle time, and why
  gapprobe gaps trace.json.gz --format csv     all of them";

/// Why the GPU was idle: every stretch, longest first, with the call blamed
#[derive(clap::Args)]
#[command(before_help = GAPS_EXAMPLES)]
pub(crate) struct Gaps {
    #[command(flatten)]
    one: One,
}

impl From<Gaps> for Args {
    fn from(gaps: Gaps) -> Args {
        gaps.one.report("gaps")
    }
}

const STEPS_EXAMPLES: &str = "\
Examples:
  gapprobe steps trace.json.gz                  each step's time, split: computing, copying, idle
  gapprobe steps trace.json.gz --sort step_ns   the slowest first";

/// Each step's time, split
#[derive(clap::Args)]
#[command(before_help = STEPS_EXAMPLES)]
pub(crate) struct Steps {
    #[command(flatten)]
    one: One,
}

impl From<Steps> for Args {
    fn from(steps: Steps) -> Args {
        steps.one.report("steps")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Names {
    Short,
    Whole,
}

impl Args {
    fn format(&self) -> Format {
        if self.json {
            Format::Json
        } else {
            self.format
        }
    }
}

/// A report that was asked for, and the column it is sorted by.
struct Wanted {
    report: &'static Report,
    sort: Option<usize>,
}

/// Prints the tables.
pub(crate) fn run(args: &Args) -> Outcome {
    // with --list no file is needed, and none is read
    let Some(file) = args.file.as_ref().filter(|_| !args.list) else {
        talk::print(list().trim_end())?;
        return Ok(Exit::Ok);
    };
    let wanted = wanted(args)?; // before the file is read: it may be large
    let input = input::open(file)?;
    let names = match args.names {
        Names::Short => NameStyle::Short,
        Names::Whole => NameStyle::Whole,
    };
    let source = Source::of(&input, names);
    let lost = Lost::of(&input.run);
    if let Some(losses) = lost.text() {
        talk::say(format!("gapprobe: {}: {losses}", file.display()));
    }
    talk::to_stdout(|out| print(args, &wanted, &source, &lost, out)).map(|()| Exit::Ok)
}

fn list() -> String {
    let lines = tables::REPORTS.iter().map(|r| {
        let mark = if r.usual { "*" } else { " " };
        format!("{mark} {:<22} {}\n", r.name, r.what)
    });
    lines.collect()
}

/// The reports and columns that are meant.
fn wanted(args: &Args) -> Result<Vec<Wanted>, Failure> {
    let reports: Vec<&'static Report> = match args.reports.as_slice() {
        [] => tables::REPORTS.iter().copied().filter(|r| r.usual).collect(),
        names => names.iter().map(|n| report(n)).collect::<Result<_, _>>()?,
    };
    if args.format() == Format::Csv && reports.len() != 1 {
        return Err(Failure::new(Exit::WrongUse, "csv holds one table")
            .hint("give one --report, or --format json for several"));
    }
    reports
        .into_iter()
        .map(|report| {
            let sort = args.sort.as_deref().map(|name| column(report, name)).transpose()?;
            Ok(Wanted { report, sort })
        })
        .collect()
}

fn report(name: &str) -> Result<&'static Report, Failure> {
    tables::find(name).ok_or_else(|| {
        let known: Vec<&str> = tables::REPORTS.iter().map(|r| r.name).collect();
        Failure::new(Exit::WrongUse, format!("no report {name:?}"))
            .hint(format!("one of {}", known.join(", ")))
    })
}

fn column(report: &Report, name: &str) -> Result<usize, Failure> {
    report.column(name).ok_or_else(|| {
        let known: Vec<&str> = report.columns.iter().map(|c| c.key).collect();
        Failure::new(Exit::WrongUse, format!("no column {name:?} in {}", report.name))
            .hint(format!("one of {}", known.join(", ")))
    })
}

fn print(
    args: &Args,
    wanted: &[Wanted],
    source: &Source<'_>,
    lost: &Lost<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let format = args.format();
    if format == Format::Json {
        write!(out, "{{\n\"stats_version\": {STATS_VERSION},")?;
    }
    for (i, w) in wanted.iter().enumerate() {
        let absent = || {
            if !args.reports.is_empty() {
                talk::say(format!("gapprobe: {}: not in this trace: no {}", w.report.name, w.report.needs));
            }
        };
        if format == Format::Csv && w.sort.is_none() {
            if !w.report.write_csv(source, args.limit.unwrap_or(0), out)? {
                absent();
            }
            continue;
        }
        let mut table = w.report.table(source);
        if let Some(column) = w.sort {
            table.sort(column);
        }
        if table.rows.is_empty() {
            absent();
        }
        match format {
            Format::Table => as_text(args, w, &table, out)?,
            Format::Csv => tables::write(&table, args.limit.unwrap_or(0), tables::Format::Csv, out)?,
            Format::Json => {
                write!(out, "{}\"{}\": ", if i > 0 { ",\n" } else { "\n" }, w.report.name)?;
                tables::write(&table, args.limit.unwrap_or(0), tables::Format::Json, out)?;
            }
        }
    }
    match format {
        Format::Json => writeln!(out, ",\n\"losses\": {}\n}}", Value::Object(lost.json())),
        Format::Table | Format::Csv => Ok(()),
    }
}

/// With a title; what is left out is said.
fn as_text(args: &Args, wanted: &Wanted, table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let report = wanted.report;
    if table.rows.is_empty() {
        return Ok(());
    }
    let limit = args.limit.unwrap_or(report.shown);
    let most = args.width.most();
    let mut title = String::new();
    let words = format!("** {} ({}):", report.title, report.name);
    terminal_width::wrap(&mut title, " ", &words, most.unwrap_or(usize::MAX), false);
    writeln!(out, "\n{title}")?;
    let left_out = tables::write_fitting(table, limit, most, wanted.sort, out)?;
    out.flush()?; // talk comes behind what it is about
    let name = report.name;
    if args.limit.is_none() && limit > 0 && table.rows.len() > limit {
        let all = terminal_width::thousands(table.rows.len());
        talk::say(format!("gapprobe: {name}: {limit} of {all} rows; --limit 0 prints all"));
    }
    if left_out > 0 {
        let (all, shown) = (table.columns.len(), table.columns.len() - left_out);
        talk::say(format!("gapprobe: {name}: {shown} of {all} columns; --width 0 prints all"));
    }
    Ok(())
}

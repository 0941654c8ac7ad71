// SPDX-License-Identifier: Apache-2.0
//! `gapprobe check`: is a run as good as demanded? For CI. The judging itself:
//! `cli::compare::gate`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use cli::compare::gate;
use cli::compare::gate::{Answer, Conditions, Judged};
use cli::compare::{side, Side};
use cli::terminal_width;
use formats::Input;
use serde_json::{json, Value};
use verdict::causes;
use verdict::causes::Cause;
use verdict::output::{line, sentence};
use verdict::text::escape::visible;
use verdict::Analysis;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::width::Width;
use crate::verbs::{figures, input, talk};
use crate::Outcome;

mod github;
mod junit;
mod markdown;
mod sarif;

/// Version of the keys of `--json`.
const CHECK_VERSION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  gapprobe check new.json.gz                                  is there a verdict at all?
  gapprobe check new.json.gz --max-idle 10% --max-step-ms 50
  gapprobe check new.json.gz --baseline old.json.gz --max-regression 3%
  gapprobe check new.json.gz --baseline old.json.gz --min-speedup 1.1 --run-noise 2%
  gapprobe check new.json.gz --baseline old.json.gz --min-speedup 1.1 --same-work
  gapprobe check new.json.gz --forbid-cause INPUT,ALLOC --require-range data_load
  gapprobe check new.json.gz --max-idle 10% --format github   an annotation at the line of Python
  gapprobe check new.json.gz --max-idle 10% --format junit > gapprobe.xml
  gapprobe check --json new.json.gz > check.json";

const CODES: &str = "\
Exit codes: 0 all conditions are met, 8 one is not, 5 none failed and one cannot be judged, 4 a trace cannot be read, 2 \
wrong use.";

/// Hold a run against limits, for CI
///
/// One line a condition: ok, FAILED, or cannot be judged. The verdict is always one of them: a
/// trace that is empty, lossy or too short never passes. A comparison with a baseline cannot be
/// judged where its limit lies within the noise, which is what the steps of each run vary by and
/// what two runs of one program differ by: on a quiet machine --run-noise says how little that is.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES, after_help = CODES)]
pub(crate) struct Args {
    /// The trace
    file: PathBuf,
    /// The GPU idles for at most this share of the steps' time (10% or 0.1)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = figures::part)]
    max_idle: Option<f64>,
    /// The median step takes at most so long
    #[arg(long, value_name = "MS", allow_hyphen_values = true, value_parser = figures::ms)]
    max_step_ms: Option<f64>,
    /// A trace to compare with
    #[arg(long, value_name = "TRACE")]
    baseline: Option<PathBuf>,
    /// The median step takes at most this much longer than the baseline's (3% or 0.03)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = figures::share, requires = "baseline")]
    max_regression: Option<f64>,
    /// The baseline's median step takes at least so many times as long (1.1)
    #[arg(long, value_name = "FACTOR", allow_hyphen_values = true, value_parser = figures::factor, requires = "baseline")]
    min_speedup: Option<f64>,
    /// The verdict is not this one (name or code, as gapprobe explain lists them); may be given
    /// more than once
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = cause)]
    forbid_cause: Vec<&'static Cause>,
    /// A range of this name occurs; may be given more than once
    #[arg(long, value_name = "NAME")]
    require_range: Vec<String>,
    /// You know that both do the same work though their kernels are not the same: the fix fuses,
    /// compiles, or computes in another type. How far the kernels differ is said, and no more;
    /// losses, GPUs and what a step is are checked as ever
    #[arg(long, requires = "baseline")]
    same_work: bool,
    /// What two runs of one program differ by here, as 2% or 0.02 [default: 15% of waiting for the
    /// host and for ranks, as seen on a shared host, and 2% of computing and copying]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = figures::share, requires = "baseline")]
    run_noise: Option<f64>,
    /// How it is printed: github is a workflow command that annotates the line of Python, markdown
    /// is for $GITHUB_STEP_SUMMARY, sarif (2.1.0) for code scanning, junit for the test reports of
    /// GitLab and Jenkins
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print one JSON object: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    width: Width,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Github,
    Junit,
    Sarif,
    Markdown,
}

/// What came out, for whoever prints it.
struct Checked<'a> {
    args: &'a Args,
    side: &'a Side<'a>,
    judged: &'a [Judged],
    exit: Exit,
}

impl Checked<'_> {
    fn all(&self) -> Answer {
        gate::all(self.judged)
    }

    /// The sentence of the line, with the verdict's code.
    fn sentence(&self) -> String {
        visible(&sentence::sentence(self.side.run, self.side.analysis)).into_owned()
    }

    /// What the verdict rests on.
    fn evidence(&self) -> Vec<String> {
        line::evidence(self.side.run, self.side.analysis)
    }

    /// Code and name of the verdict.
    fn title(&self) -> String {
        let v = &self.side.analysis.verdict;
        format!("{} {}", v.code, v.cause)
    }

    /// The sentence, and below it what is not met, a line each.
    fn message(&self) -> String {
        let short = self.judged.iter().filter(|j| j.result != Answer::Ok);
        let short = short.map(|j| format!("\n{} {}: {}", j.result.words(), name(j), visible(&j.text)));
        self.sentence() + &short.collect::<String>()
    }

    /// The line of the program that the verdict blames, its file as a checkout has it: below
    /// GITHUB_WORKSPACE, or else the current folder, where it lies there. Of a run elsewhere it is
    /// the file that has the same place here.
    fn place(&self) -> Option<(String, u32)> {
        let site = self.side.analysis.verdict.site.as_ref().filter(|s| s.line > 0 && !s.path.is_empty())?;
        let here = std::env::current_dir().unwrap_or_default();
        let root = std::env::var_os("GITHUB_WORKSPACE").filter(|root| !root.is_empty());
        let root = root.map_or_else(|| here.clone(), PathBuf::from);
        let (recorded, same) = (here.join(&site.path), here.join(&site.file));
        let file = if !recorded.starts_with(&root) && same.is_file() { same } else { recorded };
        let file = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        Some((visible(&file).into_owned(), site.line))
    }
}

/// A condition and of what it is: `forbid-cause SYNC`.
fn name(judged: &Judged) -> String {
    match &judged.of {
        Some(of) => format!("{} {}", judged.condition, visible(of)),
        None => judged.condition.to_owned(),
    }
}

fn cause(text: &str) -> Result<&'static Cause, String> {
    causes::find(text).ok_or_else(|| {
        let known: Vec<&str> = causes::ALL.iter().map(|c| c.name).collect();
        format!("one of {}", known.join(", "))
    })
}

/// Reads, judges and prints.
pub(crate) fn run(args: &Args) -> Outcome {
    if args.baseline.is_some() && args.max_regression.is_none() && args.min_speedup.is_none() {
        return Err(Failure::new(Exit::WrongUse, "--baseline alone demands nothing")
            .hint("add --max-regression 3%, or --min-speedup 1.1"));
    }
    let read = |path: &Path| -> Result<(Input, Analysis), Failure> {
        let input = input::open(path)?;
        let found = verdict::analyze(&input.run);
        Ok((input, found))
    };
    let (of, found) = read(&args.file)?;
    let baseline = args.baseline.as_deref().map(|path| Ok((path, read(path)?))).transpose()?;
    // of several devices the same one in both; alone, the one that the line is about
    let devices = match &baseline {
        Some((_, (_, base))) => side::devices(&found, base),
        None => (found.worst, None),
    };
    let side = Side::new(&args.file.display().to_string(), &of, &found, devices.0);
    let base = baseline
        .as_ref()
        .map(|(path, (input, found))| Side::new(&path.display().to_string(), input, found, devices.1));
    let conditions = Conditions {
        max_idle: args.max_idle,
        max_step_ns: args.max_step_ms.map(|ms| ms * 1e6),
        max_regression: args.max_regression,
        min_speedup: args.min_speedup,
        forbid: args.forbid_cause.clone(),
        ranges: args.require_range.clone(),
        run_noise: args.run_noise,
        same_work: args.same_work,
    };
    let judged = gate::check(&side, base.as_ref(), &conditions);
    let exit = match gate::all(&judged) {
        Answer::Ok => Exit::Ok,
        Answer::Failed => Exit::CheckFailed,
        Answer::Unjudged => Exit::Inconclusive,
    };
    let checked = Checked { args, side: &side, judged: &judged, exit };
    match if args.json { Format::Json } else { args.format } {
        Format::Text => {
            talk::print(terminal_width::lines(&lines(&judged), args.width.most()).trim_end())?;
        }
        Format::Json => talk::print_json(format!("{:#}", object(&checked)))?,
        Format::Github => talk::print(github::command(&checked))?,
        Format::Junit => talk::print(junit::suites(&checked))?,
        Format::Sarif => talk::print_json(format!("{:#}", sarif::log(&checked)))?,
        Format::Markdown => talk::print(markdown::summary(&checked))?,
    }
    Ok(exit)
}

fn lines(judged: &[Judged]) -> String {
    let line = |j: &Judged| format!("{:<16}  {:<14}  {}", j.result.words(), j.condition, visible(&j.text));
    judged.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Keys are part of the interface: added, not renamed.
fn object(o: &Checked<'_>) -> Value {
    let one = |j: &Judged| {
        json!({
            "condition": j.condition,
            "of": j.of,
            "result": j.result.key(),
            "value": j.value,
            "limit": j.limit,
            "band": j.band,
            "common_share": j.common,
            "text": j.text,
        })
    };
    json!({
        "check_version": CHECK_VERSION,
        "line": sentence::line(o.side.run, o.side.analysis, None),
        "file": o.args.file.display().to_string(),
        "baseline": o.args.baseline.as_ref().map(|b| b.display().to_string()),
        "same_work": o.args.same_work,
        "result": o.all().key(),
        "exit": o.exit as u8,
        "conditions": o.judged.iter().map(one).collect::<Vec<_>>(),
    })
}

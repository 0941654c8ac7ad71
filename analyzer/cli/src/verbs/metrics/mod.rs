// SPDX-License-Identifier: Apache-2.0
//! `gapprobe metrics`: the figures of all recorded processes of this user for a monitoring system,
//! from a process of its own: nothing of this runs inside the recorded ones.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use verdict::text::plural::counted;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::watched::Watch;
use crate::verbs::{figures, process, talk};
use crate::Outcome;

mod model;
mod otlp;
mod textfile;

use textfile::Renewing;

const EXAMPLES: &str = "\
Examples:
  gapprobe metrics --textfile prom                       for node-exporter, every 15 s
  gapprobe metrics --textfile prom --every 30s
  gapprobe metrics --otlp http://localhost:4318 --once   to an OpenTelemetry collector, once
  gapprobe metrics --once                                to the terminal";

/// Figures of your recorded processes, for Prometheus or an OpenTelemetry collector
///
/// The node's companion: one is enough for all processes of a user. --textfile writes
/// gapprobe-<uid>.prom (whole or not at all) into the directory that node-exporter's
/// --collector.textfile.directory names, and removes it when it ends; --otlp sends the same figures
/// by OTLP over HTTP, without TLS (a collector on the node has that). Neither: they go to stdout.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of node-exporter's textfile collector
    #[arg(long, value_name = "DIR")]
    textfile: Option<PathBuf>,
    /// An OTLP/HTTP endpoint, http://HOST:PORT; without a path /v1/metrics
    #[arg(long, value_name = "URL", value_parser = otlp::endpoint)]
    otlp: Option<otlp::Endpoint>,
    /// Between two times
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = figures::time)]
    every: Duration,
    /// Figures of the last so many seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = figures::time)]
    last: Duration,
    /// Once, then end; a file stays
    #[arg(long)]
    once: bool,
}

/// Longest sleep without a look whether to end.
const NAP: Duration = Duration::from_millis(100);

/// Once, or again and again until SIGTERM, SIGINT or SIGHUP.
pub(crate) fn run(args: &Args) -> Outcome {
    process::give_way();
    process::survive_file_limit();
    if !args.once {
        process::end_when_asked();
    }
    let mut watch = Watch::default();
    let mut troubles = Troubles::default();
    let mut claim = None;
    let mut first = true;
    loop {
        let begun = Instant::now();
        let handed = hand_on(args, &mut watch, &mut claim);
        match handed {
            Err(failure) if args.once || (first && failure.exit == Exit::Problem && args.otlp.is_none()) => {
                return Err(failure);
            }
            Err(failure) => troubles.are(Some(failure.what)),
            Ok(()) => troubles.are(None),
        }
        if args.once || talk::has_no_reader() {
            return Ok(Exit::Ok);
        }
        first = false;
        while begun.elapsed() < args.every && !process::was_asked_to_end() {
            std::thread::sleep(NAP.min(args.every.saturating_sub(begun.elapsed())));
        }
        if process::was_asked_to_end() {
            if let (Some(folder), Some(_)) = (&args.textfile, &claim) {
                textfile::remove(folder); // figures that nobody renews are untrue
            }
            return Ok(Exit::Ok);
        }
    }
}

/// Looks, and hands on to everybody who was named; the first failure is told after all of them were
/// tried.
fn hand_on(args: &Args, watch: &mut Watch, claim: &mut Option<Renewing>) -> Result<(), Failure> {
    let all = watch.look(args.last, args.once)?;
    let families = model::families(&all, watch.took);
    let text = textfile::render(&families);
    let mut failed = None;
    if let Some(folder) = &args.textfile {
        failed = renew(args, folder, &text, claim);
    }
    if let Some(endpoint) = &args.otlp {
        if let Err(why) = otlp::send(endpoint, &families) {
            let hint = "is the collector's OTLP receiver for HTTP on, at this port?";
            failed = failed.or(Some(Failure::new(Exit::Problem, format!("{endpoint}: {why}")).hint(hint)));
        }
    }
    if args.textfile.is_none() && args.otlp.is_none() {
        talk::print(text.trim_end())?;
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Writes the textfile, where that is this process's to do.
fn renew(args: &Args, folder: &Path, text: &str, claim: &mut Option<Renewing>) -> Option<Failure> {
    if !args.once && claim.is_none() {
        match textfile::claim(folder) {
            Ok(None) => return Some(taken(folder)),
            Ok(ours) => *claim = ours,
            Err(e) => return Some(unwritten(folder, &e)),
        }
    }
    textfile::write(folder, text).err().map(|e| unwritten(folder, &e))
}

fn taken(folder: &Path) -> Failure {
    let what = format!("no metrics in {}: another gapprobe metrics renews them there", folder.display());
    Failure::new(Exit::Problem, what)
        .hint("one is enough for all processes of a user; --textfile names another directory")
}

fn unwritten(folder: &Path, e: &std::io::Error) -> Failure {
    Failure::new(Exit::Problem, format!("no metrics in {}: {e}", folder.display()))
        .hint("--textfile names a directory that can be written")
}

/// What goes wrong is said once, not every time, and so is its end.
#[derive(Default)]
struct Troubles {
    now: Option<String>,
    times: u64,
}

impl Troubles {
    fn are(&mut self, trouble: Option<String>) {
        match (&self.now, &trouble) {
            (_, Some(t)) if self.now.as_ref() != Some(t) => {
                talk::say(format!("gapprobe: {t}"));
                self.times = 0;
            }
            (Some(_), None) => {
                talk::say(format!("gapprobe: fine again, after {}", counted(self.times + 1, "failure")));
            }
            _ => {}
        }
        self.times += u64::from(trouble.is_some());
        self.now = trouble;
    }
}

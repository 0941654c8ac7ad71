// SPDX-License-Identifier: Apache-2.0
//! `gapprobe metrics`: the figures of all recorded processes of this user for a monitoring system,
//! from a process of its own: nothing of this runs inside the recorded ones.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use verdict::text::plural::counted;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::{figures, process, talk};
use crate::Outcome;

#[cfg(test)]
mod documented;
mod listen;
mod looked;
mod model;
mod otlp;
mod target;
mod textfile;

use looked::Looks;
use textfile::Renewing;

const EXAMPLES: &str = "\
Examples:
  gapprobe metrics --textfile prom                  for node-exporter, every 15 s
  gapprobe metrics --listen 9400                    to be scraped at 127.0.0.1:9400/metrics
  gapprobe metrics --otlp http://localhost:4318     to an OpenTelemetry collector
  gapprobe metrics --once                           to the terminal: what the recordings hold";

/// Metrics of your recorded processes, for Prometheus or an OpenTelemetry collector
///
/// The node's companion: one is enough for all processes of a user. --textfile writes
/// gapprobe-<uid>.prom (whole or not at all) into the directory that node-exporter's
/// --collector.textfile.directory names, and removes it when it ends; --listen answers scrapes of
/// /metrics with the last look; --otlp sends the same metrics by OTLP over HTTP (http/protobuf,
/// without TLS: a collector on the node has that). None of them: they go to stdout.
///
/// Counters of GPU time and steps add up what is recorded from one look to the next; with --once
/// they are of all that the recordings hold.
///
/// --otlp reads OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _COMPRESSION and _PROTOCOL, and
/// those with METRICS in front, as OpenTelemetry's exporters do. Names: docs/metrics.md.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of node-exporter's textfile collector
    #[arg(long, value_name = "DIR")]
    textfile: Option<PathBuf>,
    /// Answer scrapes at this port, of this host alone unless an address is given
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen::address, conflicts_with = "once")]
    listen: Option<SocketAddr>,
    /// An OTLP/HTTP endpoint, http://HOST:PORT, without a path /v1/metrics; without a URL what
    /// OTEL_* says, else http://localhost:4318
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    otlp: Option<String>,
    /// Between two looks
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = figures::time)]
    every: Duration,
    /// The verdict is of the last so many seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = figures::time)]
    last: Duration,
    /// Once, then end; a file stays
    #[arg(long)]
    once: bool,
}

/// Longest sleep without a look whether to end.
const NAP: Duration = Duration::from_millis(100);

/// Who gets them.
struct Readers<'a> {
    args: &'a Args,
    collector: Option<target::Target>,
    scrapes: Option<listen::Text>,
    claim: Option<Renewing>,
}

/// Once, or again and again until SIGTERM, SIGINT or SIGHUP.
pub(crate) fn run(args: &Args) -> Outcome {
    process::give_way();
    process::survive_file_limit();
    let variable = |name: &str| std::env::var(name).ok();
    let collector = args.otlp.as_deref().map(|option| target::target(option, variable)).transpose()?;
    let scrapes = args.listen.map(listen::listen).transpose()?;
    let mut readers = Readers { args, collector, scrapes, claim: None };
    if !args.once {
        process::end_when_asked();
    }
    let mut looks = Looks::new(args.once);
    let mut troubles = Troubles::default();
    let mut first = true;
    loop {
        let begun = Instant::now();
        match readers.hand_on(&mut looks) {
            Err(failure)
                if args.once || (first && failure.exit == Exit::Problem && readers.is_of_files()) =>
            {
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
            if let (Some(folder), Some(_)) = (&args.textfile, &readers.claim) {
                textfile::remove(folder); // figures that nobody renews are untrue
            }
            return Ok(Exit::Ok);
        }
    }
}

impl Readers<'_> {
    /// None of them may come up later.
    fn is_of_files(&self) -> bool {
        self.collector.is_none() && self.scrapes.is_none()
    }

    /// Looks, and hands on to everybody who was named; the first failure is told after all of them
    /// were tried.
    fn hand_on(&mut self, looks: &mut Looks) -> Result<(), Failure> {
        let looked = looks.look(self.args.last, self.args.once)?;
        let text = textfile::render(&looked);
        let mut failed = None;
        if let Some(folder) = &self.args.textfile {
            failed = renew(folder, &text, &mut self.claim);
        }
        if let Some(scrapes) = &self.scrapes {
            scrapes.set(&text);
        }
        if let Some(collector) = &self.collector {
            if let Err(why) = otlp::send(collector, &looked) {
                let hint = "is the collector's OTLP receiver for HTTP on, at this port?";
                let what = format!("{}: {why}", collector.url);
                failed = failed.or(Some(Failure::new(Exit::Problem, what).hint(hint)));
            }
        }
        if self.args.textfile.is_none() && self.is_of_files() {
            talk::print(text.trim_end())?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Writes the textfile, where that is this process's to do.
fn renew(folder: &Path, text: &str, claim: &mut Option<Renewing>) -> Option<Failure> {
    if claim.is_none() {
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

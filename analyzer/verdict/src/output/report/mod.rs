// SPDX-License-Identifier: Apache-2.0
//! From a recording to files and the line: the one way, in the process at its exit and in `gapprobe
//! recover`.
//!
//! Stages: load, analyse, trace, summary. Between stages (in front of the replays and inside the
//! trace too) the deadline is looked at; what is not done in time is named and stays in the
//! recording. A directory that cannot be written costs the files, not the line. Who removes files
//! that were never finished, and when: `spool::leftovers`. Cold: allocates, writes files; never
//! panics on what a recording holds.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trace::header::state;
use trace::{OpenError, Source};

use crate::analysis::Analysis;
use crate::output::chrome;
use crate::output::chrome::{ChromeOptions, WriteError, Written};
use crate::output::sentence::line;
use crate::output::summary::{summary, Around};
use crate::run::Run;
use crate::symbols;
use crate::text::escape::visible;

pub mod earlier;
mod ending;
mod names;

use names::{host, stem};
use spool::fresh;
use spool::fresh::Fresh;
use spool::leftovers;
use spool::retention;
use spool::retention::{Keep, Lock};

/// Told which stage is at work, how much of it is done, how much there is.
pub type Progress<'a> = &'a dyn Fn(&str, u64, u64);

/// Events a report looks at inside the traced process. Loading them takes 44 bytes each beside the
/// recording's image (102 of the 256 MB of GAPPROBE_MAX_MB), what comes after 81 at its peak, the
/// image given back ([`ReportOptions::loaded`]): at most 191 MB in all (`tests/report_heap.rs`).
pub const MOST_EVENTS: u64 = 2_000_000;
/// Load and analysis of one event, ns (2 million in 1.2 s on two busy cores): what a deadline has
/// room for.
const EVENT_NS: u128 = 600;
/// However little time there is, so many are looked at: they take a few milliseconds.
const LEAST_EVENTS: u64 = 20_000;
/// Analysis takes so many times as long as loading, at most (2 million events: 0.14 and 0.60 s,
/// replays of causes included).
const ANALYSE_LOADS: u32 = 5;
/// Kept back of the time before a deadline for the summary.
const SUMMARY_TIME: Duration = Duration::from_millis(50);

/// What to make of a recording.
#[derive(Clone, Copy)]
pub struct ReportOptions<'a> {
    /// Where trace and summary go.
    pub directory: &'a Path,
    /// Give up what is not done at this moment: the trace first, then older events, then the
    /// summary; the line last.
    pub deadline: Option<Instant>,
    /// Look at so many events at most, the newest; see [`MOST_EVENTS`].
    pub most_events: u64,
    /// Write the trace (the summary is always written).
    pub write_trace: bool,
    /// Compressed size the trace is kept under, bytes.
    pub max_trace_bytes: u64,
    /// Compress on a second thread. A caller inside a foreign process blocks all signals first: the
    /// thread inherits it.
    pub threaded: bool,
    /// The recording is still being written: its end is not the end of the program.
    pub live: bool,
    /// In front of the line, in the trace too: why this part of a run was written.
    pub because: Option<&'a str>,
    /// In the names of the files: when what they hold began, ns since 1970; `None`: when the
    /// recording did.
    pub named_by: Option<u64>,
    /// Told from time to time.
    pub progress: Option<Progress<'a>>,
    /// What is kept of earlier results in `directory`, once the new ones are written.
    pub keep: Keep,
    /// How a directory is locked meanwhile.
    pub lock: Lock,
    /// Who names the callers of CUDA: [`symbols::name`], or in the command what finds their lines
    /// as well.
    pub names: fn(&mut Run, Option<Instant>),
    /// Told once everything is loaded: the source is not read again, its memory can be given back.
    pub loaded: Option<&'a dyn Fn()>,
    /// The signal that ended the process, where somebody saw it.
    pub signal: Option<i32>,
    /// Asked once everything is analysed; `false`: nothing is written.
    pub wanted: Option<Wanted<'a>>,
}

/// Is a report wanted?
pub type Wanted<'a> = &'a dyn Fn(&Run, &Analysis) -> bool;

impl<'a> ReportOptions<'a> {
    /// Everything, into `directory`, without a deadline.
    pub fn new(directory: &'a Path) -> ReportOptions<'a> {
        ReportOptions {
            directory,
            deadline: None,
            most_events: MOST_EVENTS,
            write_trace: true,
            max_trace_bytes: chrome::MAX_BYTES,
            threaded: true,
            live: false,
            because: None,
            named_by: None,
            progress: None,
            keep: Keep::default(),
            lock: |_| true,
            names: symbols::name,
            loaded: None,
            signal: None,
            wanted: None,
        }
    }
}

/// What was made.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The line; it names the trace where there is one.
    pub line: String,
    /// The line without the trace: for [`Report::unfinished`].
    pub figures: String,
    /// The trace.
    pub trace: Option<PathBuf>,
    /// What the trace holds.
    pub written: Option<Written>,
    /// The summary.
    pub summary: Option<PathBuf>,
    /// The summary's text (JSON), also where it could not be written.
    pub summary_text: String,
    /// The verdict is INCONCLUSIVE.
    pub inconclusive: bool,
    /// The deadline came before this stage was done (`trace`, `summary`): the caller names the
    /// `recover` command.
    pub late: Option<&'static str>,
    /// Older events that were not looked at, for want of memory or time; the recording has them.
    pub left_out: u64,
    /// Files that could not be written, in which folder, and why; one sentence each, without a full
    /// stop.
    pub problems: Vec<String>,
    /// `gapprobe run` waits for this process, takes the recording up where this is not whole, and
    /// removes it then: no line may send anybody there.
    pub taken_up: bool,
}

impl Report {
    /// Trace and summary are there: the recording is needed no more.
    pub fn is_complete(&self) -> bool {
        self.problems.is_empty()
            && self.late.is_none()
            && self.left_out == 0
            && self.summary.is_some()
            && self.not_in_the_trace() == 0
    }

    /// Nothing is missing but older events in the trace, which was kept small: another trace would
    /// be no better.
    pub fn is_cut_to_size(&self) -> bool {
        let whole = Report { written: None, ..self.clone() };
        self.not_in_the_trace() > 0 && whole.is_complete()
    }

    /// Events that the recording has and the trace has not, to keep it small.
    pub fn not_in_the_trace(&self) -> u64 {
        self.written.map_or(0, |w| w.left_out())
    }

    /// What of the recording is in the trace, where that is not all; without a full stop.
    pub fn share_in_the_trace(&self) -> Option<String> {
        let (left, w) = (self.not_in_the_trace(), self.written?);
        let has = w.ops + w.calls + w.ranges;
        (left > 0).then(|| format!("the trace has {has} of {} events, the newest whole", has + left))
    }
}

/// Why there is no report at all.
#[derive(Debug)]
pub enum ReportError {
    /// The recording cannot be opened.
    Open(OpenError),
    /// It can, but every part of it is damaged.
    Damaged {
        /// Segments that were tried.
        segments: u32,
        /// Length of the file, bytes.
        bytes: u64,
    },
    /// The deadline came before there was a verdict.
    Late(&'static str),
    /// [`ReportOptions::wanted`] said no.
    Unwanted,
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReportError::Open(e) => e.fmt(f),
            ReportError::Damaged { segments, bytes } => write!(
                f,
                "no event can be read: all of its {segments} segments, from byte 4096 to {bytes}, are damaged or cut off"
            ),
            ReportError::Late(stage) => write!(f, "no time left to {stage}"),
            ReportError::Unwanted => write!(f, "its process has reported more than it holds"),
        }
    }
}

impl std::error::Error for ReportError {}

/// Loads, analyses, writes trace and summary. Their names are
/// `gapprobe-<host>-<pid>-<YYYYmmdd-HHMMSS>-<4 random>.json.gz` and `.summary.json`, the time being
/// the start of the recording (or [`ReportOptions::named_by`]) in UTC. No existing file is touched.
///
/// # Errors
/// Where not even the line can be given. Files that could not be written are in
/// [`Report::problems`].
pub fn report<S: Source + ?Sized>(source: &S, options: &ReportOptions<'_>) -> Result<Report, ReportError> {
    tell(options, "load", 0, 1);
    let mut run = load(source, options)?;
    if options.live {
        run.header.state = state::CLOSED; // nobody was killed, nor says so the trace when it is read again
    }
    (options.names)(&mut run, options.deadline);
    let bytes = source.len();
    if let Some(loaded) = options.loaded {
        loaded();
    }
    let damaged = run.problems.damaged() > 0;
    if run.events == 0 && damaged {
        return Err(ReportError::Damaged { segments: run.header.segments, bytes });
    }
    on_time(options, "analyse")?;
    tell(options, "analyse", 0, 1);
    let mut analysis = crate::analyze_by(&run, before_summary(options.deadline));
    analysis.coverage.signal = options.signal.filter(|_| analysis.coverage.killed);
    if options.wanted.is_some_and(|wanted| !wanted(&run, &analysis)) {
        return Err(ReportError::Unwanted);
    }
    Ok(write(&run, &analysis, options))
}

/// As much of the recording, from its end back, as memory and time allow.
fn load<S: Source + ?Sized>(source: &S, options: &ReportOptions<'_>) -> Result<Run, ReportError> {
    let Some(deadline) = options.deadline else {
        return crate::load_newest(source, options.most_events).map_err(ReportError::Open);
    };
    let begin = Instant::now();
    let left = deadline.saturating_duration_since(begin).saturating_sub(SUMMARY_TIME);
    let room = u64::try_from(left.as_nanos() / EVENT_NS).unwrap_or(u64::MAX).max(LEAST_EVENTS);
    let run = crate::load_newest(source, options.most_events.min(room)).map_err(ReportError::Open)?;
    // the machine may be slower than that: once more with what fits
    let took = begin.elapsed().max(Duration::from_micros(1));
    let left = deadline.saturating_duration_since(Instant::now()).saturating_sub(SUMMARY_TIME);
    let kept = run.events.saturating_sub(run.left_out);
    if left >= took * ANALYSE_LOADS || left.is_zero() || kept <= LEAST_EVENTS {
        return Ok(run);
    }
    drop(run);
    let share = left.as_secs_f64() / (took.as_secs_f64() * f64::from(2 * ANALYSE_LOADS));
    let fits = (kept as f64 * share) as u64;
    crate::load_newest(source, fits.max(LEAST_EVENTS)).map_err(ReportError::Open)
}

/// Writes trace and summary of what is already analysed.
pub fn write(run: &Run, analysis: &Analysis, options: &ReportOptions<'_>) -> Report {
    let mut report = Report {
        inconclusive: analysis.verdict.inconclusive.is_some(),
        left_out: run.left_out,
        ..Report::default()
    };
    let stem = stem(run, options.named_by);
    if options.write_trace {
        if is_late(options) {
            report.late = Some("trace");
        } else {
            trace_file(run, analysis, options, &stem, &mut report);
        }
    }
    let name = report.trace.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    // in the current directory the name alone is what one types
    let here = options.directory == Path::new(".");
    let path = report.trace.as_deref().map(|p| p.to_string_lossy().into_owned());
    report.line = because(options, line(run, analysis, if here { name.as_deref() } else { path.as_deref() }));
    report.figures = line(run, analysis, None);
    let around = Around { line: &report.line, trace: name.as_deref(), written: report.written };
    let mut text = serde_json::to_string_pretty(&summary(run, analysis, &around)).unwrap_or_default();
    text.push('\n');
    tell(options, "summary", 0, 1);
    // small and quick: written even where the trace came too late
    match summary_file(options.directory, &format!("{stem}.summary.json"), &text) {
        Ok(path) => report.summary = Some(path),
        Err(e) => report.problems.push(format!("no summary in {}: {e}", shown(options.directory).display())),
    }
    report.summary_text = text;
    // with time to spare for what the caller has left to do
    leftovers::results(options.directory, before_summary(options.deadline));
    let (own, host) = (&stem, host(&run.header));
    retention::results(
        options.directory,
        own,
        &host,
        options.keep,
        options.lock,
        before_summary(options.deadline),
    );
    report
}

/// The line, and in front of it why there is one.
fn because(options: &ReportOptions<'_>, line: String) -> String {
    match options.because {
        Some(why) => format!("{}: {line}", visible(why)),
        None => line,
    }
}

fn trace_file(run: &Run, analysis: &Analysis, options: &ReportOptions<'_>, stem: &str, report: &mut Report) {
    let said = because(options, line(run, analysis, None));
    let progress = |done: u64, all: u64| tell(options, "trace", done, all);
    let chrome_options = ChromeOptions {
        max_bytes: options.max_trace_bytes,
        deadline: before_summary(options.deadline),
        threaded: options.threaded,
        line: &said,
        progress: Some(&progress),
    };
    let made = Fresh::create(options.directory, &format!("{stem}.json.gz")).map_err(WriteError::Io).and_then(
        |(fresh, file)| {
            let (file, written) = chrome::write(run, analysis, file, &chrome_options)?;
            drop::<File>(file);
            Ok((fresh.publish()?, written))
        },
    );
    match made {
        Ok((path, written)) => {
            report.trace = Some(path);
            report.written = Some(written);
        }
        Err(WriteError::Late) => report.late = Some("trace"),
        Err(WriteError::Io(e)) => {
            report.problems.push(format!("no trace in {}: {e}", shown(options.directory).display()));
        }
    }
}

/// The folder's full name: `.` says nothing where the reader is elsewhere.
fn shown(directory: &Path) -> PathBuf {
    std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned())
}

/// This process ends now, whatever is still being written: no file is finished any more. From any
/// thread; waits at most 20 ms for one that is in the file system, and asks none itself. Returns
/// whether half files are left: [`remove_unfinished`].
pub fn give_up() -> bool {
    fresh::give_up()
}

/// Removes what was unfinished at [`give_up`]; takes as long as their file system takes to answer.
/// `false` where another thread has come first.
pub fn remove_unfinished() -> bool {
    fresh::remove_unfinished()
}

fn summary_file(directory: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let (fresh, mut file) = Fresh::create(directory, name)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    fresh.publish()
}

fn tell(options: &ReportOptions<'_>, stage: &str, done: u64, all: u64) {
    if let Some(progress) = options.progress {
        progress(stage, done, all);
    }
}

/// The deadline less what the summary takes.
fn before_summary(deadline: Option<Instant>) -> Option<Instant> {
    deadline.map(|d| d.checked_sub(SUMMARY_TIME).unwrap_or(d))
}

fn is_late(options: &ReportOptions<'_>) -> bool {
    options.deadline.is_some_and(|t| Instant::now() >= t)
}

fn on_time(options: &ReportOptions<'_>, stage: &'static str) -> Result<(), ReportError> {
    if is_late(options) {
        return Err(ReportError::Late(stage));
    }
    Ok(())
}

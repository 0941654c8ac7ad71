// SPDX-License-Identifier: Apache-2.0
//! `gapprobe recover`: a recording left by a process that was killed becomes a trace and the line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{json, Value};
use spool::liveness::Life;
use trace::setting;
use verdict::output::report::{report, Report, ReportError, ReportOptions, Wanted};
use verdict::symbols;
use verdict::text::escape::{visible, word};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::process;
use crate::verbs::recordings::{self, FileSource, Found, Listing};
use crate::verbs::talk::{self, Progress};
use crate::Outcome;

/// Version of the keys of `--list --json`.
const RECORDINGS_VERSION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  gapprobe recover                      the newest recording of an ended process of yours
  gapprobe recover --list               what there is
  gapprobe recover --all                each of them
  gapprobe recover run.gpr --keep       a certain one, left where it is";

/// Make trace and line from a recording
///
/// The line goes to stdout. A recording is removed once its trace and summary are written; it stays
/// where the trace is cut to its size. Two that recover at once report each recording once.
///
/// Without FILE or DIR all places are looked into that your processes may have recorded to:
/// $TMPDIR/gapprobe-UID and, wherever TMPDIR leads, /tmp/gapprobe-UID. The newest is that of both
/// together, and --all takes (and removes) what lies in either, whichever run it is of. A folder
/// that is named is looked into alone.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// A recording (.gpr), or a folder of them [default: both folders gapprobe records to, see
    /// above]
    #[arg(value_name = "FILE|DIR")]
    what: Option<PathBuf>,
    /// Directory for trace and summary [default: GAPPROBE_DIR, else the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// All recordings of ended processes, not the newest alone
    #[arg(long, conflicts_with = "list")]
    all: bool,
    /// Only list the recordings
    #[arg(long)]
    list: bool,
    /// Leave the recording where it is
    #[arg(long)]
    keep: bool,
    /// Also if the process still runs: what it has recorded so far; the recording stays
    #[arg(long)]
    live: bool,
    /// Print the summary (JSON) instead of the line; with --list an object of the recordings
    #[arg(long)]
    json: bool,
    /// End with 5 where the verdict is INCONCLUSIVE
    #[arg(long)]
    strict: bool,
}

/// Finds the recordings asked for and reports each; what is left is bounded.
pub(crate) fn run(args: &Args) -> Outcome {
    let done = recover_all(args);
    if !args.list {
        recordings::keep_within_limits();
    }
    done
}

fn recover_all(args: &Args) -> Outcome {
    let (chosen, unreadable) = match &args.what {
        Some(path) if !path.is_dir() => {
            let (_, found) = recordings::look(path)?;
            if args.list {
                return print_list(&[found], args.json);
            }
            (vec![found], Vec::new())
        }
        folder => {
            let listing = match folder {
                Some(folder) => recordings::list(folder)?,
                None => recordings::list_private(),
            };
            for failure in listing.not_looked_at.iter().chain(&listing.unreadable) {
                talk::fail(failure);
            }
            if args.list {
                return print_list(&listing.found, args.json);
            }
            choose(listing, args)?
        }
    };
    let directory = args.dir.clone().unwrap_or_else(default_directory);
    let mut exit = Exit::Ok;
    let (mut reported, mut failed) = (0, unreadable.len());
    for one in &chosen {
        if args.what.is_none() {
            talk::say(format!("gapprobe: recovering {}: {}", one.path.display(), one.title()));
        }
        match recover(&one.path, args, &directory) {
            Ok(Some(done)) => {
                reported += 1;
                for path in [&done.trace, &done.summary].into_iter().flatten() {
                    talk::say(format!("gapprobe: wrote {}", path.display()));
                }
                match args.json {
                    true => talk::print_json(&done.summary_text)?,
                    false => talk::print(&done.line)?,
                }
                if args.strict && done.inconclusive {
                    exit = Exit::Inconclusive;
                }
            }
            Ok(None) => {
                talk::say(format!("gapprobe: {}: reported by another gapprobe", one.path.display()));
            }
            Err(failure) if args.all => {
                failed += 1;
                talk::fail(&failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.all && failed > 0 {
        let all = chosen.len() + unreadable.len();
        return Err(Failure::new(
            Exit::SomeFailed,
            format!(
                "{failed} of {all} recordings could not be reported (each is named above and left as it is)"
            ),
        ));
    }
    if reported == 0 {
        return Err(Failure::new(Exit::NothingToRecover, "nothing left to recover"));
    }
    Ok(exit)
}

/// Reports one recording; `None` where another process does so or has done.
fn recover(path: &Path, args: &Args, directory: &Path) -> Result<Option<Report>, Failure> {
    let (source, found) = match recordings::look(path) {
        // it was there when we looked around
        Err(_) if args.what.as_deref() != Some(path) && !path.exists() => return Ok(None),
        looked => looked?,
    };
    if found.life == Life::Ended {
        if !source.claim() {
            return Ok(None);
        }
    } else if !args.live {
        return Err(still_running(&found));
    }
    write(&source, &found, directory, !args.keep && found.life == Life::Ended, &Known::default()).map(Some)
}

/// Where trace and summary go if nobody says.
pub(crate) fn default_directory() -> PathBuf {
    std::env::var_os(setting::DIR).filter(|v| !v.is_empty()).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// The newest of an ended process (with `--all` each of them, with `--live` of any), and with
/// `--all` what cannot be read; talks of the others.
fn choose(listing: Listing, args: &Args) -> Result<(Vec<Found>, Vec<Failure>), Failure> {
    let Listing { found, unreadable, not_looked_at } = listing;
    let (mut fit, other): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|f| (f.life == Life::Ended || args.live) && !f.is_reported());
    let unreadable = if args.all { unreadable } else { Vec::new() };
    if fit.is_empty() && unreadable.is_empty() {
        let folders = match &args.what {
            Some(folder) => folder.display().to_string(),
            None => {
                let all: Vec<_> =
                    recordings::private_folders().iter().map(|f| f.display().to_string()).collect();
                all.join(" or ")
            }
        };
        // what was not looked at was said above
        let exit = if not_looked_at.is_empty() { Exit::NothingToRecover } else { Exit::Problem };
        let mut failure = Failure::new(exit, format!("no recording of an ended process in {folders}"));
        for one in other.iter().filter(|f| f.life != Life::Ended).take(5) {
            failure = failure.hint(format!(
                "still running: {}: gapprobe recover --live {}",
                one.title(),
                word(&one.path.to_string_lossy())
            ));
        }
        if other.is_empty() {
            failure =
                failure.hint("a recording is removed once its trace is written: look for gapprobe-*.json.gz");
        }
        return Err(failure);
    }
    if !args.all {
        for one in fit.split_off(1) {
            talk::say(format!("gapprobe: also there: {}  {}", one.path.display(), one.title()));
        }
    }
    Ok((fit, unreadable))
}

fn print_list(found: &[Found], as_json: bool) -> Outcome {
    if as_json {
        let all: Vec<Value> = found.iter().map(entry).collect();
        let object = json!({"recordings_version": RECORDINGS_VERSION, "recordings": all});
        talk::print_json(format!("{object:#}"))?;
    }
    if found.is_empty() {
        return Err(Failure::new(Exit::NothingToRecover, "no recordings"));
    }
    for one in found.iter().filter(|_| !as_json) {
        let life = life(one);
        talk::print(visible(&format!("{life:<9} {}  {}", one.path.display(), one.title())))?;
    }
    Ok(Exit::Ok)
}

fn life(one: &Found) -> &'static str {
    match one.life {
        Life::Runs => "running",
        Life::Unknown => "unknown",
        Life::Ended if one.is_reported() => "reported",
        Life::Ended => "ended",
    }
}

/// A recording in the list, for programs.
fn entry(one: &Found) -> Value {
    let h = &one.header;
    json!({
        "file": one.path.to_string_lossy(),
        "state": life(one),
        "command": h.command,
        "host": h.host,
        "pid": h.pid,
        "rank": h.rank.checked_sub(1),
        "start_unix_ns": h.start_realtime,
        "bytes": one.path.metadata().ok().map(|m| m.len()),
    })
}

fn still_running(found: &Found) -> Failure {
    let file = found.path.display();
    let what = match found.life {
        Life::Unknown => {
            format!("{file}: its process is of another pid namespace (a container) and may still run")
        }
        _ => format!("{file}: its process still runs: {}", found.title()),
    };
    Failure::new(Exit::StillRunning, what).hint(format!(
        "what it has recorded so far: gapprobe recover --live {}",
        word(&found.path.to_string_lossy())
    ))
}

/// What `gapprobe run` knows of a process beyond its recording.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known<'a> {
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Whether what can be made of the recording is wanted at all.
    pub(crate) wanted: Option<Wanted<'a>>,
}

/// Writes trace and summary of one recording into `directory`; `remove`: the recording goes, if
/// both were written (the caller has claimed it).
pub(crate) fn write(
    source: &FileSource,
    found: &Found,
    directory: &Path,
    remove: bool,
    known: &Known<'_>,
) -> Result<Report, Failure> {
    let (result, whole) = make(source, found, directory, known);
    let done = match (result, whole) {
        (Ok(done), Ok(())) => done,
        (Ok(done), Err(failure)) => {
            talk::say(&done.line);
            return Err(failure);
        }
        (Err(_), Err(failure)) => return Err(failure),
        (Err(e), Ok(())) => return Err(unreadable(&found.path, &e)),
    };
    for problem in &done.problems {
        talk::say(format!("gapprobe: {problem}"));
    }
    if !done.problems.is_empty() {
        talk::say(format!("gapprobe: the recording stays: {}", found.path.display()));
        talk::say(&done.line);
        return Err(Failure::new(
            Exit::Problem,
            format!("trace or summary not written into {}", directory.display()),
        )
        .hint("name a directory that can be written: --dir DIR"));
    }
    if remove {
        remove_if_needless(found, &done, false);
    }
    Ok(done)
}

/// The recording goes, if all of it is in trace and summary; else it is said what is in it alone.
pub(crate) fn remove_if_needless(found: &Found, done: &Report, quiet: bool) {
    if done.is_complete() {
        remove_recording(&found.path);
    } else if let (Some(share), false) = (done.share_in_the_trace(), quiet) {
        let file = found.path.to_string_lossy();
        talk::say(format!(
            "gapprobe: {share}; the recording stays, it has all: gapprobe analyze {}",
            word(&file)
        ));
    }
    if done.is_cut_to_size() {
        found.note_reported(); // else each `recover --all` would write the same trace once more
    }
}

/// Trace and summary of a recording, and whether it was whole while it was read. Says nothing,
/// removes nothing.
pub(crate) fn make(
    source: &FileSource,
    found: &Found,
    directory: &Path,
    known: &Known<'_>,
) -> (Result<Report, ReportError>, Result<(), Failure>) {
    process::survive_file_limit();
    let progress = Progress::new();
    let show = |stage: &str, done: u64, all: u64| progress.show(stage, done, all);
    let options = ReportOptions {
        live: found.life != Life::Ended,
        progress: Some(&show),
        keep: recordings::keep(),
        lock: recordings::LOCK,
        // a process of its own: all of the recording
        most_events: u64::MAX,
        names: symbols::name_with_lines,
        signal: known.signal,
        wanted: known.wanted,
        ..ReportOptions::new(directory)
    };
    let result = report(source, &options);
    progress.clear();
    // before all else: what was read of a file that somebody cut is neither whole nor our mistake
    (result, source.check_length())
}

/// The recording goes: its trace and summary are written.
fn remove_recording(path: &Path) {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            talk::say(format!("gapprobe: could not remove {}: {e}", path.display()));
        }
        _ => {}
    }
}

fn unreadable(path: &Path, e: &ReportError) -> Failure {
    Failure::new(Exit::Unreadable, format!("{}: {e}", path.display()))
        .hint("the recording was left as it is; if it is whole, please report this with the file")
}

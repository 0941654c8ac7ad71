// SPDX-License-Identifier: Apache-2.0
//! What the processes of a run left: a recording without a report (they were killed, or had no
//! time), or one whose line was said and whose trace could not be written. stdout belongs to the
//! command: everything goes to stderr, and nothing here changes the exit code.

use std::path::Path;
use std::time::{Duration, Instant};

use spool::liveness;
use spool::liveness::Life;
use verdict::analysis::Analysis;
use verdict::output::report::earlier;
use verdict::output::report::earlier::Earlier;
use verdict::output::report::{Report, ReportError};
use verdict::text::escape::word;
use verdict::text::plural;
use verdict::Run;

use super::Args;
use crate::verbs::recordings::{self, FileSource, Found};
use crate::verbs::recover::{self, Known};
use crate::verbs::talk;

/// A process that was killed at the end of the run may take so long to be gone: its memory is taken
/// down first (more than 0.3 s where two cores are busy).
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Reports for those of this run that ended. `command`: the command's pid; `signal`: what it died
/// of.
pub(super) fn report(args: &Args, id: &str, command: u32, signal: Option<i32>) {
    let mut left = of_this_run(id);
    wait_for_the_ending(&mut left);
    let running = left.iter().filter(|(_, f)| f.life != Life::Ended).count();
    let directory = args.dir.clone().unwrap_or_else(recover::default_directory);
    // what a process recorded before it called exec did not die of the signal
    let last =
        left.iter().map(|(_, f)| &f.header).filter(|h| h.pid == command).map(|h| h.start_monotonic).max();
    for (source, found) in left.iter().filter(|(_, f)| f.life == Life::Ended) {
        if !source.claim() {
            continue;
        }
        let is_last = found.header.pid == command && Some(found.header.start_monotonic) == last;
        let quiet = args.quiet || (found.header.rank > 1 && !args.all_ranks);
        report_one(source, found, &directory, signal.filter(|_| is_last), quiet);
    }
    if running > 0 && !args.quiet {
        let go = plural::of(running as u64, "goes", "go");
        let who = format!("{running} recorded process{}", plural::of(running as u64, "", "es"));
        talk::say(format!("gapprobe: {who} of this run still {go} on; later: gapprobe recover"));
    }
}

/// Recordings of this run that are not reported. What cannot be read, or others could have put
/// there, is `gapprobe recover`'s to tell.
fn of_this_run(id: &str) -> Vec<(FileSource, Found)> {
    let found = recordings::list_private().found;
    let unreported = found.into_iter().filter(|f| !f.is_reported());
    let looked = unreported.filter_map(|f| recordings::look(&f.path).ok());
    looked.filter(|(source, _)| recordings::has_run_id(source, id)).collect()
}

/// Waits for processes that are about to be gone, not for those that go on.
fn wait_for_the_ending(left: &mut [(FileSource, Found)]) {
    let until = Instant::now() + EXIT_TIMEOUT;
    loop {
        left.iter_mut().for_each(|(source, f)| f.look_again(source));
        let ending = |f: &Found| f.life == Life::Runs && liveness::is_ending(f.header.pid);
        if !left.iter().any(|(_, f)| ending(f)) || Instant::now() >= until {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn report_one(source: &FileSource, found: &Found, directory: &Path, signal: Option<i32>, quiet: bool) {
    let earlier = earlier::find(&found.header, directory);
    if !found.is_spoken() && earlier.is_none() {
        match recover::write(source, found, directory, true, &Known { signal, wanted: None }) {
            Ok(report) if !quiet => talk::say(&report.line),
            Ok(_) => {}
            Err(failure) => talk::fail(&failure),
        }
        return;
    }
    try_again(source, found, directory, earlier.as_ref(), quiet);
}

/// The process has its verdict: the trace is tried once more, the recording goes if that is whole,
/// and a second line comes only where it says something else.
fn try_again(source: &FileSource, found: &Found, directory: &Path, earlier: Option<&Earlier>, quiet: bool) {
    let wanted = |run: &Run, now: &Analysis| match earlier {
        Some(earlier) => !earlier.tells_more_than(run, now),
        // a trace cut to its size would be cut there again
        None => run.problems.damaged() == 0 && !earlier::has_trace_of(&found.header, directory, now),
    };
    let known = Known { signal: None, wanted: Some(&wanted) };
    let done = match recover::make(source, found, directory, &known) {
        (Ok(done), Ok(())) => done,
        (Err(ReportError::Unwanted), _) if !found.is_spoken() && !quiet => {
            // it had written its summary and not said its line
            return earlier.into_iter().for_each(|e| talk::say(&e.line));
        }
        // there is a trace as good as the one that can be made
        (Err(ReportError::Unwanted), _) => return,
        // its own line has told what is missing, and that we go on with it
        _ => {
            if found.path.exists() && !quiet {
                let file = found.path.to_string_lossy();
                talk::say(format!("gapprobe: the recording stays: gapprobe recover {}", word(&file)));
            }
            return;
        }
    };
    let agrees = match earlier {
        Some(earlier) => earlier.agrees_with(&done.summary_text),
        None => true,
    };
    if let Some(problem) = done.problems.first() {
        // its own line has promised that we go on with it; with --quiet nobody was told
        talk::say(format!("gapprobe: {problem}. Next: {}", Report::next_elsewhere(&found.path)));
    } else if !quiet && (!found.is_spoken() || !agrees) {
        talk::say(&done.line);
    } else if let (false, Some(trace)) = (quiet, &done.trace) {
        talk::say(format!("gapprobe: wrote {}", trace.display()));
    }
    if done.summary.is_some() {
        if let Some(earlier) = earlier {
            let _ = std::fs::remove_file(&earlier.path); // the new one takes its place
        }
    }
    recover::remove_if_needless(found, &done, quiet);
}

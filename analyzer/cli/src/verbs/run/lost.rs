// SPDX-License-Identifier: Apache-2.0
//! What nobody can report: a process ended without its report, and its recording lay in memory
//! alone, for no file took it. What tells of it is the file that never got a header
//! (`trace::place::unfinished_recording`): a process that said its line removes it; or one that has
//! a header and nothing else, not even whose run it is of. Looked at before anything is tidied up.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use spool::leftovers;
use spool::liveness;
use spool::liveness::Life;
use trace::header::state;
use trace::place::{self, Owner};
use trace::Recording;
use verdict::text::escape::word;
use verdict::text::plural;

use crate::verbs::{output, process, recordings};

/// A process that was killed at the end of the run may take so long to be gone.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The one line about processes that began in this run and left a file that holds nothing; `None`:
/// there are none.
pub(super) fn why() -> Option<String> {
    let until = Instant::now() + EXIT_TIMEOUT;
    let found = loop {
        let (ended, ending) = look();
        if !ending || Instant::now() >= until {
            break ended;
        }
        std::thread::sleep(LOOK);
    };
    let folder = found.first()?.0.clone();
    let mut pids: Vec<String> = found.iter().filter(|f| f.0 == folder).map(|f| f.1.pid.to_string()).collect();
    pids.sort();
    pids.dedup();
    let n = pids.len() as u64;
    let who = format!("{} {}", plural::of(n, "process", "processes"), pids.join(", "));
    let whose = plural::of(n, "its recording", "their recordings");
    let at = word(&folder.to_string_lossy()).into_owned();
    let why = match process::within_file_limit(|| output::try_file(&folder)) {
        Err(e) => format!(
            "{whose} could not be written to {at} ({e}): make room (df -h {at}), or set TMPDIR to another directory"
        ),
        // there is room for it now, and here
        Ok(()) => {
            let hold = plural::of(n, "holds", "hold");
            format!("{whose} in {at} {hold} nothing (its first moments, a disk that was full then, or ulimit -f)")
        }
    };
    Some(format!("gapprobe: nothing was recorded of {who}, which ended without a report: {why}"))
}

/// The one line of a run that was killed where no private folder can be had at all: what it
/// recorded was in memory alone.
pub(super) fn nowhere(status: &ExitStatus) -> Option<String> {
    let killed = status.signal().is_some() || status.code().is_some_and(|code| (129..=192).contains(&code));
    if !killed {
        return None;
    }
    let mut reasons = Vec::new();
    for folder in recordings::private_folders() {
        let why = match recordings::distrust(&folder) {
            Some(why) => why,
            None => {
                let error = output::try_file(folder.parent()?).err()?;
                format!("{}: {error}", word(&folder.to_string_lossy()))
            }
        };
        reasons.push(why);
    }
    let why = reasons.join("; ");
    Some(format!(
        "gapprobe: nothing was recorded: the command was killed, and there is no folder for recordings ({why}); TMPDIR names another place"
    ))
}

/// Files that hold nothing, of processes of this run that have ended, with their folders; and
/// whether others are just about to end.
fn look() -> (Vec<(PathBuf, Owner)>, bool) {
    let since = liveness::own().start;
    let of_this_run = |owner: &Owner| owner.start >= since && since > 0;
    let folders = recordings::private_folders().into_iter().filter(|f| recordings::distrust(f).is_none());
    let all = folders.flat_map(|folder| nothing_in(&folder).into_iter().map(move |o| (folder.clone(), o)));
    let (mut ended, mut ending) = (Vec::new(), false);
    for (folder, owner) in all.filter(|(_, owner)| of_this_run(owner)) {
        match liveness::life(&owner) {
            Life::Ended => ended.push((folder, owner)),
            Life::Runs => ending |= liveness::is_ending(owner.pid),
            Life::Unknown => {}
        }
    }
    (ended, ending)
}

/// Whose recordings in `folder` have no header, or nothing else.
fn nothing_in(folder: &Path) -> Vec<Owner> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let unfinished = entries.filter_map(|e| {
        let owner = place::parse_unfinished(e.file_name().to_str()?, place::NEW)?.1?;
        (!leftovers::has_header(&e.path())).then_some(owner)
    });
    let finished = recordings::list(folder).map_or_else(|_| Vec::new(), |listing| listing.found);
    let empty = finished.iter().filter(|f| f.header.state == state::RECORDING).filter(|f| {
        let Ok((source, _)) = recordings::look(&f.path) else { return false };
        // a process that could write notes what it is first
        Recording::open(&source).map_or(true, |r| r.definitions.attributes().next().is_none())
    });
    unfinished.chain(empty.map(|f| Owner::from(&f.header))).collect()
}

// SPDX-License-Identifier: Apache-2.0
//! The command died of a signal that tells of a fault: its next starts stay without gapprobe
//! (`injector/src/recording/crashes.rs` reads what is written here). Only where gapprobe was in it:
//! a recording that was not ended, or a start that died while it was attached to.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use spool::liveness::Life;
use trace::{define, place};

use crate::verbs::recordings::{self, Found};
use crate::verbs::talk;

/// Signals of a fault. Not those that others send (SIGTERM, SIGKILL, SIGINT).
const FAULTS: [(i32, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
];

/// Writes down that the command crashed with gapprobe in it, and says so.
pub(super) fn mark(status: &ExitStatus, pid: u32, run: &str, talks: bool) {
    let of = |number: i32| FAULTS.into_iter().find(|(n, _)| *n == number);
    // a shell ends with 128 + the signal that its last command died of
    let of_a_child = || status.code().and_then(|code| of(code - 128));
    let (own, found) = match (status.signal().and_then(of), of_a_child()) {
        (Some(fault), _) => (true, fault),
        (None, Some(fault)) => (false, fault),
        (None, None) => return,
    };
    let Some((folder, job)) = crashed_job(own.then_some(pid), run) else { return };
    match write(&folder.join(place::crashed(job)), found.0) {
        Ok(()) if talks => talk::say(format!(
            "gapprobe: the program died of {} under gapprobe: for 24 hours its starts run without; GAPPROBE=1 records all the same",
            found.1
        )),
        Ok(()) => {}
        Err(e) => talk::say(format!("gapprobe: {}: {e}", folder.display())),
    }
}

/// Folder and job of the process that crashed: `pid`, else the one process of this run that did not
/// end in order.
fn crashed_job(pid: Option<u32>, run: &str) -> Option<(PathBuf, u64)> {
    let found = recordings::list_private().found;
    let died = |f: &&Found| {
        f.life == Life::Ended && f.header.is_unfinished() && pid.is_none_or(|p| f.header.pid == p)
    };
    let job = |f: &Found| {
        let (source, _) = recordings::look(&f.path).ok()?;
        if !recordings::has_run_id(&source, run) {
            return None;
        }
        let job = recordings::attribute(&source, define::START)?;
        Some((f.path.parent()?.to_owned(), u64::from_str_radix(&job, 16).ok()?))
    };
    let mut jobs: Vec<_> = found.iter().filter(died).filter_map(job).collect();
    match (jobs.len(), pid) {
        (1, _) => jobs.pop(),
        (0, Some(pid)) => {
            recordings::private_folders().into_iter().find_map(|folder| attaching(&folder, pid))
        }
        _ => None,
    }
}

/// The start `pid` that died while it was attached to.
fn attaching(folder: &Path, pid: u32) -> Option<(PathBuf, u64)> {
    if recordings::distrust(folder).is_some() {
        return None;
    }
    let names = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|e| e.file_name());
    let found =
        names.filter_map(|n| place::parse_attaching(n.to_str()?)).find(|(owner, _)| owner.pid == pid)?;
    Some((folder.to_owned(), found.1))
}

fn write(path: &Path, signal: i32) -> io::Result<()> {
    let _ = fs::remove_file(path); // of an earlier crash
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{signal}")
}

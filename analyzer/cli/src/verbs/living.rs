// SPDX-License-Identifier: Apache-2.0
//! Recorded processes that run: found by their recordings, which the same user can read while they
//! grow.

use std::path::{Path, PathBuf};

use cli::live::RecordingState;
use spool::liveness::{is_stopped, Life};
use spool::procfs::boot_id;
use trace::header::HEADER_BYTES;
use trace::place::Owner;
use trace::{Header, Loss, Source};
use verdict::text::duration::long;
use verdict::text::escape::{visible, word};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::process;
use crate::verbs::recordings::{self, FileSource, Found};
use crate::verbs::talk;

/// A recording whose process cannot be asked about (another container) is taken for living while it
/// is written: every 50 ms.
const FRESH: u64 = 10_000_000_000;

/// A recorded process that runs.
pub(crate) struct Living {
    /// Its recording.
    pub(crate) path: PathBuf,
    /// The recording's header as it was when it was found, or looked at last.
    pub(crate) header: Header,
    /// When that was, CLOCK_MONOTONIC ns: what the header tells is of then, however long the rest
    /// takes.
    pub(crate) looked_at: u64,
    /// The recording's bytes now, whoever else they are told of.
    pub(crate) length: u64,
    /// It runs in another container: its pid means nothing here.
    pub(crate) elsewhere: bool,
    /// Nothing more is recorded of it.
    has_ended: bool,
}

impl Living {
    fn new(found: Found) -> Option<Living> {
        let h = &found.header;
        let elsewhere = match found.life {
            Life::Runs => false,
            Life::Unknown => {
                let here = boot_id() == Some(h.boot_id);
                if !here || process::monotonic().saturating_sub(h.last_write) > FRESH {
                    return None;
                }
                true
            }
            Life::Ended => return None,
        };
        let length = std::fs::metadata(&found.path).map_or(0, |m| m.len());
        let mut living = Living {
            length,
            path: found.path,
            header: found.header,
            looked_at: process::monotonic(),
            elsewhere,
            has_ended: false,
        };
        living.has_ended = living.standing() == RecordingState::Off
            && living.open().is_ok_and(|source| cli::live::has_ended(&source));
        Some(living)
    }

    /// Opens the recording.
    ///
    /// # Errors
    /// Where it is gone, or cannot be read.
    pub(crate) fn open(&self) -> Result<FileSource, Failure> {
        FileSource::open(&self.path)
    }

    /// `3/8`, or `-` where no launcher said.
    pub(crate) fn rank(&self) -> String {
        match (self.header.rank, self.header.world_size) {
            (0, _) => "-".to_owned(),
            (rank, 0) => (rank - 1).to_string(),
            (rank, world) => format!("{}/{world}", rank - 1),
        }
    }

    /// How long it has been recorded.
    pub(crate) fn since(&self) -> String {
        long(process::monotonic().saturating_sub(self.header.start_monotonic))
    }

    /// How long ago that was which its figures are of, ns; 0 where it has none.
    pub(crate) fn age(&self) -> u64 {
        match cli::live::complete_to(&self.header) {
            0 => 0,
            complete => self.looked_at.saturating_sub(complete),
        }
    }

    /// How its recording stands.
    pub(crate) fn standing(&self) -> RecordingState {
        match RecordingState::of(&self.header, self.looked_at) {
            RecordingState::Ending => RecordingState::Ending,
            _ if self.is_stopped() => RecordingState::Stopped,
            RecordingState::Off if self.has_ended => RecordingState::Ended,
            standing => standing,
        }
    }

    /// Stopped by a signal or a debugger, as far as that can be told from here.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.elsewhere && is_stopped(self.header.pid)
    }

    /// Everything lost so far.
    pub(crate) fn losses(&self) -> u64 {
        Loss::ALL.iter().map(|&l| self.header.loss(l)).fold(0, u64::saturating_add)
    }

    /// The command line, safe to show.
    pub(crate) fn program(&self) -> String {
        match self.header.command.as_str() {
            "" => "(unknown command)".to_owned(),
            command => visible(command).to_string(),
        }
    }
}

/// All of this user's, by rank and pid; recordings and folders that cannot be looked at are named
/// on stderr.
///
/// # Errors
/// Where no folder can be looked at.
pub(crate) fn all(talks: bool) -> Result<Vec<Living>, Failure> {
    let listing = recordings::list_private();
    let found = !listing.found.is_empty();
    for failure in listing.not_looked_at {
        if !found {
            return Err(failure);
        }
        if talks {
            talk::fail(&failure);
        }
    }
    let mut all: Vec<Living> = listing.found.into_iter().filter_map(Living::new).collect();
    // what a process recorded before it called exec is its old program's
    all.sort_by_key(|l| std::cmp::Reverse(l.header.start_monotonic));
    let mut seen: Vec<Owner> = Vec::new();
    all.retain(|l| {
        let owner = Owner::from(&l.header);
        let new = !seen.contains(&owner);
        seen.push(owner);
        new
    });
    all.sort_by_key(|l| (l.header.rank == 0, l.header.rank, l.header.pid));
    Ok(all)
}

/// The one that is meant: by its pid, or by its recording.
///
/// # Errors
/// [`Exit::NotRecorded`] with those there are.
pub(crate) fn one(which: &str) -> Result<Living, Failure> {
    let Ok(pid) = which.parse::<u32>() else {
        let path = Path::new(which);
        if !path.exists() {
            let what = format!("{which}: neither the number of a process nor a file");
            return Err(Failure::new(Exit::Unreadable, what)
                .hint("gapprobe ps shows the processes that are recorded"));
        }
        let (_, found) = recordings::look(path)?;
        let ended = Failure::new(Exit::NotRecorded, format!("{which}: its process has ended"))
            .hint(format!("trace and line of it: gapprobe recover {}", word(which)));
        return Living::new(found).ok_or(ended);
    };
    let mut all = all(false)?;
    let matching = all.iter().filter(|l| l.header.pid == pid).count();
    if matching == 1 {
        all.retain(|l| l.header.pid == pid);
    }
    match (matching, all.pop()) {
        (1, Some(one)) => Ok(one),
        (0, _) => {
            let mut failure = Failure::new(Exit::NotRecorded, format!("process {pid} is not recorded"));
            failure = match (Path::new(&format!("/proc/{pid}")).exists(), other_tmpdir(pid)) {
                (true, Some(its)) => failure.hint(format!(
                    "its TMPDIR is another one, and its recording would be there: TMPDIR={} gapprobe ...",
                    word(&its)
                )),
                (true, None) => {
                    failure.hint("it runs without gapprobe, has not used a GPU yet, or is another user's")
                }
                (false, _) => failure.hint("there is no such process here"),
            };
            Err(failure.hint("gapprobe ps shows those that are"))
        }
        (_, last) => {
            let mut failure =
                Failure::new(Exit::NotRecorded, format!("{matching} containers have a process {pid}"));
            for one in all.iter().chain(&last).filter(|l| l.header.pid == pid) {
                let path = word(&one.path.to_string_lossy()).into_owned();
                failure = failure.hint(format!("name its recording instead: {path}"));
            }
            Err(failure)
        }
    }
}

/// The TMPDIR that a process was started with, where it is not ours (a batch system gives each job
/// its own).
fn other_tmpdir(pid: u32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut all = environment.split(|b| *b == 0);
    let its = all.find_map(|variable| variable.strip_prefix(b"TMPDIR="))?;
    let ours = std::env::var_os("TMPDIR").unwrap_or_default();
    (its != ours.as_encoded_bytes() && !its.is_empty()).then(|| String::from_utf8_lossy(its).into_owned())
}

/// The header as it is now.
pub(crate) fn header_now(source: &FileSource) -> Option<Header> {
    let mut bytes = [0; HEADER_BYTES];
    source.read_at(0, &mut bytes).then(|| Header::decode(&bytes).ok()).flatten()
}

/// What a verb says that finds nobody.
pub(crate) fn nobody() -> Failure {
    Failure::new(Exit::NotRecorded, "no process of yours is recorded now").hint(
        "a process is, from its first use of a GPU on, if it was started with gapprobe run or LD_PRELOAD; of a job with a TMPDIR of its own: TMPDIR=... gapprobe ps",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_recording_stands_is_told_as_of_the_look_however_long_that_takes() {
        let wrote = process::monotonic().saturating_sub(60_000_000_000);
        let state = trace::header::state::RECORDING;
        let times = Header {
            last_write: wrote,
            host_complete_to: wrote,
            gpu_complete_to: wrote,
            ..Header::default()
        };
        let of = |looked_at| {
            let header = Header { state, start_monotonic: 1, ..times.clone() };
            let path = PathBuf::from("a recording");
            Living { path, header, looked_at, length: 0, elsewhere: true, has_ended: false }
        };
        let then = of(wrote + 1_000_000_000);
        assert_eq!((then.standing(), then.age()), (RecordingState::On, 1_000_000_000));
        assert_eq!(of(process::monotonic()).standing(), RecordingState::Stalled);
    }
}

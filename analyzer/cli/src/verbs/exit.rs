// SPDX-License-Identifier: Apache-2.0
//! How `gapprobe` ends: its exit codes, and errors that carry their own advice. Words, no
//! decisions.

use std::fmt;
use std::process::ExitCode;

use verdict::text::escape::visible;

/// Every way `gapprobe` ends by itself. `gapprobe run` otherwise ends with the exit code of its
/// command (128 + signal where a signal ended it). The numbers are part of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// `doctor` found a problem, something could not be written, or nobody came to `open` (its port
    /// is in use, no browser).
    Problem = 1,
    /// Wrong use: unknown option, missing argument.
    WrongUse = 2,
    /// `recover` found no recording of an ended process, or another `recover` is reporting it.
    NothingToRecover = 3,
    /// A file that was given could not be read: not there, damaged, of another version, or no trace
    /// or recording (a pipe, a device, an empty file).
    Unreadable = 4,
    /// With `--strict`: the verdict is INCONCLUSIVE. `check`: nothing failed, and something cannot
    /// be judged.
    Inconclusive = 5,
    /// The process of the recording still runs.
    StillRunning = 6,
    /// `recover --all`: at least one recording could not be reported; all others were.
    SomeFailed = 7,
    /// `check`: a condition is not met.
    CheckFailed = 8,
    /// `ps`, `top`, `capture`: no process of this user is recorded now, or not this one.
    NotRecorded = 9,
    /// `run`: gapprobe cannot record this command (library missing; static, musl or 32-bit
    /// program). As env(1) does.
    CannotRun = 125,
    /// `run`: the command is not executable. As shells do.
    NotExecutable = 126,
    /// `run`: the command was not found. As shells do.
    NotFound = 127,
}

/// The codes as `--help` prints them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    doctor found a problem, something cannot be written (a file, a folder, stdout), or open
       ended without a browser
  2    wrong use
  3    recover: no recording of an ended process
  4    a file that was given cannot be read: not there, no trace or recording, or damaged
  5    with --strict: the verdict is INCONCLUSIVE; check: a condition cannot be judged
  6    recover: the recorded process still runs
  7    recover --all: some recordings could not be reported, the others were
  8    check: a condition is not met
  9    ps, top, capture: no recorded process of yours, or not this one
  125  run: this command cannot be recorded
  126  run: the command is not executable
  127  run: the command was not found
  run ends with the exit code of its command, 128 + N if signal N ended it.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error for the user: what, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code it leads to.
    pub(crate) exit: Exit,
    /// One sentence, naming the file or thing.
    pub(crate) what: String,
    /// Advice, one line each.
    pub(crate) hints: Vec<String>,
}

impl Failure {
    /// An error without advice yet.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Failure {
        Failure { exit, what: what.into(), hints: Vec::new() }
    }

    /// The same with one more piece of advice.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gapprobe: {}", visible(&self.what))?;
        if !self.hints.is_empty() {
            writeln!(f)?;
        }
        for hint in &self.hints {
            write!(f, "\nhint: {}", visible(hint))?;
        }
        Ok(())
    }
}

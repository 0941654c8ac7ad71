// SPDX-License-Identifier: Apache-2.0
//! Talking to the user: data on stdout, everything else on stderr. A closed pipe is the reader's
//! right, no error. Names in the talk are others': what cannot be seen is written out
//! (`verdict::text::escape`), and on a terminal of the data, too.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verdict::text::escape::{visible, visible_json, Terminal};

use crate::verbs::exit::{Exit, Failure};

/// Data: to stdout, with a line break.
///
/// # Errors
/// Where stdout cannot be written, a closed pipe excepted.
pub(crate) fn print(data: impl Display) -> Result<(), Failure> {
    to_stdout(|out| writeln!(out, "{data}"))
}

/// A JSON value or text: to stdout, with a line break.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json(json: impl Display) -> Result<(), Failure> {
    print(visible_json(&json.to_string()))
}

/// Data in pieces: `fill` writes them to stdout.
///
/// # Errors
/// As [`print`].
pub(crate) fn to_stdout(fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let filled = if io::stdout().is_terminal() {
        let mut out = Terminal::new(&mut out);
        fill(&mut out).and_then(|()| out.flush())
    } else {
        fill(&mut out)
    };
    written(filled.and_then(|()| out.flush()))
}

/// What came of writing to stdout.
///
/// # Errors
/// As [`print`].
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            HAS_NO_READER.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(e) => Err(Failure::new(Exit::Problem, format!("cannot write to stdout: {e}"))),
        Ok(()) => Ok(()),
    }
}

static HAS_NO_READER: AtomicBool = AtomicBool::new(false);

/// Has whoever read stdout gone away? What prints again and again ends then.
pub(crate) fn has_no_reader() -> bool {
    HAS_NO_READER.load(Ordering::Relaxed)
}

/// Talk: one line to stderr. Nobody can be told where that fails.
pub(crate) fn say(talk: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", visible(&talk.to_string()));
}

/// Advice that goes with what was said: to stderr, behind an empty line.
pub(crate) fn hint(advice: &str) {
    let _ = writeln!(io::stderr().lock(), "\nhint: {}", visible(advice));
}

/// An error with its advice, to stderr.
pub(crate) fn fail(failure: &Failure) {
    let _ = writeln!(io::stderr().lock(), "{failure}");
}

/// How long work goes on in silence.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Time between two pictures of the bar.
const TICK: Duration = Duration::from_millis(100);

/// A bar on stderr, if that is a terminal and the work takes longer than a second.
pub(crate) struct Progress {
    terminal: bool,
    start: Instant,
    drawn: Cell<Option<Instant>>,
}

impl Progress {
    /// A bar not yet seen.
    pub(crate) fn new() -> Progress {
        Progress { terminal: io::stderr().is_terminal(), start: Instant::now(), drawn: Cell::new(None) }
    }

    /// `done` of `all` of the stage `what`.
    pub(crate) fn show(&self, what: &str, done: u64, all: u64) {
        let part = (done as f64 / all.max(1) as f64).min(1.0);
        let full = (part * 30.0) as usize;
        self.draw(|| format!("{what:<10} [{:<30}] {:3.0}%", "#".repeat(full), part * 100.0));
    }

    /// `bytes` done of the stage `what`, where nobody knows how many there are.
    pub(crate) fn show_amount(&self, what: &str, bytes: u64) {
        self.draw(|| format!("{what:<10} {} MB", bytes / 1_000_000));
    }

    fn draw(&self, picture: impl FnOnce() -> String) {
        let now = Instant::now();
        let recent = self.drawn.get().is_some_and(|t| now.duration_since(t) < TICK);
        if !self.terminal || recent || now.duration_since(self.start) < PROGRESS_DELAY {
            return;
        }
        self.drawn.set(Some(now));
        let _ = write!(io::stderr().lock(), "\r\x1b[K{}", picture());
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

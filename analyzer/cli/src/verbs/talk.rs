// SPDX-License-Identifier: Apache-2.0
//! Talking to the user: data on stdout, everything else on stderr. A closed pipe is the reader's
//! right, no error. Names in the talk are others': what cannot be seen is written out
//! (`verdict::text::escape`), and on a terminal of the data, too.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verdict::text::duration::long;
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
    /// Name and begin of what is done now.
    stage: RefCell<(String, Instant)>,
    drawn: Cell<Option<Instant>>,
}

impl Progress {
    /// A bar not yet seen.
    pub(crate) fn new() -> Progress {
        let start = Instant::now();
        let stage = RefCell::new((String::new(), start));
        Progress { terminal: io::stderr().is_terminal(), start, stage, drawn: Cell::new(None) }
    }

    /// `done` of `all` of the stage `what`.
    pub(crate) fn show(&self, what: &str, done: u64, all: u64) {
        let mut stage = self.stage.borrow_mut();
        if stage.0 != what {
            *stage = (what.to_owned(), Instant::now());
        }
        self.draw(|| bar(what, done as f64 / all.max(1) as f64, stage.1.elapsed()));
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

/// A bar of `part` of a stage that began `since`: how much, and how long the rest takes at this
/// pace.
fn bar(what: &str, part: f64, since: Duration) -> String {
    let part = part.clamp(0.0, 1.0);
    let full = "#".repeat((part * 30.0) as usize);
    let bar = format!("{what:<10} [{full:<30}] {:3.0}%", part * 100.0);
    let rest = Duration::try_from_secs_f64(since.as_secs_f64() * (1.0 - part) / part);
    match rest.map_or(0, |rest| rest.as_secs()) {
        0 => bar, // or nobody knows yet
        s @ 1..60 => format!("{bar}, {s} s left"),
        s => format!("{bar}, {} left", long(s * 1_000_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_estimated_from_what_is_done() {
        let s = Duration::from_secs;
        assert_eq!(bar("reading", 0.0, s(3)), "reading    [                              ]   0%");
        assert_eq!(
            bar("reading", 0.25, s(10)),
            "reading    [#######                       ]  25%, 30 s left"
        );
        assert_eq!(
            bar("writing", 0.5, s(3600)),
            "writing    [###############               ]  50%, 60 min left"
        );
        assert_eq!(bar("trace", 2.0, s(7)), "trace      [##############################] 100%");
    }
}

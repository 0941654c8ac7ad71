// SPDX-License-Identifier: Apache-2.0
//! The words that a command of the same user and a recorded process exchange over the process's
//! control socket (where that lies: [`crate::place::control_socket`]). One request a line, one
//! answer a line, both short; a line of another version is told so. Text only; nothing here asks
//! the system.
//!
//! ```text
//! gapprobe/1 status            gapprobe/1 ok on | off | held
//! gapprobe/1 record 30000      gapprobe/1 ok recording 81234567890      (on since this CLOCK_MONOTONIC time, ns)
//! gapprobe/1 release           gapprobe/1 ok on | off | held
//! anything else                gapprobe/1 error WORD
//! ```
//!
//! `record` holds recording on for so many milliseconds at most, until `release`, or until the
//! connection ends: whoever asked and died leaves nothing switched on.

use std::fmt;

/// Before every line, with the version.
pub const GREETING: &str = "gapprobe/1";
/// Longest line, its end included.
pub const MOST_BYTES: usize = 96;
/// Longest time recording is held on by one request, ms.
pub const MOST_MS: u64 = 600_000;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Is recording on?
    Status,
    /// Hold recording on for so many ms at most (1 to [`MOST_MS`]).
    Record(u64),
    /// Hold it no more.
    Release,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The line does not begin with [`GREETING`].
    Version,
    /// No request of this version.
    Unknown,
    /// More than [`MOST_BYTES`] without an end of line.
    TooLong,
    /// To `record`: recording ended for good, since no moment is known at which CUPTI may be
    /// switched ([`crate::define::ENDED`]).
    Ended,
}

impl Refusal {
    const ALL: [Refusal; 4] = [Refusal::Version, Refusal::Unknown, Refusal::TooLong, Refusal::Ended];

    /// As sent.
    pub const fn word(self) -> &'static str {
        match self {
            Refusal::Version => "version",
            Refusal::Unknown => "unknown",
            Refusal::TooLong => "too-long",
            Refusal::Ended => "ended",
        }
    }
}

/// How recording stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordingState {
    /// The program records.
    On,
    /// The program wants nothing recorded now.
    Off,
    /// It wants nothing recorded, and a `record` holds it on.
    Held,
}

impl RecordingState {
    const ALL: [RecordingState; 3] = [RecordingState::On, RecordingState::Off, RecordingState::Held];

    /// As sent.
    pub const fn word(self) -> &'static str {
        match self {
            RecordingState::On => "on",
            RecordingState::Off => "off",
            RecordingState::Held => "held",
        }
    }
}

/// What is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To `status` and `release`.
    Is(RecordingState),
    /// To `record`: everything from this CLOCK_MONOTONIC time on (ns) is recorded.
    Recording(u64),
    /// No.
    Refused(Refusal),
}

/// The words of a line behind the greeting; `None` where it is missing or too many or too odd bytes
/// follow it.
fn words(line: &[u8]) -> Option<[&str; 3]> {
    let text = std::str::from_utf8(line.get(..line.len().min(MOST_BYTES))?).ok()?;
    let mut words = text.trim_end_matches(['\n', '\r']).split(' ');
    if words.next()? != GREETING {
        return None;
    }
    let three = [words.next().unwrap_or(""), words.next().unwrap_or(""), words.next().unwrap_or("")];
    words.next().is_none().then_some(three)
}

/// A number as [`Request`] and [`Answer`] write it: digits only.
fn number(word: &str) -> Option<u64> {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| word.parse().ok()).flatten()
}

impl Request {
    /// Reads one line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Request, Refusal> {
        let three = words(line).ok_or(Refusal::Version)?;
        if line.windows(2).any(|w| w == b"  ") {
            return Err(Refusal::Unknown); // one blank between words, and none behind the last
        }
        match three {
            ["status", "", ""] => Ok(Request::Status),
            ["release", "", ""] => Ok(Request::Release),
            ["record", ms, ""] => {
                let ms = number(ms).filter(|ms| (1..=MOST_MS).contains(ms)).ok_or(Refusal::Unknown)?;
                Ok(Request::Record(ms))
            }
            _ => Err(Refusal::Unknown),
        }
    }
}

impl fmt::Display for Request {
    /// The line, with its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Status => writeln!(f, "{GREETING} status"),
            Request::Record(ms) => writeln!(f, "{GREETING} record {ms}"),
            Request::Release => writeln!(f, "{GREETING} release"),
        }
    }
}

impl Answer {
    /// Reads one line; `None` where it is none of this version.
    pub fn parse(line: &[u8]) -> Option<Answer> {
        match words(line)? {
            ["ok", "recording", ns] => number(ns).map(Answer::Recording),
            ["ok", word, ""] => RecordingState::ALL.into_iter().find(|s| s.word() == word).map(Answer::Is),
            ["error", word, ""] => Refusal::ALL.into_iter().find(|r| r.word() == word).map(Answer::Refused),
            _ => None,
        }
    }
}

impl fmt::Display for Answer {
    /// The line, with its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Is(standing) => writeln!(f, "{GREETING} ok {}", standing.word()),
            Answer::Recording(ns) => writeln!(f, "{GREETING} ok recording {ns}"),
            Answer::Refused(why) => writeln!(f, "{GREETING} error {}", why.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_understood_and_short() {
        for request in [Request::Status, Request::Record(1), Request::Record(MOST_MS), Request::Release] {
            let line = request.to_string();
            assert!(line.ends_with('\n') && line.len() <= MOST_BYTES);
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
            assert_eq!(Answer::parse(line.as_bytes()), None);
        }
        let answers = RecordingState::ALL.into_iter().map(Answer::Is);
        let refused = Refusal::ALL.into_iter().map(Answer::Refused);
        for answer in answers.chain(refused).chain([Answer::Recording(0), Answer::Recording(u64::MAX)]) {
            let line = answer.to_string();
            assert!(line.ends_with('\n') && line.len() <= MOST_BYTES);
            assert_eq!(Answer::parse(line.as_bytes()), Some(answer));
            assert!(Request::parse(line.as_bytes()).is_err());
        }
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        for other in ["", "\n", "GET / HTTP/1.1\r\n", "gapprobe/2 status\n", " gapprobe/1 status\n", "\0\0\0"]
        {
            assert_eq!(Request::parse(other.as_bytes()), Err(Refusal::Version), "{other:?}");
        }
        assert_eq!(Request::parse(&[0xff; 200]), Err(Refusal::Version));
        let odd = ["", " ", "stop", "status now", "status  ", "record", "record 0", "record 600001"];
        let numbers =
            ["record -1", "record +1", "record 1e3", "record 99999999999999999999999", "record 1 2"];
        for other in odd.into_iter().chain(numbers) {
            let line = format!("{GREETING} {other}\n");
            assert_eq!(Request::parse(line.as_bytes()), Err(Refusal::Unknown), "{other:?}");
        }
        assert_eq!(Request::parse(b"gapprobe/1 record 1 2 3\n"), Err(Refusal::Version), "too many words");
    }
}

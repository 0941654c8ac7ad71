// SPDX-License-Identifier: Apache-2.0
//! Facts in words. The line alone has shorter forms of some figures (`sentence.rs`).

use std::fmt::{self, Display, Formatter};

use crate::analysis::{Fact, Facts, Figure, Finding, Often, Verdict};
use crate::output::line::{percent, step_time};
use crate::sites::Site;
use crate::text::plural::{counted, of};

impl Finding {
    /// What was seen, in words.
    pub fn text(&self) -> String {
        self.facts.text()
    }
}

impl Verdict {
    /// What was seen, in words.
    pub fn text(&self) -> String {
        self.facts.text()
    }

    /// Of INCONCLUSIVE: why.
    pub fn why_inconclusive(&self) -> Option<String> {
        self.inconclusive.as_ref().map(Fact::text)
    }
}

impl Facts {
    /// All of them: "train.py:88 in step: cudaStreamSynchronize drains the queue every step; and 1
    /// more line".
    pub fn text(&self) -> String {
        self.statements().join("; ")
    }

    /// The statements, each whole.
    pub fn statements(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for fact in &self.said {
            match (all.last_mut(), &self.at) {
                (Some(last), _) if fact.goes_on() => last.push_str(&fact.text()),
                (None, Some(at)) => all.push(format!("{at}: {}", fact.text())),
                _ => all.push(fact.text()),
            }
        }
        all
    }
}

impl Fact {
    /// It goes on with the statement before it.
    fn goes_on(&self) -> bool {
        self.says.starts_with([' ', ','])
    }

    /// Its words with its figures.
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(self.says.len());
        let mut rest = self.says;
        while let Some((before, name, after)) = next_figure(rest) {
            let figure = self.figures.iter().find(|f| f.0 == name);
            debug_assert!(figure.is_some(), "{name} of {self:?}");
            out.push_str(before);
            if let Some((_, figure)) = figure {
                out.push_str(&figure.to_string());
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

/// What is before the next name in braces, the name, and what is after it.
pub(crate) fn next_figure(says: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = says.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

impl Display for Figure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Count(n) => write!(f, "{n}"),
            Figure::Of(n, one, many) => write!(f, "{n} {}", of(*n, one, many)),
            Figure::Share(share) => f.write_str(&percent(*share)),
            Figure::SmallShare(share) => write!(f, "{:.1}%", share * 100.0),
            Figure::Time(ns) => f.write_str(&step_time(*ns)),
            Figure::Bytes(n) => bytes(f, *n),
            Figure::Rate(n) => write!(f, "{:.0} MB/s", n / 1e6),
            Figure::Cpus(n) if (n - n.round()).abs() < 0.05 => write!(f, "{n:.0}"),
            Figure::Cpus(n) => write!(f, "{n:.1}"),
            Figure::Often(often) => often.fmt(f),
            Figure::Word(word) => f.write_str(word),
            Figure::Name(name) => f.write_str(name),
            Figure::Site(site) => site.fmt(f),
            Figure::Place(site) => f.write_str(&site.place()),
            Figure::Who(site) => who(f, site),
            Figure::Causes(causes) => {
                let said = causes.iter().map(|(cause, share)| format!("{cause} {:.0}%", share * 100.0));
                f.write_str(&said.collect::<Vec<_>>().join(", "))
            }
            Figure::Together(causes) => f.write_str(&causes.join(" + ")),
        }
    }
}

impl Display for Often {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let times = |n: u64| counted(n, "time");
        match *self {
            Often::Times(n) => f.write_str(&times(n)),
            Often::EveryStep => f.write_str("every step"),
            Often::PerStep(n) => write!(f, "{n:.0} times a step"),
            Often::EverySteps(n) => write!(f, "every {n} steps"),
            Often::Among { times: n, steps } => write!(f, "{} in {}", times(n), counted(steps, "step")),
            Often::InSome { times: n, with, steps } => {
                write!(f, "{} in {with} of {}", times(n), counted(steps, "step"))
            }
        }
    }
}

/// `12.3 MB`, `1.20 GB`.
fn bytes(f: &mut Formatter<'_>, n: f64) -> fmt::Result {
    match n {
        n if n >= 1e9 => write!(f, "{:.2} GB", n / 1e9),
        n if n >= 1e6 => write!(f, "{:.1} MB", n / 1e6),
        n => write!(f, "{:.1} kB", n / 1e3),
    }
}

/// "hog at train.py:20", "another thread at train.py:20".
fn who(f: &mut Formatter<'_>, site: &Site) -> fmt::Result {
    let function = if site.function.is_empty() { "another thread" } else { &site.function };
    let at = Site { function: String::new(), ..site.clone() };
    write!(f, "{function} at {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_set_apart_and_one_that_goes_on_is_not() {
        let at = Site { file: "train.py".into(), line: 88, ..Site::default() };
        let said = vec![
            Fact::new("{function} drains the queue {often}")
                .with("function", "f")
                .with("often", Often::EveryStep),
            Fact::new("{lines} more").with("lines", Figure::Of(2, "line", "lines")),
            Fact::new(", {share} of the time").with("share", Figure::Share(0.5)),
        ];
        let facts = Facts { at: Some(at), said };
        assert_eq!(facts.text(), "train.py:88: f drains the queue every step; 2 lines more, 50% of the time");
        assert_eq!(facts.figure("share"), Some(&Figure::Share(0.5)));
        assert_eq!(facts.figure("no"), None);
    }

    #[test]
    fn numbers_of_cpus_have_a_decimal_where_they_need_one() {
        let said = [2.0, 1.5, 0.04, 13.97, 0.2].map(|n| Figure::Cpus(n).to_string());
        assert_eq!(said, ["2", "1.5", "0", "14", "0.2"]);
    }

    #[test]
    fn how_often_is_said_by_step_where_steps_have_it() {
        let said = [
            Often::Times(1),
            Often::PerStep(11.8),
            Often::EverySteps(20),
            Often::Among { times: 2, steps: 8 },
            Often::InSome { times: 56, with: 8, steps: 56 },
        ];
        let said = said.map(|often| often.to_string());
        assert_eq!(
            said,
            [
                "1 time",
                "12 times a step",
                "every 20 steps",
                "2 times in 8 steps",
                "56 times in 8 of 56 steps"
            ]
        );
    }
}

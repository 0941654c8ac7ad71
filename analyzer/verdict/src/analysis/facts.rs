// SPDX-License-Identifier: Apache-2.0
//! What was seen, as data: statements with the figures in them. `evidence.rs` puts them into words.

use crate::sites::Site;

/// Statements about one thing, in the order in which they are said.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Facts {
    /// The line of the program that they are about, where it is said in front of them.
    pub at: Option<Site>,
    /// The statements.
    pub said: Vec<Fact>,
}

impl Facts {
    /// One more statement.
    pub fn say(&mut self, fact: Fact) {
        self.said.push(fact);
    }

    /// All of these.
    pub fn add(&mut self, facts: impl IntoIterator<Item = Fact>) {
        self.said.extend(facts);
    }

    /// The first figure of this name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.said.iter().flat_map(|fact| &fact.figures).find(|f| f.0 == name).map(|f| &f.1)
    }
}

impl From<Fact> for Facts {
    fn from(fact: Fact) -> Facts {
        Facts { at: None, said: vec![fact] }
    }
}

/// A statement, and its figures by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Its words, with the names of its figures in braces: "{waiting} of {kernels} kernels wait for
    /// their launch". One that begins with a space or a comma goes on with the one before it.
    pub says: &'static str,
    /// Each name is in `says` once.
    pub figures: Vec<(&'static str, Figure)>,
}

impl Fact {
    /// A statement whose figures follow ([`Self::with`]).
    pub const fn new(says: &'static str) -> Fact {
        Fact { says, figures: Vec::new() }
    }

    /// With one more figure.
    #[must_use]
    pub fn with(mut self, name: &'static str, figure: impl Into<Figure>) -> Fact {
        self.figures.push((name, figure.into()));
        self
    }
}

/// A figure of a statement, with what it is a figure of.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A count.
    Count(u64),
    /// A count, with the words for one and for many: "1 worker", "2 workers".
    Of(u64, &'static str, &'static str),
    /// A share, 0 to 1, in whole percent.
    Share(f64),
    /// A share, 0 to 1, in tenths of a percent.
    SmallShare(f64),
    /// A time, ns.
    Time(f64),
    /// Bytes.
    Bytes(f64),
    /// Bytes a second.
    Rate(f64),
    /// CPUs, or the time that they are used for, in CPUs.
    Cpus(f64),
    /// How often.
    Often(Often),
    /// One of a few expressions.
    Word(&'static str),
    /// A name that the recording has: a function, a kernel.
    Name(Box<str>),
    /// A place in the program.
    Site(Site),
    /// A place in the program, its line alone: "train.py:20".
    Place(Site),
    /// A place in the program, its function first: "hog at train.py:20".
    Who(Site),
    /// Causes, with the share of each, 0 to 1.
    Causes(Vec<(&'static str, f64)>),
    /// Causes that go together.
    Together(Vec<&'static str>),
}

impl From<u64> for Figure {
    fn from(n: u64) -> Figure {
        Figure::Count(n)
    }
}

impl From<u32> for Figure {
    fn from(n: u32) -> Figure {
        Figure::Count(u64::from(n))
    }
}

impl From<usize> for Figure {
    fn from(n: usize) -> Figure {
        Figure::Count(n as u64)
    }
}

impl From<&str> for Figure {
    fn from(name: &str) -> Figure {
        Figure::Name(name.into())
    }
}

impl From<&Site> for Figure {
    fn from(site: &Site) -> Figure {
        Figure::Site(site.clone())
    }
}

impl From<Often> for Figure {
    fn from(often: Often) -> Figure {
        Figure::Often(often)
    }
}

/// How often something happens, by what holds of nearly all steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Often {
    /// So many times; there are no steps.
    Times(u64),
    /// Once in nearly every step.
    EveryStep,
    /// So many times in nearly every step, a mean.
    PerStep(f64),
    /// Once in so many steps, evenly.
    EverySteps(u64),
    /// So many times in all of the steps.
    Among {
        /// Times.
        times: u64,
        /// Steps.
        steps: u64,
    },
    /// So many times, in some of the steps.
    InSome {
        /// Times.
        times: u64,
        /// Steps that have it.
        with: u64,
        /// All steps.
        steps: u64,
    },
}

// SPDX-License-Identifier: Apache-2.0
//! The run behind the tables, and what several of them need of it: each made when first asked for,
//! once.

use std::cell::OnceCell;

use formats::OsCall;
use verdict::analysis::Analysis;
use verdict::run::{Op, Run};

use super::launches::Launches;
use super::names::{Kernels, NameStyle};
use super::occupancy::Fits;
use super::ranges::{self, Named};

/// What tables are made from.
pub struct Source<'a> {
    /// The facts.
    pub run: &'a Run,
    /// Calls into the operating system, which no run holds.
    pub(super) os_calls: &'a [OsCall],
    names: NameStyle,
    analysis: OnceCell<Analysis>,
    kernels: OnceCell<Kernels>,
    launches: OnceCell<Launches>,
    ranges: OnceCell<Vec<Named>>,
    fits: OnceCell<Fits>,
}

impl<'a> Source<'a> {
    /// Tables of `run`, kernels named as `names` says.
    pub fn new(run: &'a Run, names: NameStyle) -> Source<'a> {
        Source {
            run,
            os_calls: &[],
            names,
            analysis: OnceCell::new(),
            kernels: OnceCell::new(),
            launches: OnceCell::new(),
            ranges: OnceCell::new(),
            fits: OnceCell::new(),
        }
    }

    /// The same with calls into the operating system, which a trace may have beside its run.
    pub fn with_os_calls(self, os_calls: &'a [OsCall]) -> Source<'a> {
        Source { os_calls, ..self }
    }

    /// What was found in the run.
    pub fn analysis(&self) -> &Analysis {
        self.analysis.get_or_init(|| verdict::analyze(self.run))
    }

    /// Kernels by name.
    pub(super) fn kernels(&self) -> &Kernels {
        self.kernels.get_or_init(|| Kernels::new(self.run, self.names))
    }

    /// What each call launched.
    pub(super) fn launches(&self) -> &Launches {
        self.launches.get_or_init(|| Launches::new(self.run))
    }

    /// The program's named ranges.
    pub(super) fn ranges(&self) -> &[Named] {
        self.ranges.get_or_init(|| ranges::named(self.run))
    }

    /// How kernels fit their devices.
    pub(super) fn fits(&self) -> &Fits {
        self.fits.get_or_init(|| Fits::new(self.run))
    }

    /// Process id as a cell's content; foreign traces may not tell.
    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.run.header.pid).filter(|&p| p > 0)
    }

    /// All operations, with the index of their device.
    pub(super) fn ops(&self) -> impl Iterator<Item = (usize, &'a Op)> {
        let devices = self.run.devices.iter().enumerate();
        devices.flat_map(|(d, device)| {
            device.streams.iter().flat_map(move |s| s.ops.iter().map(move |o| (d, o)))
        })
    }

    /// A text of the run.
    pub(super) fn string(&self, id: u32) -> &'a str {
        self.run.definitions.string(id).unwrap_or("")
    }
}

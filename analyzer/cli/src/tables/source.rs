// SPDX-License-Identifier: Apache-2.0
//! The run behind the tables, and what several of them need of it: each made when first asked for,
//! once.

use std::borrow::Cow;
use std::cell::OnceCell;

use formats::{Input, Operators, OsCall};
use trace::Kind;
use verdict::analysis::Analysis;
use verdict::run::{Op, Run};

use super::cuda_gpu_mem_time_sum::operation;
use super::launches::Launches;
use super::names::{Kernels, NameStyle};
use super::occupancy::Fits;
use super::ranges::{self, Named};

static NONE: Operators =
    Operators { inputs: Vec::new(), memory: Vec::new(), overhead: Vec::new(), main_thread: None };

/// What tables are made from.
pub struct Source<'a> {
    /// The facts.
    pub run: &'a Run,
    /// Calls into the operating system, which no run holds.
    pub(super) os_calls: &'a [OsCall],
    /// More of operators than runs hold.
    pub(super) operators: &'a Operators,
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
            operators: &NONE,
            names,
            analysis: OnceCell::new(),
            kernels: OnceCell::new(),
            launches: OnceCell::new(),
            ranges: OnceCell::new(),
            fits: OnceCell::new(),
        }
    }

    /// Tables of a trace: of its run, and what it has beside.
    pub fn of(input: &'a Input, names: NameStyle) -> Source<'a> {
        let (os_calls, operators) = (&*input.os_calls, &input.operators);
        Source { os_calls, operators, ..Source::new(&input.run, names) }
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
    pub(crate) fn ops(&self) -> impl Iterator<Item = (usize, &'a Op)> {
        let devices = self.run.devices.iter().enumerate();
        devices.flat_map(|(d, device)| {
            device.streams.iter().flat_map(move |s| s.ops.iter().map(move |o| (d, o)))
        })
    }

    /// Device index and operation of all that the call with this flat number launched.
    pub(crate) fn launched(&self, call: u32) -> impl Iterator<Item = (usize, &'a Op)> + use<'_, 'a> {
        self.launches().of(self.run, call)
    }

    /// Name of a kernel, copy, memset, or of a graph that was recorded as a whole.
    pub(crate) fn operation(&self, op: &Op) -> Cow<'_, str> {
        match (op.kind, operation(op)) {
            (_, Some(name)) => name.into(),
            (Kind::Kernel, _) => {
                let kernels = self.kernels();
                kernels.name(kernels.number(op.a)).map_or("(no name)", |name| name).into()
            }
            _ => format!("[CUDA graph {}]", op.graph).into(),
        }
    }

    /// A text of the run.
    pub(super) fn string(&self, id: u32) -> &'a str {
        self.run.definitions.string(id).unwrap_or("")
    }
}

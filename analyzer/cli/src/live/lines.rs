// SPDX-License-Identifier: Apache-2.0
//! For which lines of the program the GPU worked in the seconds looked at: what `gapprobe top
//! --lines` shows. Kernels, copies and memsets are attributed as in the table `gpu_lines`.

use std::time::{Duration, Instant};

use trace::Language;
use verdict::analysis::share;
use verdict::run::{Run, Span};
use verdict::symbols;

use super::complete_to;
use crate::tables::{gpu_time_by_line, LineTime, NameStyle, Source};

/// Lines at most.
const MOST_LINES: usize = 5;

/// What has a smaller share is not worth a line.
const LEAST_SHARE: f64 = 0.01;

/// Callers in machine code are named for about so long at most.
const NAMING: Duration = Duration::from_millis(500);

/// A line and the GPU's time for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// `net.py:12 in Net.forward via Linear.forward`; `None`: of all work without a line.
    pub line: Option<String>,
    /// Path of the module of PyTorch's that most of it was for; `None`: none is known.
    pub module: Option<String>,
    /// Modules that it was for.
    pub modules: usize,
    /// Time of GPU operations, ns; of those that overlap the sum.
    pub gpu_ns: u64,
    /// Share of the time of all GPU operations of the process, 0 to 1.
    pub share: f64,
}

/// The lines with the most GPU time; `None` where no line was recorded. Callers of CUDA in machine
/// code are named in `run` where work of theirs would have a line.
pub fn lines(run: &mut Run) -> Option<Vec<Line>> {
    let is_recorded =
        run.threads.iter().any(|t| !t.backward.is_empty() || t.calls.iter().any(|c| c.site != 0));
    if !is_recorded {
        return None;
    }
    if unnamed_share(run) >= LEAST_SHARE {
        symbols::name_with_lines(run, Some(Instant::now() + NAMING));
    }
    let all = gpu_time_by_line(&Source::new(run, NameStyle::Short), looked_at(run));
    let sum: u64 = all.iter().fold(0, |sum, line| sum.saturating_add(line.ns));
    let line = |line: &LineTime| Line {
        line: line.site.as_ref().map(ToString::to_string),
        module: line.module.clone(),
        modules: line.modules,
        gpu_ns: line.ns,
        share: share(line.ns, sum),
    };
    Some(all.iter().map(line).take_while(|line| line.share >= LEAST_SHARE).take(MOST_LINES).collect())
}

/// The seconds that count.
fn looked_at(run: &Run) -> Span {
    Span::new(run.header.valid_from, complete_to(&run.header))
}

/// Share of the GPU's time whose call was made by machine code that has no name yet.
fn unnamed_share(run: &Run) -> f64 {
    let within = looked_at(run);
    let (mut unnamed, mut all) = (0u64, 0u64);
    for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
        let ns = op.span().clip(within).ns();
        let stack = run.origin(op).map_or(0, |origin| origin.work.stack);
        let caller = run.definitions.stack(stack).next().filter(|f| f.language == Language::Caller);
        let is_unnamed = caller.is_some_and(|f| f.function == 0);
        unnamed = unnamed.saturating_add(if is_unnamed { ns } else { 0 });
        all = all.saturating_add(ns);
    }
    share(unnamed, all)
}

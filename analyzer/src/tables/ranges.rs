// SPDX-License-Identifier: Apache-2.0
//! The program's named ranges (NVTX, `record_function`, `gapprobe_range`), nested, and what was launched in them.
//! Operators and Python functions of a profiler are no ranges of the program.

use super::launches::Launches;
use crate::run::{Op, RangeKind, Run, Span};

/// Ranges nested deeper than this have no part in the tables of what was launched in them: work stays linear.
pub(super) const MOST_LEVELS: u32 = 64;

/// How nsys calls ranges that end on the thread they began on, innermost first: all that a [`Run`] holds.
pub(super) const STYLE: &str = "PushPop";

/// A named range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Index of its thread.
    pub(super) thread: usize,
    /// Begin and end on the host.
    pub(super) span: Span,
    /// String id of its name.
    pub(super) name: u32,
    /// Named ranges it is in, on its thread.
    pub(super) level: u32,
    /// Named ranges directly in it.
    pub(super) children: u32,
}

/// All named ranges, by thread, then by begin (the longer first).
pub(super) fn named(run: &Run) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    for (thread, t) in run.threads.iter().enumerate() {
        let mut open: Vec<usize> = Vec::new();
        for r in t.ranges.iter().filter(|r| r.kind == RangeKind::User) {
            let ended = |i: &usize| found.get(*i).is_none_or(|o| o.span.end <= r.span.start);
            while open.last().is_some_and(ended) {
                open.pop();
            }
            let level = open.len() as u32;
            if let Some(parent) = open.last().and_then(|&i| found.get_mut(i)) {
                parent.children += 1;
            }
            open.push(found.len());
            found.push(Named { thread, span: r.span, name: r.name, level, children: 0 });
        }
    }
    found
}

impl Named {
    /// Device index and operation of all that calls inside the range launched: calls of its thread that begin and end
    /// in it. None for ranges nested too deep.
    pub(super) fn ops<'a>(
        &self,
        run: &'a Run,
        launches: &'a Launches,
    ) -> impl Iterator<Item = (usize, &'a Op)> + use<'a> {
        let span = self.span;
        let (thread, level) = (self.thread, self.level);
        let calls = run.threads.get(thread).map_or(&[][..], |t| &t.calls);
        let from = calls.partition_point(|c| c.start < span.start);
        let calls = if level < MOST_LEVELS { calls.get(from..).unwrap_or(&[]) } else { &[] };
        calls
            .iter()
            .enumerate()
            .take_while(move |(_, c)| c.start <= span.end)
            .filter(move |(_, c)| c.end <= span.end)
            .flat_map(move |(i, _)| launches.of(run, run.flat(thread, from + i)))
    }
}

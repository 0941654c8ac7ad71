// SPDX-License-Identifier: Apache-2.0
//! The phases of a step: the outermost named ranges inside steps (forward, backward, optimizer, data ...), warm-up left
//! out.
//!
//! A range that is a step, or holds a whole one, is no phase but a frame around phases. A phase belongs to the step it
//! begins in on the host; where steps were found by a period of the launches (times of the device), to the one in which
//! its first GPU operation begins.
//!
//! ```text
//! Time           Total Time in the time of all steps that count
//! Total Time     on the host, of all instances
//! Avg ... StdDev a step: the instances of one name in one step are summed up first; steps without any do not count
//! GPU Time       sum of what it launched, begin to end
//! GPU Proj       first begin to last end of what it launched, summed over instances
//! ```

use foldhash::{HashMap, HashMapExt};

use super::groups::{by_total, Groups};
use super::ranges::Named;
use super::table::{five, ns, number, percent_of, row, text, Row, AVG, MAX, MED, MIN, STDDEV, TIME, TOTAL};
use super::{Report, Source};
use crate::analysis::{Step, StepSource};
use crate::run::Span;

pub(super) static REPORT: Report = Report {
    name: "phases",
    title: "Phases of the Steps",
    what: "outermost named ranges inside steps: time a step on the host and on the GPU",
    needs: "named ranges inside steps",
    usual: false,
    shown: 0,
    columns: &[
        TIME,
        TOTAL,
        number("Steps", "steps"),
        number("Instances", "instances"),
        AVG,
        MED,
        MIN,
        MAX,
        STDDEV,
        ns("GPU Time", "gpu_ns"),
        ns("GPU Proj", "gpu_proj_ns"),
        text("Phase", "phase"),
    ],
    rows,
};

/// What a phase took.
#[derive(Clone, Copy, Default)]
struct Part {
    instances: u64,
    gpu_ns: u128,
    projected_ns: u128,
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, launches, found) = (source.run, source.launches(), &source.analysis().steps);
    let steps = found.steady();
    let on_device = found.source == StepSource::Period;
    let mut host: HashMap<(&str, usize), u64> = HashMap::new();
    let mut parts: HashMap<&str, Part> = HashMap::new();
    for phase in outermost(source.ranges(), steps, found.source) {
        let nothing = (u64::MAX, 0u64, 0u128);
        let (first, last, gpu_ns) = phase.ops(run, launches).fold(nothing, |(first, last, sum), (_, o)| {
            (first.min(o.start), last.max(o.end), sum + u128::from(o.span().ns()))
        });
        let begin = if on_device { first } else { phase.span.start };
        let Some(step) = step_at(steps, begin) else { continue };
        let name = source.string(phase.name);
        *host.entry((name, step)).or_default() += phase.span.ns();
        let part = parts.entry(name).or_default();
        part.instances += 1;
        part.gpu_ns += gpu_ns;
        part.projected_ns += u128::from(last.saturating_sub(first));
    }
    let mut groups: Groups<&str> = Groups::new();
    for ((name, _), ns) in host {
        groups.add(name, ns);
    }
    let all: u128 = steps.iter().map(|s| u128::from(s.span.ns())).sum();
    let mut rows: Vec<(u128, Row, Row)> = groups
        .stats()
        .into_iter()
        .map(|(name, s)| {
            let part = parts.get(name).copied().unwrap_or_default();
            let mut cells = row![percent_of(s.total, all), s.total, s.count, part.instances];
            cells.extend(five(&s));
            cells.extend(row![part.gpu_ns, part.projected_ns, name]);
            (s.total, cells, row![name])
        })
        .collect();
    by_total(&mut rows);
    rows.into_iter().map(|(_, cells, _)| cells).collect()
}

/// Index of the step that `at` lies in.
fn step_at(steps: &[Step], at: u64) -> Option<usize> {
    let index = steps.partition_point(|s| s.span.start <= at).checked_sub(1)?;
    steps.get(index).filter(|s| at < s.span.end).map(|_| index)
}

/// Ranges that lie in no other range but frames.
fn outermost<'a>(
    ranges: &'a [Named],
    steps: &'a [Step],
    source: StepSource,
) -> impl Iterator<Item = &'a Named> {
    let mut thread = usize::MAX;
    let (mut until, mut frame_start) = (0, u64::MAX);
    ranges.iter().filter(move |r| {
        if r.thread != thread {
            (thread, until, frame_start) = (r.thread, 0, u64::MAX);
        }
        if r.span.start < until {
            return false;
        }
        // of ranges that begin together the longest comes first: only that one can be the step
        let begins_step = source == StepSource::Ranges
            && frame_start != r.span.start
            && steps.binary_search_by_key(&r.span.start, |s| s.span.start).is_ok();
        if begins_step || holds_a_step(steps, r.span) {
            frame_start = r.span.start;
            return false;
        }
        until = r.span.end;
        true
    })
}

fn holds_a_step(steps: &[Step], span: Span) -> bool {
    let first = steps.partition_point(|s| s.span.start < span.start);
    steps.get(first).is_some_and(|s| s.span.end <= span.end)
}

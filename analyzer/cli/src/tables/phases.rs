// SPDX-License-Identifier: Apache-2.0
//! The phases of a step: the outermost named ranges inside steps (forward, backward, optimizer,
//! data ...), warm-up left out; and forward, backward and optimizer as far as they are sure where
//! no range names them (`phases/`): then the column Known By says by what.
//!
//! A range that is a step, or holds a whole one, is no phase but a frame around phases; a library's
//! own (domain NCCL) is none. A phase belongs to the step it begins in on the host; where steps
//! were found by a period of the launches (times of the device), to the one in which its first GPU
//! operation begins.
//!
//! ```text
//! Time           Total Time in the host time of all steps that count
//! Total Time     on the host, of all instances
//! Avg ... StdDev a step: the instances of one name in one step are summed up first; steps without
//!         any do not count
//! GPU Time       sum of what it launched, begin to end
//! GPU Proj       first begin to last end of what it launched, summed over instances
//! Tensor ...     by the GPU's own counters meanwhile, where a phase lasts for seconds
//! ```

use foldhash::{HashMap, HashMapExt};
use verdict::analysis::{Counters, Step, StepSource};
use verdict::run::Span;

use super::groups::{by_total, Groups};
use super::ranges::{unnumbered, Named};
use super::table::{
    five, ns, number, percent_of, row, spare_percent, spare_text, text, Row, AVG, MAX, MED, MIN, STDDEV,
    TIME, TOTAL,
};
use super::{Report, Source};
use crate::phases::{inferred, Kind};

pub(super) static REPORT: Report = Report {
    name: "phases",
    title: "Phases of the Steps",
    what: "outermost named ranges inside steps, or phases that are found without any: time a step on host and GPU",
    needs: "steps with named ranges in which GPU work is launched, or whose phases are found without any",
    usual: false,
    shown: 50,
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
        spare_percent("Tensor Cores", "tensor_active_pct"),
        spare_percent("Memory Bandwidth", "memory_bandwidth_pct"),
        text("Phase", "phase"),
        spare_text("Known By", "known_by"),
    ],
    rows,
    each: None,
};

/// What a phase took.
#[derive(Clone, Default)]
struct Part {
    instances: u64,
    gpu_ns: u128,
    /// On the device, first begin to last end of each instance.
    projected: Vec<Span>,
    /// Nothing of named ranges.
    by: Option<&'static str>,
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
        // ranges lie on the host, as its steps do; the steps of a period lie on the device
        let begin = if on_device { first } else { phase.span.start };
        let Some(step) = step_at(steps, begin) else { continue };
        let name = unnumbered(source.string(phase.name));
        *host.entry((name, step)).or_default() += phase.span.ns();
        let part = parts.entry(name).or_default();
        part.instances += 1;
        part.gpu_ns += gpu_ns;
        part.projected.extend((first < last).then(|| Span::new(first, last)));
    }
    for phase in inferred(run, source.analysis()) {
        let begin = if on_device { phase.gpu.map_or(u64::MAX, |g| g.start) } else { phase.host.start };
        let Some(step) = step_at(steps, begin) else { continue };
        // a range may have the name that is shown for it: what it has is told apart
        let name = match phase.kind {
            Kind::Dataload => "(dataload)",
            Kind::Forward => "(forward)",
            Kind::Backward => "(backward)",
            Kind::Optimizer => "(optimizer)",
        };
        *host.entry((name, step)).or_default() += phase.host.ns();
        let part = parts.entry(name).or_default();
        part.instances += 1;
        part.gpu_ns += u128::from(phase.gpu_ns);
        part.projected.extend(phase.gpu);
        part.by = Some(phase.by.words());
    }
    let mut groups: Groups<&str> = Groups::new();
    for ((name, _), ns) in host {
        groups.add(name, ns);
    }
    let all: u128 = steps.iter().map(|s| u128::from(s.host.ns())).sum();
    let analysis = source.analysis();
    let device = analysis.worst.and_then(|worst| analysis.devices.get(worst));
    let ordinal = device.map_or(u32::MAX, |d| d.ordinal);
    let rows = groups
        .stats()
        .into_iter()
        .map(|(name, s)| {
            let part = parts.remove(name).unwrap_or_default();
            let projected: u128 = part.projected.iter().map(|s| u128::from(s.ns())).sum();
            let counters = Counters::of(run, ordinal, &united(part.projected));
            let used = |of: fn(Counters) -> Option<f64>| counters.and_then(of).map(|share| share * 100.0);
            let mut cells = row![percent_of(s.total, all), s.total, s.count, part.instances];
            cells.extend(five(&s));
            cells.extend(row![part.gpu_ns, projected, used(|c| c.tensor), used(|c| c.memory)]);
            (s.total, cells, row![name, part.by])
        })
        .collect();
    by_total(rows)
}

/// Spans by time, those that touch as one.
fn united(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|s| s.start);
    spans.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        last.end = if touches { last.end.max(next.end) } else { last.end };
        touches
    });
    spans
}

/// Index of the step that `at` lies in.
fn step_at(steps: &[Step], at: u64) -> Option<usize> {
    let index = steps.partition_point(|s| s.host.start <= at).checked_sub(1)?;
    steps.get(index).filter(|s| at < s.host.end).map(|_| index)
}

/// Ranges that lie in no other range but frames.
fn outermost<'a>(
    ranges: &'a [Named],
    steps: &'a [Step],
    source: StepSource,
) -> impl Iterator<Item = &'a Named> {
    let mut thread = usize::MAX;
    let (mut until, mut frame_start) = (0, u64::MAX);
    ranges.iter().filter(|r| !r.librarys).filter(move |r| {
        if r.thread != thread {
            (thread, until, frame_start) = (r.thread, 0, u64::MAX);
        }
        // one that begins in another and ends behind it lies in none
        if r.span.start < until && r.span.end <= until {
            return false;
        }
        // of ranges that begin together the longest comes first: only that one can be the step
        let begins_step = source == StepSource::Ranges
            && frame_start != r.span.start
            && steps.binary_search_by_key(&r.span.start, |s| s.host.start).is_ok();
        if begins_step || holds_a_step(steps, r.span) {
            frame_start = r.span.start;
            return false;
        }
        until = r.span.end;
        true
    })
}

fn holds_a_step(steps: &[Step], span: Span) -> bool {
    let first = steps.partition_point(|s| s.host.start < span.start);
    steps.get(first).is_some_and(|s| s.host.end <= span.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(spans: &[(u64, u64)]) -> Vec<Step> {
        spans.iter().map(|&(a, b)| verdict::steps::step(Span::new(a, b), 0)).collect()
    }

    fn range(thread: usize, start: u64, end: u64) -> Named {
        let span = Span::new(start, end);
        Named { thread, span, name: 0, style: "PushPop", level: 0, children: 0, librarys: false }
    }

    fn spans(ranges: &[Named], steps: &[Step], source: StepSource) -> Vec<(usize, u64, u64)> {
        outermost(ranges, steps, source).map(|r| (r.thread, r.span.start, r.span.end)).collect()
    }

    #[test]
    fn frames_are_no_phases_and_what_lies_in_a_phase_is_none() {
        let steps = steps(&[(100, 200), (200, 300)]);
        let ranges = [
            range(0, 50, 400),  // an epoch
            range(0, 100, 190), // a step's own range: the step lasts to the next one's begin
            range(0, 100, 150), // a phase that begins with it
            range(0, 110, 120), // ... and a part of that
            range(0, 150, 180),
            range(0, 200, 300),
            range(0, 210, 220),
            range(1, 105, 195), // another thread's
            range(1, 110, 115),
        ];
        let phases = [(0, 100, 150), (0, 150, 180), (0, 210, 220), (1, 105, 195)];
        assert_eq!(spans(&ranges, &steps, StepSource::Ranges), phases);
        // marks: no range is the step, but one that holds a whole step is none of its phases
        let phases = [(0, 100, 190), (0, 210, 220), (1, 105, 195)];
        assert_eq!(spans(&ranges, &steps, StepSource::Marks), phases);
    }

    /// Ranges that are ended by their handle need not nest: what begins in one and ends behind it
    /// is as much a phase.
    #[test]
    fn ranges_that_overlap_are_all_phases() {
        let steps = steps(&[(100, 400)]);
        let ranges = [
            range(0, 110, 200),
            range(0, 150, 250), // begins in the first, ends behind it
            range(0, 160, 190), // in both
            range(0, 210, 250), // in the second alone
            range(0, 240, 300),
            range(0, 300, 300),
        ];
        let phases = [(0, 110, 200), (0, 150, 250), (0, 240, 300), (0, 300, 300)];
        assert_eq!(spans(&ranges, &steps, StepSource::Marks), phases);
    }

    #[test]
    fn a_librarys_range_is_no_phase_and_hides_none() {
        let steps = steps(&[(100, 200), (200, 300)]);
        let nccl = |start, end| Named { librarys: true, ..range(0, start, end) };
        let ranges = [range(0, 100, 150), nccl(110, 120), nccl(150, 190), range(0, 160, 170), nccl(200, 290)];
        let phases = [(0, 100, 150), (0, 160, 170)];
        assert_eq!(spans(&ranges, &steps, StepSource::Marks), phases);
    }

    #[test]
    fn a_time_belongs_to_the_step_it_lies_in() {
        let steps = steps(&[(100, 200), (250, 300)]);
        let found = [99, 100, 199, 200, 249, 250, 300].map(|t| step_at(&steps, t));
        assert_eq!(found, [None, Some(0), Some(0), None, None, Some(1), None]);
    }
}

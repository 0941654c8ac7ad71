// SPDX-License-Identifier: Apache-2.0
//! Spans of the host with the phase it is in: of one thread the innermost range, of several the
//! phase that holds them up.

use verdict::run::{Range, RangeKind, Run, Span, Thread};

use super::names;
use super::Kind;

/// Named phases open at once on a thread; deeper ones are not looked at, so that work stays linear.
const MOST_OPEN: usize = 64;

/// A span of the host, and its phase.
pub(super) type Part = (Span, Kind);

/// What a range's name says, by string id.
pub(super) struct Names<'a> {
    run: &'a Run,
    known: std::collections::HashMap<u32, Option<Kind>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(run: &'a Run) -> Names<'a> {
        Names { run, known: std::collections::HashMap::new() }
    }

    fn of(&mut self, name: u32) -> Option<Kind> {
        let run = self.run;
        *self.known.entry(name).or_insert_with(|| names::kind(run.definitions.string(name).unwrap_or("")))
    }
}

/// A thread's named phases: the innermost range decides, but for a forward inside backward, which
/// computes again. Disjoint, by time.
pub(super) fn named(run: &Run, thread: &Thread, names: &mut Names<'_>) -> Vec<Part> {
    let mut open: Vec<Part> = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    // a range that begins where another ended is another instance
    let (mut at, mut joins) = (0, false);
    let effective = |open: &[Part]| {
        open.iter().fold(None, |outer, &(_, kind)| match (outer, kind) {
            (Some(Kind::Backward), Kind::Forward) => outer,
            _ => Some(kind),
        })
    };
    let mut until = |open: &mut Vec<Part>, to: u64, at: &mut u64| {
        while let Some(ends) = open.iter().map(|o| o.0.end).min().filter(|&e| e <= to) {
            put(&mut parts, Span::new(*at, ends), effective(open), joins);
            *at = ends.max(*at);
            open.retain(|o| o.0.end > ends);
            joins = !open.is_empty();
        }
        put(&mut parts, Span::new(*at, to), effective(open), joins);
        joins = !open.is_empty();
        *at = to.max(*at);
    };
    let is_said = |r: &&Range| r.kind != RangeKind::Python && !run.is_librarys(r) && !thread.is_left_open(r);
    let ranges = thread.ranges.iter().filter(is_said);
    for r in ranges {
        let Some(kind) = names.of(r.name) else { continue };
        until(&mut open, r.span.start, &mut at);
        if open.len() < MOST_OPEN {
            open.push((r.span, kind));
        }
    }
    let last = open.iter().map(|o| o.0.end).max().unwrap_or(0);
    until(&mut open, last, &mut at);
    parts
}

fn put(parts: &mut Vec<Part>, span: Span, kind: Option<Kind>, joins: bool) {
    let Some(kind) = kind.filter(|_| span.ns() > 0) else { return };
    match parts.last_mut() {
        Some((last, same)) if joins && *same == kind && last.end == span.start => last.end = span.end,
        _ => parts.push((span, kind)),
    }
}

/// Which of two phases that overlap has the time: what another thread does in backward holds the
/// main thread; data is fetched inside forward; what is inferred between others is the last.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Backward => 3,
        Kind::Dataload => 2,
        Kind::Optimizer => 1,
        Kind::Forward => 0,
    }
}

/// Spans of any threads as one list: disjoint, by time.
pub(super) fn painted(spans: &[Part]) -> Vec<Part> {
    let mut edges: Vec<(u64, bool, Kind)> = spans
        .iter()
        .filter(|s| s.0.ns() > 0)
        .flat_map(|&(span, kind)| [(span.start, true, kind), (span.end, false, kind)])
        .collect();
    edges.sort_unstable();
    let mut open = [0u32; Kind::COUNT];
    let (mut parts, mut at) = (Vec::new(), 0);
    for (time, begins, kind) in edges {
        let of = |open: &[u32; Kind::COUNT]| {
            Kind::ALL.into_iter().filter(|&k| open[k as usize] > 0).max_by_key(|&k| rank(k))
        };
        put(&mut parts, Span::new(at, time), of(&open), true);
        at = time;
        let n = &mut open[kind as usize];
        *n = if begins { *n + 1 } else { n.saturating_sub(1) };
    }
    parts
}

/// The phase at a time of a list that is disjoint and by time.
pub(super) fn at(parts: &[Part], time: u64) -> Option<Kind> {
    let i = parts.partition_point(|p| p.0.start <= time).checked_sub(1)?;
    parts.get(i).filter(|p| time < p.0.end).map(|p| p.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::build::Builder;

    fn thread_of(ranges: &[(&str, u64, u64)]) -> (Run, Thread) {
        let mut b = Builder::new();
        let named: Vec<(u32, u64, u64)> = ranges.iter().map(|&(n, s, e)| (b.string(n), s, e)).collect();
        let run = verdict::load(b.finish().as_slice()).expect("a recording");
        let range =
            |&(name, s, e): &(u32, u64, u64)| Range { span: Span::new(s, e), name, ..Range::default() };
        let thread = Thread { ranges: named.iter().map(range).collect(), ..Thread::default() };
        (run, thread)
    }

    fn found(ranges: &[(&str, u64, u64)]) -> Vec<(u64, u64, Kind)> {
        let (run, thread) = thread_of(ranges);
        named(&run, &thread, &mut Names::new(&run)).iter().map(|(s, k)| (s.start, s.end, *k)).collect()
    }

    #[test]
    fn the_innermost_range_decides() {
        // an optimizer that calls the closure with forward and backward in it
        let ranges = [
            ("Optimizer.step#LBFGS.step", 0, 100),
            ("forward", 10, 30),
            ("get_batch", 12, 14),
            ("something", 15, 20),
            ("backward", 40, 70),
        ];
        let (d, f, b, o) = (Kind::Dataload, Kind::Forward, Kind::Backward, Kind::Optimizer);
        let expected =
            [(0, 10, o), (10, 12, f), (12, 14, d), (14, 30, f), (30, 40, o), (40, 70, b), (70, 100, o)];
        assert_eq!(found(&ranges), expected);
    }

    #[test]
    fn forward_inside_backward_is_backward() {
        let ranges = [("backward", 0, 100), ("forward", 10, 30), ("forward", 120, 130)];
        assert_eq!(found(&ranges), [(0, 100, Kind::Backward), (120, 130, Kind::Forward)]);
    }

    #[test]
    fn ranges_that_overlap_go_on_in_the_one_begun_last() {
        let ranges = [("forward", 0, 50), ("backward", 40, 90)];
        assert_eq!(found(&ranges), [(0, 40, Kind::Forward), (40, 90, Kind::Backward)]);
    }

    #[test]
    fn ranges_side_by_side_are_two() {
        let ranges = [("optimizer", 0, 50), ("optimizer", 50, 90)];
        assert_eq!(found(&ranges), [(0, 50, Kind::Optimizer), (50, 90, Kind::Optimizer)]);
    }

    #[test]
    fn of_several_threads_backward_has_the_time() {
        let span = |a, b, k| (Span::new(a, b), k);
        let spans =
            [span(0, 100, Kind::Forward), span(20, 30, Kind::Dataload), span(90, 120, Kind::Backward)];
        let expected = [
            span(0, 20, Kind::Forward),
            span(20, 30, Kind::Dataload),
            span(30, 90, Kind::Forward),
            span(90, 120, Kind::Backward),
        ];
        let parts = painted(&spans);
        assert_eq!(parts, expected);
        let at = |t| at(&parts, t);
        let found = [0, 25, 119, 120].map(at);
        assert_eq!(found, [Some(Kind::Forward), Some(Kind::Dataload), Some(Kind::Backward), None]);
    }
}

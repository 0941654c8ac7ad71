// SPDX-License-Identifier: Apache-2.0
//! Idle time by where in the program the blamed call was made: the named ranges, operators and Python functions that
//! were open on its thread when it began, outermost first, then the call. Time without a blamed call stands beside them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{json, Value};

use super::buckets;
use super::names::clean;
use super::Shown;
use crate::analysis::{Bucket, Buckets, IdleSlice};
use crate::run::{Call, Range, Thread};
use crate::timeline::Observed;

/// Frames of a stack at most; what is deeper is left out.
const MOST_FRAMES: usize = 48;
/// Nodes at most: below ever larger shares of the whole, nodes are summed up with their parent's others.
const MOST_NODES: usize = 1_200;
/// The smallest such share that is tried: one 2000th, less than half a pixel.
const FINEST_SHARE: u64 = 2_000;

/// A frame, its time, and what was called from it.
#[derive(Default)]
struct Node {
    buckets: Buckets,
    inside: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, bucket: Bucket, ns: u64) {
        self.buckets.add(bucket, ns);
    }

    fn count(&self, least: u64) -> usize {
        let inside = self.inside.values().filter(|n| n.buckets.total() >= least);
        1 + inside.map(|n| n.count(least)).sum::<usize>()
    }

    fn written(&self, name: &str, least: u64) -> Value {
        let mut inside: Vec<(&String, &Node)> =
            self.inside.iter().filter(|(_, n)| n.buckets.total() >= least).collect();
        inside.sort_by_key(|(name, n)| (Reverse(n.buckets.total()), name.as_str()));
        let inside: Vec<Value> = inside.iter().map(|(name, n)| n.written(name, least)).collect();
        let most = Bucket::ALL.into_iter().max_by_key(|&b| (self.buckets.get(b), Reverse(b)));
        json!({"name": name, "ns": self.buckets.total(), "bucket": most.map(buckets::place), "inside": inside})
    }
}

/// The tree; `null` where no blamed call was made inside a range.
pub(super) fn figures(shown: Shown<'_>) -> Option<Value> {
    let steady = Observed::new(shown.analysis.steady, &shown.run.blind);
    let mut root = Node::default();
    let mut blamed: Vec<(usize, &Call, &IdleSlice, u64)> = Vec::new();
    for slice in &shown.found.slices {
        let ns = steady.measure(slice.span());
        match slice.call().and_then(|c| shown.run.call(c)) {
            _ if ns == 0 => {}
            Some((thread, call)) => blamed.push((thread, call, slice, ns)),
            None => {
                root.add(slice.bucket, ns);
                root.inside.entry("(no call to blame)".to_owned()).or_default().add(slice.bucket, ns);
            }
        }
    }
    blamed.sort_by_key(|b| (b.0, b.1.start));
    let mut in_ranges = 0;
    for of_thread in blamed.chunk_by(|a, b| a.0 == b.0) {
        let Some(thread) = of_thread.first().and_then(|b| shown.run.threads.get(b.0)) else { continue };
        let mut open = Open::new(thread);
        for &(_, call, slice, ns) in of_thread {
            let frames = open.at(call.start);
            in_ranges += u64::from(!frames.is_empty()) * ns;
            let mut node = &mut root;
            node.add(slice.bucket, ns);
            for frame in frames.iter().take(MOST_FRAMES) {
                let name = shown.run.definitions.string(frame.name).unwrap_or("(no name)");
                node = node.inside.entry(without_number(&clean(name))).or_default();
                node.add(slice.bucket, ns);
            }
            node.inside.entry(clean(shown.run.call_name(call))).or_default().add(slice.bucket, ns);
        }
    }
    if in_ranges == 0 {
        return None;
    }
    let all = root.buckets.total();
    let mut share = FINEST_SHARE;
    while root.count(all / share) > MOST_NODES && share > 1 {
        share /= 2;
    }
    let least = all / share;
    Some(json!({
        "root": root.written("idle", least),
        "in_ranges_ns": in_ranges,
        "left_out_below_ns": least,
        "nodes_left_out": root.count(0) - root.count(least),
    }))
}

/// The ranges of a thread that are open at a time; times are asked for in order.
struct Open<'a> {
    ranges: Vec<&'a Range>,
    next: usize,
    open: Vec<&'a Range>,
}

impl<'a> Open<'a> {
    fn new(thread: &'a Thread) -> Open<'a> {
        let mut ranges: Vec<&Range> = thread.ranges.iter().collect();
        // of two that begin together the longer is around the other
        ranges.sort_by_key(|r| (r.span.start, Reverse(r.span.end), r.depth));
        Open { ranges, next: 0, open: Vec::new() }
    }

    fn at(&mut self, time: u64) -> &[&'a Range] {
        while let Some(range) = self.ranges.get(self.next).filter(|r| r.span.start <= time) {
            // what has ended when another begins is never asked for again: the list stays as long as the nesting
            self.open.retain(|o| o.span.end > range.span.start);
            self.open.push(range);
            self.next += 1;
        }
        self.open.retain(|o| o.span.end > time);
        &self.open
    }
}

/// `ProfilerStep#17` and `step 17` as one frame for all steps.
fn without_number(name: &str) -> String {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = stem.len() < name.len();
    match stem.strip_suffix(['#', ' ', '_']) {
        Some("ProfilerStep" | "step") if numbered => format!("{stem}…"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{RangeKind, Span};

    #[test]
    fn open_ranges_are_those_around_a_time_outermost_first() {
        let range = |name, start, end| {
            let span = Span::new(start, end);
            Range { span, name, depth: 0, flags: 0, kind: RangeKind::User }
        };
        let ranges = vec![range(2, 0, 50), range(1, 0, 100), range(3, 10, 20), range(4, 60, 90)];
        let thread = Thread { ranges, ..Thread::default() };
        let mut open = Open::new(&thread);
        let mut names = |t| open.at(t).iter().map(|r| r.name).collect::<Vec<_>>();
        assert_eq!(names(15), [1, 2, 3]);
        assert_eq!(names(20), [1, 2], "an end is not inside");
        assert_eq!(names(55), [1]);
        assert_eq!(names(60), [1, 4]);
        assert_eq!(names(100), [0; 0]);
    }

    #[test]
    fn steps_are_one_frame_and_layers_are_not() {
        assert_eq!(without_number("ProfilerStep#17"), without_number("ProfilerStep#18"));
        assert_eq!(without_number("step_3"), "step_…");
        for name in ["layer 3", "step", "ProfilerStep#", "Optimizer.step#AdamW.step", "step_x"] {
            assert_eq!(without_number(name), name);
        }
    }
}

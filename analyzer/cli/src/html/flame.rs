// SPDX-License-Identifier: Apache-2.0
//! Idle time by where in the program the blamed call was made: the named ranges, operators and
//! Python functions that were open on its thread when it began, outermost first, the stack of the
//! program where it is known, then the call. Time without a blamed call stands beside them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{json, Value};
use verdict::analysis::idle_stacks::{frame_name, idle_stacks, without_number};
use verdict::analysis::{Bucket, Buckets};

use super::buckets;
use super::names::clean;
use super::Shown;

/// Frames of a stack at most; what is deeper is left out.
const MOST_FRAMES: usize = 48;
/// Nodes at most: below ever larger shares of the whole, nodes are summed up with their parent's
/// others.
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

/// The tree; `null` where no blamed call was made inside a range, and no stack is known.
pub(super) fn figures(shown: Shown<'_>) -> Option<Value> {
    let steady = &shown.analysis.counts;
    let mut root = Node::default();
    let mut in_ranges = 0;
    idle_stacks(shown.run, shown.found, steady, |idle| {
        let (bucket, ns) = (idle.bucket, idle.ns);
        root.add(bucket, ns);
        let Some((_, call)) = idle.blamed else {
            root.inside.entry("(no call to blame)".to_owned()).or_default().add(bucket, ns);
            return;
        };
        let stack = || shown.run.definitions.stack(idle.stack).rev();
        let frames = || idle.ranges();
        in_ranges += u64::from(frames().next().is_some() || stack().next().is_some()) * ns;
        let mut node = &mut root;
        for frame in frames().take(MOST_FRAMES) {
            let name = shown.run.definitions.string(frame.name).unwrap_or("(no name)");
            node = node.inside.entry(without_number(&clean(name))).or_default();
            node.add(bucket, ns);
        }
        for frame in stack().take(MOST_FRAMES) {
            node = node.inside.entry(clean(&frame_name(shown.run, frame))).or_default();
            node.add(bucket, ns);
        }
        node.inside.entry(clean(shown.run.call_name(call))).or_default().add(bucket, ns);
    });
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

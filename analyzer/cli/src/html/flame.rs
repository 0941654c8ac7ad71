// SPDX-License-Identifier: Apache-2.0
//! Idle time by where in the program the blamed call was made: the named ranges, operators and
//! Python functions that were open on its thread when it began, outermost first, the stack of the
//! program where it is known, then the call. Time without a blamed call stands beside them.

use serde_json::{json, Value};
use verdict::analysis::idle_stacks::{frame_name, idle_stacks, without_number};
use verdict::analysis::Bucket;

use super::buckets;
use super::names::clean;
use super::tree::{Tree, MOST_FRAMES};
use super::Shown;

/// The tree; `null` where no blamed call was made inside a range, and no stack is known.
pub(super) fn figures(shown: Shown<'_>) -> Option<Value> {
    let steady = &shown.analysis.counts;
    let mut root = Tree::<{ Bucket::COUNT }>::default();
    let mut in_ranges = 0;
    idle_stacks(shown.run, shown.found, steady, |idle| {
        let (bucket, ns) = (buckets::place(idle.bucket), idle.ns);
        root.add(bucket, ns);
        let Some((_, call)) = idle.blamed else {
            root.enter("(no call to blame)".to_owned(), bucket, ns);
            return;
        };
        let stack = || shown.run.definitions.stack(idle.stack).rev();
        let frames = || idle.ranges();
        in_ranges += u64::from(frames().next().is_some() || stack().next().is_some()) * ns;
        let mut node = &mut root;
        for frame in frames().take(MOST_FRAMES) {
            let name = shown.run.definitions.string(frame.name).unwrap_or("(no name)");
            node = node.enter(without_number(&clean(name)), bucket, ns);
        }
        for frame in stack().take(MOST_FRAMES) {
            node = node.enter(clean(&frame_name(shown.run, frame)), bucket, ns);
        }
        node.enter(clean(shown.run.call_name(call)), bucket, ns);
    });
    if in_ranges == 0 {
        return None;
    }
    let mut figures = root.figures("idle", "bucket");
    figures.insert("in_ranges_ns".to_owned(), json!(in_ranges));
    Some(Value::Object(figures))
}

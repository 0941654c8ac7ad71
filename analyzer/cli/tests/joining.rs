// SPDX-License-Identifier: Apache-2.0
//! Which call launched an op: same correlation id, and of equal ids the latest that began before
//! it.

use std::time::{Duration, Instant};

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};

fn launch(correlation: u32, start: u64) -> Event {
    let mut call = Event::new(Kind::Call, start, start + 1_000);
    (call.correlation, call.a, call.x) = (correlation, pack(RUNTIME, 211), Class::Launch as u8);
    call
}

fn kernel(correlation: u32, start: u64) -> Event {
    let mut op = Event::new(Kind::Kernel, start, start + 500);
    op.correlation = correlation;
    op
}

/// For each op by start: thread id and begin of its call.
fn joined(b: Builder) -> Vec<Option<(u32, u64)>> {
    let run = verdict::load(b.finish().as_slice()).unwrap();
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    ops.map(|o| run.call(o.call).map(|(t, c)| (run.threads[t].tid, c.start))).collect()
}

const MS: u64 = 1_000_000;

#[test]
fn ids_that_wrapped_are_told_apart_by_time_on_whichever_thread() {
    let mut b = Builder::new();
    // the later use of id 7 is on the thread with the lower number: flat numbers do not rise with
    // time
    b.on_thread(20, launch(7, 10 * MS));
    b.on_thread(20, launch(8, 11 * MS));
    b.on_thread(10, launch(7, 50 * MS));
    b.on_thread(10, launch(7, 90 * MS));
    for (id, start) in [(7, 12 * MS), (8, 13 * MS), (7, 51 * MS), (7, 89 * MS), (7, 95 * MS), (9, 96 * MS)] {
        b.on_stream(0, 1, 7, kernel(id, start));
    }
    let expected = [(20, 10), (20, 11), (10, 50), (10, 90), (10, 90)].map(|(t, ms)| Some((t, ms * MS)));
    let found = joined(b);
    // 89 ms: its call begins 1 ms later by the two clocks' disagreement, within the slack
    assert_eq!(found[..5], expected);
    assert_eq!(found[5], None, "nobody launched 9");
}

#[test]
fn the_nodes_of_a_graph_share_their_launch_and_an_op_before_every_call_has_none() {
    let mut b = Builder::new();
    for i in 0..50u64 {
        b.on_thread(10, launch(i as u32 + 1, (10 + i) * MS));
        for node in 0..20 {
            b.on_stream(
                0,
                1,
                7 + node % 3,
                kernel(i as u32 + 1, (10 + i) * MS + 2_000 + u64::from(node) * 600),
            );
        }
    }
    b.on_stream(0, 1, 7, kernel(50, MS));
    let found = joined(b);
    assert_eq!(found.iter().filter(|f| f.is_none()).count(), 1);
    assert_eq!(found[0], None, "launched 50 ms later: an earlier use of the id was overwritten");
    for i in 0..50 {
        let of = found.iter().filter(|f| **f == Some((10, (10 + i) * MS))).count();
        assert_eq!(of, 20, "call {i}");
    }
}

#[test]
fn a_recording_in_which_all_ids_are_equal_is_joined_in_time() {
    let mut b = Builder::new();
    let events: u64 = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
    for i in 0..events {
        b.on_thread(10, launch(5, i * 10_000));
        b.on_stream(0, 1, 7, kernel(5, i * 10_000 + 5_000));
    }
    let begin = Instant::now();
    let found = joined(b);
    // by a walk over all equal ids for each op this took time by the square: minutes
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    // the clocks may disagree by 1 ms: a hundred later calls could have begun before the op
    let last = (events - 1) * 10_000;
    let expected = |i: u64| (i * 10_000 + 5_000 + MS) / 10_000 * 10_000;
    for (i, f) in found.iter().enumerate() {
        assert_eq!(*f, Some((10, expected(i as u64).min(last))), "op {i}");
    }
}

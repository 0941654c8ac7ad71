// SPDX-License-Identifier: Apache-2.0
//! Stamps of another tool's trace that cannot be right: a file whose clocks or lengths contradict
//! what a stream is gets no verdict, and the reason named is the stamps.

mod events;

use events::events_of;
use formats::Progress;
use serde_json::{json, Value};
use verdict::Analysis;

fn judged(events: &[Value]) -> Analysis {
    let text = json!({ "traceEvents": events }).to_string();
    let run = formats::kineto::read_in_blocks(text.as_bytes(), 1 << 20, &Progress::default()).unwrap().run;
    verdict::analyze(&run)
}

fn is_work(e: &Value) -> bool {
    e["cat"].as_str().is_some_and(|c| ["kernel", "gpu_memcpy", "gpu_memset"].contains(&c))
}

/// Device stamps that lie before the host's by more than a launch could be late: the two clocks
/// were not fitted.
#[test]
fn where_the_devices_clock_is_behind_the_hosts_no_cause_is_named() {
    for name in ["h200_gptsmall", "h200_graphs"] {
        for us in [10_000.0, 1_000_000.0] {
            let mut some = events_of(name);
            for e in some.iter_mut().filter(|e| is_work(e)) {
                e["ts"] = json!(e["ts"].as_f64().unwrap() - us);
            }
            let a = judged(&some);
            assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{name} {us}: {:?}", a.verdict);
            assert!(
                a.verdict.text().contains("host and device timestamps are inconsistent"),
                "{name} {us}: {}",
                a.verdict.text()
            );
        }
    }
}

/// A stream is a queue: what is queued behind an operation does not run while it runs.
#[test]
fn an_operation_that_lasts_over_all_that_is_queued_behind_it_makes_no_busy_gpu() {
    for name in ["h200_gptsync", "h200_graphs"] {
        for us in [20_000.0, 1e9] {
            let mut some = events_of(name);
            let e = some.iter_mut().filter(|e| e["cat"] == "kernel").nth(500).unwrap();
            e["dur"] = json!(us);
            let a = judged(&some);
            assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{name} {us}: {:?}", a.verdict);
            assert!(a.verdict.text().contains("lasts past what is queued after it"), "{}", a.verdict.text());
        }
    }
}

/// Dependent launches begin before what they depend on has ended; branches of a graph run beside
/// each other.
#[test]
fn operations_of_a_stream_that_overlap_are_no_contradiction() {
    let whole = judged(&events_of("h200_gptsmall")).verdict;
    let mut some = events_of("h200_gptsmall");
    for e in some.iter_mut().filter(|e| e["cat"] == "kernel") {
        e["dur"] = json!(e["dur"].as_f64().unwrap() * 1.02 + 1.5);
    }
    assert_eq!(judged(&some).verdict.cause, whole.cause);
    let mut graphs = events_of("h200_graphs");
    let whole = judged(&graphs).verdict;
    let launched: Vec<u64> =
        graphs.iter().filter(|e| is_work(e)).filter_map(|e| e["args"]["correlation"].as_u64()).collect();
    let end = |e: &Value| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap();
    for id in [launched[0], launched[launched.len() / 2]] {
        let of = |e: &&mut Value| is_work(e) && e["args"]["correlation"].as_u64() == Some(id);
        let last = graphs.iter_mut().filter(of).map(|e| end(e)).fold(0.0, f64::max);
        let first = graphs.iter_mut().filter(of).nth(2).unwrap();
        first["dur"] = json!(last - first["ts"].as_f64().unwrap());
    }
    assert_ne!(judged(&graphs).verdict.cause, "INCONCLUSIVE", "{whole:?}");
}

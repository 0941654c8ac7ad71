// SPDX-License-Identifier: Apache-2.0
//! Calls that launched what another tool's trace holds, and are not in it themselves: counted by
//! their correlation ids; a few leave the verdict, of many operations there is none. Operations
//! launched before the recording began are no loss.

mod events;

use std::collections::HashSet;
use std::io::Read;

use events::events_of;
use formats::Progress;
use serde_json::{json, Value};
use verdict::output::chrome;
use verdict::output::chrome::ChromeOptions;
use verdict::output::line;
use verdict::{Analysis, Run};

fn read(text: &[u8]) -> (Run, Analysis) {
    let run = formats::kineto::read_in_blocks(text, 1 << 20, &Progress::default()).unwrap().run;
    let a = verdict::analyze(&run);
    (run, a)
}

fn judged(events: &[Value]) -> (Run, Analysis) {
    read(json!({ "traceEvents": events }).to_string().as_bytes())
}

fn is(e: &Value, categories: &[&str]) -> bool {
    e["cat"].as_str().is_some_and(|c| categories.contains(&c))
}

fn is_call(e: &Value) -> bool {
    is(e, &["cuda_runtime", "cuda_driver"])
}

fn is_work(e: &Value) -> bool {
    is(e, &["kernel", "gpu_memcpy", "gpu_memset"])
}

fn correlation(e: &Value) -> u64 {
    e["args"]["correlation"].as_u64().unwrap_or(0)
}

/// Ids of the calls that something on the GPU came from, in order.
fn launching(events: &[Value]) -> Vec<u64> {
    let worked: HashSet<u64> = events.iter().filter(|e| is_work(e)).map(correlation).collect();
    let mut ids: Vec<u64> =
        events.iter().filter(|e| is_call(e)).map(correlation).filter(|id| worked.contains(id)).collect();
    ids.sort_unstable();
    ids
}

/// Every `nth` launching call taken out, but none at the very begin and end; how many.
fn lose_every(events: &mut Vec<Value>, nth: usize) -> u64 {
    let ids = launching(events);
    let lost: HashSet<u64> = ids[2..ids.len() - 4].iter().copied().skip(nth / 2).step_by(nth).collect();
    events.retain(|e| !is_call(e) || !lost.contains(&correlation(e)));
    lost.len() as u64
}

/// The promised step, as a share of the step.
fn promised(a: &Analysis) -> f64 {
    a.verdict.promise.unwrap().ns() / a.verdict.step_ns
}

#[test]
fn a_few_calls_that_are_missing_are_counted_and_the_verdict_stands() {
    for name in ["h200_gpt", "h200_gptsync"] {
        let (_, whole) = judged(&events_of(name));
        for nth in [100, 25] {
            let mut some = events_of(name);
            let lost = lose_every(&mut some, nth);
            let (run, a) = judged(&some);
            assert_eq!((run.uncalled.calls, run.uncalled.ops), (lost, lost), "{name} {nth}");
            assert_eq!(a.verdict.cause, whole.verdict.cause, "{name} {nth}: {:?}", a.verdict);
            assert!((promised(&a) - promised(&whole)).abs() < 0.03, "{name} {nth}: {:?}", a.verdict);
            let line = line::evidence(&run, &a).join("; ");
            assert!(line.contains(&format!("losses {lost} (launching calls missing)")), "{line}");
            let summary =
                verdict::output::summary::summary(&run, &a, &verdict::output::summary::Around::default());
            assert_eq!(summary["losses"]["calls_missing"], lost);
        }
    }
}

#[test]
fn where_the_calls_of_many_operations_are_missing_there_is_no_verdict() {
    for name in ["h200_gpt", "h200_gptsync"] {
        for nth in [10, 3] {
            let mut some = events_of(name);
            let lost = lose_every(&mut some, nth);
            let (run, a) = judged(&some);
            assert_eq!((run.uncalled.calls, a.verdict.cause), (lost, "INCONCLUSIVE"), "{name} {nth}");
            let line = line::evidence(&run, &a).join("; ");
            let why = format!("the calls that launched {lost} of its ");
            assert!(line.contains(&why) && line.contains(&format!("losses {lost} (")), "{line}");
        }
    }
}

/// Few operations, but what the host waited for is known by their calls alone.
#[test]
fn where_the_calls_of_all_copies_are_missing_there_is_no_verdict() {
    let mut some = events_of("h200_gptsync");
    some.retain(|e| !(is_call(e) && e["name"].as_str().is_some_and(|n| n.contains("Memcpy"))));
    let (run, a) = judged(&some);
    // the first is that of the first step's input: it may have been called for before the recording
    // began
    assert_eq!((run.uncalled.copies, a.verdict.cause), (7, "INCONCLUSIVE"), "{:?}", a.verdict);
    assert!(a.verdict.text().contains("7 of its 8 copies"), "{}", a.verdict.text());
}

/// One call that launched a graph: its operations are many.
#[test]
fn one_call_of_a_graph_counts_once_and_all_of_its_operations_weigh() {
    let mut some = events_of("h200_graphs");
    let lost = launching(&some)[1];
    let of_it = some.iter().filter(|e| is_work(e) && correlation(e) == lost).count() as u64;
    some.retain(|e| !is_call(e) || correlation(e) != lost);
    let (run, a) = judged(&some);
    assert!(of_it > 100, "{of_it}");
    assert_eq!((run.uncalled.calls, run.uncalled.ops), (1, of_it));
    assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{:?}", a.verdict);
}

/// The GPU works off what was launched before the recording began; CUPTI counts ids up, so they
/// tell.
#[test]
fn what_was_launched_before_the_first_call_of_the_trace_is_no_loss() {
    let mut some = events_of("h200_gpt");
    let ids = launching(&some);
    let first = ids[ids.len() / 10];
    some.retain(|e| !is_call(e) || correlation(e) == 0 || correlation(e) >= first);
    let (run, a) = judged(&some);
    assert!(run.unjoined >= ids.len() as u64 / 10, "{}", run.unjoined);
    assert_eq!(run.uncalled.calls, 0);
    assert!(
        line::evidence(&run, &a).join("; ").contains("losses 0"),
        "{}",
        line::evidence(&run, &a).join("; ")
    );
}

/// The last call of each thread may not have returned when the recording ended; more than these
/// were lost.
#[test]
fn behind_the_last_call_only_those_under_way_are_no_loss() {
    let launches = |events: &[Value]| {
        let works: HashSet<u64> = launching(events).into_iter().collect();
        let threads = events.iter().filter(|e| is_call(e) && works.contains(&correlation(e)));
        threads.map(|e| e["tid"].to_string()).collect::<HashSet<_>>().len()
    };
    let all = events_of("h200_tiny");
    let ids = launching(&all);
    let without = |n: usize| {
        let last = ids[ids.len() - n];
        let mut some = all.clone();
        some.retain(|e| !is_call(e) || correlation(e) < last);
        judged(&some).0.uncalled.calls
    };
    let under_way = launches(&all);
    assert!(under_way >= 1);
    assert_eq!((without(under_way), without(under_way + 40)), (0, under_way as u64 + 40));
}

/// The recorder saw no calls at all: that is said otherwise, and is not a loss of each.
#[test]
fn a_trace_without_any_call_lost_none() {
    let mut some = events_of("h200_gpt");
    some.retain(|e| !is_call(e));
    assert_eq!(judged(&some).0.uncalled.calls, 0);
}

#[test]
fn our_own_trace_of_such_a_trace_says_the_same() {
    for nth in [50, 3] {
        let mut some = events_of("h200_gptsync");
        lose_every(&mut some, nth);
        let (run, a) = judged(&some);
        let (file, _) = chrome::write(&run, &a, Vec::new(), &ChromeOptions::default()).unwrap();
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(file.as_slice()).read_to_end(&mut text).unwrap();
        let (again, b) = read(&text);
        assert_eq!(again.uncalled, run.uncalled);
        assert_eq!(line::evidence(&again, &b).join("; "), line::evidence(&run, &a).join("; "));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Kernels that were launched and are not in another tool's trace: counted, and no verdict where
//! they are many; launches that rightly have none (the end of the trace, captures, work that the
//! driver made of another call) are no loss.

mod events;

use std::collections::HashSet;

use events::events_of;
use formats::Progress;
use serde_json::{json, Value};
use verdict::{Analysis, Run};

/// The events of a trace of this repository: one transformer, four steps, 2,892 launches on two
/// threads.
fn events() -> Vec<Value> {
    events_of("h200_gpt")
}

fn judged(events: Vec<Value>) -> (Run, Analysis) {
    let text = json!({ "traceEvents": events }).to_string();
    let run = formats::kineto::read_in_blocks(text.as_bytes(), 1 << 20, &Progress::default()).unwrap().run;
    let a = verdict::analyze(&run);
    (run, a)
}

fn category(e: &Value) -> &str {
    e["cat"].as_str().unwrap_or("")
}

fn correlation(e: &Value) -> Option<u64> {
    e["args"]["correlation"].as_u64()
}

fn is_launch(e: &Value) -> bool {
    ["cuda_runtime", "cuda_driver"].contains(&category(e))
        && e["name"].as_str().is_some_and(|n| n.contains("LaunchKernel"))
}

/// Takes `percent` of the kernels out, at random; how many.
fn lose(events: &mut Vec<Value>, percent: u64) -> u64 {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let before = events.len();
    events.retain(|e| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        category(e) != "kernel" || random % 100 >= percent
    });
    (before - events.len()) as u64
}

#[test]
fn a_trace_that_lost_kernels_has_no_verdict_and_says_why() {
    let (_, whole) = judged(events());
    assert_eq!((whole.verdict.cause, whole.unanswered, whole.data_losses), ("LAUNCH", 0, 0));
    for percent in [1, 30] {
        let mut some = events();
        let lost = lose(&mut some, percent);
        let (run, a) = judged(some);
        assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{percent}%: {:?}", a.verdict);
        // one behind the last kernel that is there may be one that was still to run
        assert!(a.unanswered <= lost && lost - a.unanswered <= 2 + lost / 50, "{} of {lost}", a.unanswered);
        let line = verdict::output::line::evidence(&run, &a).join("; ");
        assert!(
            line.contains(&format!("{} kernels that were launched are not in the trace", a.unanswered)),
            "{line}"
        );
        assert!(line.contains(&format!("losses {}", a.unanswered)), "{line}");
    }
}

/// Only the launches before the first copy or memset, and those behind the last, may rightly have
/// none.
#[test]
fn a_trace_that_lost_every_kernel_accuses_nobody() {
    let mut some = events();
    let launches = some.iter().filter(|e| category(e) == "kernel").count() as u64;
    some.retain(|e| category(e) != "kernel");
    let (_, a) = judged(some.clone());
    assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{:?}", a.verdict);
    assert!(a.unanswered <= launches && a.unanswered > launches * 9 / 10, "{} of {launches}", a.unanswered);
    // who launches nothing, lost nothing
    some.retain(|e| !is_launch(e));
    assert_eq!(judged(some).1.unanswered, 0);
}

/// Without the copy that it waits for, what the host does before the next launch would be its own
/// time.
#[test]
fn a_trace_whose_copies_were_taken_out_accuses_nobody() {
    let mut some = events_of("h200_gptsync");
    let copies = |e: &Value| category(e) == "gpu_memcpy";
    // one kind of them: a program may well copy nothing to the host
    some.retain(|e| !(copies(e) && e["name"].as_str().is_some_and(|n| n.contains("DtoH"))));
    assert_eq!(judged(some.clone()).1.verdict.cause, "LAUNCH");
    some.retain(|e| !copies(e));
    let (run, a) = judged(some.clone());
    assert_eq!(a.verdict.cause, "INCONCLUSIVE", "{:?}", a.verdict);
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(line.contains("copies were called for") && line.contains("none is in the trace"), "{line}");
    assert!(line.contains("losses of unknown number"), "{line}");
    // who calls for none has none
    some.retain(|e| e["name"].as_str().is_none_or(|n| !n.contains("cudaMemcpy")));
    assert_eq!(judged(some).1.verdict.cause, "LAUNCH");
}

/// 0.1 % of the events is what is allowed: of 2,892 kernels, 480 memsets, 4 copies and their calls
/// six.
#[test]
fn one_kernel_that_is_missing_is_counted_and_no_more() {
    let mut all = events();
    let middle = all.iter().enumerate().filter(|(_, e)| category(e) == "kernel").nth(1_000).unwrap().0;
    all.remove(middle);
    let (run, a) = judged(all);
    assert_eq!((a.verdict.cause, a.unanswered), ("LAUNCH", 1));
    assert!(
        verdict::output::line::evidence(&run, &a).join("; ").contains("losses 1 ("),
        "{}",
        verdict::output::line::evidence(&run, &a).join("; ")
    );
}

/// torch.profiler is stopped while the GPU still works off the queue.
#[test]
fn launches_at_the_end_whose_kernels_had_not_run_are_no_loss() {
    let all = events();
    let mut ends: Vec<f64> = all
        .iter()
        .filter(|e| category(e) == "kernel")
        .map(|e| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap())
        .collect();
    ends.sort_by(f64::total_cmp);
    let until = ends[ends.len() * 9 / 10];
    let gpu = |e: &Value| category(e) == "kernel" || category(e).starts_with("gpu_");
    let kept: Vec<Value> =
        all.into_iter().filter(|e| !gpu(e) || e["ts"].as_f64().is_some_and(|ts| ts < until)).collect();
    let (_, a) = judged(kept);
    assert_eq!((a.unanswered, a.verdict.cause), (0, "LAUNCH"), "{:?}", a.verdict);
}

/// A stretch of launches of the main thread, and what is left when their kernels are taken out.
fn without_a_stretch() -> (Vec<Value>, f64) {
    let mut all = events();
    let mut launches: Vec<(f64, u64)> = all
        .iter()
        .filter(|e| is_launch(e) && e["tid"] == 616)
        .map(|e| (e["ts"].as_f64().unwrap(), correlation(e).unwrap()))
        .collect();
    launches.sort_by(|x, y| x.0.total_cmp(&y.0));
    let stretch: HashSet<u64> = launches[300..420].iter().map(|l| l.1).collect();
    all.retain(|e| category(e) != "kernel" || !correlation(e).is_some_and(|c| stretch.contains(&c)));
    // between the last of them and the next
    let behind = (launches[419].0 + launches[420].0) / 2.0;
    (all, behind)
}

/// Launches between cudaStreamBeginCapture and cudaStreamEndCapture run nothing.
#[test]
fn launches_into_a_capture_are_no_loss() {
    for call in ["cudaStreamEndCapture_v10000", "cudaGraphInstantiate_v10000", "cuStreamEndCapture"] {
        let (mut all, behind) = without_a_stretch();
        all.push(json!({
            "ph": "X", "cat": "cuda_runtime", "name": call, "pid": 616, "tid": 616, "ts": behind, "dur": 0.1,
            "args": { "cbid": 1, "correlation": 4_000_000_000_u64 },
        }));
        let (_, a) = judged(all);
        assert_eq!(a.unanswered, 0, "{call}");
    }
}

/// The same without a capture: CUPTI threw a buffer away.
#[test]
fn a_stretch_of_kernels_that_is_missing_is_a_loss() {
    let (all, _) = without_a_stretch();
    let (_, a) = judged(all);
    assert_eq!((a.unanswered, a.verdict.cause), (120, "INCONCLUSIVE"));
}

/// A launch of the runtime that makes one of the driver, which has an id of its own: one kernel,
/// two calls.
#[test]
fn a_launch_within_a_launch_is_one() {
    let mut all = events();
    let launches: Vec<Value> = all.iter().filter(|e| is_launch(e)).cloned().collect();
    for (n, e) in launches.iter().enumerate() {
        let mut inner = e.clone();
        let (ts, dur) = (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
        inner["cat"] = json!("cuda_driver");
        inner["name"] = json!("cuLaunchKernel");
        inner["ts"] = json!(ts + dur * 0.25);
        inner["dur"] = json!(dur * 0.5);
        inner["args"]["correlation"] = json!(3_000_000_000_u64 + n as u64);
        all.push(inner);
    }
    let (_, a) = judged(all);
    assert_eq!((a.unanswered, a.verdict.cause), (0, "LAUNCH"));
}

/// Of two streams one is far behind when the trace ends: its launches stand between those of the
/// other.
#[test]
fn a_stream_that_is_behind_at_the_end_is_no_loss() {
    let mut all = Vec::new();
    let mut event = |category: &str, name: String, tid: u64, ts: f64, dur: f64, id: u64| {
        let stream = if id % 2 == 0 { 7 } else { 13 };
        all.push(json!({
            "ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
            "args": { "correlation": id, "device": 0, "stream": stream, "context": 1, "cbid": 211 },
        }));
    };
    let mut slow = 0.0_f64;
    for id in 0..4_000_u64 {
        let at = 1_000.0 + id as f64 * 10.0;
        event("cuda_runtime", "cudaLaunchKernel".to_owned(), 1, at, 4.0, id + 1);
        if id % 2 == 0 {
            event("kernel", format!("quick_{}", id % 10), 7, at + 6.0, 5.0, id + 1);
        } else {
            // 25 us each, launched every 20: falls behind, and the trace ends
            slow = slow.max(at + 6.0) + 25.0;
            if slow < 41_000.0 {
                event("kernel", format!("slow_{}", id % 10), 13, slow - 25.0, 24.0, id + 1);
            }
        }
    }
    let (run, a) = judged(all);
    assert!(run.devices[0].streams.iter().map(|s| s.ops.len()).sum::<usize>() < 3_700, "none is missing");
    assert_eq!(a.unanswered, 0);
}

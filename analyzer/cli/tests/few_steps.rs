// SPDX-License-Identifier: Apache-2.0
//! Purpose: other tools' traces of no more than two steps. A mark is a step, layers are none, and
//! no figure leaves out what lies around the layers: a trace that is mostly idle is not GPU-bound.

mod made;

use made::{case, gapprobe, line, read, File, Trace};
use verdict::analysis::{Analysis, Bucket, Confidence, StepSource};

const FAILED: Option<i32> = Some(8);

fn is_sure_of_the_gpu(a: &Analysis) -> bool {
    a.verdict.cause == "GPU-BOUND" && a.verdict.confidence == Confidence::High
}

/// Twelve layers of the one profiled step take 7 ms; a blocking copy has the other 399.
#[test]
fn one_profiled_step_is_judged_whole() {
    let path = case("few_steps_mostly_idle.json");
    let (input, a) = read(&path);
    assert_eq!((a.steps.source, a.steps.steps.len(), a.steps.warm_up), (StepSource::Ranges, 1, 0));
    assert!(a.steps.mean_ns > 400e6, "{} ns", a.steps.mean_ns);
    let parts = a.steps.parts.expect("the layers");
    assert!((11..=12).contains(&parts.count) && parts.median_ns / 10_000 == 56, "{parts:?}");
    let d = &a.devices[0];
    assert!(d.buckets.idle() as f64 > 0.97 * d.wall_ns as f64, "{:?}", d.buckets);
    assert_ne!(a.verdict.cause, "GPU-BOUND", "{:?}", a.verdict);
    assert!(a.verdict.confidence <= Confidence::Medium, "{:?}", a.verdict);
    let said = line(&input, &a);
    assert!(said.contains("1 of 1 step seen (too few to tell warm-up; 1"), "{said}");
    assert!(said.contains("periods of 560 us, parts of a step)"), "{said}");
    let (text, code) = gapprobe(&["check", "--max-idle", "10%"], &path);
    assert_eq!(code, FAILED, "{text}");
    assert!(text.contains("of the whole trace, from its first to its last GPU operation"), "{text}");
    let (text, _) = gapprobe(&["analyze"], &path);
    let longest = text.split("Longest idle").nth(1).and_then(|rows| rows.lines().nth(1)).expect("a row");
    let ms: f64 = longest.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a figure");
    assert!((390.0..401.0).contains(&ms) && longest.contains(" ms "), "{longest}");
}

/// One wait of 400 ms in an iteration that nobody marked is no finding to be sure of, whether one
/// cause is named or several.
#[test]
fn causes_together_are_no_surer_than_each() {
    let (input, a) = read(&case("waits_for_what_came_before.json"));
    assert_eq!((a.steps.steps.len(), a.verdict.confidence), (0, Confidence::Low), "{}", line(&input, &a));
    assert!(a.devices[0].buckets.share(Bucket::DeviceWait) > 0.98, "{:?}", a.devices[0].buckets);
}

/// The same without a mark (a bare `with profile()`): thirteen layers, then nothing for long.
#[test]
fn layers_in_a_trace_without_marks_are_no_steps() {
    for busy_after in [false, true] {
        let mut t = Trace::new();
        t.layers(13, 150);
        t.synchronize();
        match busy_after {
            // other work: something ran all the time, and which part of it a step is nobody knows
            true => (0..40).for_each(|n| t.kernel(&format!("other_{n}"), 1_000)),
            false => {
                t.t += 400_000;
                t.kernel("final", 10);
            }
        }
        t.synchronize();
        let file = File::new(t.text().as_bytes());
        let (input, a) = read(&file.0);
        let said = line(&input, &a);
        if busy_after {
            assert!(a.steps.source == StepSource::None || a.steps.may_be_parts, "{said}");
            continue;
        }
        assert_eq!((a.steps.source, a.steps.mean_ns), (StepSource::None, 0.0));
        assert!(said.contains("no steps found (1") && said.contains("parts of a step"), "{said}");
        assert!(!said.contains("a step, GPU busy"), "no time of a step without one: {said}");
        let d = &a.devices[0];
        assert!(d.buckets.share(Bucket::Host) > 0.9, "{:?}", d.buckets);
        assert_eq!(a.verdict.cause, "HOST", "{said}");
        let (text, code) = gapprobe(&["check", "--max-idle", "10%"], &file.0);
        assert!(code == FAILED && text.contains("of the whole trace"), "{text}");
    }
}

#[test]
fn two_profiled_steps_are_steps_and_their_layers_are_not() {
    let (input, a) = read(&case("two_profiler_steps.json"));
    assert_eq!((a.steps.source, a.steps.steps.len(), a.steps.warm_up), (StepSource::Ranges, 2, 0));
    assert!((9e6..11e6).contains(&a.steps.mean_ns), "{} ns", a.steps.mean_ns);
    assert!(a.verdict.cause == "INPUT" && a.verdict.confidence <= Confidence::Medium, "{:?}", a.verdict);
    let said = line(&input, &a);
    assert!(said.contains("2 of 2 steps seen (too few to tell warm-up; 2"), "{said}");
    assert!(said.contains("periods of 308 us, parts of a step)"), "{said}");
}

/// One or two ranges of a program's own (NVTX) are steps like the profiler's; a slow first one
/// stays.
#[test]
fn one_or_two_ranges_of_the_programs_own_are_steps() {
    for count in [1, 2] {
        let mut t = Trace::new();
        for n in 0..count {
            let from = t.t;
            t.t += if n == 0 { 30_000 } else { 2_000 };
            t.layers(6, 200);
            t.synchronize();
            t.range(&format!("step {n}"), from);
        }
        let (_, a) = t.read();
        assert_eq!((a.steps.source, a.steps.steps.len(), a.steps.warm_up), (StepSource::Ranges, count, 0));
        assert_eq!(a.steps.steps[0].span.ns() / 1_000_000, 34, "{:?}", a.steps.steps);
        assert!(a.steps.parts.is_some_and(|p| p.count >= 5), "{:?}", a.steps.parts);
    }
}

/// Two marks beside which most of the work is done (an annotated evaluation) are not the steps.
#[test]
fn marks_of_little_work_leave_the_period() {
    let mut t = Trace::new();
    for n in 0..30 {
        let from = t.t;
        t.layers(4, 100);
        t.kernel("adam", 300);
        t.synchronize();
        if n < 2 {
            t.range(&format!("step {n}"), from);
        }
    }
    let (_, a) = t.read();
    assert_eq!(a.steps.source, StepSource::Period, "{:?}", a.steps.steps.len());
    assert!(a.steps.steps.len() >= 29 && a.steps.parts.is_none() && !a.steps.may_be_parts);
}

/// Five marked steps that compute, and a pause of which they are a small part: what is said of them
/// holds, and is not all that there is to say.
#[test]
fn marked_steps_of_a_trace_that_is_mostly_idle_are_not_all_of_it() {
    for pause in [0, 100_000] {
        let mut t = Trace::new();
        for n in 0..5 {
            let from = t.t;
            t.layers(6, 200);
            t.synchronize();
            t.range(&format!("ProfilerStep#{n}"), from);
        }
        t.t += pause;
        t.kernel("evaluation", 10);
        let file = File::new(t.text().as_bytes());
        let (input, a) = read(&file.0);
        assert_eq!((a.verdict.cause, a.steps.steps.len()), ("GPU-BOUND", 5), "{:?}", a.verdict);
        let said = line(&input, &a);
        assert_eq!(is_sure_of_the_gpu(&a), pause == 0, "{said}");
        assert_eq!(said.contains("of the whole trace the GPU idles 8"), pause > 0, "{said}");
        let (text, code) = gapprobe(&["check", "--max-idle", "20%"], &file.0);
        assert_eq!((code == FAILED, text.contains("whole trace")), (pause > 0, pause > 0), "{text}");
    }
}

/// A trace whose period is all of it stays as sure as it was.
#[test]
fn steps_that_are_the_whole_are_judged_as_before() {
    let mut t = Trace::new();
    for _ in 0..20 {
        t.layers(4, 200);
        t.kernel("adam", 300);
        t.synchronize();
    }
    let (input, a) = t.read();
    let said = line(&input, &a);
    assert!(is_sure_of_the_gpu(&a) && !said.contains("whole trace") && !said.contains("parts"), "{said}");
    assert_eq!(a.steps.source, StepSource::Period);
}

// SPDX-License-Identifier: Apache-2.0
//! GP118 ALLOC-FRAGMENTED, GP119 MEMORY-GROWTH and GP130 OUT-OF-MEMORY: a program that has it, and
//! those close by that do not.

use trace::event::Gauge;
use trace::{call, Event, Kind, Total};
use verdict::analysis::{Bucket, Confidence};
use verdict::{Analysis, Run};

use super::{kept, run, time, verdict, Program, STEPS};

const MB: u64 = 1_000_000;

/// cudaMalloc takes 200 µs and returns `result`.
fn malloc(p: &mut Program, result: u32) {
    let mut e = Event::new(Kind::Call, p.t, p.t + 200_000);
    (e.a, e.x, e.b, e.c) = (call::pack(call::RUNTIME, 20), call::Class::Alloc as u8, result, p.site);
    p.t += 200_000;
    p.b.on_thread(p.tid, e);
}

fn at(p: &mut Program, line: u32) {
    p.site = p.b.stack(&[("forward", "/job/gpt/model.py", line), ("<module>", "/job/gpt/train.py", 60)]);
}

/// A step in which an allocation returns `result`, blocks are freed, and another allocation
/// succeeds or fails.
pub(super) fn allocates(p: &mut Program, first: u32, frees: u32, second: u32) {
    p.train_step(6, 30_000);
    at(p, 31);
    malloc(p, first);
    for _ in 0..frees {
        p.free(300_000);
    }
    malloc(p, second);
    p.site = 0;
}

fn has(a: &Analysis, cause: &str) -> bool {
    a.findings.iter().any(|f| f.cause == cause)
}

#[test]
fn allocations_that_succeed_once_the_cache_is_freed() {
    let (_, a) = run(|p| allocates(p, 2, 4, 0));
    verdict(&a, "ALLOC-FRAGMENTED");
    let v = &a.verdict;
    assert!(v.text().starts_with("gpt/model.py:31 in forward: cudaFree"), "{}", v.text());
    assert!(v.text().contains("an allocation failed every step, and succeeded"), "{}", v.text());
    assert!(v.advice.long.contains("expandable_segments:True"), "{}", v.advice.long);
    assert!(!has(&a, "ALLOC") && !has(&a, "OUT-OF-MEMORY"), "{:?}", a.findings);
    kept(&a, time(|p| p.train_step(6, 30_000)));
    assert_eq!(verdict::causes::kind_of(v.code), Some("GP108"));
    assert!(a.devices[0].buckets.share(Bucket::Alloc) > 0.3);
}

/// The same calls and none of them failed; or one fails and what follows is no answer to it.
#[test]
fn frees_and_allocations_that_do_not_fail_are_alloc() {
    verdict(&run(|p| allocates(p, 0, 4, 0)).1, "ALLOC");
    // another error than out of memory
    verdict(&run(|p| allocates(p, 1, 4, 0)).1, "ALLOC");
    // one failure in thirty steps that free for themselves
    let mut step = 0;
    let (_, a) = run(|p| {
        step += 1;
        allocates(p, if step == 12 { 2 } else { 0 }, 4, 0);
    });
    verdict(&a, "ALLOC");
}

/// Steps, an allocation that fails for good, and so many steps behind it.
pub(super) fn fails(goes_on: u32) -> (Run, Analysis) {
    let mut p = Program::new();
    for _ in 0..30 {
        p.train_step(12, 2_000);
    }
    for _ in 0..goes_on + 1 {
        allocates(&mut p, 2, 2, 2);
    }
    for _ in 0..goes_on {
        p.train_step(12, 2_000);
    }
    p.analyze()
}

#[test]
fn a_run_that_ends_out_of_memory_keeps_its_verdict_and_says_so() {
    let (_, a) = fails(0);
    assert_eq!(a.verdict.cause, "LAUNCH", "{:?}", a.verdict);
    let said = "; ended out of memory: cudaMalloc failed at gpt/model.py:31 in forward";
    assert!(a.verdict.text().ends_with(said), "{}", a.verdict.text());
    let f = a.findings.iter().find(|f| f.code == "GP130").expect("the finding");
    assert_eq!((f.share, f.win.share(), f.site.as_ref().map(|s| s.line)), (0.0, 0.0, Some(31)), "{f:?}");
    // a program that catches it and goes on has not ended by it
    let (_, a) = fails(3);
    assert!(!has(&a, "OUT-OF-MEMORY") && !a.verdict.text().contains("memory"), "{:?}", a.verdict);
}

/// Too short for a verdict: out of memory in the first step.
#[test]
fn out_of_memory_in_the_first_step_is_said_without_a_verdict() {
    let mut p = Program::new();
    p.forward(2, 2_000);
    malloc(&mut p, 2);
    let (_, a) = p.analyze();
    assert!(a.verdict.inconclusive.is_some(), "{:?}", a.verdict);
    assert!(a.verdict.text().ends_with("; ended out of memory: cudaMalloc failed"), "{}", a.verdict.text());
}

/// A second of steps with a reading of memory in each, MB.
fn readings(gauge: Gauge, mut of_step: impl FnMut(u64) -> u64) -> (Run, Analysis) {
    let mut step = 0;
    let (mut run, _) = run(|p| {
        p.train_step(6, 300_000);
        p.sync(); // the host's clock is the device's
        let value = of_step(step) * MB;
        let mut e = Event::new(Kind::Gauge, p.t, p.t);
        (e.a, e.b, e.c) = (gauge as u32, value as u32, (value >> 32) as u32);
        p.b.on_recorder(e);
        step += 1;
    });
    run.devices[0].info.memory = 80_000 * MB;
    let a = verdict::analyze(&run);
    (run, a)
}

/// So many MB of the GPU's memory in use in each step.
pub(super) fn used(of_step: fn(u64) -> u64) -> (Run, Analysis) {
    readings(Gauge::MemoryUsed, of_step)
}

#[test]
fn memory_that_grows_with_every_step_is_said_beside_the_verdict() {
    let (_, a) = used(|step| 10_000 + 100 * step);
    verdict(&a, "GPU-BOUND");
    let f = a.findings.iter().find(|f| f.code == "GP119").expect("the finding");
    assert!(a.verdict.text().contains(&f.text()), "{}", a.verdict.text());
    assert!(
        f.text().starts_with("GPU memory grows 100") || f.text().starts_with("GPU memory grows 99"),
        "{}",
        f.text()
    );
    // 67 GB are left, 100 MB a step
    let full =
        f.text().rsplit("full in about ").next().and_then(|t| t.split(' ').next()?.parse::<u32>().ok());
    assert!(full.is_some_and(|n| (650..=690).contains(&n)), "{}", f.text());
    assert!(f.confidence <= Confidence::Medium && f.win.share() == 0.0 && f.share == 0.0);
    let (_, a) = readings(Gauge::ResidentBytes, |step| 1_000 + 20 * step);
    assert!(a.verdict.text().contains("; host memory grows "), "{}", a.verdict.text());
}

/// The recorder's own presence costs memory, by launches, once there is a CUDA graph: it is told
/// apart, and alone it is no growth of the program's. Other releases of CUPTI keep nothing, nor
/// does this one without a graph: there all of it is the program's.
#[test]
fn what_cupti_keeps_of_launches_is_not_the_programs() {
    const LAUNCHES: u64 = 20_000;
    let made = |has_graph: bool| {
        let mut p = Program::new();
        for step in 0..STEPS {
            if has_graph && step == 0 {
                p.graph(1, &[("tiny_kernel", 150); 3]);
            }
            for _ in 0..LAUNCHES {
                p.launch("gemm_kernel", 264, 8_000);
            }
            p.sync();
            let mut e = Event::new(Kind::Gauge, p.t, p.t);
            e.a = Gauge::ResidentBytes as u32;
            p.b.on_recorder(e);
        }
        verdict::load(p.finish().as_slice()).expect("a recording")
    };
    let grown = |run: &mut Run, cupti: u32, bytes: u64| {
        run.header.cupti_version = cupti;
        for (r, step) in run.readings.iter_mut().zip(0..) {
            r.value = 100 * MB + step * bytes;
        }
        let a = verdict::analyze(run);
        a.findings.iter().find(|f| f.code == "GP119").map(|f| f.text().clone())
    };
    let (mut with, mut without) = (made(true), made(false));
    assert_eq!(grown(&mut with, 130_000, LAUNCHES * 32), None, "19 MB in all, and CUPTI's");
    let text = grown(&mut with, 130_300, 2 * MB).expect("the program's");
    assert!(
        text.starts_with("host memory grows 1.4 MB a step (and 640.0 kB that CUPTI keeps of its launches)"),
        "{text}"
    );
    let theirs = [
        grown(&mut without, 130_000, LAUNCHES * 32),
        grown(&mut with, 130_400, LAUNCHES * 32),
        grown(&mut with, 28, LAUNCHES * 32),
    ];
    for text in theirs {
        assert!(text.as_ref().is_some_and(|t| t.starts_with("host memory grows 640")), "{text:?}");
    }
}

/// What a run of days costs in memory beside its time.
#[test]
fn what_cupti_keeps_of_a_long_run_is_said_as_cost() {
    let said = |cupti: u32, launches: u64, graphs: u64| {
        let (mut run, _) = run(|p| p.train_step(6, 300_000));
        run.header.cupti_version = cupti;
        run.header.totals[Total::Launches as usize] = launches;
        run.header.totals[Total::GraphLaunches as usize] = graphs;
        let a = verdict::analyze(&run);
        let line = verdict::output::line::evidence(&run, &a).join("; ");
        assert!(line.contains("; cost "), "{line}");
        line.contains("and up to 3.2 GB that CUPTI keeps")
    };
    assert!(said(130_000, 100_000_000, 1));
    assert!(!said(130_000, 100_000_000, 0), "without a graph it keeps nothing");
    assert!(!said(130_500, 100_000_000, 1));
    assert!(!said(130_000, 1_000_000, 1), "32 MB");
}

#[test]
fn memory_that_stands_still_or_comes_back_does_not_grow() {
    let grows = |of_step: fn(u64) -> u64| has(&readings(Gauge::MemoryUsed, of_step).1, "MEMORY-GROWTH");
    assert!(grows(|step| 10_000 + 50 * step), "the measure of the others");
    for (what, of_step) in [
        ("stands still", (|_| 10_000) as fn(u64) -> u64),
        ("falls", |step| 10_000 - 100 * step),
        ("grows by less than counts", |step| 10_000 + step / 3),
        ("grew at the start, and stays", |step| 10_000 + 300 * step.min(8)),
        ("is filled and emptied", |step| 10_000 + 100 * (step % 10) + 10 * step),
        ("grew at the end", |step| 10_000 + if step > 25 { 2_000 } else { 0 }),
    ] {
        assert!(!grows(of_step), "{what}");
    }
}

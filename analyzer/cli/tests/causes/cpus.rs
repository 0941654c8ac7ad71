// SPDX-License-Identifier: Apache-2.0
//! Too few CPUs: a launching thread that waits for one, workers that share what there are; and what
//! a step can be at best. Steps as in `samples.rs` and `input.rs`.

use trace::define::{CPUS, CPU_QUOTA};
use trace::event::Gauge;
use trace::{Event, Kind};
use verdict::analysis::Finding;
use verdict::{Analysis, Run};

use super::input::{waits_for_workers, worker, ITEM, NEXT, SINGLE};
use super::program::Pose;
use super::samples::{stack, work, AWAY, PREPARE};
use super::{kept, run, time, verdict, Program};

type Frame = (&'static str, &'static str, u32);
const TOKENIZE: Frame = ("tokenize", "/job/gpt/words.py", 7);
const LOG: Frame = ("info", "%/logging/__init__.py", 1500);
const STARVED: u32 = 900;

/// A machine: what the process may use, by its affinity and by a quota, and how long that stopped
/// it of a step, ns.
#[derive(Clone, Copy)]
struct Machine {
    cpus: u32,
    quota: &'static str,
    stopped: u64,
    /// Each child waits for a CPU for so many permille, and the process uses so many permille of
    /// one.
    queued: u32,
    process: u32,
}

const fn cpus(cpus: u32) -> Machine {
    Machine { cpus, quota: "", stopped: 0, queued: 0, process: 0 }
}

/// Of ten steps the launching thread is starved in `starved`, computes in three, logs in the rest;
/// `children` use so many permille of a CPU each.
fn starved_in(starved: u32, on: Machine, children: (u32, u32)) -> (Run, Analysis) {
    let mut n = 0;
    run(|p| {
        if n == 0 {
            p.b.header.cpus = on.cpus;
            p.b.attribute(CPUS, &on.cpus.to_string());
            if !on.quota.is_empty() {
                p.b.attribute(CPU_QUOTA, on.quota);
            }
        }
        n += 1;
        let from = p.t;
        work(p);
        let pose = match n % 10 {
            k if k < starved => {
                Pose { on_cpu: 1000 - STARVED, run_queue: STARVED, ..Pose::computing(stack(p, &[PREPARE])) }
            }
            k if k < starved + 3 => Pose::computing(stack(p, &[TOKENIZE])),
            _ => Pose::computing(stack(p, &[LOG, TOKENIZE])),
        };
        p.stand(AWAY, pose);
        for child in 0..children.0 {
            let mut e = Event::new(Kind::Process, from, p.t);
            (e.a, e.b, e.correlation) = (1000 + child, children.1, on.queued);
            p.b.on_recorder(e);
        }
        if on.process > 0 {
            let mut e = Event::new(Kind::Gauge, from, p.t);
            let used = (p.t - from) * u64::from(on.process) / 1000;
            (e.a, e.b, e.c) = (Gauge::ProcessCpuNs as u32, used as u32, (used >> 32) as u32);
            p.b.on_recorder(e);
        }
        if on.stopped > 0 {
            let mut e = Event::new(Kind::Gauge, from, p.t);
            (e.a, e.b) = (Gauge::CpuThrottledNs as u32, on.stopped as u32);
            p.b.on_recorder(e);
        }
    })
}

#[track_caller]
fn finding<'a>(a: &'a Analysis, cause: &str) -> &'a Finding {
    a.findings.iter().find(|f| f.cause == cause).unwrap_or_else(|| panic!("{cause}: {:#?}", a.findings))
}

/// Nothing has half of the samples: being starved has its part all the same, with its line, and so
/// has what the thread computes; with a part that is not worth a word it stays HOST.
#[test]
fn a_thread_that_is_starved_in_less_than_half_of_its_samples_is_starved() {
    let (_, a) = starved_in(4, cpus(8), (0, 0));
    verdict(&a, "CPU-STARVED");
    let v = &a.verdict;
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(41), "{}", v.text());
    assert!(v.text().contains("is runnable but not scheduled"), "{}", v.text());
    let part = finding(&a, "CPU-STARVED").win.share();
    assert!((0.3..0.5).contains(&part), "{part}");
    let rest = finding(&a, "HOST");
    assert!(rest.win.share() < part && part + rest.win.share() < 0.9, "{:#?}", a.findings);
    let (_, a) = starved_in(1, cpus(8), (0, 0));
    assert!(a.findings.iter().all(|f| f.cause != "CPU-STARVED"), "{:#?}", a.findings);
}

/// How many CPUs there are, who uses them, and what is to be changed: by whether the quota stopped
/// it, they are all in use, or there are only more who want them.
#[test]
fn what_is_said_of_cpus_and_what_to_change_goes_by_who_has_them() {
    let said = |on, children| {
        let (_, a) = starved_in(4, on, children);
        let f = finding(&a, "CPU-STARVED");
        (f.text(), f.advice.long, f.promise)
    };
    // fourteen children have both of two CPUs: fewer of them get no more done
    let (text, fix, promised) = said(cpus(2), (14, 135));
    assert!(text.contains("; 2 CPUs allowed: 14 child processes use 1.9, threads that call CUDA "), "{text}");
    assert!(text.ends_with("; the CPUs are all in use: nothing is promised"), "{text}");
    assert!(fix.starts_with("more CPUs for the job, or less for them to do"), "{fix}");
    assert_eq!(promised, None);
    // they use little, and are more than the CPUs
    let (text, fix, promised) = said(cpus(2), (14, 40));
    assert!(text.contains("; 2 CPUs allowed: 14 child processes use 0.6, "), "{text}");
    assert!(fix.starts_with("fewer DataLoader workers and threads") && promised.is_some(), "{fix}");
    // nobody of ours has them
    let (text, fix, promised) = said(cpus(16), (0, 0));
    assert!(text.contains("; 16 CPUs allowed: threads that call CUDA use "), "{text}");
    assert!(fix.starts_with("more CPUs for the job, or fewer threads") && promised.is_some(), "{fix}");
    // a quota that stops the process for a third of the time
    let quota = Machine { quota: "1.50", stopped: 4_000_000, ..cpus(16) };
    let (text, fix, promised) = said(quota, (14, 100));
    assert!(text.contains("; 1.5 CPUs allowed by the cgroup's quota: 14 child processes use 1.4"), "{text}");
    assert!(text.contains("; the cgroup's CPU quota stopped the process for "), "{text}");
    assert!(fix.starts_with("a larger CPU quota") && promised.is_some(), "{fix}");
    // what is not known is not said
    let (text, _, _) = said(cpus(0), (14, 135));
    assert!(!text.contains("allowed") && !text.contains("in use"), "{text}");
}

/// What children wait for, and what other threads of the process use, is known of newer recordings.
#[test]
fn what_children_wait_for_and_other_threads_use_is_told() {
    let (_, a) = starved_in(4, Machine { queued: 700, process: 900, ..cpus(2) }, (2, 300));
    let text = finding(&a, "CPU-STARVED").text();
    let said =
        "; 2 CPUs allowed: 2 child processes use 0.6 and wait for 1.4 more, other threads of the process ";
    assert!(text.contains(said) && text.contains(", threads that call CUDA "), "{text}");
    // what the launching thread uses itself is none of the others'
    let launching = text.split("threads that call CUDA ").nth(1).unwrap().split(' ').next().unwrap();
    let others = text.split("of the process ").nth(1).unwrap().split(',').next().unwrap();
    let sum = launching.parse::<f64>().unwrap() + others.parse::<f64>().unwrap();
    assert!((sum - 0.9).abs() < 0.11, "{text}");
    // eight threads of OpenMP have the CPUs, and nobody else is there
    let (_, a) = starved_in(4, Machine { process: 7_900, ..cpus(8) }, (0, 0));
    let f = finding(&a, "CPU-STARVED");
    assert!(f.advice.long.starts_with("more CPUs for the job, or less for them to do"), "{}", f.text());
    assert_eq!(f.promise, None, "{}", f.text());
}

/// Read again from the trace, it says the same.
#[test]
fn the_quota_is_in_the_trace() {
    let quota = Machine { quota: "1.50", stopped: 4_000_000, ..cpus(16) };
    let (run_, a) = starved_in(4, quota, (14, 100));
    let options = verdict::output::chrome::ChromeOptions::default();
    let (bytes, _) = verdict::output::chrome::write(&run_, &a, Vec::new(), &options).unwrap();
    let path = std::env::temp_dir().join(format!("gapprobe-quota-{}.json.gz", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let again = formats::read(&path, &formats::Progress::default());
    std::fs::remove_file(&path).unwrap();
    let b = verdict::analyze(&again.unwrap_or_else(|e| panic!("{e}")).run);
    assert!(a.verdict.text().contains(" by the cgroup's quota"), "{}", a.verdict.text());
    assert_eq!((b.verdict.text(), b.verdict.advice.long), (a.verdict.text(), a.verdict.advice.long));
}

/// `count` workers that use so many permille of a CPU each, and read.
fn with_workers(on: Machine, count: u32, on_cpu: u32, read_kib: u32, beside: (u32, u32)) -> (Run, Analysis) {
    run(|p: &mut Program| {
        p.b.header.cpus = on.cpus;
        let from = p.t;
        work(p);
        let pose = waits_for_workers(p);
        p.stand(AWAY, pose);
        for n in 0..count {
            worker(p, 1000 + n, from, (on_cpu, 0, read_kib));
        }
        for n in 0..beside.0 {
            let at = stack(p, &[("compress", "/job/gpt/ship.py", 12)]);
            p.child(2000 + n, from, beside.1, 0, 0);
            p.child_stands(2000 + n, from, at);
        }
    })
}

/// Two workers decode 26 ms of CPU time a step: four CPUs have a step of 6.6 ms in them, and no
/// less.
#[test]
fn workers_are_promised_what_the_cpus_can_do() {
    let (_, a) = with_workers(cpus(4), 2, 980, 0, (0, 0));
    verdict(&a, "INPUT-WORKERS");
    let v = &a.verdict;
    let least = v.step_ns * 1.96 / 4.0;
    assert!(v.promise.unwrap().ns() - v.promise.unwrap().error_ns() >= least * 0.999, "{least} {v:?}");
    kept(&a, least);
    assert!(v.text().contains(" would keep up and there are 4 CPUs"), "{}", v.text());
    // sixty-four have more than is needed: the step is the GPU's
    let (_, a) = with_workers(cpus(64), 2, 980, 0, (0, 0));
    verdict(&a, "INPUT-WORKERS");
    kept(&a, time(work));
    assert!(
        a.verdict.text().contains(" would keep up") && !a.verdict.text().contains("there are"),
        "{:?}",
        a.verdict
    );
}

/// Fourteen workers on two CPUs: each has a seventh of one, as if it waited for something. More of
/// them would get no more done.
#[test]
fn workers_that_share_all_the_cpus_are_busy_and_more_of_them_are_no_advice() {
    for read_kib in [0, 4000] {
        let (_, a) = with_workers(cpus(2), 14, 138, read_kib, (0, 0));
        verdict(&a, "INPUT-WORKERS");
        let v = &a.verdict;
        assert!(v.text().contains("; 14 workers, 14% on a CPU"), "{}", v.text());
        assert!(v.text().ends_with("; the CPUs are all in use: nothing is promised"), "{}", v.text());
        assert_eq!(v.promise, None);
        assert!(
            v.advice.long.contains("decode on the GPU") && !v.advice.long.contains("more DataLoader"),
            "{}",
            v.advice.long
        );
    }
    // with CPUs to spare they do wait for something; nor are they known to be busy where others
    // have the CPUs
    verdict(&with_workers(cpus(64), 14, 138, 4000, (0, 0)).1, "INPUT-STORAGE");
    verdict(&with_workers(cpus(64), 14, 138, 0, (0, 0)).1, "INPUT");
    let (_, a) = with_workers(cpus(2), 4, 30, 0, (2, 950));
    verdict(&a, "INPUT");
    assert!(!a.verdict.advice.long.contains("more DataLoader"), "{}", a.verdict.advice.long);
}

/// A step decodes for 12 ms in the launching thread: with four CPUs it can be 3 ms, with workers.
#[test]
fn a_thread_that_decodes_is_promised_what_the_cpus_can_do() {
    let (_, a) = run(|p| {
        p.b.header.cpus = 4;
        work(p);
        let pose = Pose::computing(stack(p, &[ITEM, SINGLE, NEXT]));
        p.stand(AWAY, pose);
    });
    verdict(&a, "INPUT-MAIN");
    let v = &a.verdict;
    let least = AWAY as f64 / 4.0;
    assert!(v.promise.unwrap().ns() - v.promise.unwrap().error_ns() >= least * 0.95, "{least} {v:?}");
    kept(&a, least);
}

/// Two CPUs, of which other programs have most: the launching thread waits for one as long as it
/// has one, and the workers get next to nothing. They are not known to wait for anything else.
#[test]
fn workers_beside_other_programs_are_not_taken_for_idle() {
    let beside = |run_queue: u32, on_disk: u32| {
        run(|p: &mut Program| {
            p.b.header.cpus = 2;
            let from = p.t;
            work(p);
            let pose = waits_for_workers(p);
            p.stand(AWAY, Pose { on_cpu: 100, run_queue, ..pose });
            for n in 0..14 {
                worker(p, 1000 + n, from, (60, on_disk, 4000));
            }
        })
        .1
    };
    let a = beside(400, 0);
    verdict(&a, "INPUT-WORKERS");
    let v = &a.verdict;
    assert!(v.text().ends_with("; the CPUs are all in use: nothing is promised"), "{}", v.text());
    assert!(
        v.advice.long.contains("decode on the GPU") && !v.advice.long.contains("more DataLoader"),
        "{}",
        v.advice.long
    );
    // it hardly waits: the workers could have more of the CPUs, and do not want them
    verdict(&beside(20, 0), "INPUT-STORAGE");
    // nor do those who are blocked on a disk, whoever has the CPUs
    let a = beside(400, 700);
    verdict(&a, "INPUT-STORAGE");
    assert!(a.verdict.promise.is_some(), "{:?}", a.verdict);
}

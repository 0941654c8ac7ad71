// SPDX-License-Identifier: Apache-2.0
//! Purpose: whose steps are the program's. Libraries name ranges "step" too, several threads set
//! marks, and a thread that fills a queue names steps that another one takes. The truth is the loop
//! of the test.

use trace::event::{MARK, START_END};
use trace::{Event, Kind, Loss, Total};
use verdict::analysis::StepSource;
use verdict::Analysis;

use super::program::Program;

const STEPS: u32 = 30;
const MS: u64 = 1_000_000;

fn range(p: &mut Program, tid: u32, name: &str, begin: u64, end: u64) {
    let mut range = Event::new(Kind::Range, begin, end);
    range.a = p.b.string(name);
    p.b.on_thread(tid, range);
}

/// Ten kernels of 0.5 ms, waited for; two milliseconds of the host's own. Returns where it began.
fn step(p: &mut Program) -> u64 {
    let begin = p.t;
    (0..10).for_each(|_| p.launch("layer_gemm", 264, MS / 2));
    p.sync();
    p.think(2 * MS);
    begin
}

#[track_caller]
fn of_seven_ms(a: &Analysis, count: usize) {
    assert_eq!(a.steps.steps.len(), count);
    // the last one is open: what the host does behind it is not known
    for s in a.steps.steps.iter().take(count - 1) {
        let ms = s.span.ns() as f64 / 1e6;
        assert!((ms - 7.1).abs() < 0.5, "{ms} ms, in truth 7.1");
    }
}

#[test]
fn the_profilers_steps_go_before_those_they_lie_across() {
    // prof.step() at the end of a loop's body that is a range itself: each ends within the other
    let mut p = Program::new();
    p.noise = 0;
    let mut last = p.t;
    for n in 0..STEPS {
        let begin = step(&mut p);
        let (tid, switch) = (p.tid, p.t - 30_000);
        range(&mut p, tid, "train_step", begin, switch + 30_000);
        range(&mut p, tid, &format!("ProfilerStep#{n}"), last, switch);
        last = switch;
    }
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Ranges);
    of_seven_ms(&a, STEPS as usize);
}

#[test]
fn ranges_some_of_which_were_dropped_name_no_steps() {
    let mut p = Program::new();
    p.noise = 0;
    for n in 0..STEPS {
        let begin = step(&mut p);
        let (tid, end) = (p.tid, p.t);
        // every third is missing: by the rest, a step of two would last as long as two
        if n % 3 != 2 {
            range(&mut p, tid, "train_step", begin, end);
        }
    }
    p.b.header.losses[usize::from(Loss::RangeDropped.code())] = 20;
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Period);
    of_seven_ms(&a, STEPS as usize);
}

#[test]
fn an_environments_steps_are_not_the_trainers() {
    let mut p = Program::new();
    p.noise = 0;
    for _ in 0..STEPS {
        let begin = step(&mut p);
        let (tid, end) = (p.tid, p.t);
        range(&mut p, tid, "train_step", begin, end);
        for n in 0..7 {
            range(&mut p, 300, "step", begin + n * MS, begin + n * MS + MS / 2);
        }
    }
    of_seven_ms(&p.analyze().1, STEPS as usize);
}

/// The same range in an NVTX domain.
fn range_of(p: &mut Program, domain: &str, name: &str, begin: u64, end: u64, flags: u8) {
    let mut range = Event::new(Kind::Range, begin, end);
    (range.a, range.b, range.flags) = (p.b.string(name), p.b.string(domain), flags);
    p.b.on_thread(p.tid, range);
}

#[test]
fn steps_may_be_named_in_a_domain_of_the_programs_own() {
    let mut p = Program::new();
    p.noise = 0;
    for n in 0..STEPS {
        let (begin, end) = (step(&mut p), p.t);
        range_of(&mut p, "training", &format!("step {n}"), begin, end, 0);
    }
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Ranges);
    of_seven_ms(&a, STEPS as usize);
}

#[test]
fn what_a_library_calls_a_step_and_a_moment_of_that_name_are_none() {
    for (domain, flags) in [("NCCL", 0), ("NCCL", START_END), ("", MARK), ("training", MARK)] {
        let mut p = Program::new();
        p.noise = 0;
        for n in 0..STEPS {
            let (begin, end) = (step(&mut p), p.t);
            // two a step: taken for steps they would be twice as many
            for half in [begin, (begin + end) / 2] {
                let until = if flags == MARK { half } else { half + MS };
                range_of(&mut p, domain, &format!("step {n}"), half, until, flags);
                range_of(&mut p, domain, "iteration", half, until, flags);
            }
        }
        let (_, a) = p.analyze();
        assert!(matches!(a.steps.source, StepSource::Period | StepSource::None), "{domain:?} {flags}");
        assert!(a.steps.steps.len() <= STEPS as usize + 1, "{domain:?} {flags}: {}", a.steps.steps.len());
    }
}

#[test]
fn marks_of_several_threads_that_count_on_are_one_sequence() {
    let mut p = Program::new();
    p.noise = 0;
    for n in 0..STEPS {
        p.tid = 100 + n % 2;
        let begin = p.t;
        p.mark(n, begin);
        step(&mut p);
    }
    of_seven_ms(&p.analyze().1, STEPS as usize);
}

#[test]
fn a_step_that_two_libraries_mark_is_one() {
    let mut p = Program::new();
    p.noise = 0;
    for n in 0..STEPS {
        for _ in 0..2 {
            let t = p.t;
            p.mark(n, t);
            p.t += 3_000;
        }
        step(&mut p);
    }
    of_seven_ms(&p.analyze().1, STEPS as usize);
}

/// The process counts the marks of all threads: an evaluation that counts steps of its own beside
/// is none of the run's (seen: "100 of 135 steps seen" of 100).
#[test]
fn marks_of_another_thread_are_no_steps_of_the_run() {
    let mut p = Program::new();
    p.noise = 0;
    for n in 0..STEPS {
        let begin = p.t;
        p.mark(n, begin);
        if n % 2 == 0 {
            let own = std::mem::replace(&mut p.tid, 300);
            p.mark(n / 2, begin);
            p.tid = own;
        }
        step(&mut p);
    }
    p.b.header.totals[Total::Steps as usize] = u64::from(STEPS + STEPS / 2);
    let (_, a) = p.analyze();
    of_seven_ms(&a, STEPS as usize);
    assert_eq!(a.coverage.steps_run, u64::from(STEPS), "{:?}", a.coverage);
}

#[test]
fn steps_named_far_from_their_work_are_none() {
    // a main thread puts a hundred steps into a queue within 30 ms; a worker takes them over 700 ms
    let mut p = Program::new();
    p.noise = 0;
    for n in 0..100 {
        let t = p.t;
        range(&mut p, 300, "step", t + n * 300_000, t + n * 300_000 + 250_000);
    }
    (0..100).for_each(|_| {
        step(&mut p);
    });
    let (_, a) = p.analyze();
    assert_ne!(a.steps.source, StepSource::Ranges);
    assert!(a.steps.steps.is_empty() || a.steps.median_ns > 6 * MS, "{} ns", a.steps.median_ns);
}

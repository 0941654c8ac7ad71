// SPDX-License-Identifier: Apache-2.0
//! HOST and INPUT by samples of the launching thread's stack: each kind, and the same program with
//! samples that do not say it. In all of them a step is 1.4 ms of kernels and `AWAY` of something
//! else.

use trace::event::sample::{COLLECTING, HOLDS_GIL};
use verdict::analysis::{Bucket, Confidence};
use verdict::{Analysis, Run};

use super::input::{ITEM, NEXT, SINGLE};
use super::program::{Pose, TICK};
use super::{kept, run, time, verdict, Program};

pub(super) const AWAY: u64 = 12_000_000;
pub(super) const TORCH: &str = "/venv/lib/python3.11/site-packages/torch";
pub(super) const LIBRARY: &str = "/usr/lib/python3.11";

/// A stack below the program's loop, innermost first.
pub(super) fn stack(p: &mut Program, inner: &[(&str, &str, u32)]) -> u32 {
    let paths: Vec<String> = inner.iter().map(|f| f.1.replace('@', TORCH).replace('%', LIBRARY)).collect();
    let mut frames: Vec<(&str, &str, u32)> =
        inner.iter().zip(&paths).map(|(f, path)| (f.0, path.as_str(), f.2)).collect();
    frames.push(("<module>", "/job/gpt/train.py", 60));
    p.b.stack(&frames)
}

pub(super) fn work(p: &mut Program) {
    p.train_step(6, 20_000);
}

/// Steps that stand somewhere in between.
pub(super) fn standing(mut pose: impl FnMut(&mut Program) -> Pose) -> (Run, Analysis) {
    run(|p| {
        work(p);
        let pose = pose(p);
        p.stand(AWAY, pose);
    })
}

/// The verdict with its line (0: none), and the promise kept.
#[track_caller]
pub(super) fn names(found: &(Run, Analysis), cause: &str, line: u32) {
    names_with(found, cause, line, time(work));
}

/// The same where the mended program is another one.
#[track_caller]
pub(super) fn names_with(found: &(Run, Analysis), cause: &str, line: u32, truth: f64) {
    let a = &found.1;
    verdict(a, cause);
    assert_eq!(a.verdict.site.as_ref().map_or(0, |s| s.line), line, "{}", a.verdict.text());
    kept(a, truth);
    let page = verdict::causes::find(a.verdict.code).expect("a code of the registry").doc();
    assert!(page.starts_with(&format!("{} {cause}: ", a.verdict.code)));
}

pub(super) const PREPARE: (&str, &str, u32) = ("prepare", "/job/gpt/train.py", 41);

#[test]
fn computing_in_one_line_is_host_at_that_line() {
    let found = standing(|p| Pose::computing(stack(p, &[PREPARE])));
    names(&found, "HOST", 41);
    let text = &found.1.verdict.text();
    assert!(
        text.starts_with("gpt/train.py:41 in prepare: the launching thread computes on the CPU every step"),
        "{text}"
    );
}

/// Half of the samples agree on the function, no line has half of them.
#[test]
fn computing_all_over_a_function_names_the_function() {
    let mut line = 0;
    let (_, a) = standing(|p| {
        line += 1;
        Pose::computing(stack(p, &[("prepare", "/job/gpt/train.py", 40 + line % 7)]))
    });
    verdict(&a, "HOST");
    assert!(a.verdict.text().starts_with("prepare in gpt/train.py: "), "{}", a.verdict.text());
    assert_eq!(a.verdict.site.as_ref().map(|s| s.line), Some(0));
}

#[test]
fn computing_everywhere_names_no_line() {
    let mut n = 0;
    let (_, a) = standing(|p| {
        n += 1;
        Pose::computing(stack(p, &[(&format!("f{n}"), "/job/gpt/train.py", 40 + n)]))
    });
    verdict(&a, "HOST");
    assert_eq!(a.verdict.site, None);
}

/// Four samples are too few, whatever they say.
#[test]
fn few_samples_say_nothing() {
    let mut steps = 0;
    let (_, a) = run(|p| {
        work(p);
        steps += 1;
        let pose = Pose::blocked(stack(p, &[PREPARE]), 230);
        match steps > 5 && steps <= 8 {
            true => p.stand(AWAY, pose),
            false => p.t += AWAY,
        }
    });
    verdict(&a, "HOST");
    assert_eq!(a.verdict.site, None);
    assert!(
        a.verdict.text().starts_with("the launching thread is running other code"),
        "{}",
        a.verdict.text()
    );
}

/// Half of the time it sleeps, the other half it computes in another line: each has its part, and
/// fixing one wins no more than that.
#[test]
fn a_sleep_and_python_in_the_same_stretch_are_told_apart() {
    const COMPUTES: (&str, &str, u32) = ("tokenize", "/job/gpt/words.py", 7);
    let (_, a) = run(|p| {
        work(p);
        let (sleeps, computes) = (stack(p, &[PREPARE]), stack(p, &[COMPUTES]));
        p.stand(AWAY / 2, Pose::blocked(sleeps, 230));
        p.stand(AWAY / 2, Pose::computing(computes));
    });
    let find =
        |cause| a.findings.iter().find(|f| f.cause == cause).unwrap_or_else(|| panic!("{:?}", a.findings));
    let (sleep, host) = (find("SLEEP"), find("HOST"));
    let line = |f: &verdict::analysis::Finding| f.site.as_ref().map(|s| s.line);
    assert_eq!((line(sleep), line(host)), (Some(41), Some(7)), "{} / {}", sleep.text(), host.text());
    assert!((sleep.share - host.share).abs() < 0.1 * sleep.share, "{} {}", sleep.share, host.share);
    assert!(sleep.share + host.share <= a.devices[0].buckets.share(Bucket::Host) + 1e-9);
    assert!(a.verdict.tied.is_none() && a.verdict.then.is_some_and(|t| ["SLEEP", "HOST"].contains(&t.0)));
    let without_sleep = time(|p| {
        work(p);
        p.t += AWAY / 2;
    });
    kept(&a, without_sleep);
}

/// A third collects, a third logs, a third computes: no kind, and the text says so.
#[test]
fn samples_that_disagree_are_host_without_a_kind() {
    let mut n = 0;
    let (_, a) = standing(|p| {
        n += 1;
        match n % 3 {
            0 => Pose { bits: COLLECTING, ..Pose::computing(stack(p, &[PREPARE])) },
            1 => Pose::computing(stack(p, &[("info", "%/logging/__init__.py", 1500)])),
            _ => Pose::blocked(stack(p, &[PREPARE]), 230),
        }
    });
    verdict(&a, "HOST");
    assert!(a.verdict.text().contains("of the samples"), "{}", a.verdict.text());
    assert!(a.findings.iter().all(|f| !["GC", "LOGGING", "SLEEP"].contains(&f.cause)), "{:?}", a.findings);
}

/// On a CPU below a line of Python and without its lock: native code. With the lock it is Python,
/// and where nobody was ever seen to hold it, nothing is known.
#[test]
fn native_code_is_told_from_python_by_its_lock() {
    let mut n = 0;
    let mut computes = |holds: fn(u32) -> bool| {
        standing(|p| {
            n += 1;
            let bits = if holds(n) { HOLDS_GIL } else { 0 };
            Pose { bits, ..Pose::computing(stack(p, &[PREPARE])) }
        })
    };
    let native = computes(|n| n % 5 == 0);
    names(&native, "NATIVE-CPU", 41);
    assert!(
        native.1.verdict.text().contains("computes on the CPU in native code"),
        "{}",
        native.1.verdict.text()
    );
    assert_eq!(verdict::causes::kind_of("GP129"), Some("GP105"));
    names(&computes(|n| n % 5 != 0), "HOST", 41);
    names(&computes(|_| false), "HOST", 41);
    // blocked without the lock: no computing
    let sleeps = standing(|p| {
        let other = Pose { bits: HOLDS_GIL, ..Pose::computing(stack(p, &[PREPARE])) };
        let tick = p.t.next_multiple_of(TICK);
        p.sample(500, tick, other);
        Pose::blocked(stack(p, &[PREPARE]), 230)
    });
    let v = &sleeps.1.verdict;
    assert_eq!((v.cause, v.site.as_ref().map(|s| s.line)), ("SLEEP", Some(41)), "{}", v.text());
    // (it may sleep until the other is done)
    assert_eq!(v.promise, None, "{}", v.text());
}

#[test]
fn the_garbage_collector() {
    let found = standing(|p| Pose { bits: COLLECTING, ..Pose::computing(stack(p, &[PREPARE])) });
    names(&found, "GC", 41);
}

#[test]
fn a_checkpoint_and_other_files() {
    let save = ("_save", "@/serialization.py", 900);
    let found = standing(|p| Pose::computing(stack(p, &[save, PREPARE])));
    names(&found, "FILE-IO", 41);
    assert!(found.1.verdict.text().contains("writes a checkpoint"), "{}", found.1.verdict.text());
    let found = standing(|p| Pose::blocked(stack(p, &[PREPARE]), 74));
    names(&found, "FILE-IO", 41);
    // reading one is not writing one
    let load = ("load", "@/serialization.py", 1400);
    names(&standing(|p| Pose::blocked(stack(p, &[load, PREPARE]), 0)), "HOST", 41);
}

#[test]
fn logging() {
    let found = standing(|p| Pose::blocked(stack(p, &[("info", "%/logging/__init__.py", 1500), PREPARE]), 1));
    names(&found, "LOGGING", 41);
    let own = standing(|p| Pose::computing(stack(p, &[("info", "/job/gpt/logging/__init__.py", 15)])));
    names(&own, "HOST", 15);
}

#[test]
fn compiling_in_the_steady_state_and_running_what_was_compiled() {
    let run = ("_fn", "@/_dynamo/eval_frame.py", 700);
    let found = standing(|p| {
        Pose::computing(stack(p, &[("_compile", "@/_dynamo/convert_frame.py", 9), run, PREPARE]))
    });
    names(&found, "COMPILE", 41);
    names(&standing(|p| Pose::computing(stack(p, &[run, PREPARE]))), "HOST", 41);
}

#[test]
fn starved_of_cpu() {
    let starved = |queue| {
        standing(move |p| Pose {
            on_cpu: 1000 - queue,
            run_queue: queue,
            ..Pose::computing(stack(p, &[PREPARE]))
        })
    };
    names(&starved(900), "CPU-STARVED", 41);
    names(&starved(300), "HOST", 41);
}

/// The sampler ticks beside a GPU that is busy: what the host does meanwhile costs nothing.
#[test]
fn what_the_host_does_while_the_gpu_works_is_no_cause() {
    let (_, a) = run(|p| {
        p.train_step(6, 300_000);
        let pose = Pose::computing(stack(p, &[ITEM, SINGLE, NEXT]));
        p.stand(3_000_000, pose);
    });
    verdict(&a, "GPU-BOUND");
}

/// In `x.to(device)` behind the loader's work the thread stands in a call, not in the program: such
/// samples say nothing.
#[test]
fn a_sample_inside_a_waiting_call_says_nothing_of_the_program() {
    let (_, a) = run(|p| {
        for _ in 0..50 {
            p.launch("gemm_kernel", 264, 100_000);
        }
        let from = p.t;
        p.sync();
        let pose = Pose::blocked(stack(p, &[PREPARE]), 230);
        let mut tick = from.next_multiple_of(TICK);
        while tick < p.t {
            p.sample(p.tid, tick, pose);
            tick += TICK;
        }
        p.t += 20_000_000;
    });
    assert!(a.devices[0].host.samples == 0, "{:?}", a.devices[0].host);
    verdict(&a, "HOST");
}

/// Short stretches in front of one kernel in which the samples find a logger: no launching.
#[test]
fn launching_in_which_half_of_the_samples_log_is_host() {
    let step = |p: &mut Program, log: bool| {
        for _ in 0..100 {
            p.launch("a_kernel", 264, 20_000);
            let pose = match log {
                true => Pose::computing(stack(p, &[("info", "%/logging/__init__.py", 1500), PREPARE])),
                false => Pose::computing(stack(p, &[PREPARE])),
            };
            p.stand(90_000, pose); // in front of b
            p.launch("b_kernel", 264, 20_000);
        }
        p.launch("adam_kernel", 264, 10_000);
    };
    let (_, a) = run(|p| step(p, true));
    verdict(&a, "LOGGING");
    assert_eq!(a.verdict.site.as_ref().map(|s| s.line), Some(41), "{}", a.verdict.text());
    assert!(a.verdict.confidence <= Confidence::High);
    // in the program's own lines: that may be dispatching
    verdict(&run(|p| step(p, false)).1, "LAUNCH");
}

/// Where the thread stood is in the slices of the trace and in the folded stacks.
#[test]
fn the_trace_and_the_folded_stacks_say_where_the_thread_stood() {
    let (run_, a) = standing(|p| Pose::computing(stack(p, &[PREPARE])));
    let options = verdict::output::chrome::ChromeOptions::default();
    let (bytes, _) = verdict::output::chrome::write(&run_, &a, Vec::new(), &options).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut text).unwrap();
    let idle = || text.lines().filter(|l| l.contains("\"cat\":\"idle\",\"name\":\"HOST\""));
    let told = idle().filter(|l| {
        l.contains("\"site\":\"gpt/train.py:41 in prepare\"")
            && l.contains("\"to change\":\"move it to another process")
    });
    let (told, all) = (told.count(), idle().count());
    assert!(told >= 20 && told <= all, "{told} of {all}");
    let mut folded = Vec::new();
    cli::export::folded(&run_, &a, &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert!(folded.contains("HOST;<module> (train.py:60);prepare (train.py:41);cudaLaunch"), "{folded}");
}

/// The main thread computes, then autograd's thread launches, which had waited for its turn: what
/// the main thread did is it, and no lock.
#[test]
fn a_thread_that_waits_for_its_turn_says_nothing() {
    let found = run(|p| {
        p.forward(6, 20_000);
        let pose = Pose::computing(stack(p, &[PREPARE]));
        let waits = Pose::blocked(0, 202);
        let (mut tick, main) = (p.t.next_multiple_of(TICK), p.tid);
        while tick < p.t + AWAY {
            p.sample(main + 1, tick, waits);
            tick += TICK;
        }
        p.stand(AWAY, pose);
        p.tid = main + 1;
        for _ in 0..20 {
            p.launch("gemm_backward", 132, 20_000);
        }
        p.tid = main;
        p.optimizer(20_000);
    });
    verdict(&found.1, "HOST");
    assert_eq!(found.1.verdict.site.as_ref().map(|s| s.line), Some(41), "{}", found.1.verdict.text());
    assert!(found.1.verdict.text().contains("computes on the CPU"), "{}", found.1.verdict.text());
}

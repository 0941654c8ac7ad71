// SPDX-License-Identifier: Apache-2.0
//! HOST and INPUT by samples of the launching thread's stack: each kind, and the same program with samples that do not
//! say it. In all of them a step is 1.4 ms of kernels and `AWAY` of something else.

use analyzer::analysis::{Bucket, Confidence};
use analyzer::{Analysis, Run};
use trace::event::sample::{COLLECTING, HOLDS_GIL, WAITS_GIL};

use super::input::{ITEM, NEXT, SINGLE};
use super::program::{Pose, TICK};
use super::{kept, run, time, verdict, Program};

pub(super) const AWAY: u64 = 12_000_000;
const TORCH: &str = "/venv/lib/python3.11/site-packages/torch";
const LIBRARY: &str = "/usr/lib/python3.11";

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
fn names_with(found: &(Run, Analysis), cause: &str, line: u32, truth: f64) {
    let a = &found.1;
    verdict(a, cause);
    assert_eq!(a.verdict.site.as_ref().map_or(0, |s| s.line), line, "{}", a.verdict.text);
    kept(a, truth);
    let page = analyzer::causes::find(a.verdict.code).expect("a code of the registry").doc();
    assert!(page.starts_with(&format!("{} {cause}: ", a.verdict.code)));
}

pub(super) const PREPARE: (&str, &str, u32) = ("prepare", "/job/gpt/train.py", 41);

#[test]
fn computing_in_one_line_is_host_at_that_line() {
    let found = standing(|p| Pose::computing(stack(p, &[PREPARE])));
    names(&found, "HOST", 41);
    let text = &found.1.verdict.text;
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
    assert!(a.verdict.text.starts_with("prepare in gpt/train.py: "), "{}", a.verdict.text);
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
    assert!(a.verdict.text.starts_with("the launching thread is elsewhere"), "{}", a.verdict.text);
}

/// Half of the time it sleeps, the other half it computes in another line: each has its part, and fixing one wins no more than that.
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
    let line = |f: &analyzer::analysis::Finding| f.site.as_ref().map(|s| s.line);
    assert_eq!((line(sleep), line(host)), (Some(41), Some(7)), "{} / {}", sleep.text, host.text);
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
    assert!(a.verdict.text.contains("of the samples"), "{}", a.verdict.text);
    assert!(a.findings.iter().all(|f| !["GC", "LOGGING", "SLEEP"].contains(&f.cause)), "{:?}", a.findings);
}

/// On a CPU below a line of Python and without its lock: native code. With the lock it is Python, and where nobody was ever seen to hold it,
/// nothing is known.
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
        native.1.verdict.text.contains("computes on the CPU in native code"),
        "{}",
        native.1.verdict.text
    );
    assert_eq!(analyzer::causes::kind_of("GP129"), Some("GP105"));
    names(&computes(|n| n % 5 != 0), "HOST", 41);
    names(&computes(|_| false), "HOST", 41);
    // blocked without the lock: no computing
    let sleeps = standing(|p| {
        let other = Pose { bits: HOLDS_GIL, ..Pose::computing(stack(p, &[PREPARE])) };
        let tick = p.t.next_multiple_of(TICK);
        p.sample(500, tick, other);
        Pose::blocked(stack(p, &[PREPARE]), 230)
    });
    names(&sleeps, "SLEEP", 41);
}

#[test]
fn the_garbage_collector() {
    let found = standing(|p| Pose { bits: COLLECTING, ..Pose::computing(stack(p, &[PREPARE])) });
    names(&found, "GC", 41);
}

/// Steps in which the launching thread waits for the lock; `hold` says what is known of who holds it at a tick.
fn locked(mut hold: impl FnMut(&mut Program, u64)) -> (Run, Analysis) {
    run(|p| {
        work(p);
        let pose = Pose { bits: WAITS_GIL, ..Pose::blocked(stack(p, &[PREPARE]), 202) };
        let tick = p.t.next_multiple_of(TICK);
        p.stand(AWAY, pose);
        hold(p, tick);
    })
}

const HOLDER: u32 = 500;

fn decoding(p: &mut Program, line: u32) -> Pose {
    let other =
        p.b.stack(&[("decode", "/job/gpt/server.py", line), ("run", &format!("{LIBRARY}/threading.py"), 9)]);
    Pose { bits: HOLDS_GIL, ..Pose::computing(other) }
}

#[test]
fn the_global_lock_and_who_holds_it() {
    let found = locked(|p, tick| {
        let pose = decoding(p, 7);
        p.sample(HOLDER, tick, pose);
    });
    names(&found, "GIL", 7);
    assert!(
        found.1.verdict.text.ends_with("; held by decode at gpt/server.py:7"),
        "{}",
        found.1.verdict.text
    );
    // the holder is read after all that wait, or, where it calls CUDA itself, before them
    for late in [300_000, -300_000] {
        let found = locked(|p, tick| {
            let pose = decoding(p, 7);
            p.sample(HOLDER, tick.saturating_add_signed(late), pose);
        });
        names(&found, "GIL", 7);
    }
}

#[test]
fn a_holder_all_over_its_function_is_that_function() {
    let mut line = 0;
    let found = locked(|p, tick| {
        line += 1;
        let pose = decoding(p, 10 + line % 7);
        p.sample(HOLDER, tick, pose);
    });
    names(&found, "GIL", 0);
    let text = &found.1.verdict.text;
    assert!(text.ends_with("; held by decode at gpt/server.py"), "{text}");
}

/// Known in a third of the waits, or from another time than the wait: nobody is accused, not the line that waits either.
#[test]
fn a_lock_whose_holder_is_not_known_names_no_line() {
    let mut n = 0;
    let third = locked(|p, tick| {
        n += 1;
        if n % 3 == 0 {
            let pose = decoding(p, 7);
            p.sample(HOLDER, tick, pose);
        }
    });
    let elsewhen = locked(|p, tick| {
        let pose = decoding(p, 7);
        p.sample(HOLDER, tick - 2_000_000, pose);
    });
    for found in [third, elsewhen] {
        names(&found, "GIL", 0);
        assert_eq!(found.1.verdict.site, None);
        let text = &found.1.verdict.text;
        assert!(
            text.ends_with("; it waits in gpt/train.py:41 in prepare, who holds it is not known"),
            "{text}"
        );
    }
}

/// A thread that is looked at only because it holds the lock may stand in a loader of its own: no input of the launching one.
#[test]
fn a_holder_in_a_loader_is_no_input() {
    let found = locked(|p, tick| {
        let frames = [
            ("__next__", &*format!("{TORCH}/utils/data/dataloader.py"), 700),
            ("ahead", "/job/gpt/ahead.py", 5),
        ];
        let pose = Pose { bits: HOLDS_GIL, ..Pose::computing(p.b.stack(&frames)) };
        p.sample(HOLDER, tick, pose);
    });
    names(&found, "GIL", 5);
}

#[test]
fn a_checkpoint_and_other_files() {
    let save = ("_save", "@/serialization.py", 900);
    let found = standing(|p| Pose::computing(stack(p, &[save, PREPARE])));
    names(&found, "FILE-IO", 41);
    assert!(found.1.verdict.text.contains("writes a checkpoint"), "{}", found.1.verdict.text);
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

#[test]
fn sleeping() {
    names(&standing(|p| Pose::blocked(stack(p, &[PREPARE]), 230)), "SLEEP", 41);
    // up to Python 3.10 time.sleep selects; an event loop selects too
    names(&standing(|p| Pose::blocked(stack(p, &[PREPARE]), 270)), "SLEEP", 41);
}

#[test]
fn locks_and_autograds_own_thread() {
    let wait = ("Condition.wait", "%/threading.py", 355);
    names(&standing(|p| Pose::blocked(stack(p, &[wait, PREPARE]), 202)), "LOCK", 41);
    let engine = ("_engine_run_backward", "@/autograd/graph.py", 823);
    names(&standing(|p| Pose::blocked(stack(p, &[engine, PREPARE]), 202)), "HOST", 41);
}

/// The thread that is waited for is named where it computes at the same moments, not where it waits itself, or computed at others.
#[test]
fn what_another_thread_computes_while_it_is_waited_for() {
    let found = |at: i64, busy: bool| {
        run(|p| {
            work(p);
            let waits = stack(p, &[("Queue.get", "%/queue.py", 171), PREPARE]);
            let tick = p.t.next_multiple_of(TICK);
            p.stand(AWAY, Pose::blocked(waits, 202));
            let other = stack(p, &[("pack", "/job/gpt/data.py", 7), ("run", "%/threading.py", 9)]);
            let pose = if busy { Pose::computing(other) } else { Pose::blocked(other, 202) };
            p.sample(HOLDER, tick.saturating_add_signed(at), pose);
        })
    };
    let together = found(300_000, true);
    verdict(&together.1, "LOCK");
    let v = &together.1.verdict;
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(41), "{}", v.text);
    // it computes for 10 of 13.5 ms: a step earlier is not early enough
    assert!(v.text.contains(" % of the time: that is the limit") && v.predicted_ns == 0.0, "{v:?}");
    assert!(v.fix.starts_with("make what the other thread does cheaper"), "{}", v.fix);
    assert!(
        together.1.verdict.text.contains("; meanwhile pack at gpt/data.py:7 computes"),
        "{}",
        together.1.verdict.text
    );
    for other in [found(300_000, false), found(4_000_000, true)] {
        names(&other, "LOCK", 41);
        assert!(!other.1.verdict.text.contains("meanwhile"), "{}", other.1.verdict.text);
    }
}

/// A producer that is on a CPU for little of the time is the limit of nothing: to have it a step earlier wins all of the wait.
#[test]
fn a_producer_with_time_left_keeps_the_promise() {
    let mut n = 0;
    let found = run(|p| {
        work(p);
        let waits = stack(p, &[("Queue.get", "%/queue.py", 171), PREPARE]);
        let from = p.t;
        p.stand(AWAY, Pose::blocked(waits, 202));
        // (the sample says so of its moment, over a time in which it slept)
        let other = stack(p, &[("pack", "/job/gpt/data.py", 7), ("run", "%/threading.py", 9)]);
        n += 1;
        for tick in (from.next_multiple_of(TICK)..p.t).step_by(TICK as usize).filter(|_| n % 30 == 0) {
            p.sample(HOLDER, tick + 300_000, Pose::computing(other));
        }
    });
    verdict(&found.1, "LOCK");
    assert!(!found.1.verdict.text.contains("limit"), "{}", found.1.verdict.text);
    kept(&found.1, time(work));
}

/// A loop that polls with `time.sleep`, or a lock, for what a child process makes: the child is the limit.
#[test]
fn what_a_child_process_makes_is_had_no_sooner() {
    let beside = |syscall: u32, child: u32| {
        run(|p| {
            let from = p.t;
            work(p);
            let at = stack(p, &[PREPARE]);
            p.stand(AWAY, Pose::blocked(at, syscall));
            p.child(2000, from, child, 0, 0);
        })
        .1
    };
    for (syscall, cause) in [(230, "SLEEP"), (202, "LOCK")] {
        let a = beside(syscall, 900);
        verdict(&a, cause);
        let v = &a.verdict;
        assert!(v.text.contains("; meanwhile a child process computes: if "), "{}", v.text);
        assert_eq!((v.predicted_ns, v.confidence), (0.0, Confidence::Low), "{}", v.text);
    }
    let a = beside(230, 20);
    verdict(&a, "SLEEP");
    assert!(a.verdict.predicted_ns > 0.0 && a.verdict.confidence == Confidence::High, "{:?}", a.verdict);
}

/// A poll loop's sleep ends when the producer (which sleeps itself) is done: what the step does before takes of it.
#[test]
fn a_sleep_that_ends_at_a_given_time_promises_nothing() {
    let mut batch = 1_000_000_000_u64;
    let (_, a) = run(|p| {
        let at = stack(p, &[PREPARE]);
        batch += 20_000_000;
        p.stand(batch.saturating_sub(p.t), Pose::blocked(at, 230));
        let more = p.random(2_000_000);
        p.launch("gemm_kernel", 264, 3_000_000 + more);
        p.optimizer(20_000);
        p.item();
    });
    verdict(&a, "SLEEP");
    let v = &a.verdict;
    assert!(v.text.contains("; it ends at times given from outside: if it polls"), "{}", v.text);
    assert_eq!((v.predicted_ns, v.confidence), (0.0, Confidence::Low), "{}", v.text);
}

/// Two threads hand the launching to each other: the line is that of the one that works, not of the one that waits for it.
#[test]
fn of_two_threads_that_launch_in_turn_the_one_that_works_is_named() {
    let handed = |p: &mut Program, away: u64| {
        work(p);
        let waits = stack(p, &[("Queue.get", "%/queue.py", 171), PREPARE]);
        let works = stack(p, &[("pack", "/job/gpt/data.py", 7), ("run", "%/threading.py", 9)]);
        let ticks = (p.t.next_multiple_of(TICK)..p.t + away).step_by(TICK as usize);
        for tick in ticks {
            p.sample(HOLDER, tick + 300_000, Pose::computing(works));
        }
        p.stand(away, Pose::blocked(waits, 202));
        let main = std::mem::replace(&mut p.tid, HOLDER);
        p.launch("layer_gemm", 264, 500_000);
        p.tid = main;
    };
    let found = run(|p| handed(p, AWAY));
    names_with(&found, "HOST", 7, time(|p| handed(p, 0)));
    assert!(found.1.verdict.text.starts_with("gpt/data.py:7 in pack: "), "{}", found.1.verdict.text);
}

#[test]
fn the_network() {
    names(&standing(|p| Pose::blocked(stack(p, &[PREPARE]), 45)), "NETWORK", 41);
    names(&standing(|p| Pose::blocked(stack(p, &[PREPARE]), 16)), "HOST", 41);
}

/// A server that waits for requests: not the code's fault, and not GPU-BOUND's or HOST's time.
#[test]
fn a_server_without_requests_has_no_work() {
    let selector = ("EpollSelector.select", "%/selectors.py", 468);
    let (_, a) = standing(|p| Pose::blocked(stack(p, &[selector]), 232));
    verdict(&a, "NO-WORK");
    assert_eq!((a.verdict.code, a.verdict.predicted_ns), ("GP192", 0.0));
    assert!(a.findings.iter().all(|f| f.cause != "HOST"), "{:?}", a.findings);
}

/// A training loop in asyncio that awaits its batches from an executor: its own time, not a server's (seen: NO-WORK, "send more requests").
#[test]
fn an_event_loop_that_may_await_its_own_tasks_is_not_without_work() {
    let selector = ("EpollSelector.select", "%/selectors.py", 468);
    let turn = ("BaseEventLoop._run_once", "%/asyncio/base_events.py", 1898);
    let (_, a) = standing(|p| Pose::blocked(stack(p, &[selector, turn]), 232));
    verdict(&a, "HOST");
    let v = &a.verdict;
    assert!(
        v.text.contains("waits in its event loop") && v.text.contains("which is not known"),
        "{}",
        v.text
    );
    assert_eq!((v.predicted_ns, v.confidence), (0.0, Confidence::Low), "{}", v.text);
    // a server's
    let serves = ("run", "/venv/lib/python3.11/site-packages/uvicorn/server.py", 65);
    verdict(&standing(|p| Pose::blocked(stack(p, &[selector, turn, serves]), 232)).1, "NO-WORK");
}

/// Waiting for requests for a twentieth of the time leaves the rest to be judged: the GPU is busy then.
#[test]
fn what_is_left_beside_waiting_for_requests_is_judged() {
    let mut step = 0;
    let (_, a) = run(|p| {
        p.train_step(6, 300_000);
        step += 1;
        if step % 4 == 0 {
            p.sync();
            let pose = Pose::blocked(stack(p, &[("EpollSelector.select", "%/selectors.py", 468)]), 232);
            p.stand(6_000_000, pose);
        }
    });
    verdict(&a, "GPU-BOUND");
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

/// In `x.to(device)` behind the loader's work the thread stands in a call, not in the program: such samples say nothing.
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
    assert_eq!(a.verdict.site.as_ref().map(|s| s.line), Some(41), "{}", a.verdict.text);
    assert!(a.verdict.confidence <= Confidence::High);
    // in the program's own lines: that may be dispatching
    verdict(&run(|p| step(p, false)).1, "LAUNCH");
}

/// `float(x)` in JAX: no call, only a thread that is blocked until the copy has ended.
fn reads_an_array(p: &mut Program, copies: bool, frame: (&str, &str, u32)) {
    p.train_step(6, 20_000);
    p.launch("loss_kernel", 264, 30_000_000);
    let from = p.t;
    let launched = p.t;
    let end = from + 31_000_000;
    if copies {
        let tid = std::mem::replace(&mut p.tid, 900); // a thread of the runtime copies
        p.copy(7, false, 4, false);
        p.tid = tid;
    }
    p.t = launched;
    let pose = Pose::blocked(stack(p, &[frame, ("step", "/job/gpt/train.py", 88)]), 202);
    p.stand(end - from, pose);
    p.t += 2_500_000; // the program's own work on the value
}

#[test]
fn an_array_that_is_read_without_a_call_is_sync() {
    let array = ("_value", "/venv/lib/python3.11/site-packages/jax/_src/array.py", 600);
    let found = run(|p| reads_an_array(p, true, array));
    let f = found.1.findings.iter().find(|f| f.code == "GP101").expect("SYNC");
    assert_eq!(f.site.as_ref().map(|s| s.line), Some(88), "{}", f.text);
    assert!(f.text.contains("reading an array (no CUDA call) drains the queue"), "{}", f.text);
    assert!(
        found.1.findings.iter().all(|f| f.cause != "LOCK" && f.cause != "HOST"),
        "{:?}",
        found.1.findings
    );
    // without a copy it waits for somebody else, and so it does in a lock of Python's
    let lock = |found: (Run, Analysis)| {
        assert!(found.1.findings.iter().all(|f| f.code != "GP101"), "{:?}", found.1.findings);
        assert!(found.1.findings.iter().any(|f| f.cause == "LOCK"), "{:?}", found.1.findings);
    };
    lock(run(|p| reads_an_array(p, false, array)));
    lock(run(|p| reads_an_array(p, true, ("Condition.wait", &format!("{LIBRARY}/threading.py"), 355))));
}

/// `float(loss)` behind a heavy step, in front of many calls of compiled functions, as JAX makes them on an H200: 24 of 40 us, the
/// copy made by a thread of a pool while the one that waits makes no call. `reads`: blocked below JAX's array, else at work.
fn fetches_the_loss(p: &mut Program, fetches: bool, reads: bool) {
    for _ in 0..24 {
        p.think(35_000);
        p.launch("loop_fusion", 64, 6_000);
    }
    p.think(50_000);
    p.launch("gemm_fusion_dot", 264, 2_000_000);
    if !fetches {
        return;
    }
    let launched = p.t;
    let tid = std::mem::replace(&mut p.tid, 900);
    p.t = launched + 2_250_000; // the kernel has ended
    p.copy(26, false, 4, false);
    p.tid = tid;
    p.t = launched;
    let array = ("_value", "/venv/lib/python3.11/site-packages/jax/_src/array.py", 600);
    let pose = match reads {
        // what it did since the sample before is as much dispatching as waiting
        true => {
            Pose { on_cpu: 600, ..Pose::blocked(stack(p, &[array, ("step", "/job/gpt/train.py", 88)]), 202) }
        }
        false => Pose::computing(stack(p, &[("step", "/job/gpt/train.py", 90)])),
    };
    p.stand(2_450_000, pose);
}

#[test]
fn an_array_that_is_read_in_front_of_many_launches_is_sync_and_hides_them_all() {
    let four = |p: &mut Program, fetches, reads| (0..4).for_each(|_| fetches_the_loss(p, fetches, reads)); // samples enough
    let found = run(|p| four(p, true, true));
    names_with(&found, "SYNC", 88, time(|p| four(p, false, true)));
    assert_eq!(found.1.verdict.then.map_or("", |t| t.0), "", "{:?}", found.1.verdict.then);
    // somebody else's copy, beside a thread that works: no wait
    let works = run(|p| four(p, true, false)).1;
    assert!(works.findings.iter().all(|f| f.code != "GP101"), "{:?}", works.findings);
}

/// Where the thread stood is in the slices of the trace and in the folded stacks.
#[test]
fn the_trace_and_the_folded_stacks_say_where_the_thread_stood() {
    let (run_, a) = standing(|p| Pose::computing(stack(p, &[PREPARE])));
    let options = analyzer::chrome::ChromeOptions::default();
    let (bytes, _) = analyzer::chrome::write(&run_, &a, Vec::new(), &options).unwrap();
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
    analyzer::export::folded(&run_, &a, &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert!(folded.contains("HOST;<module> (train.py:60);prepare (train.py:41);cudaLaunch"), "{folded}");
}

/// The main thread computes, then autograd's thread launches, which had waited for its turn: what the main thread did is it,
/// and no lock.
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
    assert_eq!(found.1.verdict.site.as_ref().map(|s| s.line), Some(41), "{}", found.1.verdict.text);
    assert!(found.1.verdict.text.contains("computes on the CPU"), "{}", found.1.verdict.text);
}

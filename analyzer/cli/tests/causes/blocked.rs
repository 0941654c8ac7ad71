// SPDX-License-Identifier: Apache-2.0
//! A launching thread that is blocked outside of CUDA: asleep, behind another thread or a child, in
//! the network, without requests. Steps as in `samples.rs`.

use verdict::analysis::Confidence;
use verdict::Analysis;

use super::gil::HOLDER;
use super::program::{Pose, TICK};
use super::samples::{names, names_with, stack, standing, work, AWAY, PREPARE};
use super::{kept, run, time, verdict, Program};

#[test]
fn sleeping() {
    names(&standing(|p| Pose::blocked(stack(p, &[PREPARE]), 230)), "SLEEP", 41);
    // up to Python 3.10 time.sleep selects; an event loop selects too
    names(&standing(|p| Pose::blocked(stack(p, &[PREPARE]), 270)), "SLEEP", 41);
}

/// LOCK at this line, for what nobody is seen to make.
#[track_caller]
fn is_promised_nothing(a: &Analysis, line: u32) {
    verdict(a, "LOCK");
    let v = &a.verdict;
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(line), "{}", v.text());
    assert!(
        v.text()
            .ends_with("; no other thread that calls CUDA and no child works meanwhile: nothing is promised"),
        "{}",
        v.text()
    );
    assert_eq!((v.promise, v.confidence), (None, Confidence::Low), "{}", v.text());
}

#[test]
fn locks_and_autograds_own_thread() {
    let wait = ("Condition.wait", "%/threading.py", 355);
    is_promised_nothing(&standing(|p| Pose::blocked(stack(p, &[wait, PREPARE]), 202)).1, 41);
    let engine = ("_engine_run_backward", "@/autograd/graph.py", 823);
    names(&standing(|p| Pose::blocked(stack(p, &[engine, PREPARE]), 202)), "HOST", 41);
}

/// The thread that is waited for is named where it computes at the same moments, not where it waits
/// itself, or computed at others.
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
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(41), "{}", v.text());
    // it computes for 10 of 13.5 ms: a step earlier is not early enough
    assert!(v.text().contains("% of the time: that is the limit") && v.promise.is_none(), "{v:?}");
    assert!(v.advice.long.starts_with("make what the other thread does cheaper"), "{}", v.advice.long);
    assert!(
        together.1.verdict.text().contains("; meanwhile pack at gpt/data.py:7 computes"),
        "{}",
        together.1.verdict.text()
    );
    for other in [found(300_000, false), found(4_000_000, true)] {
        is_promised_nothing(&other.1, 41);
    }
}

/// Beside a launching thread that waits in a condition: an event loop of the same process, in
/// `epoll_wait` or elsewhere.
fn handed_over(other: impl Fn(&mut Program, u32) -> Pose, child: u32) -> Analysis {
    let mut n = 0;
    run(|p| {
        n += 1;
        let from = p.t;
        work(p);
        let wait = ("Condition.wait", "%/threading.py", 355);
        let waits = stack(p, &[wait, ("Worker.run", "/job/gpt/serve.py", 30)]);
        let tick = p.t.next_multiple_of(TICK);
        p.stand(AWAY, Pose::blocked(waits, 202));
        let pose = other(p, n);
        p.sample(HOLDER, tick + 300_000, pose);
        p.child(2000, from, child, 0, 0);
    })
    .1
}

fn in_event_loop(p: &mut Program) -> u32 {
    let selector = ("EpollSelector.select", "%/selectors.py", 468);
    let serves = ("run", "/venv/lib/python3.11/site-packages/uvicorn/server.py", 65);
    stack(p, &[selector, serves])
}

/// Seen on an H100: "LOCK costs 91 % ... 67.0 -> about 6.0 ms a step" of a server without load.
#[test]
fn who_waits_for_a_thread_that_waits_for_requests_has_no_work() {
    let a = handed_over(|p, _| Pose::blocked(in_event_loop(p), 232), 0);
    verdict(&a, "NO-WORK");
    let v = &a.verdict;
    assert!(
        v.text().contains("; meanwhile another thread waits for requests, and none works"),
        "{}",
        v.text()
    );
    assert_eq!((v.promise, v.site.as_ref().map(|s| s.line)), (None, Some(30)), "{v:?}");
    assert!(v.confidence <= Confidence::Medium);
    assert!(a.findings.iter().all(|f| f.cause != "LOCK"), "{:#?}", a.findings);
}

/// The other thread takes the requests, and works on them for a third of the time: what it needs is
/// not known, and today's promise stays. So it does where a child computes a little; where both of
/// it is nothing, it comes from outside.
#[test]
fn what_somebody_of_the_program_works_on_keeps_its_promise() {
    let computing = |p: &mut Program, n: u32| match n % 3 {
        0 => Pose::computing(stack(p, &[("tokenize", "/job/gpt/words.py", 7)])),
        _ => Pose::blocked(in_event_loop(p), 232),
    };
    for a in [handed_over(computing, 0), handed_over(|p, _| Pose::blocked(in_event_loop(p), 232), 200)] {
        verdict(&a, "LOCK");
        let v = &a.verdict;
        assert!(v.text().ends_with("; at most: what the other side needs is not known"), "{}", v.text());
        assert!(v.promise.is_some() && v.confidence == Confidence::Low, "{v:?}");
    }
    // a process that is waited for may come and go without being seen
    let child = standing(|p| Pose::blocked(stack(p, &[PREPARE]), 61));
    verdict(&child.1, "LOCK");
    assert!(child.1.verdict.promise.is_some(), "{:?}", child.1.verdict);
    // a connection that it reads of is not known to bring requests
    is_promised_nothing(&handed_over(|p, _| Pose::blocked(in_event_loop(p), 45), 0), 30);
}

/// A producer that computes while it is waited for, and no more, is the limit of nothing: to have
/// it a step earlier wins all of the wait.
#[test]
fn a_producer_with_time_left_keeps_the_promise() {
    let step = |p: &mut Program| p.train_step(6, 150_000);
    let found = run(|p| {
        step(p);
        let waits = stack(p, &[("Queue.get", "%/queue.py", 171), PREPARE]);
        let from = p.t;
        p.stand(AWAY, Pose::blocked(waits, 202));
        let other = stack(p, &[("pack", "/job/gpt/data.py", 7), ("run", "%/threading.py", 9)]);
        for tick in (from.next_multiple_of(TICK)..p.t).step_by(TICK as usize) {
            p.sample(HOLDER, tick + 300_000, Pose { on_cpu: 600, ..Pose::computing(other) });
        }
    });
    verdict(&found.1, "LOCK");
    let text = &found.1.verdict.text();
    assert!(text.contains("; meanwhile pack at gpt/data.py:7 computes") && !text.contains("limit"), "{text}");
    kept(&found.1, time(step));
}

/// A loop that polls with `time.sleep`, or a lock, for what a child process makes: the child is the
/// limit.
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
        assert!(v.text().contains("; meanwhile a child process computes, if "), "{}", v.text());
        assert_eq!((v.promise, v.confidence), (None, Confidence::Low), "{}", v.text());
    }
    let a = beside(230, 20);
    verdict(&a, "SLEEP");
    assert!(a.verdict.promise.is_some() && a.verdict.confidence == Confidence::High, "{:?}", a.verdict);
}

/// A poll loop's sleep ends when the producer (which sleeps itself) is done: what the step does
/// before takes of it.
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
    assert!(v.text().contains("; it ends at times given from outside: if it polls"), "{}", v.text());
    assert_eq!((v.promise, v.confidence), (None, Confidence::Low), "{}", v.text());
}

/// Two threads hand the launching to each other: the line is that of the one that works, not of the
/// one that waits for it.
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
    assert!(found.1.verdict.text().starts_with("gpt/data.py:7 in pack: "), "{}", found.1.verdict.text());
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
    assert_eq!((a.verdict.code, a.verdict.promise), ("GP192", None));
    assert!(a.findings.iter().all(|f| f.cause != "HOST"), "{:?}", a.findings);
}

/// A training loop in asyncio that awaits its batches from an executor: its own time, not a
/// server's (seen: NO-WORK, "send more requests").
#[test]
fn an_event_loop_that_may_await_its_own_tasks_is_not_without_work() {
    let selector = ("EpollSelector.select", "%/selectors.py", 468);
    let turn = ("BaseEventLoop._run_once", "%/asyncio/base_events.py", 1898);
    let (_, a) = standing(|p| Pose::blocked(stack(p, &[selector, turn]), 232));
    verdict(&a, "HOST");
    let v = &a.verdict;
    assert!(
        v.text().contains("waits in its event loop") && v.text().contains("which is not known"),
        "{}",
        v.text()
    );
    assert_eq!((v.promise, v.confidence), (None, Confidence::Low), "{}", v.text());
    // a server's
    let serves = ("run", "/venv/lib/python3.11/site-packages/uvicorn/server.py", 65);
    verdict(&standing(|p| Pose::blocked(stack(p, &[selector, turn, serves]), 232)).1, "NO-WORK");
}

/// Waiting for requests for a twentieth of the time leaves the rest to be judged: the GPU is busy
/// then.
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

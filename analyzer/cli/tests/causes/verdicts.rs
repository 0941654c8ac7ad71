// SPDX-License-Identifier: Apache-2.0
//! GP191 MIXED, GP199 INCONCLUSIVE, and which device the line is about.

use trace::event::Unobserved;
use trace::{Event, Kind, Loss};
use verdict::analysis::{Bucket, Confidence};

use super::{kept, run, time, verdict, Program, STEPS};

/// 3 ms of work, and an allocation behind it.
pub(super) fn one_reason(p: &mut Program) {
    for part in 0..8 {
        for _ in 0..9 {
            p.launch(["gemm_a", "gemm_b", "gemm_c"][part % 3], 264, 40_000);
        }
    }
    p.optimizer(40_000);
    p.free(200_000);
}

/// The same, then a wait with host work behind it and a pageable copy.
pub(super) fn many_reasons(p: &mut Program) {
    one_reason(p);
    p.launch("gemm_d", 264, 100_000);
    p.sync();
    p.t += 170_000;
    p.launch("gemm_e", 264, 100_000);
    p.copy(7, true, 1_000_000, true);
}

#[test]
fn many_small_reasons_are_mixed() {
    let (_, a) = run(many_reasons);
    verdict(&a, "MIXED");
    assert!(a.verdict.text().contains(" + ") || a.verdict.text().contains(", "), "{}", a.verdict.text());
}

#[test]
fn where_nothing_was_recorded_the_reason_is_named() {
    let mut p = Program::new();
    let begin = p.t;
    p.b.header.first_use = begin;
    let mut off = Event::new(Kind::Unobserved, begin, begin + 300_000_000);
    off.a = Unobserved::CaptureOff as u32;
    p.b.on_recorder(off);
    p.t += 300_000_000;
    (p.b.header.gpu_complete_to, p.b.header.host_complete_to) = (p.t, p.t);
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    assert!(a.verdict.text().contains("cudaProfilerStart"), "{}", a.verdict.text());
}

/// 1 ms of work a step, and pauses of the host's own. (Far longer ones are taken out: `once.rs`.)
#[test]
fn what_happened_once_is_never_sure() {
    let confidence = |steps: usize, often: usize, pause: u64| {
        let mut p = Program::new();
        for n in 1..=steps {
            (0..20).for_each(|_| p.launch("gemm", 264, 50_000));
            p.sync();
            p.t += if n % often == 0 { pause } else { 0 };
        }
        let (_, a) = p.analyze();
        assert!(["HOST", "SYNC"].contains(&a.verdict.cause), "{:?}", a.verdict);
        a.verdict.confidence
    };
    assert_eq!(confidence(STEPS, 1, 5_000_000), Confidence::High);
    assert_eq!(confidence(12, 8, 2_000_000), Confidence::Low);
}

/// Every step waits a few times when the GPU has nearly caught up: the waits themselves are short,
/// but each leaves the queue empty, and launching into an empty queue is most of the idle time.
/// Without the waits the host would be ahead.
#[test]
fn what_comes_second_costs_no_more_than_what_is_named() {
    let (_, a) = run(|p| {
        for block in 0..14 {
            for k in 0..8 {
                p.launch(
                    ["gemm_a", "gelu", "gemm_b", "norm"][k % 4],
                    264,
                    if block < 2 { 14_000 } else { 4_000 },
                );
            }
            p.sync();
        }
        p.launch("head_kernel", 264, 1_200_000);
        p.optimizer(20_000);
    });
    let v = &a.verdict;
    // more of the idle time is charged to what is not named
    let charged = |cause| a.findings.iter().find(|f| f.cause == cause).map_or(0.0, |f| f.charged);
    assert!(
        v.cause == "SYNC" && charged("LAUNCH") > charged("SYNC"),
        "not the program that this is about: {v:?} {:#?}",
        a.findings
    );
    assert!(v.then.is_none_or(|(_, share)| share <= v.share), "{v:?}");
}

fn healthy() -> Program {
    let mut p = Program::new();
    for _ in 0..STEPS {
        p.train_step(6, 20_000);
        p.t += 10_000_000;
    }
    p
}

#[test]
fn losses_inside_the_valid_span_make_no_verdict_possible() {
    let events = healthy().launches * 2;
    for (lost, cause) in [(events / 2000, "HOST"), (events / 500, "INCONCLUSIVE")] {
        let mut p = healthy();
        p.b.header.losses[Loss::CuptiDropped.code() as usize] = lost;
        let (_, a) = p.analyze();
        assert_eq!(a.verdict.cause, cause, "{lost} of {events} lost");
        assert_eq!(a.data_losses, lost);
    }
    // before the valid span: overwritten, no matter
    let mut p = healthy();
    p.b.header.losses[Loss::CuptiDropped.code() as usize] = events;
    p.b.header.valid_from = p.t - 200_000_000;
    let mut mark = trace::Event::new(trace::Kind::LossMark, 1_000_000_000, 1_000_000_000);
    (mark.a, mark.b) = (u32::from(Loss::CuptiDropped.code()), events as u32);
    p.b.on_recorder(mark);
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "HOST");
    assert!(a.coverage.overwritten);
}

/// Calls that a full ring lost are marked when they are lost
/// (`injector/src/collector/drain/lost.rs`); marks as old as what was overwritten are gone with it.
#[test]
fn what_was_lost_before_the_first_mark_that_is_left_was_lost_before_the_valid_span() {
    let events = healthy().launches * 2;
    let code = Loss::HostRingFull.code();
    let judged = |at: u64, count: u64, before: u64, all: u64| {
        let mut p = healthy();
        p.b.header.losses[code as usize] = all;
        p.b.header.valid_from = p.t - 200_000_000;
        let mut mark = trace::Event::new(trace::Kind::LossMark, at - 250_000_000, at);
        (mark.a, mark.b, mark.c) = (u32::from(code), count as u32, before as u32);
        p.b.on_recorder(mark);
        let (_, a) = p.analyze();
        (a.verdict.cause, a.data_losses)
    };
    let end = healthy().t;
    // all of it long ago; that, and a few in the span; what no mark tells of is taken to lie in the
    // span
    assert_eq!(judged(end - 300_000_000, 1000, events, events + 1000), ("HOST", 0));
    assert_eq!(judged(end - 100_000_000, 1, events, events + 1), ("HOST", 1));
    assert_eq!(judged(end - 100_000_000, 1, events, events + 1 + events), ("INCONCLUSIVE", 1 + events));
    assert_eq!(judged(end - 100_000_000, events, 0, events), ("INCONCLUSIVE", events));
}

/// Two kernels of a run that CUPTI gave without times (JAX on an H200, 2 of 856): the steps that
/// count have all of theirs, so they ran elsewhere.
#[test]
fn operations_without_times_that_no_step_lacks_stop_no_verdict() {
    let lost = healthy().launches * 2 / 500;
    assert!(lost < STEPS as u64 / 2, "{lost}");
    for (loss, lacking, cause) in [
        (Loss::ZeroTimestamp, false, "HOST"),
        (Loss::ZeroTimestamp, true, "INCONCLUSIVE"),
        (Loss::BackwardTimestamp, false, "HOST"),
        // calls are lost with dropped buffers as well
        (Loss::CuptiDropped, false, "INCONCLUSIVE"),
    ] {
        let mut p = Program::new();
        for step in 0..STEPS {
            // a kernel less in the steps that lack one
            let short = lacking && step >= 10 && (step as u64) < 10 + lost;
            p.train_step(if short { 5 } else { 6 }, 20_000);
            p.t += 10_000_000;
        }
        p.b.header.losses[loss.code() as usize] = lost;
        let (_, a) = p.analyze();
        assert_eq!(
            (a.verdict.cause, a.losses.first()),
            (cause, Some(&(loss, lost))),
            "{loss:?} {lacking} {}",
            a.verdict.text()
        );
    }
}

#[test]
fn graphs_without_their_nodes_make_no_verdict_possible() {
    let mut p = Program::new();
    for _ in 0..STEPS {
        p.train_step(2, 20_000);
        p.graph_without_nodes();
        p.t += 3_000_000;
    }
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    assert!(a.verdict.text().contains("graph launches"), "{}", a.verdict.text());
}

#[test]
fn nothing_and_almost_nothing_are_inconclusive() {
    let (_, a) = Program::new().analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    let mut p = Program::new();
    p.launch("only_kernel", 1, 5_000);
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "INCONCLUSIVE");
    assert!(a.verdict.text().contains("too little"), "{}", a.verdict.text());
}

#[test]
fn operations_that_no_flush_vouches_for_are_not_nothing() {
    let text = |p: Program, complete_to: u64, lost: bool| {
        let mut run = verdict::load(p.finish().as_slice()).expect("a recording");
        run.header.gpu_complete_to = complete_to;
        run.header.state = trace::header::state::CLOSED;
        run.header.losses[Loss::ExitFlushLate.code() as usize] = u64::from(lost);
        let a = verdict::analyze(&run);
        assert_eq!(a.verdict.cause, "INCONCLUSIVE");
        assert!(a.coverage.seen_ns <= a.coverage.run_ns, "{:?}", a.coverage);
        (a.verdict.text(), a.coverage.seen_ns)
    };
    assert_eq!(text(Program::new(), 0, true).0, "nothing of the GPU was recorded before the end");
    for (complete_to, lost, why) in [
        (0, true, "CUPTI did not return its buffers (a flush hung or failed)"),
        (0, false, "no flush of CUPTI's buffers ended"),
        (1, true, "CUPTI did not return its buffers (a flush hung or failed)"),
    ] {
        let (text, seen) = text(healthy(), complete_to, lost);
        assert_eq!(text, format!("completeness of the GPU record is unknown: {why}"));
        assert!(seen > 100_000_000, "what is there is seen: {seen}");
    }
}

#[test]
fn the_time_after_the_last_flush_is_not_idle() {
    let mut p = healthy();
    // killed: the last flush was 50 ms before; a quiet second follows
    let end = p.t;
    p.b.header.gpu_complete_to = end - 50_000_000;
    p.b.header.host_complete_to = end + 1_000_000_000;
    p.b.header.last_write = end + 1_000_000_000;
    p.b.header.state = trace::header::state::RECORDING;
    let (run, mut a) = p.analyze();
    assert_eq!(a.valid.end, end - 50_000_000);
    assert!(a.devices[0].slices.iter().all(|s| s.end <= a.valid.end));
    assert!(a.steady.end <= a.valid.end);
    // a recording does not tell a kill from os._exit or exec
    assert!(a.coverage.killed && a.coverage.signal.is_none());
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(
        line.contains("the program ended without its exit handlers") && !line.contains("killed"),
        "{line}"
    );
    a.coverage.signal = Some(9);
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(line.contains(", the program was killed by signal 9;"), "{line}");
}

/// "15 of 15 steps seen" says that nothing is missing: of a run whose end was not recorded nobody
/// knows.
#[test]
fn of_a_run_that_was_cut_the_steps_are_not_said_to_be_all() {
    // in which state it ended; how long before its end the last flush was, in steps; was the last
    // one given up? is it cut?
    let (recording, closed) = (trace::header::state::RECORDING, trace::header::state::CLOSED);
    for (state, missing, late, cut) in [
        (recording, 0.0, false, true),
        (closed, 0.0, true, false),
        (closed, 0.5, true, false),
        (closed, 2.5, true, true),
        // steps of 0.1 ms: closing the recording behind the flush takes many of them
        (closed, 40.0, false, false),
    ] {
        let mut p = healthy();
        let end = p.t;
        let (_, whole) = healthy().analyze();
        let step = whole.steps.median_ns;
        p.b.header.gpu_complete_to = end;
        p.b.header.host_complete_to = end;
        p.b.header.state = state;
        p.b.header.losses[Loss::ExitFlushLate.code() as usize] = u64::from(late);
        if state == closed {
            p.b.header.exit_monotonic = whole.valid.end.max(end) + (step as f64 * missing) as u64;
        }
        let (run, a) = p.analyze();
        assert_eq!(a.coverage.cut, cut, "{missing} steps before its exit: {:?}", a.coverage);
        let line = verdict::output::line::evidence(&run, &a).join("; ");
        let n = a.coverage.steps_seen;
        let said = if cut {
            format!("{n} steps seen before the recording was cut")
        } else {
            format!("{n} of {n} steps seen")
        };
        assert!(line.contains(&said), "{said}: {line}");
    }
}

#[test]
fn unobserved_time_is_cut_out() {
    let mut p = Program::new();
    let mut dark = (0, 0);
    for i in 0..STEPS {
        p.train_step(6, 200_000);
        if i == 15 {
            p.sync();
            let mut e = trace::Event::new(trace::Kind::Unobserved, p.t, p.t + 500_000_000);
            e.a = 1;
            p.b.on_recorder(e);
            dark = (p.t, p.t + 500_000_000);
            p.t += 500_000_000;
        }
    }
    let (_, a) = p.analyze();
    assert_eq!(a.verdict.cause, "GPU-BOUND", "{:?}", a.verdict);
    assert_eq!(a.devices[0].buckets.total(), a.devices[0].wall_ns);
    assert!(a.devices[0].slices.iter().all(|s| s.end <= dark.0 || s.start >= dark.1));
    assert_eq!(a.blind.len(), 1);
}

#[test]
fn of_two_devices_the_line_names_the_worst() {
    let mut p = Program::new();
    p.b.device(1, "SIM H200", 132);
    for _ in 0..STEPS {
        let begin = p.t;
        p.train_step(6, 200_000);
        p.device = 1;
        p.tid = 300;
        p.t = begin;
        p.train_step(6, 20_000);
        p.t += 10_000_000;
        (p.device, p.tid) = (0, 100);
    }
    let (run, a) = p.analyze();
    assert_eq!(a.worst, Some(1));
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(line.contains("GPU 1 busy"), "{line}");
}

/// Pinned memory saves as much as taking the host's work away does: to name one alone would hide
/// the other from who cannot do the first.
#[test]
fn two_that_win_as_much_are_both_said_the_cheaper_fix_first() {
    let step = |host: u64, pageable: bool| {
        move |p: &mut Program| {
            p.train_step(6, 80_000);
            p.copy(7, true, 25_000_000, pageable);
            p.t += host;
        }
    };
    let (run_, a) = run(step(8_000_000, true));
    let v = &a.verdict;
    let tied = v.tied.as_ref().unwrap_or_else(|| panic!("{v:?}\n{:#?}", a.findings));
    assert_eq!((v.cause, tied.cause), ("COPY", "HOST"), "{v:?}");
    assert!(v.then.is_none_or(|(cause, _)| cause != "HOST"), "said twice: {v:?}");
    // each promise is of its own fix alone
    kept(&a, time(step(8_000_000, false)));
    let truth = time(step(0, true));
    assert!(
        (tied.promise.unwrap().ns() - truth).abs() <= tied.promise.unwrap().error_ns() + 0.1 * v.step_ns,
        "{tied:?}, {truth} measured"
    );
    let line = verdict::output::line::evidence(&run_, &a).join("; ");
    assert!(line.contains("; worth as much, more work: HOST "), "{line}");
    let both = line.find("COPY").zip(line.find("HOST"));
    assert!(both.is_some_and(|(copy, host)| copy < host), "{line}");

    // twice the sleep: one wins clearly
    let (run_, a) = run(step(16_000_000, true));
    assert_eq!((a.verdict.cause, &a.verdict.tied), ("HOST", &None), "{:?}", a.verdict);
    assert!(!verdict::output::line::evidence(&run_, &a).join("; ").contains("worth as much"));
}

/// Fusing kernels is the fix of small kernels and of the spacing between them: one fix is no second
/// way out.
#[test]
fn one_and_the_same_fix_is_not_said_twice() {
    let (_, a) = run(|p| {
        p.graph(1, &[("tiny_kernel", 150); 300]);
        p.sync();
    });
    let wins: Vec<(&str, f64)> = a.findings.iter().map(|f| (f.cause, f.win.share())).collect();
    assert_eq!(a.verdict.cause, "SMALL-KERNELS", "{wins:?}");
    let as_good = |w: &&(&str, f64)| w.1 >= wins[0].1 * 0.8;
    assert!(
        wins.iter().filter(as_good).any(|w| w.0 == "KERNEL-GAP"),
        "not the program that this is about: {wins:?}"
    );
    assert!(a.verdict.tied.is_none_or(|t| t.cause != "KERNEL-GAP"));
}

/// Eight steps in forty launch nothing and take 6 ms of the host; the others wait at their end.
/// Without the wait the host is so far ahead that the GPU never sees the pause: most of what the
/// wait costs stands under HOST.
#[test]
fn what_a_fix_wins_was_lost_and_the_line_says_what_the_bars_show_of_it() {
    let mut p = Program::new();
    for step in 0..40 {
        p.mark(step, 0);
        if (16..24).contains(&step) {
            p.t += 6_000_000;
            continue;
        }
        for _ in 0..40 {
            p.launch("gemm_kernel", 264, 150_000);
        }
        p.sync();
    }
    let (run, a) = p.analyze();
    let v = &a.verdict;
    let bar = a.devices[0].buckets.share(Bucket::Sync);
    assert!(v.cause == "SYNC" && bar < 0.05, "{v:?}, {bar}");
    let won = 1.0 - v.promise.unwrap().ns() / v.step_ns;
    assert!(won > 0.15 && v.share >= won - 1e-9, "{v:?}");
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(line.contains(&format!("; counted as SYNC {:.0}%;", bar * 100.0)), "{line}");
    for f in &a.findings {
        assert!(f.share >= f.win.share() && f.charged <= f.share, "{f:?}");
    }
}

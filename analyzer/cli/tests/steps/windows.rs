// SPDX-License-Identifier: Apache-2.0
//! Recordings with spans in which nothing was observed (`gapprobe_capture(0)`, another profiler): a
//! step counts if all of it was seen, and a step's time is that of such steps.

use cli::compare::{gate, Side};
use formats::Input;
use trace::event::Unobserved;
use trace::{Event, Kind, Total};
use verdict::analysis::StepSource;
use verdict::Analysis;

use super::program::Program;

const DARK: u64 = 300_000_000;

/// Nothing is observed for 300 ms, from when the device is idle on.
fn dark(p: &mut Program, why: Unobserved) {
    p.sync();
    let mut e = Event::new(Kind::Unobserved, p.t, p.t + DARK);
    e.a = why as u32;
    p.b.on_recorder(e);
    p.t += DARK;
}

fn step(p: &mut Program) {
    p.train_step(6, 4_000);
}

/// Time of a step of the program when all of it is recorded, ns.
fn undisturbed() -> f64 {
    let mut p = Program::new();
    for _ in 0..40 {
        step(&mut p);
    }
    p.analyze().1.steps.mean_ns
}

/// No step reaches into an unobserved span, and their mean is that of the undisturbed program.
#[track_caller]
fn clean(a: &Analysis) {
    for s in &a.steps.steps {
        let dark = a.blind.iter().find(|b| b.span.clip(s.span).ns() > 0);
        assert_eq!(dark, None, "step {:?} was not seen whole", s.span);
    }
    let (mean, truth) = (a.steps.mean_ns / 1e6, undisturbed() / 1e6);
    assert!((mean / truth - 1.0).abs() < 0.05, "a step of {mean:.2} ms, in truth {truth:.2}");
}

#[test]
fn windows_of_whole_steps_lose_none() {
    for window in [3, 10] {
        let mut p = Program::new();
        for i in 0..60 {
            if i > 0 && i % window == 0 {
                dark(&mut p, Unobserved::CaptureOff);
            }
            step(&mut p);
        }
        let (_, a) = p.analyze();
        assert_eq!(a.steps.source, StepSource::Period);
        clean(&a);
        assert!(a.steps.steps.len().abs_diff(60) <= 1, "{} of 60, {window} a window", a.steps.steps.len());
    }
}

#[test]
fn windows_that_open_and_close_inside_steps_lose_those() {
    let mut p = Program::new();
    let mut whole = 0;
    for _ in 0..8 {
        p.optimizer(4_000);
        for _ in 0..5 {
            step(&mut p);
            whole += 1;
        }
        p.forward(6, 4_000);
        dark(&mut p, Unobserved::CaptureOff);
    }
    let (_, a) = p.analyze();
    clean(&a);
    assert_eq!(a.steps.steps.len(), whole);
}

#[test]
fn synchronized_tiles_in_windows() {
    let mut p = Program::new();
    for i in 0..60 {
        if i > 0 && i % 10 == 0 {
            dark(&mut p, Unobserved::CaptureOff);
        }
        for k in 0..100 {
            p.launch(["gemm", "norm", "gelu", "add"][k % 4], 100, 20_000);
        }
        p.sync();
    }
    let (_, a) = p.analyze();
    let in_dark =
        a.steps.steps.iter().filter(|s| a.blind.iter().any(|b| b.span.clip(s.span).ns() > 0)).count();
    assert_eq!((a.steps.steps.len(), in_dark), (60, 0));
    assert!(a.steps.mean_ns < 1.2 * a.steps.median_ns as f64, "{} {}", a.steps.mean_ns, a.steps.median_ns);
}

/// Another profiler holds the GPU's records: the marks go on, and the steps that were not seen are
/// none.
#[test]
fn marked_steps_that_were_not_seen_do_not_count() {
    let mut p = Program::new();
    let mut number = 0;
    let mut mark = |p: &mut Program| {
        let now = p.t;
        p.mark(number, now);
        number += 1;
    };
    for i in 0..60 {
        mark(&mut p);
        step(&mut p);
        if i % 20 == 10 {
            p.sync();
            let begin = p.t;
            dark(&mut p, Unobserved::Yielded);
            let end = p.t;
            // ten steps of 30 ms
            for k in 0..10 {
                p.t = begin + k * DARK / 10;
                mark(&mut p);
            }
            p.t = end;
        }
    }
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Marks);
    clean(&a);
    // of three times, the step at whose end the span begins shares no time with it
    assert_eq!(a.steps.steps.len(), 60);
    let numbers: Vec<u32> = a.steps.steps.iter().map(|s| s.number).collect();
    assert!(numbers.contains(&10) && !numbers.contains(&11) && numbers.contains(&21), "{numbers:?}");
}

/// Capture off drops marks as well: the last step before the span ends nobody knows where.
#[test]
fn marked_steps_around_a_span_without_marks() {
    let mut p = Program::new();
    for i in 0..60 {
        let now = p.t;
        p.mark(i, now);
        step(&mut p);
        if i % 20 == 10 {
            dark(&mut p, Unobserved::CaptureOff);
        }
    }
    let (_, a) = p.analyze();
    assert_eq!((a.steps.source, a.steps.steps.len()), (StepSource::Marks, 57));
    clean(&a);
}

/// A named range has its own end: a step that ended before the span began was seen.
#[test]
fn ranges_end_before_a_span_that_follows() {
    let mut p = Program::new();
    let name = p.b.string("train_step");
    for i in 0..60 {
        let begin = p.t;
        step(&mut p);
        let mut e = Event::new(Kind::Range, begin, p.t);
        e.a = name;
        p.b.on_thread(p.tid, e);
        if i % 20 == 10 {
            dark(&mut p, Unobserved::CaptureOff);
        }
    }
    let (_, a) = p.analyze();
    assert_eq!((a.steps.source, a.steps.steps.len()), (StepSource::Ranges, 60));
    clean(&a);
}

/// What a fix would win is a matter of the time that was seen: the dark spans are nobody's.
#[test]
fn windows_change_neither_verdict_nor_prediction() {
    let verdict = |window: usize| {
        let mut p = Program::new();
        for i in 0..60 {
            if i > 0 && i % window == 0 {
                dark(&mut p, Unobserved::CaptureOff);
            }
            step(&mut p);
            p.item();
            p.t += 2_500_000; // a long stretch of the host's own in every step
        }
        let (_, a) = p.analyze();
        let predicted = a.verdict.promise.unwrap().ns();
        let causes: Vec<(&str, f64)> = a.findings.iter().map(|f| (f.cause, f.win.share())).collect();
        (a.verdict.cause, a.steps.mean_ns, predicted, causes)
    };
    let (whole, windows) = (verdict(1000), verdict(6));
    println!("{whole:?}\n{windows:?}");
    assert_eq!(whole.0, windows.0);
    assert!((windows.1 / whole.1 - 1.0).abs() < 0.03);
    assert!((windows.2 / whole.2 - 1.0).abs() < 0.05, "{} ns, without windows {}", windows.2, whole.2);
    for ((cause, win), (other, in_windows)) in whole.3.iter().zip(&windows.3) {
        assert_eq!(cause, other);
        assert!((win - in_windows).abs() < 0.05, "{cause}: {win:.2}, in windows {in_windows:.2}");
    }
}

#[test]
fn windows_of_one_step_each_end_where_they_were_closed() {
    let mut p = Program::new();
    for _ in 0..40 {
        step(&mut p);
        p.sync();
        p.t += 2_500_000;
        dark(&mut p, Unobserved::CaptureOff);
    }
    let (_, a) = p.analyze();
    let mut whole = Program::new();
    for _ in 0..40 {
        step(&mut whole);
        whole.sync();
        whole.t += 2_500_000;
    }
    let truth = whole.analyze().1.steps.mean_ns;
    assert!((a.steps.mean_ns / truth - 1.0).abs() < 0.05, "{} ns, in truth {truth}", a.steps.mean_ns);
}

/// The host is ahead when another profiler takes the records over: what it had launched has no
/// operation in the recording.
#[test]
fn steps_whose_work_fell_into_the_dark_are_none() {
    let mut p = Program::new();
    p.noise = 0;
    let mut marks = Vec::new();
    for step in 0..30 {
        marks.push(p.t);
        (0..20).for_each(|_| p.launch("layer_gemm", 264, 500_000));
        if step % 10 == 9 {
            p.sync();
            p.t += 20_000_000;
        }
    }
    let ends: Vec<u64> = marks.iter().skip(1).copied().chain([p.t]).collect();
    for (n, (begin, end)) in (0..).zip(marks.iter().zip(ends)) {
        p.t = *begin;
        p.mark(n, end);
    }
    let (mut run, _) = p.analyze();
    // of each ten steps the last three run unobserved
    let ops = &mut run.devices[0].streams[0].ops;
    for ten in marks.chunks(10).rev() {
        let first = ops.iter().find(|o| o.start >= ten[0]).map(|o| o.start).unwrap();
        let span = verdict::run::Span::new(first + 70_050_000, first + 103_000_000);
        ops.retain(|o| o.start < span.start || o.end > span.end);
        run.blind.insert(0, verdict::run::UnobservedSpan { span, reason: Unobserved::Yielded as u32 });
    }
    let a = verdict::analyze(&run);
    assert!(a.steps.steps.len() >= 18, "{} steps", a.steps.steps.len());
    for s in &a.steps.steps {
        let ms = s.span.ns() as f64 / 1e6;
        assert!((ms - 10.0).abs() < 0.4, "{ms} ms, in truth 10");
    }
}

/// Between windows steps are counted by a launch that comes evenly. Where that is every fourth
/// kernel of one that is launched over and over, and the records show the loop, the run has as many
/// steps as the loop.
#[test]
fn steps_counted_between_windows_are_of_the_unit_that_the_records_show() {
    let seen = |clock_steps: u64, a_step: f64| {
        let mut p = Program::new();
        for _ in 0..40 {
            step(&mut p);
        }
        let (mut run, a) = p.analyze();
        let launches =
            run.threads.iter().flat_map(|t| &t.calls).filter(|c| c.is_launch()).count() as f64 / 40.0;
        run.header.totals[Total::LaunchesBetween as usize] =
            (clock_steps as f64 / 2.0 * launches * a_step) as u64;
        run.header.totals[Total::ClockSteps as usize] = clock_steps;
        run.header.totals[Total::StepsBetween as usize] = clock_steps / 2;
        run.header.totals[Total::Windows as usize] = 3;
        run.header.totals[Total::ClockStepNs as usize] = (a.steps.median_ns as f64 * a_step) as u64;
        let a = verdict::analyze(&run);
        let summary =
            verdict::output::summary::summary(&run, &a, &verdict::output::summary::Around::default());
        let between = summary["coverage"]["between_windows"]["steps"].as_u64();
        (a.coverage.steps_run, a.coverage.steps_estimated, between.expect("a number"))
    };
    assert_eq!(seen(4_000, 1.0), (4_000, false, 2_000));
    assert_eq!(seen(4_000, 0.8), (4_000, false, 2_000), "recording slows a little");
    let (run, about, between) = seen(100_000, 0.04);
    assert!(about && run.abs_diff(4_000) < 40 && between.abs_diff(2_000) < 20, "{run} {between}");
}

/// A clock that takes every fourth launch for a step, in a program that waits after each hundredth:
/// most of its steps are short and one in 25 is long, so that their median tells nothing of the
/// unit. The launches do.
#[test]
fn the_unit_of_steps_counted_between_windows_is_told_by_their_launches() {
    let mut p = Program::new();
    for _ in 0..40 {
        step(&mut p);
    }
    let (mut run, a) = p.analyze();
    let launches = run.threads.iter().flat_map(|t| &t.calls).filter(|c| c.is_launch()).count() as u64 / 40;
    for (total, n) in [
        (Total::LaunchesBetween, 1000 * launches),
        (Total::StepsBetween, 1000 * launches / 4),
        (Total::ClockSteps, 2000 * launches / 4),
        (Total::Windows, 3),
        (Total::ClockStepNs, a.steps.median_ns / (3 * launches)),
    ] {
        run.header.totals[total as usize] = n;
    }
    let a = verdict::analyze(&run);
    assert!(a.coverage.steps_estimated && a.coverage.steps_run.abs_diff(2000) <= 60, "{:?}", a.coverage);
    let figures = cli::live::Figures::new(&run);
    let counted = cli::live::counted::Counted { step_ns: Some(5), sync_ns: 700, ..Default::default() };
    let shown = figures.in_its_units(counted);
    assert!((shown.sync_ns as f64 / (700.0 * launches as f64 / 4.0) - 1.0).abs() < 0.06, "{shown:?}");
    assert_eq!(shown.step_ns, None, "the median of parts is no part of the median");
    let whole = cli::live::Figures { clock_unit: 1.0, ..figures };
    assert_eq!(whole.in_its_units(counted), counted);
}

/// Not only windows leave steps out: a process that was stopped, another profiler, capture switched
/// off. "39 of 39 steps seen" would say that there were no others.
#[test]
fn steps_in_any_unobserved_span_are_steps_of_the_run_or_its_number_is_not_said() {
    let said = |reason: Unobserved, clock_steps: u64| {
        let mut p = Program::new();
        for n in 0..40 {
            step(&mut p);
            p.sync();
            if n == 20 {
                p.t += 50_000_000;
                dark(&mut p, reason);
            }
        }
        let (mut run, _) = p.analyze();
        run.header.totals[Total::ClockSteps as usize] = clock_steps;
        run.threads.iter_mut().for_each(|t| t.marks.clear());
        let a = verdict::analyze(&run);
        (a.coverage.steps_seen, verdict::output::line::evidence(&run, &a).join("; "))
    };
    for reason in [Unobserved::Stopped, Unobserved::Yielded, Unobserved::CaptureOff] {
        let (seen, line) = said(reason, 55);
        assert!(line.contains(&format!(" {seen} of 55 steps seen")), "{line}");
        let (seen, line) = said(reason, 0);
        assert!(line.contains(&format!(" {seen} steps seen")) && !line.contains(" of 4"), "{line}");
    }
}

/// Windows without a clock of steps, or with one that was learnt on the way: what lies between is
/// steps of the run all the same.
#[test]
fn steps_between_windows_are_of_the_run_whoever_counted_them() {
    let seen = |clock: u64, between: u64, launches: u64| {
        let (mut input, a) = in_windows(|_| false, 0);
        let totals = &mut input.run.header.totals;
        totals[Total::LaunchesBetween as usize] = launches;
        totals[Total::ClockSteps as usize] = clock;
        totals[Total::StepsBetween as usize] = between;
        // found by their launches, not by marks
        input.run.threads.iter_mut().for_each(|t| t.marks.clear());
        let b = verdict::analyze(&input.run);
        assert_eq!(a.coverage.steps_run, 600);
        let said = verdict::output::line::evidence(&input.run, &b).join("; ");
        let (seen, all) = (b.coverage.steps_seen, b.coverage.steps_run);
        assert!(seen < 70, "{said}");
        assert!(said.contains(&format!(" {all} steps seen (seen: ")), "{said}");
        (all, seen, b.coverage.steps_estimated)
    };
    assert_eq!(seen(600, 540, 540 * 76).0, 600);
    // the clock began to count when half was over
    let (all, own, _) = seen(300, 540, 540 * 76);
    assert_eq!(all, own + 540);
    // nothing counted steps: by launches, and where these were not counted either by the time
    for launches in [540 * 76, 0] {
        let (all, _, about) = seen(0, 0, launches);
        assert!(about && all.abs_diff(600) < 40, "{all} of {launches} launches");
    }
}

/// What `gapprobe capture` cuts out is one of many moments of a process: what recording cost is of
/// that moment.
#[test]
fn the_cost_of_a_window_that_was_cut_out_is_the_windows() {
    let mut p = Program::new();
    for _ in 0..40 {
        step(&mut p);
    }
    let (mut run, _) = p.analyze();
    run.header.launch_cost_ns = 3_000;
    run.cut_out = true;
    let young = verdict::analyze(&run).cost.share;
    assert!(young > 0.001, "{young}");
    // the same steps in a process of a thousand times that age
    run.header.valid_from = run.header.start_monotonic.max(run.header.valid_from);
    run.header.start_monotonic = 1;
    run.header.first_use = 1;
    run.header.totals[Total::LaunchesBetween as usize] = 50_000_000;
    let a = verdict::analyze(&run);
    assert!((a.cost.share - young).abs() < young * 0.01, "{} beside {young}", a.cost.share);
    let summary = verdict::output::summary::summary(&run, &a, &verdict::output::summary::Around::default());
    assert!(summary["cost"]["callback_ns"].is_null());
    run.cut_out = false;
    let all = verdict::analyze(&run).cost.share;
    assert!((all - young).abs() > young * 0.5, "of all its life it is another share: {all}, {young}");
}

/// Windows of ten steps, then ninety that are only counted; the host pauses for `pause` where
/// `pauses` says so, of the step's number.
fn in_windows(pauses: impl Fn(u32) -> bool, pause: u64) -> (Input, Analysis) {
    let mut p = Program::new();
    let (mut between, mut steps) = (0, 0);
    for n in 0..600 {
        let recorded = n % 100 < 10;
        steps += 1;
        if recorded {
            p.mark(n, 0);
            p.train_step(6, 60_000);
            p.t += if pauses(n) { pause } else { 0 };
        } else {
            if n % 100 == 10 {
                p.mark(n, 0);
                p.sync();
            }
            let mut e = Event::new(Kind::Unobserved, p.t, p.t + STEP + if pauses(n) { pause } else { 0 });
            e.a = Unobserved::Window as u32;
            p.t = e.end;
            p.b.on_recorder(e);
            between += 1;
        }
    }
    let path = std::env::temp_dir().join(format!("gapprobe-unlike-{}-{pause}.gprec", std::process::id()));
    std::fs::write(&path, p.finish()).unwrap();
    let input = formats::read(&path, &formats::Progress::default());
    std::fs::remove_file(&path).unwrap();
    let mut input = input.unwrap_or_else(|e| panic!("{e}"));
    let totals = &mut input.run.header.totals;
    totals[Total::LaunchesBetween as usize] = between * 76;
    totals[Total::Steps as usize] = steps;
    totals[Total::ClockSteps as usize] = steps;
    totals[Total::StepsBetween as usize] = between;
    totals[Total::Windows as usize] = 6;
    let a = verdict::analyze(&input.run);
    (input, a)
}

/// A program goes on after its last step: it saves its model, it comes down. The mean of all steps
/// ends with the last one.
#[test]
fn what_follows_the_last_step_is_no_part_of_the_steps() {
    let (mut input, _) = in_windows(|_| false, 0);
    let last = input.run.blind.last_mut().expect("what is only counted");
    input.run.header.totals[Total::LastStepAt as usize] = last.span.end - STEP;
    last.span.end += 700 * STEP;
    let a = verdict::analyze(&input.run);
    assert_eq!((a.unlike, a.verdict.cause), (None, "GPU-BOUND"), "{:?}", a.verdict);
    // where it is not known when that was, all of the time is the steps'
    input.run.header.totals[Total::LastStepAt as usize] = 0;
    assert!(verdict::analyze(&input.run).unlike.is_some());
}

/// What `check --max-idle 50%` says, the verdict first.
fn idle_at_most_half((input, a): &(Input, Analysis)) -> [gate::Answer; 2] {
    let conditions = gate::Conditions { max_idle: Some(0.5), ..gate::Conditions::default() };
    let judged = gate::check(&Side::new("x", input, a, None), None, &conditions);
    [judged[0].result, judged[1].result]
}

/// About what a step of [`in_windows`] takes.
const STEP: u64 = 3_300_000;

/// A long step that each window has and the run has seldom, and one that no window has.
#[test]
fn windows_whose_steps_are_not_the_runs_are_no_verdict_of_it() {
    use gate::Answer::{Ok, Unjudged};
    let even = in_windows(|_| false, 0);
    assert_eq!(idle_at_most_half(&even), [Ok, Ok]);
    let a = even.1;
    assert!((a.steps.mean_ns / STEP as f64 - 1.0).abs() < 0.1, "{}", a.steps.mean_ns);
    assert_eq!((a.unlike, a.verdict.cause), (None, "GPU-BOUND"), "{:?}", a.verdict);
    let often = in_windows(|n| n % 100 == 5, 60_000_000);
    assert_eq!(idle_at_most_half(&often), [Unjudged; 2]);
    let often = often.1;
    assert_eq!(often.verdict.cause, "INCONCLUSIVE", "{:?}", often.verdict);
    let unlike = often.unlike.expect("unlike");
    let (recorded, all) = (unlike.recorded_ns / 1e6, unlike.all_ns / 1e6);
    assert!((7.0..10.0).contains(&recorded) && (all - 3.9).abs() < 0.3, "{recorded} {all}");
    let words = format!("recorded steps take {recorded:.1} ms, those of the whole run {all:.1} ms");
    assert_eq!(often.verdict.text(), words);
    let missed = in_windows(|n| n % 100 == 50, 100_000_000);
    assert_eq!(idle_at_most_half(&missed), [Ok, Unjudged]);
    let missed = missed.1;
    let (line, v) = (&missed.verdict.text(), &missed.verdict);
    assert!(
        line.contains("recorded steps take 3.") && line.contains(", those of the whole run 4."),
        "{line}"
    );
    assert_eq!((v.cause, v.confidence), ("GPU-BOUND", verdict::analysis::Confidence::Low), "{v:?}");
}

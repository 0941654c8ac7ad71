// SPDX-License-Identifier: Apache-2.0
//! Purpose: what CUPTI gets wrong is counted by its name, never drawn, and never the program's
//! trouble: refused subscriptions and kinds, a flush that hangs, is slow or fails, names that die,
//! lost and swapped times, dropped records.

use std::process::Command;
use std::time::Duration;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Run, Victim};
use trace::call::Class;
use trace::header::{sources, state};
use trace::Loss;

const KERNELS: u64 = 2000;

fn faulty(fault: &str) -> Run {
    faulty_on("13.0", fault)
}

fn faulty_on(release: &str, fault: &str) -> Run {
    let run = Victim::sim(release, &["loop", "20", "100", "10", "200"]).env("SIM_FAULT", fault).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 2000\n"), "{fault}: {}", run.stderr);
    assert!(run.others().is_empty() && run.lines().len() <= 1, "{fault}: {}", run.stderr);
    run
}

/// Every kernel in the recording is one that the device ran, at its true time.
fn nothing_is_made_up(run: &Run) {
    let truth: std::collections::HashMap<u32, (u64, u64)> =
        run.truth().kernels().map(|k| (k.correlation, (k.start, k.end))).collect();
    for (_, kernel) in run.recorded().kernels() {
        assert_eq!(truth.get(&kernel.correlation), Some(&(kernel.start, kernel.end)), "{kernel:?}");
    }
}

/// The summary names the loss.
fn is_reported(run: &Run, loss: Loss, count: u64) {
    assert_eq!(run.recorded().loss(loss), count, "{:?}", run.recorded().losses());
    let summary = run.summary().expect("a summary");
    assert_eq!(summary["losses"][loss.key()].as_u64(), Some(count), "{}", summary["losses"]);
    assert!(run.evidence().contains(loss.key()), "{}", run.evidence());
    assert!(run.stderr.contains(" lost") || count == 0, "{}", run.stderr);
}

#[test]
fn a_subscription_that_is_taken_leaves_the_records() {
    for release in ["11.8", "13.0"] {
        let run = faulty_on(release, "subscribe=39");
        let recorded = run.recorded();
        assert_eq!(recorded.kernels().len() as u64, KERNELS, "{release}");
        assert_eq!(recorded.header.sources & sources::CALLBACKS, 0);
        nothing_is_made_up(&run);
        if release == "13.0" {
            assert_eq!(recorded.calls(Class::Launch).len() as u64, KERNELS, "from the filter");
            assert_eq!(recorded.calls(Class::Sync).len(), 21, "from the filter");
        } else {
            assert_ne!(
                recorded.header.sources & sources::NO_LAUNCHES,
                0,
                "and it says that there are no launches"
            );
        }
    }
}

#[test]
fn what_is_launched_right_after_the_profilers_start_is_there_without_the_subscription_too() {
    for fault in ["", "subscribe=39"] {
        let victim = Victim::sim("13.0", &["loop", "40", "100", "10", "200", "1", "r"]);
        let run = victim.env("SIM_FAULT", fault).env("GAPPROBE_CAPTURE", "profiler").run();
        assert_eq!((run.ending(), run.launched()), (0, 4000), "{fault}: {}", run.stderr);
        assert_eq!(run.recorded().kernels().len(), 2000, "{fault}: {:?}", run.recorded().losses());
        nothing_is_made_up(&run);
    }
}

#[test]
fn what_cupti_refuses_at_the_start_is_said_in_one_line() {
    for fault in ["register=error1", "timestamp=error1", "enable:10=error2"] {
        let run = faulty(fault);
        assert_eq!(run.lines().len(), 1, "{fault}");
        assert!(
            run.stderr.contains("not recording") && run.stderr.contains("libcupti.so.13"),
            "{}",
            run.stderr
        );
        assert!(run.left_anywhere().is_empty(), "{fault}: {:?}", run.left_anywhere());
    }
}

#[test]
fn what_cupti_refuses_besides_is_counted() {
    for fault in ["enable:2=error1", "enable:1=error1", "attribute:9=error1", "attribute:0=error15"] {
        let run = faulty(fault);
        assert_eq!(run.recorded().loss(Loss::CuptiError), 1, "{fault}: {:?}", run.recorded().losses());
        assert_eq!(run.recorded().kernels().len() as u64, KERNELS, "{fault}");
    }
    for fault in ["callback:2.131=error1", "filter:2.211=error1", "disable:10=error1"] {
        let run = faulty(fault);
        assert_eq!(run.recorded().kernels().len() as u64, KERNELS, "{fault}");
        nothing_is_made_up(&run);
    }
}

#[test]
fn a_flush_that_hangs_does_not_hold_up_the_end() {
    for exit_ms in [0, 300, 2000] {
        let run = || {
            let victim = Victim::sim("13.0", &["loop", "20", "100", "10", "200"]);
            let run =
                victim.env("SIM_FAULT", "flush=hang").env("GAPPROBE_EXIT_MS", exit_ms.to_string()).run();
            assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 2000\n"));
            run
        };
        // the program itself takes about 30 ms; a busy machine may hold it up longer than we do
        let most = Duration::from_millis(exit_ms + 400);
        let run = (0..4).map(|_| run()).find(|run| run.wall < most);
        let run = run.unwrap_or_else(|| panic!("GAPPROBE_EXIT_MS={exit_ms}: held up longer four times"));
        assert!(run.lines().len() == 1 && run.others().is_empty(), "{}", run.stderr);
        if exit_ms == 2000 {
            is_reported(&run, Loss::ExitFlushLate, 1);
            nothing_is_made_up(&run);
        }
    }
    // hung from the first flush of a long run on
    let run = Victim::sim("13.0", &["loop", "100", "10", "10", "8000"]).env("SIM_FAULT", "flush=hang").run();
    assert_eq!((run.ending(), run.launched()), (0, 1000));
    assert!(run.wall < Duration::from_secs(4), "{:?}", run.wall);
    nothing_is_made_up(&run);
}

#[test]
fn a_flush_that_hangs_or_is_slow_does_not_hold_up_the_unloading_of_modules() {
    for fault in ["flush=hang", "flush=slow:1000ms"] {
        let victim = Victim::sim("13.0", &["modules", "12", "50"]).limit(Duration::from_secs(15));
        let run = victim.env("SIM_FAULT", fault).run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 600\n"), "{fault}: {}", run.stderr);
        // the program itself takes about 30 ms, its end at most 2 s
        assert!(run.wall < Duration::from_millis(2800), "{fault}: {:?}", run.wall);
        nothing_is_made_up(&run);
    }
}

#[test]
fn a_flush_that_is_slow_or_fails() {
    let run = faulty("flush=slow:300ms");
    assert!(run.wall < Duration::from_millis(2400), "{:?}", run.wall);
    nothing_is_made_up(&run);
    assert_eq!(run.recorded().kernels().len() as u64, KERNELS);
    // slower than the default leaves room for: waited for where more time is given
    let victim = Victim::sim("13.0", &["loop", "20", "100", "10", "200"]);
    let run = victim.env("SIM_FAULT", "flush=slow:1000ms").env("GAPPROBE_EXIT_MS", "12000").run();
    assert_eq!(run.recorded().losses(), [], "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len() as u64, KERNELS);
    let run = faulty("flush=error999");
    nothing_is_made_up(&run);
    assert!(run.recorded().loss(Loss::CuptiError) > 0, "{:?}", run.recorded().losses());
    assert_eq!(run.recorded().header.gpu_complete_to, 0, "nothing is promised");
    assert!(run.stderr.contains("[GP199]"), "{}", run.stderr);
}

#[test]
fn what_no_flush_has_ended_is_not_called_nothing() {
    for fault in ["flush=hang", "flush=error999"] {
        let run = Victim::sim("13.0", &["loop", "100", "100", "10", "200"]).env("SIM_FAULT", fault).run();
        assert_eq!((run.ending(), run.launched()), (0, 10_000), "{fault}: {}", run.stderr);
        let summary = run.summary().expect("a summary");
        let drawn = summary["trace_file"]["gpu_operations"].as_u64().expect("a number");
        assert!(drawn > 9000, "{fault}: {drawn} of 10,000 are in the trace");
        let line = &run.stderr;
        assert!(line.contains("[GP199]") && !line.contains("nothing of the GPU"), "{fault}: {line}");
        assert!(line.contains("the GPU record is unknown: CUPTI did not return"), "{fault}: {line}");
        let coverage = &summary["coverage"];
        let (seen, all) = (coverage["seen_ns"].as_u64(), coverage["run_ns"].as_u64());
        let truth = run.truth();
        let first = truth.kernels().map(|k| k.start).min().expect("kernels");
        let ran = truth.kernels().map(|k| k.end).max().map(|end| end - first);
        // up to the last operation that is there; the rest of the time the end waits for the flush
        assert!(seen > ran.map(|ns| ns / 10 * 9) && seen <= all, "{fault}: {seen:?} of {ran:?} in {all:?}");
        // read again, the trace says the same
        let trace = run.folder.join("out").join(summary["trace"].as_str().expect("its name"));
        let again = Command::new(&built().command).args(["analyze", "--line"]).arg(trace).output();
        let again = String::from_utf8(again.expect("gapprobe").stdout).expect("text");
        let said = |line: &str| line.split(" Next:").next().map(str::to_owned);
        assert_eq!(said(&again), said(line), "{fault}");
    }
}

#[test]
fn names_that_cannot_be_read() {
    let run = faulty("name=null");
    let recorded = run.recorded();
    assert_eq!(recorded.kernels().len() as u64, KERNELS);
    assert!(recorded.kernels().iter().all(|(_, k)| recorded.name(k) == "<unloaded>"));
    assert!(recorded.loss(Loss::NameUnreadable) > 0);
    for fault in ["name=unmapped", "name=reused", ""] {
        // (a module that is unloaded waits a while for our flush, not for ever: a busy machine may
        // be later than that)
        let fewest = (0..4).map(|_| names_unread(fault)).find(|unread| *unread <= 100);
        assert!(fewest.is_some(), "{fault}: more than 100 of 600 names were lost, four times");
    }
}

/// How many of 600 kernels, in modules that are unloaded one after the other, have no name. Each
/// other one has its own.
fn names_unread(fault: &str) -> usize {
    let run = Victim::sim("13.0", &["modules", "12", "50"]).env("SIM_FAULT", fault).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 600\n"), "{fault}: {}", run.stderr);
    let (recorded, truth) = (run.recorded(), run.truth());
    let names: std::collections::HashMap<u32, String> =
        truth.kernels().map(|k| (k.correlation, k.name.clone())).collect();
    assert_eq!(recorded.kernels().len(), 600, "{fault}");
    let mut unread = 0;
    for (_, kernel) in recorded.kernels() {
        let name = recorded.name(&kernel);
        if name == "<unloaded>" {
            unread += 1;
        } else {
            assert_eq!(name, names[&kernel.correlation], "{fault}: never another kernel's name");
        }
    }
    assert_eq!(unread > 0, recorded.loss(Loss::NameUnreadable) > 0, "{fault}: {unread}");
    unread
}

#[test]
fn times_that_are_lost() {
    let run = faulty("zero_ts:every=100");
    assert_eq!(run.recorded().kernels().len() as u64, KERNELS - 20);
    is_reported(&run, Loss::ZeroTimestamp, 20);
    nothing_is_made_up(&run);
    assert!(run.recorded().kernels().iter().all(|(_, k)| k.start > 0 && k.end > k.start));
}

#[test]
fn times_that_run_backward() {
    let run = faulty("backward_ts");
    assert_eq!(run.recorded().kernels().len() as u64, KERNELS - 20);
    is_reported(&run, Loss::BackwardTimestamp, 20);
    nothing_is_made_up(&run);
}

#[test]
fn times_of_another_clock() {
    let run = faulty("foreign_ts:every=100");
    assert_eq!(run.recorded().kernels().len() as u64, KERNELS - 20);
    is_reported(&run, Loss::ForeignClock, 20);
    nothing_is_made_up(&run);
    let summary = run.summary().expect("a summary");
    // the first of them is told whole: nobody else could say where it comes from
    let first = summary["attributes"]["first.foreign_clock"].as_str().expect("what was seen");
    assert!(first.starts_with("Kernel from ") && first.contains(" ns, read at "), "{first}");
    let said = summary["coverage"]["run_ns"].as_u64().expect("a number");
    assert!(said < 600_000_000_000, "the run took seconds, not {said} ns");
}

#[test]
fn records_that_are_dropped() {
    // where everything is recorded a launch has three records: the kernel, the runtime's call, the
    // driver's call (a twin that may go unnoticed); where windows may be used calls are told by
    // callbacks, of which none is dropped
    for (budget, records) in [("100", 3), ("0.5", 1)] {
        let victim = Victim::sim("13.0", &["loop", "20", "100", "10", "200"]);
        let run = victim.env("SIM_FAULT", "drop:every=1000").env("GAPPROBE_BUDGET", budget).run();
        let recorded = run.recorded();
        let dropped = recorded.loss(Loss::CuptiDropped);
        assert!(dropped > 0, "{:?}", recorded.losses());
        let synchronized = run.truth().calls.iter().filter(|c| c.name.contains("Synchronize")).count() as u64;
        assert_eq!(dropped, (records * KERNELS + synchronized) / 1000);
        let launches = recorded.calls(Class::Launch).len() as u64;
        assert!(records == 3 || launches == KERNELS, "{launches} launches");
        // (and records of waits, which no other figure of ours tells)
        let missing = 2 * KERNELS - recorded.kernels().len() as u64 - launches;
        assert!(missing > 0 && missing <= dropped, "{missing} missing, {dropped} dropped");
        is_reported(&run, Loss::CuptiDropped, dropped);
        nothing_is_made_up(&run);
    }
}

#[test]
fn all_faults_at_once() {
    let run = faulty(
        "subscribe=39,name=null,zero_ts:every=50,backward_ts,drop:every=77,enable:38=error1,flush=slow:20ms",
    );
    let recorded = run.recorded();
    assert!(recorded.header.state >= state::CLOSED);
    nothing_is_made_up(&run);
    assert!(run.stderr.contains("[GP199]"), "{}", run.stderr);
}

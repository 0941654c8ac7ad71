// SPDX-License-Identifier: Apache-2.0
//! Purpose: when steps become slow or the program hangs, a trace of the last seconds is there while
//! the program goes on; it holds what was recorded, and says of the rest that it was not; a hang is
//! seen in `gapprobe top`; the program's end is not held up by it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gapprobe_scenarios::small_disk::SmallDisk;
use gapprobe_scenarios::{skipped, Run, Running, Victim};
use serde_json::Value;
use trace::{Loss, Total};

use crate::sampled;
use crate::waits::gapprobe;

fn results(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> = entries.filter(|p| p.to_string_lossy().ends_with(ending)).collect();
    all.sort_by_key(|p| std::fs::metadata(p).and_then(|m| m.modified()).ok());
    all
}

/// Waits for trace and summary of a flight.
fn flight(running: &mut Running) -> (Value, Value) {
    let there = running.wait_for(|f| !results(&f.join("out"), ".summary.json").is_empty());
    assert!(there, "{}", std::fs::read_to_string(running.folder.join("stderr")).unwrap_or_default());
    let out = running.folder.join("out");
    let summary = std::fs::read(&results(&out, ".summary.json")[0]).expect("a summary");
    let trace = results(&out, ".json.gz").into_iter().next().expect("a trace before its summary");
    let text = Command::new("gzip").arg("-dc").arg(trace).output().expect("gzip").stdout;
    (serde_json::from_slice(&summary).expect("JSON"), serde_json::from_slice(&text).expect("JSON"))
}

fn events(trace: &Value) -> &[Value] {
    trace["traceEvents"].as_array().expect("events")
}

/// Kernels that ended before the header's promise.
fn ended_by(run: &Run, time: u64) -> usize {
    run.truth().kernels().filter(|k| k.end <= time).count()
}

/// What stderr says of it: one line. (The run's own has its code behind the name.)
fn said(run: &Run, why: &str) -> String {
    let begin = format!("gapprobe: {why}");
    let lines: Vec<_> = run.lines().into_iter().filter(|l| l.starts_with(&begin)).collect();
    assert_eq!(lines.len(), 1, "{}", run.stderr);
    lines[0].to_owned()
}

fn of(trace: &Value, category: &str) -> usize {
    events(trace).iter().filter(|e| e["cat"] == category).count()
}

/// Ended well and lost nothing.
fn fine(run: &Run) {
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    assert_eq!(run.recorded().losses(), [], "{}", run.stderr);
}

/// At step 700 a collective is launched whose partner never comes, and the program waits.
fn hanging(more: &[&str]) -> Running {
    hanging_with(more, "30")
}

fn hanging_with(more: &[&str], seconds: &'static str) -> Running {
    let words = [&["waits", "100000", "500", "s", "700"], more].concat();
    Victim::ours("13.0", &words).env("GAPPROBE_FLIGHT", seconds).start()
}

#[test]
fn a_hang_leaves_a_trace_while_it_hangs_is_named_by_top_and_ends_with_the_signal() {
    let mut running = hanging(&[]);
    let (summary, trace) = flight(&mut running);
    assert!(running.child.try_wait().expect("wait").is_none(), "it still hangs");
    let line = summary["line"].as_str().expect("a line");
    assert!(line.contains("no step for 1") && line.contains("is in cudaStreamSynchronize for 1"), "{line}");
    // all that CUPTI gave back before; what followed is not called idle
    let complete_to = trace["gapprobe"]["gpu_complete_to_ns"].as_u64().expect("a time");
    let kernels = of(&trace, "kernel");
    let gap = summary["devices"][0]["max_gap_ns"].as_u64().expect("a number");
    assert!(gap < 2_000_000_000, "{}", summary["devices"]);
    assert!(summary["coverage"]["seen_ns"].as_u64().is_some_and(|ns| ns < 9_000_000_000), "{summary}");
    let top = gapprobe(&running, &["top", "--once"]);
    assert!(top.contains("hung for 1") && top.contains(" in cudaStreamSynchronize"), "{top}");
    let asked = Instant::now();
    running.signal(libc::SIGTERM);
    let run = running.finish();
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_eq!(run.ending(), 1000 + libc::SIGTERM);
    said(&run, "no step for 1");
    // some may have ended after that time: their records are there
    let ended = ended_by(&run, complete_to);
    assert!(kernels >= ended && kernels - ended < 50, "{kernels} of {ended}");
    assert!(kernels > 400, "{kernels} of 700");
}

#[test]
#[ignore = "scripts/test thorough: 12 s"]
fn seconds_before_a_hang_are_told_however_few_they_are_to_be() {
    // a hang is told after ten seconds of it: three seconds up to then would hold nothing else
    let mut running = hanging_with(&[], "3");
    let (summary, trace) = flight(&mut running);
    let line = summary["line"].as_str().expect("a line");
    assert!(line.contains("The last 1"), "{line}");
    assert!(!line.contains("[GP199]") && of(&trace, "kernel") > 400, "{line}");
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn a_hang_in_python_is_named_with_the_line_it_stands_in() {
    let python = sampled::pythons().pop().expect("a python");
    let mut running = sampled::victim(&python, "hang", "0").env("GAPPROBE_FLIGHT", "30").start();
    let (summary, _) = flight(&mut running);
    let line = summary["line"].as_str().expect("a line");
    let place = format!(
        "; the launching thread stands at victims/sampled.py:{} in wait_for_ever.",
        sampled::marked("HANG")
    );
    assert!(line.starts_with("no step for ") && line.contains(&place), "{line}");
    running.signal(libc::SIGKILL);
    running.finish();
}

/// Kills it, and what `recover` says of it: the recording's own word, for the program had no last
/// one.
fn recovered(mut running: Running) -> (String, Run) {
    running.signal(libc::SIGKILL);
    assert!(running.child.wait().is_ok());
    let line = gapprobe(&running, &["recover", "--keep"]);
    (line, running.finish())
}

#[test]
#[ignore = "scripts/test thorough: 30 s"]
fn a_recorder_that_knows_no_steps_says_so_while_the_program_runs() {
    let why = "launches are not seen without CUPTI";
    for (words, is_told) in
        [(&["unseen", "60000", "0", "4", "u"][..], true), (&["unseen", "60000", "0", "4"], false)]
    {
        let victim =
            Victim::ours("13.0", words).env("GAPPROBE_FLIGHT", "30").env("GAPPROBE_WINDOW", "20/200");
        let mut running = victim.start();
        std::thread::sleep(Duration::from_secs(14));
        assert!(running.child.try_wait().expect("wait").is_none(), "it still runs");
        let (line, run) = recovered(running);
        let told = run.stderr.contains(&format!("gapprobe: no flight recorder (GAPPROBE_FLIGHT): {why}"));
        assert_eq!(told, is_told, "{words:?}: {}", run.stderr);
        // (marked steps are enough for the flight recorder alone)
        assert!(line.contains(", no recording windows"), "{words:?}: {line}");
    }
}

/// Kernels that all come evenly are of no step.
#[test]
#[ignore = "scripts/test thorough: 30 s"]
fn a_recorder_that_finds_no_steps_says_so_while_the_program_runs() {
    let victim = Victim::ours("13.0", &["steps", "1000000", "6", "500", "t"]);
    let mut running = victim.env("GAPPROBE_FLIGHT", "30").env("GAPPROBE_WINDOW", "20/200").start();
    let told = "gapprobe: no flight recorder (GAPPROBE_FLIGHT): so far no steps are known: ";
    let says = |f: &Path| std::fs::read_to_string(f.join("stderr")).is_ok_and(|t| t.contains(told));
    let begin = Instant::now();
    while !says(&running.folder) {
        assert!(
            begin.elapsed() < Duration::from_secs(60) && running.child.try_wait().expect("wait").is_none()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let (line, run) = recovered(running);
    assert!(line.contains(", no recording windows"), "{line}");
    assert_eq!(run.others().len() + run.lines().len(), 1, "said once: {}", run.stderr);
}

#[test]
fn a_program_that_leaves_a_hang_by_exit_is_held_up_for_two_seconds_at_most() {
    let mut running = hanging(&["t"]);
    // in the middle of the alarm
    let _ = flight(&mut running);
    let asked = Instant::now();
    running.signal(libc::SIGTERM);
    let run = running.finish();
    assert!(asked.elapsed() < Duration::from_millis(2500), "{:?}", asked.elapsed());
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let halves = results(&run.folder.join("out"), ".part");
    assert_eq!(halves, Vec::<PathBuf>::new());
    assert_eq!(run.recorded().total(Total::Flights), 1);
}

#[test]
#[ignore = "scripts/test thorough: 12 s"]
fn a_kill_at_the_alarm_leaves_the_recording_whole() {
    let mut running = hanging(&[]);
    // its temporary file is there, or was
    assert!(running.wait_for(|f| std::fs::read_dir(f.join("out")).is_ok_and(|mut d| d.next().is_some())));
    let asked = Instant::now();
    running.signal(libc::SIGKILL);
    let run = running.finish();
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    let recorded = run.recorded();
    let kernels = recorded.kernels().len();
    let promised = ended_by(&run, recorded.header.gpu_complete_to);
    assert_eq!(run.ending(), 1000 + libc::SIGKILL);
    // (what came back behind that time may be in the file, too)
    assert!((promised..=700).contains(&kernels), "{kernels}, {promised} promised");
    assert!(kernels > 400, "{kernels} of 700");
}

#[test]
fn slow_steps_leave_a_trace_of_all_that_was_recorded_once() {
    // 13 launches a step; 1500 steps of 3 ms after 4500 of 0.6 ms
    let words = ["steps", "6000", "6", "500", "4500", "3000", "1500"];
    let mut running = Victim::ours("13.0", &words).env("GAPPROBE_FLIGHT", "2").start();
    let (summary, trace) = flight(&mut running);
    assert!(running.child.try_wait().expect("wait").is_none(), "the program goes on");
    let run = running.finish();
    fine(&run);
    let line = said(&run, "steps take ");
    assert!(line.contains("The last 2.0 s: gapprobe: "), "{line}");
    // half of the two seconds are steps as they usually are: what is slow has a verdict of its own
    let (_, of_slow) = line.split_once("; of the slow ones: GPU idle ").expect("their verdict");
    let is_slow = [" 3.", " 4."].iter().any(|ms| of_slow.contains(ms));
    let (verdict, _) = of_slow.split_once(". The last").expect("the seconds before");
    assert!(is_slow && verdict.contains("the host sleeps") && verdict.ends_with(" ms/step"), "{line}");
    assert_eq!(run.launched(), 6000 * 13);
    // as many kernels as really began in that time, but for those at its ends
    let times: Vec<f64> = events(&trace)
        .iter()
        .filter(|e| e["cat"] == "kernel")
        .filter_map(|e| e["args"]["correlation"].as_f64())
        .collect();
    let (first, last) = times.iter().fold((f64::MAX, 0.0), |(a, b): (f64, f64), c| (a.min(*c), b.max(*c)));
    let truth = run.truth();
    let inside = truth.kernels().filter(|k| (first..=last).contains(&f64::from(k.correlation))).count();
    assert_eq!(times.len(), inside, "all of them from {first} to {last}");
    assert!(inside > 5000, "{inside} kernels in two seconds");
    assert!(summary["coverage"]["seen_ns"]
        .as_u64()
        .is_some_and(|ns| (1_900_000_000..2_100_000_000).contains(&ns)));
    let slow = truth.ops.iter().filter(|o| f64::from(o.correlation) <= last).count();
    assert!(slow > (4500 + 8) * 13, "the slow steps are in it: {slow} kernels before its end");
    let recorded = run.recorded();
    assert_eq!(recorded.total(Total::Flights), 1);
    let all: Vec<_> = recorded.definitions.attributes().filter(|a| a.0.starts_with("flight.")).collect();
    assert!(all.len() == 1 && all[0].1.contains("steps take"), "{all:?}");
}

#[test]
fn between_windows_the_trace_says_what_was_not_recorded_and_calls_none_of_it_idle() {
    let words = ["steps", "6500", "6", "500", "5000", "3000", "1500"];
    let victim = Victim::ours("13.0", &words);
    let mut running = victim.env("GAPPROBE_FLIGHT", "2").env("GAPPROBE_WINDOW", "16/100000").start();
    let (summary, trace) = flight(&mut running);
    let run = running.finish();
    fine(&run);
    let line = said(&run, "steps take ");
    assert!(
        line.contains("of them recorded (of the rest steps, launches and waits are counted at most)"),
        "{line}"
    );
    let unseen = summary["coverage"]["unobserved_ns"].as_u64().expect("a number");
    assert!(unseen > 1_700_000_000, "{}", summary["coverage"]);
    assert_eq!(summary["coverage"]["unobserved"][0]["reason"], "between two windows");
    let idle: u64 =
        summary["devices"].as_array().into_iter().flatten().filter_map(|d| d["idle_ns"].as_u64()).sum();
    assert!(idle < 300_000_000, "{}", summary["devices"]);
    let steps = |e: &&Value| e["ph"] == "C" && e["name"] == "between windows: step us";
    assert!(events(&trace)
        .iter()
        .filter(steps)
        .any(|e| e["args"]["value"].as_f64().is_some_and(|us| us > 500.0)));
}

#[test]
fn what_the_program_wanted_unrecorded_is_unobserved_in_the_trace() {
    // it never switches recording on; steps are marked all the same
    let words = ["steps", "6500", "6", "500", "5000", "3000", "1500"];
    let victim = Victim::ours("13.0", &words);
    let mut running = victim.env("GAPPROBE_FLIGHT", "2").env("GAPPROBE_CAPTURE", "profiler").start();
    let (summary, trace) = flight(&mut running);
    let run = running.finish();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let line = said(&run, "steps take ");
    assert!(line.contains("The last 2.0 s, 0 us of them recorded"), "{line}");
    let unseen = summary["coverage"]["unobserved_ns"].as_u64().expect("a number");
    assert!((1_900_000_000..=2_000_000_000).contains(&unseen), "{}", summary["coverage"]);
    assert_eq!(summary["coverage"]["unobserved"][0]["reason"], "the program switched capture off");
    assert_eq!(of(&trace, "kernel"), 0);
}

#[test]
fn the_last_seconds_from_outside_are_those_up_to_now_also_between_windows() {
    let words = ["steps", "8000", "6", "500"];
    let victim = Victim::ours("13.0", &words).env("GAPPROBE_WINDOW", "16/100000");
    let running = victim.env("GAPPROBE_SLOW_STEP", "0").start();
    std::thread::sleep(Duration::from_secs(3));
    let captured = gapprobe(&running, &["capture", &running.pid().to_string(), "--last", "1", "--json"]);
    let run = running.finish();
    fine(&run);
    let captured: Value = serde_json::from_str(&captured).expect("a summary");
    let coverage = &captured["coverage"];
    let unseen = coverage["unobserved_ns"].as_u64().expect("a number");
    assert!((900_000_000..=1_000_000_000).contains(&unseen), "{coverage}");
    let line = captured["line"].as_str().expect("a line");
    assert!(
        line.starts_with("the last 1.0 s, 1.0 s of them not recorded (between two windows): gapprobe: "),
        "{line}"
    );
    // up to then
    let ended = coverage["unobserved"][0]["to_ns"].as_u64().expect("a time");
    let last = run.truth().kernels().map(|k| k.end).max().expect("kernels");
    assert!(ended < last && last - ended < 8_000_000_000, "{ended} of {last}");
}

#[test]
fn without_the_setting_or_a_reason_there_is_none() {
    for settings in [&[][..], &[("GAPPROBE_FLIGHT", "2"), ("GAPPROBE_SLOW_STEP", "0")]] {
        let mut victim = Victim::ours("13.0", &["steps", "2000", "6", "500", "1500", "3000", "100"]);
        for (name, value) in settings {
            victim = victim.env(name, value);
        }
        let run = victim.run();
        fine(&run);
        assert_eq!((run.lines().len(), results(&run.folder.join("out"), ".json.gz").len()), (1, 1));
    }
    // nothing becomes slow
    let run = Victim::ours("13.0", &["steps", "2500", "6", "500"]).env("GAPPROBE_FLIGHT", "2").run();
    fine(&run);
    assert_eq!((run.lines().len(), run.recorded().total(Total::Flights)), (1, 0), "{}", run.stderr);
}

#[test]
fn a_full_disk_costs_the_trace_and_nothing_else() {
    let words = ["steps", "6000", "6", "500", "4500", "3000", "1500"];
    let victim = Victim::ours("13.0", &words);
    let Some(disk) = SmallDisk::mount(victim.folder.join("small"), 16 << 10) else {
        skipped("no tmpfs can be mounted here");
        return;
    };
    let run = victim.env("GAPPROBE_FLIGHT", "2").env("GAPPROBE_DIR", &disk.0).run();
    assert_eq!((run.ending(), run.launched()), (0, 6000 * 13), "{}", run.stderr);
    let line = said(&run, "steps take ");
    assert!(line.contains("No space left on device"), "{line}");
    assert_eq!(run.recorded().loss(Loss::CaughtPanic), 0);
    assert_eq!(run.recorded().kernels().len() as u64, run.launched());
    let left = std::fs::read_dir(&disk.0).expect("the disk").flatten().map(|e| e.path());
    assert!(left.into_iter().all(|p| !p.to_string_lossy().ends_with(".json.gz")), "no half trace");
}

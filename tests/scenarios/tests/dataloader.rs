// SPDX-License-Identifier: Apache-2.0
//! Purpose: the real torch.utils.data.DataLoader, without a GPU. Programs that train from it
//! (victims/dataloader.py: the loader of a PyTorch for the CPU, kernels on the simulated driver),
//! with too few workers or none, pinned and not, get the kind of INPUT, the line and the number of
//! workers; those close by, whose loader keeps up, are not accused of it.
//!
//! Each has the machine to itself, for a program that waits for a CPU is another one: what it says
//! of itself tells how quiet it was, and a run that was disturbed is not judged but made again.

use std::path::PathBuf;

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::pythons::with_torch;
use gapprobe_scenarios::{skipped, Run, Victim, CORES};
use serde_json::Value;

/// Runs of a program until one was left alone.
const TRIES: u32 = 4;
/// A launching thread that waited for a CPU for this part of the time was disturbed.
const MOST_WAITED: f64 = 0.1;
/// Workers that never wait for the loop compute all the time; with less of a CPU each they were
/// disturbed.
const LEAST_ON_CPU: f64 = 0.85;

fn source() -> PathBuf {
    root().join("tests/scenarios/victims/dataloader.py")
}

/// The lines of the victim that end in this mark.
fn marked(mark: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(source()).expect("source");
    let lines = text.lines().zip(1..).filter(|(line, _)| line.ends_with(&format!("# {mark}")));
    let found: Vec<u64> = lines.map(|(_, n)| n).collect();
    assert!(!found.is_empty(), "{mark}");
    found
}

/// The thread that pins a program's batches: the loader's own, or the launching one.
fn pinned_by(form: &str) -> &'static str {
    match form {
        "workers_pinned" | "enough_pinned" | "other_work" => "Thread-1",
        "main_pinned" => "MainThread",
        _ => "",
    }
}

/// A number of the program's own last line.
fn told(run: &Run, name: &str) -> f64 {
    let mut words = run.stdout.split_whitespace().skip_while(|w| *w != name);
    words
        .nth(1)
        .and_then(|w| w.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {} {}", run.stdout, run.stderr))
}

/// A run that was left alone, and what was said of it; `None` where the machine had too much else
/// to do.
fn undisturbed(form: &str, workers_must_be_busy: bool) -> Option<(Run, Value)> {
    let python = with_torch("the real DataLoader")?;
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let (script, folder) = (source(), root().join("tests/victims"));
    for _ in 0..TRIES {
        let words = [&*script.to_string_lossy(), &*folder.to_string_lossy(), form];
        let run = Victim::of(python, &words, "13.0").env("SIM_TRUTH", "").run_alone_on_the_cores();
        assert_eq!(run.ending(), 0, "{form}: {}", run.stderr);
        assert!(run.others().is_empty(), "{form}: {}", run.stderr);
        let pins = run.stdout.trim_end().rsplit("pinned_in").next().unwrap_or_default().trim();
        if pins.is_empty() && !pinned_by(form).is_empty() {
            skipped(format!("DataLoader, {form}: the loader of this PyTorch pins only where CUDA is"));
            return None;
        }
        assert_eq!(pins.split(' ').next(), Some(pinned_by(form)), "{form}: {}", run.stdout);
        let summary = run.summary().expect("a summary");
        println!("{form}: {} {}", run.stdout.trim(), run.lines().join(" "));
        let busy = told(&run, "workers_on_cpu") >= LEAST_ON_CPU;
        if told(&run, "waited") <= MOST_WAITED && (busy || !workers_must_be_busy) {
            return Some((run, summary));
        }
    }
    skipped(format!("DataLoader, {form}: the machine is too busy to judge what it waits for"));
    None
}

/// A step of the programs whose loader keeps up, ms: 8.0 of kernels, the launching of the first
/// one.
const GPU_STEP: std::ops::Range<f64> = 7.5..9.5;

/// CPU time that loading a batch of a program takes, ms.
fn loading_ms(form: &str) -> f64 {
    match form {
        "main" | "main_pinned" => 24.0,
        "workers" | "workers_pinned" => 48.0,
        "workers_collate" | "spawned_collate" => 46.4,
        _ => 0.0,
    }
}

/// The promise is the step of those that do not wait; where this machine's CPUs load a batch in
/// more, that; and nothing where they are all in use.
#[track_caller]
fn promises(form: &str, verdict: &Value) {
    let (promised, now) = (&verdict["predicted_ns"], &verdict["step_ns"]);
    let ms = |ns: &Value| ns.as_f64().unwrap_or_default() / 1e6;
    let cpus = std::thread::available_parallelism().expect("the number of CPUs").get();
    let least = loading_ms(form) / cpus as f64;
    let as_told = (GPU_STEP.start.max(least * 0.9)..GPU_STEP.end.max(least * 1.2)).contains(&ms(promised));
    let is_all = ms(promised) == 0.0 && least >= ms(now) * 0.85;
    assert!(as_told || is_all, "{form}: loading takes {least} ms at least: {verdict}");
}

/// The verdict names this cause, at one of these lines of the program, in this function, and
/// promises what can be.
#[track_caller]
fn names(form: &str, summary: &Value, cause: &str, mark: &str, function: &str) {
    let verdict = &summary["verdict"];
    assert_eq!(verdict["cause"], cause, "{form}: {verdict}");
    let site = &verdict["site"];
    let file = site["file"].as_str().unwrap_or_default();
    assert!(file.ends_with("dataloader.py"), "{form}: {verdict}");
    assert!(site["line"].as_u64().is_some_and(|n| marked(mark).contains(&n)), "{form}: {verdict}");
    assert_eq!(site["function"], function, "{form}: {verdict}");
    promises(form, verdict);
}

#[test]
#[ignore = "scripts/test thorough: trains with a real PyTorch"]
fn a_loader_without_workers_is_input_main_at_the_line_that_decodes() {
    for form in ["main", "main_pinned"] {
        let Some((_, summary)) = undisturbed(form, false) else { continue };
        names(form, &summary, "INPUT-MAIN", "DECODE", "Images.__getitem__");
    }
}

/// The text says where the workers stand: at a line with this mark, in this function.
#[track_caller]
fn theirs(text: &str, mark: &str, function: &str) {
    let of_workers = text.split(" on a CPU, ").nth(1);
    let at = of_workers.and_then(|t| t.split(" at ").nth(1)).unwrap_or_else(|| panic!("{text}"));
    let at_line = |line: &u64| at.starts_with(&format!("victims/dataloader.py:{line} in {function}"));
    // where no line has half of them, the function
    let in_function = at.starts_with(&format!("{function} in victims/dataloader.py"));
    assert!(marked(mark).iter().any(at_line) || in_function, "{text}");
}

#[test]
#[ignore = "scripts/test thorough: trains with a real PyTorch"]
fn workers_that_take_long_to_put_batches_together_are_input_collate() {
    for form in ["workers_collate", "spawned_collate"] {
        let Some((_, summary)) = undisturbed(form, true) else { continue };
        names(form, &summary, "INPUT-COLLATE", "NEXT", "main");
        theirs(summary["verdict"]["text"].as_str().unwrap_or_default(), "COLLATE", "Padding.__call__");
    }
}

#[test]
#[ignore = "scripts/test thorough: trains with a real PyTorch"]
fn workers_that_are_too_few_are_counted_and_the_line_is_where_the_loop_waits() {
    for form in ["workers", "workers_pinned"] {
        let Some((run, summary)) = undisturbed(form, true) else { continue };
        names(form, &summary, "INPUT-WORKERS", "NEXT", "main");
        let text = summary["verdict"]["text"].as_str().unwrap_or_default();
        theirs(text, "DECODE", "Images.__getitem__");
        assert!(text.contains("; 2 workers, "), "{form}: {text}");
        let part = text.split("; 2 workers, ").nth(1).and_then(|t| t.split('%').next()?.parse::<f64>().ok());
        let (said, truth) = (part.expect("how busy they are") / 100.0, told(&run, "workers_on_cpu"));
        assert!(
            (said - truth).abs() < 0.15,
            "{form}: {said} on a CPU, {truth} by the kernel's count: {text}"
        );
    }
}

/// Workers that wait for a store, each on a CPU for a few percent of the time: where they wait, and
/// how many would keep up. The same time asleep is nobody's fault that could be told.
#[test]
#[ignore = "scripts/test thorough: trains with a real PyTorch"]
fn workers_that_wait_for_a_store_are_input_storage_at_the_line_that_reads() {
    let Some((_, summary)) = undisturbed("stored", false) else { return };
    names("stored", &summary, "INPUT-STORAGE", "NEXT", "main");
    let text = summary["verdict"]["text"].as_str().unwrap_or_default();
    assert!(text.contains("; 3 workers, ") && text.contains(", waiting for a socket in "), "{text}");
    let line = marked("READ")[0];
    assert!(
        text.contains(&format!(", most at victims/dataloader.py:{line} in Stored.__getitem__; ")),
        "{text}"
    );
    // eight reads of 6 ms a batch, a step of 8 ms without waiting: six at a time
    let said = text
        .split("; ")
        .find_map(|t| t.strip_suffix(" would keep up if what they wait for serves as many at a time"));
    assert!(said.and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| (6..=8).contains(&n)), "{text}");
    let Some((_, summary)) = undisturbed("slept", false) else { return };
    names("slept", &summary, "INPUT", "NEXT", "main");
}

#[test]
#[ignore = "scripts/test thorough: trains with a real PyTorch"]
fn a_loader_that_keeps_up_is_not_accused() {
    for form in ["cheap", "enough", "enough_pinned"] {
        let Some((run, summary)) = undisturbed(form, false) else { continue };
        assert!(GPU_STEP.contains(&told(&run, "step_ms")), "{form}: {}", run.stdout);
        assert_eq!(summary["verdict"]["cause"], "GPU-BOUND", "{form}: {}", summary["verdict"]);
        assert_eq!(summary["verdict"]["then"], Value::Null, "{form}: {}", summary["verdict"]);
    }
}

#[test]
#[ignore = "scripts/test thorough: trains with a real PyTorch"]
fn other_work_beside_a_loader_that_keeps_up_is_host_at_its_line() {
    let Some((_, summary)) = undisturbed("other_work", false) else { return };
    names("other_work", &summary, "HOST", "OTHER", "bookkeeping");
    let then = summary["verdict"]["then"]["cause"].as_str().unwrap_or_default();
    assert!(!then.starts_with("INPUT"), "{}", summary["verdict"]);
}

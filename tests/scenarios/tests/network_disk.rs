// SPDX-License-Identifier: Apache-2.0
//! Purpose: results or recording on a disk of another machine that does not answer, or fails now
//! and then: the program's output, its exit code and (but for `GAPPROBE_EXIT_MS`) the time it takes
//! are as without us; one line, and no half file under a name that a reader looks for.
//!
//! A real one cannot be mounted by everybody; what it answers is made up in a preloaded library
//! (`victims/libnetwork_disk.c`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Run, Victim};

const EXIT_MS: u64 = 1500;

/// A run of half a second whose `folder` (of its own) lies on such a disk.
fn on_network(folder: &str, how: &str, number: (&str, u64)) -> Run {
    run_on_network(["100", "100", "5", "5000"], folder, how, number)
}

fn run_on_network(loops: [&str; 4], folder: &str, how: &str, number: (&str, u64)) -> Run {
    // (a disk that is slow is waited for, however busy the cores are)
    let exit_ms = if how == "slow" { 10 * EXIT_MS } else { EXIT_MS };
    let mut victim = Victim::sim("13.0", &[&["loop"], loops.as_slice()].concat())
        .env("GAPPROBE_EXIT_MS", exit_ms.to_string());
    let disk = built().victims.join("13.0/libnetwork_disk.so");
    victim.command.env("LD_PRELOAD", std::env::join_paths([&disk, &built().library]).expect("no colons"));
    let at = victim.folder.join(folder);
    let run =
        victim.env("NETWORK_FOLDER", at).env("NETWORK_HOW", how).env(number.0, number.1.to_string()).run();
    let label = format!("{folder} {how} {number:?}: {}", run.stderr);
    let launched: u64 = loops.iter().take(2).map(|n| n.parse::<u64>().expect("a number")).product();
    assert_eq!(
        (run.ending(), run.stdout.as_str()),
        (0, format!("launched {launched}\n").as_str()),
        "{label}"
    );
    assert!(run.lines().len() == 1 && run.others().is_empty(), "one line: {label}");
    run
}

/// Whole by what they hold.
fn are_whole(files: &[PathBuf]) {
    for file in files {
        let name = file.to_string_lossy();
        let gunzip = |file: &Path| Command::new("gzip").arg("-t").arg(file).status().expect("gzip").success();
        assert!(!name.ends_with(".json.gz") || gunzip(file), "{name} is cut");
        let read = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(file).expect("a file"));
        assert!(!name.ends_with(".summary.json") || read().is_ok(), "{name} is cut");
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_the_exit_up_no_longer_than_it_may() {
    // results are written at the exit alone; the recording all the time, by a thread of ours
    for (folder, how, after_ms) in
        [("out", "late", 0), ("out", "late_writes", 0), ("tmp", "late", 300), ("tmp", "late_writes", 300)]
    {
        let run = on_network(folder, how, ("NETWORK_AFTER_MS", after_ms));
        let most = Duration::from_millis(EXIT_MS) + Duration::from_secs(4);
        assert!(run.wall < most, "{folder}, {how}: {:?}", run.wall);
        are_whole(&run.left());
        if folder == "tmp" {
            // all is in memory, and the results' disk answers
            let summary = run.summary().expect("a summary");
            assert_eq!(summary["totals"]["kernels"], 10_000, "{how}: {}", run.stderr);
            assert!(run.lines()[0].contains("Trace: "), "{how}: {}", run.lines()[0]);
        }
    }
}

#[test]
fn a_disk_that_takes_its_time_costs_no_event() {
    // an update of the file is several writes: rings, which hold 50 ms of such a program, are
    // emptied meanwhile
    let run = run_on_network(["400", "300", "1", "1000"], "tmp", "slow", ("NETWORK_WRITE_MS", 60));
    let summary = run.summary().expect("a summary");
    let totals = &summary["totals"];
    assert_eq!(
        (&totals["kernels"], &totals["launches"]),
        (&120_000.into(), &120_000.into()),
        "{}",
        run.stderr
    );
    assert!(totals["longest_write_ns"].as_u64() >= Some(60_000_000), "it was slow: {totals}");
    assert_eq!(summary["losses"]["host_ring_full"], 0, "{}", run.stderr);
    // slow, but alive: what was reported is tidied away, though the last update had not ended when
    // the report was there
    assert!(run.left_recordings().is_empty(), "{:?}: {}", run.left_recordings(), run.stderr);
}

#[test]
fn a_disk_that_fails_now_and_then_costs_what_it_did_not_take_and_nothing_else() {
    let mut whole = 0;
    for seed in 0..12 {
        let run = on_network(if seed % 3 == 0 { "tmp" } else { "out" }, "odd", ("NETWORK_SEED", seed));
        assert!(run.wall < Duration::from_secs(8), "{seed}: {:?}", run.wall);
        are_whole(&run.left());
        whole += usize::from(run.summary().is_some());
        let line = run.lines()[0];
        let is_told = run.summary().is_some()
            || line.contains("Stale file handle")
            || line.contains("Input/output error");
        assert!(is_told, "{seed}: {line}");
    }
    assert!(whole > 0, "it fails now and then, and here each time");
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: what gapprobe opens is not the program's: no number of the program's leads to it,
//! closed streams do not write into its files, a forked child keeps none of it open; and by a lock
//! on its recording, which no close of the program's lets go of, a process is known to live
//! wherever it is asked from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{skipped, Running, Victim};

use crate::waits::gapprobe;

const RUNS: [&str; 4] = ["loop", "100000", "20", "20"];

/// What the descriptors of a process, or of one of its threads, lead to.
fn open(of: &Path) -> Vec<String> {
    let entries = fs::read_dir(of.join("fd")).into_iter().flatten().flatten();
    entries.filter_map(|e| fs::read_link(e.path()).ok()).map(|to| to.to_string_lossy().into_owned()).collect()
}

fn thread(pid: u32, name: &str) -> PathBuf {
    let all = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten().map(|e| e.path());
    let is_it = |p: &PathBuf| fs::read_to_string(p.join("comm")).is_ok_and(|comm| comm.trim() == name);
    all.into_iter().find(is_it).unwrap_or_else(|| panic!("no thread {name}"))
}

fn recordings(running: &Running) -> Vec<PathBuf> {
    let mut folders = vec![running.folder.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == "gpr") => found.push(path),
                false => {}
            }
        }
    }
    found
}

fn recorded(victim: Victim) -> Running {
    let mut running = victim.start();
    let begin = std::time::Instant::now();
    while recordings(&running).is_empty() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(running.child.try_wait().expect("wait").is_none() && !recordings(&running).is_empty());
    running
}

#[test]
fn the_recording_is_open_among_descriptors_of_its_writers_own() {
    let running = recorded(Victim::sim("13.0", &RUNS));
    let is_recording = |to: &String| to.contains(".gpr");
    let of_the_program = open(Path::new(&format!("/proc/{}", running.pid())));
    assert!(!of_the_program.iter().any(is_recording), "{of_the_program:?}");
    assert!(!of_the_program.iter().any(|to| to.starts_with("socket:")), "{of_the_program:?}");
    let of_the_writer = open(&thread(running.pid(), "gapprobe-file"));
    assert!(of_the_writer.len() == 1 && of_the_writer.iter().all(is_recording), "{of_the_writer:?}");
    // and nothing of the program's is kept open by those who have their own
    let of_the_sampler = open(&thread(running.pid(), "gapprobe-sample"));
    assert!(of_the_sampler.iter().all(|to| to.starts_with("/proc/")), "{of_the_sampler:?}");
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn closed_streams_that_are_written_to_do_not_write_into_results() {
    for _ in 0..3 {
        // (the simulated driver has a file of its own)
        let without = Victim::ours("13.0", &["closed_io", "300"]).alone().run();
        let run = Victim::ours("13.0", &["closed_io", "300"]).run();
        assert_eq!(run.ending(), without.ending(), "nothing of ours took what was written");
        let summary = run.summary().expect("a summary that is JSON");
        assert_eq!(summary["coverage"]["steps_seen"], 300, "{}", summary["line"]);
        let left = run.left();
        let trace = left.iter().find(|p| p.to_string_lossy().ends_with(".json.gz")).expect("a trace");
        let told = Command::new("gzip").arg("-t").arg(trace).output().expect("gzip");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }
}

#[test]
fn a_recording_that_somebody_removes_is_made_anew() {
    let mut running = recorded(Victim::sim("13.0", &RUNS));
    let first = recordings(&running);
    fs::remove_file(&first[0]).expect("removed");
    assert!(running.wait_for(|_| first[0].exists()), "it comes again, under its name");
    // all of it is there again within some rounds
    std::thread::sleep(Duration::from_millis(500));
    running.signal(libc::SIGKILL);
    let run = running.finish();
    let recorded = run.recorded();
    let promised = run.truth().kernels().filter(|k| k.end <= recorded.header.gpu_complete_to).count();
    let kernels = recorded.kernels().len();
    assert!(promised > 1000 && kernels >= promised, "{kernels} of {promised}");
}

#[test]
fn a_process_in_another_time_namespace_lives() {
    let words = ["-T", "--boottime", "100000", "--"];
    if !Command::new("unshare").args(words).arg("true").output().is_ok_and(|o| o.status.success()) {
        return skipped("no time namespaces here");
    }
    let program = built().sim.join("13.0/loop");
    let program = program.to_str().expect("a path");
    let running =
        recorded(Victim::of("/usr/bin/unshare", &[&words[..], &[program], &RUNS[1..]].concat(), "13.0"));
    let ps = gapprobe(&running, &["ps"]);
    assert!(ps.contains("loop"), "{ps}");
    let before = recordings(&running);
    gapprobe(&running, &["recover", "--all"]);
    assert_eq!(recordings(&running), before, "nobody takes it");
    running.signal(libc::SIGKILL);
    running.finish();
}

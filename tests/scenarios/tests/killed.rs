// SPDX-License-Identifier: Apache-2.0
//! Purpose: SIGKILL at any moment leaves a recording that reads without damage and is complete to
//! the stated bounds: host events older than 100 ms, GPU operations older than 250 ms. Two hundred
//! random moments (twenty unless it is thorough), two programs at a time.
//!
//! The buffer rule: CUPTI returns a buffer only when all its records are complete, so a queue that
//! never runs dry holds the newest buffer back; `header.gpu_complete_to` says how far the GPU's
//! side goes, and must never promise too much.

use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{now, thorough, Run, Victim};
use trace::Kind;

/// Stated bounds (docs/design/shutdown.md, `_exit`), ns.
const HOST_BOUND: u64 = 100_000_000;
const GPU_BOUND: u64 = 250_000_000;
/// The time a kill takes to arrive and a write to finish on a machine that has other things to do,
/// ns.
const SLACK: u64 = 60_000_000;

struct Seen {
    host: u64,
    gpu: u64,
}

/// How old the oldest missing event was at the kill, ns; 0: none is missing.
fn check(run: &Run, at: u64, label: &str) -> Option<Seen> {
    let truth = run.truth();
    if run.recordings().is_empty() {
        let early = truth.calls.iter().all(|c| c.end + HOST_BOUND + SLACK > at);
        assert!(early, "{label}: no recording although calls ended long before the kill");
        return None;
    }
    let recorded = run.recorded();
    assert_eq!(recorded.problems.damaged(), 0, "{label}: {:?}", recorded.problems);
    assert_eq!(recorded.header.valid_from, 0, "{label}: nothing was overwritten");
    let calls: HashSet<u32> = recorded.of(Kind::Call).map(|(_, e)| e.correlation).collect();
    let ops: HashSet<u32> = recorded.kernels().iter().map(|(_, e)| e.correlation).collect();
    // synchronizing calls come from callbacks; launches come with the GPU's records (the filter of
    // 12.5 and newer)
    let synchronizing = truth.calls.iter().filter(|c| c.name.contains("Synchronize"));
    let lost_calls = synchronizing.filter(|c| c.end < at && !calls.contains(&c.correlation));
    let lost_ops = truth.kernels().filter(|k| k.end < at && !ops.contains(&k.correlation));
    let host = lost_calls.map(|c| at - c.end).max().unwrap_or(0);
    let gpu = lost_ops.map(|k| at - k.end).max().unwrap_or(0);
    let claimed = recorded.header.gpu_complete_to;
    let broken = truth.kernels().filter(|k| k.end < claimed.min(at) && !ops.contains(&k.correlation));
    assert_eq!(broken.count(), 0, "{label}: says complete to {claimed}, killed at {at}");
    assert!(claimed <= at, "{label}");
    recover(run, at, label);
    Some(Seen { host, gpu })
}

/// `gapprobe recover` makes line, trace and summary of it, and the summary ends where the recording
/// does.
fn recover(run: &Run, at: u64, label: &str) {
    let output = Command::new(&built().command)
        .arg("recover")
        .arg(&run.recordings()[0])
        .args(["--keep", "--json", "--dir"])
        .arg(run.folder.join("out"))
        .output()
        .expect("gapprobe recover");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{label}: {:?} {error}", output.status);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert_eq!(summary["coverage"]["killed"], true, "{label}");
    assert!(summary["line"].as_str().is_some_and(|l| l.contains(" [GP")), "{label}: {summary}");
    let seen = summary["coverage"]["seen_ns"].as_u64().unwrap_or(u64::MAX);
    let first = run.truth().calls.first().map_or(at, |c| c.start);
    assert!(seen <= at - first.min(at), "{label}: {seen} ns seen in {} ns: the tail is not idle", at - first);
    let traces = run.left().iter().filter(|p| p.to_string_lossy().ends_with(".json.gz")).count();
    assert_eq!(traces, 1, "{label}: {:?}", run.left());
}

#[test]
fn random_moments() {
    let moments = if thorough() { 200 } else { 20 };
    // so many of them shall come after the program's start: a slow machine gets more moments for
    // it, up to five times
    let enough = moments * 8 / 10;
    let next = AtomicU64::new(0);
    let worst = [const { AtomicU64::new(0) }; 2];
    let with_recording = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let late = with_recording.load(Ordering::Relaxed);
                if n >= moments && (late >= enough || n >= 5 * moments) {
                    return;
                }
                // a fixed sequence, spread over 5 ms to 700 ms (the golden ratio's multiples never
                // repeat)
                let after = 5.0 + 695.0 * (n as f64 * 0.618_033_988_749_895).fract();
                let words = ["loop", "100000", "20", "30", "500", "1", ["", "d", "g", "s"][n as usize % 4]];
                let mut running =
                    Victim::sim_in_memory(["13.0", "12.9", "12.4"][n as usize % 3], &words).start();
                let from = now();
                let until = |_: &std::path::Path| (now() - from) as f64 > after * 1e6;
                assert!(running.wait_for(until), "moment {n}");
                running.signal(libc::SIGKILL);
                let at = now();
                let run = running.finish();
                assert_eq!(run.ending(), 1009);
                if let Some(seen) = check(&run, at, &format!("moment {n}, {after:.1} ms, {words:?}")) {
                    with_recording.fetch_add(1, Ordering::Relaxed);
                    worst[0].fetch_max(seen.host, Ordering::Relaxed);
                    worst[1].fetch_max(seen.gpu, Ordering::Relaxed);
                }
            });
        }
    });
    let (host, gpu) = (worst[0].load(Ordering::Relaxed), worst[1].load(Ordering::Relaxed));
    println!("{} recordings;", with_recording.load(Ordering::Relaxed));
    println!("oldest missing host event {} us, GPU operation {} us before the kill", host / 1000, gpu / 1000);
    assert!(with_recording.load(Ordering::Relaxed) >= enough);
    assert!(host < HOST_BOUND + SLACK, "a host event {} ms old was lost", host / 1_000_000);
    assert!(gpu < GPU_BOUND + SLACK, "a GPU operation {} ms old was lost", gpu / 1_000_000);
}

/// Beside XLA nothing is flushed while the program runs: the last operations, fewer than a buffer
/// holds, are lost with it, and the recording does not claim them.
#[test]
fn beside_xla_the_last_operations_are_not_claimed() {
    const OF_A_BUFFER: usize = 16;
    const OF_A_STEP: usize = 5;
    let plugin = built().victims.join("13.0/libxla_cuda_plugin_victim.so");
    // (a buffer in 2.3 s; launches come by callbacks, not as records in it)
    let words = ["xla_host", plugin.to_str().expect("a path"), "1000", "700000", "early"];
    let mut running = Victim::ours("13.0", &words).start();
    let from = now();
    assert!(running.wait_for(|_| now() - from > 3_500_000_000));
    running.signal(libc::SIGKILL);
    let at = now();
    let run = running.finish();
    check(&run, at, "beside XLA").expect("a recording");
    let (launched, have) = (run.truth().kernels().count(), run.recorded().kernels().len());
    assert!(launched - have < OF_A_BUFFER + OF_A_STEP, "{have} of {launched}");
}

#[test]
fn with_a_queue_that_never_runs_dry_the_recording_says_how_far_it_goes() {
    // 5 ms kernels, always 100 of them queued: buffers come back half a second after their launches
    for after in [1500, 2100] {
        let victim =
            Victim::sim_in_memory("13.0", &["loop", "1", "1000", "5000", "0", "0"]).env("SIM_QUEUE", "100");
        let mut running = victim.start();
        let from = now();
        assert!(running.wait_for(|_| now() - from > after * 1_000_000));
        running.signal(libc::SIGKILL);
        let at = now();
        let run = running.finish();
        check(&run, at, "a full queue").expect("a recording");
        let recorded = run.recorded();
        let behind = at - recorded.header.gpu_complete_to;
        println!(
            "{} kernels of {}, complete but for {} ms",
            recorded.kernels().len(),
            after / 5,
            behind / 1_000_000
        );
        assert!(recorded.kernels().len() as u64 >= after / 5 - 150, "{}", recorded.kernels().len());
        assert!(
            behind < 500_000_000 + 100_000_000 + GPU_BOUND + 2 * SLACK,
            "queue, buffer and flush: {behind}"
        );
    }
}

#[test]
fn killed_while_the_program_wants_nothing_recorded_it_promises_nothing_of_that_time() {
    let mut running = Victim::ours("13.0", &["adverse", "capture"]).start();
    assert!(running.wait_for(|f| std::fs::read(f.join("stdout")).is_ok_and(|t| t == b"off\n")));
    let off = now();
    assert!(running.wait_for(|_| now() - off > 600_000_000));
    running.signal(libc::SIGKILL);
    let run = running.finish();
    let recorded = run.recorded();
    assert_eq!(recorded.kernels().len(), 400, "{:?}", recorded.losses());
    let (gpu, host) = (recorded.header.gpu_complete_to, recorded.header.host_complete_to);
    assert!(gpu <= off && host <= off, "off at {off}, complete to {gpu} and {host}");
    recover(&run, off, "capture off");
}

#[test]
fn where_the_file_may_not_grow_the_recording_says_how_far_it_goes() {
    let mut running = Victim::sim_in_memory("13.0", &["loop", "100000", "20", "30", "2000"]).start();
    assert!(running.wait_for(|f| std::fs::read_dir(f.join("kept")).is_ok_and(|mut d| d.next().is_some())));
    let limit = libc::rlimit { rlim_cur: 200_000, rlim_max: 200_000 };
    // SAFETY: a child of ours that was not waited for yet, a valid structure, nothing to be written
    // back.
    let set =
        unsafe { libc::prlimit(running.pid() as i32, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let from = now();
    assert!(running.wait_for(|_| now() - from > 1_200_000_000));
    running.signal(libc::SIGKILL);
    let at = now();
    let run = running.finish();
    assert_eq!(run.ending(), 1009, "{}", run.stderr);
    let (recorded, truth) = (run.recorded(), run.truth());
    let ops: HashSet<u32> = recorded.kernels().iter().map(|(_, e)| e.correlation).collect();
    let missing =
        |before: u64| truth.kernels().filter(|k| k.end < before && !ops.contains(&k.correlation)).count();
    assert!(missing(at) > 100, "the limit was met: {}", missing(at));
    assert_eq!(
        missing(recorded.header.gpu_complete_to),
        0,
        "it says complete to {}",
        recorded.header.gpu_complete_to
    );
    assert!(recorded.loss(trace::Loss::MirrorWrite) > 0, "{:?}", recorded.losses());
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: what `gapprobe metrics` adds up while a program runs is what its summary says in the
//! end, of a program that is recorded whole and of one that is recorded in windows; metrics,
//! summary and trace name the GPU by its UUID.

use std::fs::File;
use std::process::{Command, Stdio};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::Victim;
use serde_json::Value;

/// The simulated driver's, as NVML would write it.
const UUID: &str = "GPU-53494d55-4c41-5445-442d-4750552d3030";

/// The last value of each metric that a companion of the program printed, and the run.
fn watched(victim: Victim) -> (impl Fn(&str, &str) -> f64, Value) {
    let running = victim.limit(std::time::Duration::from_secs(120)).start();
    let said = running.folder.join("metrics.txt");
    let mut companion = Command::new(&built().command)
        .args(["metrics", "--every", "300ms"])
        .current_dir(running.folder.join("out"))
        .env("TMPDIR", running.folder.join("tmp"))
        .env("GAPPROBE_TEST_ROOT", running.folder.join("tmp/root"))
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(File::create(&said).expect("a file"))
        .spawn()
        .expect("the command");
    let run = running.finish();
    companion.kill().expect("it runs until it is told to end");
    let _ = companion.wait(); // killed
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let text = std::fs::read_to_string(said).expect("what it printed");
    let summary = run.summary().expect("a summary");
    let trace = run.left().into_iter().find(|p| p.to_string_lossy().ends_with(".json.gz")).expect("a trace");
    let trace = Command::new("gzip").arg("-dc").arg(trace).output().expect("gzip").stdout;
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    assert_eq!(trace["deviceProperties"][0]["uuid"], UUID);
    assert_eq!(summary["devices"][0]["uuid"], UUID);
    let last = move |name: &str, label: &str| -> f64 {
        let is_it = |l: &&str| l.starts_with(name) && l.contains(label) && l.contains(UUID);
        let line = text.lines().rev().find(is_it).unwrap_or_else(|| panic!("{name} {label} in {text}"));
        line.rsplit(' ').next().and_then(|v| v.parse().ok()).expect("a number")
    };
    (last, summary)
}

fn is_the_summarys(victim: Victim, least_s: f64) {
    let (last, summary) = watched(victim);
    let observed = last("gapprobe_gpu_observed_time_seconds_total", "");
    let seen = summary["coverage"]["seen_ns"].as_f64().expect("a number") / 1e9;
    // (what came after the last look is not in it, nor what the program did before the first one)
    assert!(observed > least_s && observed <= seen && seen - observed < 1.5, "{observed} s of {seen}");
    let device = &summary["devices"][0];
    let wall = device["steady_wall_ns"].as_f64().expect("a number");
    for (bucket, ns) in device["buckets_ns"].as_object().expect("buckets") {
        let own = ns.as_f64().expect("a number") / wall;
        let share = last("gapprobe_gpu_time_seconds_total", &format!("cause=\"{bucket}\"")) / observed;
        assert!((share - own).abs() < 0.05, "{bucket}: {share} of the time, {own} by the summary");
    }
}

#[test]
fn counters_of_a_program_that_is_recorded_whole_are_its_summarys() {
    is_the_summarys(Victim::ours("13.0", &["waits", "6000", "500", "s"]).whole(), 4.0);
}

/// The figures are those of victims/libnvidia-ml.c.
#[test]
fn what_the_gpus_counters_say_is_in_the_metrics_and_in_the_summary() {
    let victim = Victim::ours("13.0", &["waits", "4000", "500", "s"]).with_nvml("").whole();
    let (last, summary) = watched(victim);
    assert_eq!(last("gapprobe_gpu_tensor_active_ratio", ""), 0.0525);
    assert_eq!(last("gapprobe_gpu_memory_active_ratio", ""), 0.1025);
    let received = 21.25 * 1_048_576.0;
    assert_eq!(last("gapprobe_gpu_pcie_io_bytes_per_second", "received"), received);
    let counters = &summary["devices"][0]["counters"];
    assert_eq!(counters["sm_active_share"], 0.0225, "{counters}");
    assert_eq!(counters["pcie_received_bytes_per_s"], received);
    assert!(counters["nvlink_sent_bytes_per_s"].is_null(), "{counters}");
}

#[test]
fn counters_of_a_program_that_is_recorded_in_windows_are_its_summarys() {
    let victim = Victim::ours("13.0", &["waits", "9000", "500", "s"]);
    is_the_summarys(victim.env("GAPPROBE_WINDOW", "300/900").env("GAPPROBE_SLOW_STEP", "0"), 2.0);
}

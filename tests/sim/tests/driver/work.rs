// SPDX-License-Identifier: Apache-2.0
//! The device: streams, queues, memory, a training in Python, and how fast it is launched on.

use crate::harness::{built, number, run};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

#[test]
fn the_busy_stream_does_not_disturb_the_quiet_one() {
    let run = run("13.0", &["two_streams", "5", "1000", "1"], &[("REC_KINDS", "10")]);
    let kernels = run.records(10);
    assert_eq!(kernels.len(), 5005);
    let mut per_stream: HashMap<&str, usize> = HashMap::new();
    for kernel in &kernels {
        *per_stream.entry(kernel["stream"].as_str()).or_default() += 1;
    }
    let mut counts: Vec<_> = per_stream.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [5, 5000]);
}

#[test]
fn a_full_launch_queue_blocks_the_launcher() {
    let run = run("13.0", &["loop", "1", "400", "100", "0", "0"], &[("SIM_QUEUE", "100")]);
    let time = |line: &Value, key: &str| line[key].as_u64().unwrap_or(0);
    let calls: Vec<_> =
        run.truth.iter().filter(|t| t["t"] == "call" && t["name"] == "cudaLaunchKernel").collect();
    let ops = run.ops("kernel");
    assert_eq!((calls.len(), ops.len()), (400, 400));
    for n in 100..400 {
        assert!(
            time(calls[n], "end") >= time(ops[n - 100], "end"),
            "launch {n} returned with 101 in the queue"
        );
    }
    let ahead = (100..400).filter(|n| time(calls[*n], "end") < time(ops[n - 50], "end")).count();
    assert!(ahead > 150, "the queue is used: {ahead}");
}

#[test]
fn two_devices_a_peer_copy_and_a_wait_across_streams() {
    let settings = [("SIM_DEVICES", "2"), ("REC_KINDS", "10,1,22,38"), ("REC_CALLBACKS", "3.1,4.1,4.2")];
    let run = run("12.9", &["devices", "4"], &settings);
    assert_eq!(run.lines.iter().filter(|l| *l == "C 3.1").count(), 2, "a context a device");
    assert!(run.has("C 4.1") && run.has("C 4.2"), "synchronize callbacks");
    let kernels = run.records(10);
    assert_eq!(kernels.iter().filter(|k| k["dev"] == "1").count(), 4);
    let of = |name: &str| kernels.iter().filter(|k| k["name"] == name).cloned().collect::<Vec<_>>();
    for (producer, consumer) in of("producer").iter().zip(of("consumer")) {
        assert!(number(&consumer, "start") >= number(producer, "end"), "the event is waited for");
        assert_ne!(producer["stream"], consumer["stream"]);
    }
    let peers = run.records(22);
    assert_eq!(peers.len(), 4);
    assert!(peers.iter().all(|p| [&p["from"], &p["to"], &p["bytes"]] == ["0", "1", "1048576"]));
    let kinds = |kind: u64| run.records(38).iter().filter(|s| number(s, "type") == kind).count();
    assert_eq!((kinds(1), kinds(2), kinds(3)), (4, 4, 8));
}

#[test]
fn cupti_costs_device_memory_by_its_attributes() {
    let memory = |kinds: &str| {
        let run = run("13.0", &["loop", "1", "5", "5", "0", "1", "m"], &[("REC_KINDS", kinds)]);
        let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
        text.lines()
            .find_map(|l| l.strip_prefix("device memory ")?.strip_suffix(" bytes")?.parse::<u64>().ok())
    };
    assert_eq!((memory(""), memory("10")), (Some(0), Some(3 * 3_200_000)));
}

#[test]
fn python_trains_and_leaves_as_it_says() {
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("../victims/train.py");
    let python = |arguments: &[&str]| {
        let command = Command::new("python3")
            .arg(&train)
            .args(arguments)
            .env("LD_LIBRARY_PATH", built().join("13.0"))
            .output()
            .expect("python3");
        (command.status.code(), String::from_utf8_lossy(&command.stdout).into_owned())
    };
    let wanted = "step    5  loss 9.2311\n";
    for mode in ["gpu-bound", "sync", "launch", "host", "copy", "alloc", "graph", "small"] {
        assert_eq!(python(&["--mode", mode, "--steps", "5"]), (Some(0), wanted.into()), "{mode}");
    }
    for (way, code) in [("exception", Some(1)), ("exit3", Some(3)), ("_exit4", Some(4)), ("sigterm", None)] {
        assert_eq!(python(&["--steps", "5", "--leave", way]).0, code, "{way}");
    }
}

#[test]
fn three_hundred_thousand_launches_a_second() {
    let settings =
        [("SIM_LAUNCH_NS", "0"), ("SIM_QUEUE", "1000000000"), ("SIM_GAP_NS", "0"), ("SIM_TRUTH", "")];
    let out = built();
    let seconds = || {
        let from = Instant::now();
        let mut victim = Command::new(out.join("13.0/loop"));
        victim
            .args(["1", "600000", "0.01", "0", "0"])
            .env("LD_LIBRARY_PATH", out.join("13.0"))
            .envs(settings);
        assert!(victim.output().expect("victim").status.success());
        from.elapsed().as_secs_f64()
    };
    // 2 s for 600,000; the best of three, on a machine shared with other builds.
    let best = (0..3).map(|_| seconds()).fold(f64::MAX, f64::min);
    assert!(best < 2.0, "{best} s");
}

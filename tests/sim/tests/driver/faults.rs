// SPDX-License-Identifier: Apache-2.0
//! What goes wrong when it is asked for, and the ways in which a program ends.

use crate::harness::{built, number, run};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn faults_come_when_asked_for() {
    let fault = |fault: &str, kinds: &str| {
        run("13.0", &["loop", "10", "100", "2"], &[("SIM_FAULT", fault), ("REC_KINDS", kinds)])
    };
    assert!(fault("subscribe=39", "10").has("E Subscribe 39"));
    assert!(fault("enable:10=error2", "10,1").has("E Enable:10 2"));
    assert_eq!(
        fault("zero_ts:every=100", "10").records(10).iter().filter(|k| number(k, "end") == 0).count(),
        10
    );
    let backward = fault("backward_ts", "10");
    assert_eq!(backward.records(10).iter().filter(|k| number(k, "end") < number(k, "start")).count(), 10);
    let foreign = fault("foreign_ts:every=100", "10");
    assert_eq!(foreign.records(10).iter().filter(|k| number(k, "end") > 1 << 60).count(), 10);
    let dropped = fault("drop:every=100", "10");
    let counted: u64 = dropped.lines.iter().filter_map(|l| l.strip_prefix("D ")?.parse::<u64>().ok()).sum();
    assert_eq!((dropped.records(10).len(), counted), (990, 10));
    assert!(fault("name=null", "10").records(10).iter().all(|k| k["name"] == "<null>"));
    let cuinit = fault("cuinit=error100", "10");
    assert_eq!((cuinit.output.status.code(), cuinit.lines.len()), (Some(90), 0));
}

#[test]
fn kernel_names_die_with_their_module() {
    let names = |fault: &str| {
        let run = run("13.0", &["modules", "3", "10"], &[("SIM_FAULT", fault), ("REC_CALLBACKS", "3.6,3.7")]);
        assert_eq!(run.lines.iter().filter(|l| *l == "C 3.7").count(), 3);
        run.records(10).iter().map(|k| k["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("")[29], "round2_kernel");
    assert!(names("name=unmapped").iter().all(|n| n == "<unloaded>"));
    assert!(names("name=reused").iter().all(|n| n == "somebody_elses_memory"));
}

#[test]
fn flush_faults_hang_or_take_their_time() {
    let from = Instant::now();
    run("13.0", &["loop", "1", "5", "2"], &[("SIM_FAULT", "flush=slow:300ms")]);
    assert!(from.elapsed() >= Duration::from_millis(300));
    let out = built();
    let mut hung = Command::new(out.join("13.0/loop"))
        .args(["1", "5", "2"])
        .env("LD_LIBRARY_PATH", out.join("13.0"))
        .env("CUDA_INJECTION64_PATH", out.join("recorder.so"))
        .env("SIM_FAULT", "flush=hang")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("victim");
    std::thread::sleep(Duration::from_millis(700));
    assert!(hung.try_wait().expect("wait").is_none(), "FlushAll must not return");
    hung.kill().expect("kill");
    hung.wait().expect("wait");
}

#[test]
fn every_way_out_is_the_programs_own() {
    use std::os::unix::process::ExitStatusExt;
    let codes = [("return", 0), ("exit3", 3), ("_exit4", 4), ("thread", 5)];
    for (way, code) in codes {
        assert_eq!(run("13.0", &["ways_out", way, "50"], &[]).output.status.code(), Some(code), "{way}");
    }
    for (way, signal) in [("abort", 6), ("sigterm", 15), ("sigkill", 9), ("segv", 11)] {
        let run = run("13.0", &["ways_out", way, "50"], &[]);
        assert_eq!(run.output.status.signal(), Some(signal), "{way}");
        assert_eq!(run.ops("kernel").len(), 50, "{way}: the truth survives");
    }
}

#[test]
fn after_fork_the_child_has_no_driver_and_the_parent_goes_on() {
    for way in ["exit", "_exit", "exec"] {
        let run = run("13.0", &["fork_after", "2", way], &[]);
        assert_eq!(run.output.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.output.stderr));
        assert_eq!(run.ops("kernel").len(), run.launched());
    }
}

#[test]
fn a_second_client_is_told_39_and_a_second_libcupti_silences_both() {
    let held = run("13.0", &["kineto_cupti", "50", "1"], &[]);
    assert!(String::from_utf8_lossy(&held.output.stdout).contains("profile 0: subscribe 39"));
    let path = built().join("13.5/libcupti.so.13").to_string_lossy().into_owned();
    let silent = run("13.0", &["kineto_cupti", "50", "1"], &[("REC_CUPTI", &path)]);
    // (Kernels of before come out of the first client's buffer, which goes to whoever registered
    // last.)
    assert!(String::from_utf8_lossy(&silent.output.stdout).contains("copies 0 of 5"));
    assert!(silent.records(10).len() < 150, "the first client gets nothing from then on either");
    for how in ["plt", "dlsym"] {
        let alone = run("13.0", &["kineto_cupti", "50", "2", how], &[("CUDA_INJECTION64_PATH", "none")]);
        assert_eq!(alone.output.status.code(), Some(0), "{}", String::from_utf8_lossy(&alone.output.stdout));
    }
}

#[test]
fn what_a_client_did_to_cupti_is_in_the_truth() {
    let run = run("13.0", &["loop", "1", "5", "5"], &[]);
    let names: Vec<_> =
        run.truth.iter().filter(|t| t["t"] == "cupti").map(|t| t["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names.first(), Some(&"cuptiSubscribe"));
    assert!(names.contains(&"cuptiActivityEnable") && names.contains(&"cuptiActivityFlushAll"), "{names:?}");
    assert!(!names.contains(&"cuptiFinalize"));
}

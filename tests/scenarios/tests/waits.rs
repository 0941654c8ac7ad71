// SPDX-License-Identifier: Apache-2.0
//! Purpose: between windows the time in synchronizing calls is known, of every way to wait, as the
//! driver saw it; it is in the summary, in the trace, in `gapprobe top` and in metrics; a call that
//! is counted costs under 0.2 us.

use std::process::{Command, Stdio};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::recorded::union;
use gapprobe_scenarios::{Run, Running, Victim, CORES};
use serde_json::Value;
use trace::Total;

const FORMS: [(&str, &str); 7] = [
    ("s", "cudaStreamSynchronize"),
    ("d", "cudaDeviceSynchronize"),
    ("e", "cudaEventSynchronize"),
    ("m", "cudaMemcpy"),
    ("S", "cuStreamSynchronize"),
    ("C", "cuCtxSynchronize"),
    ("E", "cuEventSynchronize"),
];

/// Windows of 8 of 100,000 steps: the first ones, and none after that.
fn between_windows(words: &[&str]) -> Victim {
    Victim::ours("13.0", &[&["waits"], words].concat())
        .env("GAPPROBE_WINDOW", "8/100000")
        .env("GAPPROBE_SLOW_STEP", "0")
}

/// What the driver saw of these calls between windows: how many, and their time, ns.
fn waited(run: &Run, names: &[&str]) -> (u64, u64) {
    let unseen: Vec<_> = run.recorded().unobserved().iter().map(|s| (s.start, s.end)).collect();
    let truth = run.truth();
    let inside = |at: u64| unseen.iter().any(|s| at >= s.0 && at < s.1);
    let calls = || truth.calls.iter().filter(|c| names.contains(&c.name.as_str()) && inside(c.start));
    (calls().count() as u64, calls().map(|c| c.end - c.start).sum())
}

fn close(said: u64, real: u64) -> bool {
    said.abs_diff(real) * 20 <= real
}

#[test]
fn every_way_to_wait_is_counted_once_with_its_time() {
    for (form, name) in FORMS {
        let run = between_windows(&["1500", "500", form]).run();
        assert_eq!(run.ending(), 0, "{}", run.stderr);
        let recorded = run.recorded();
        let (calls, ns) = waited(&run, &[name]);
        assert!(calls > 1000, "{calls} calls of {name}: there were windows");
        let said = [Total::SyncsBetween, Total::SyncBetweenNs].map(|t| recorded.total(t));
        assert!(close(said[0], calls) && close(said[1], ns), "{name}: {said:?}, really {calls} and {ns}");
    }
}

#[test]
fn the_summary_and_the_trace_say_how_long_steps_wait_between_windows() {
    let run = between_windows(&["3000", "500", "sd"]).run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let (calls, ns) = waited(&run, &["cudaStreamSynchronize", "cudaDeviceSynchronize"]);
    let between = &run.summary().expect("a summary")["coverage"]["between_windows"];
    let number = |key: &str| between[key].as_f64().unwrap_or_else(|| panic!("{key} in {between}"));
    assert!(close(number("syncs") as u64, calls) && close(number("sync_ns") as u64, ns), "{between}");
    // two waits a step
    assert!(close(number("steps") as u64, calls / 2), "{between}: {calls} calls");
    assert!((number("sync_ns_per_step") - ns as f64 / calls as f64 * 2.0).abs() < 50_000.0, "{between}");
    // the counters of the trace: the share of the time, each second
    let trace = run.left().into_iter().find(|p| p.to_string_lossy().ends_with(".json.gz")).expect("a trace");
    let text = Command::new("gzip").arg("-dc").arg(trace).output().expect("gzip").stdout;
    let trace: Value = serde_json::from_slice(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let values = |name: &str| -> Vec<f64> {
        let of = events.iter().filter(|e| e["ph"] == "C" && e["name"] == name);
        of.filter_map(|e| e["args"]["value"].as_f64()).filter(|v| *v > 0.0).collect()
    };
    let unseen = run.recorded().unobserved();
    let time = union(unseen.iter().map(|s| (s.start, s.end)), 0, u64::MAX) as f64;
    let share = values("between windows: in syncs %");
    let mean = share.iter().sum::<f64>() / share.len() as f64;
    assert!(share.len() >= 2 && (mean - ns as f64 / time * 100.0).abs() < 8.0, "{share:?}, {ns} of {time}");
    let steps = values("between windows: step us");
    assert!(
        steps.len() == share.len() && steps.iter().all(|us| (1100.0..20_000.0).contains(us)),
        "{steps:?}"
    );
}

/// The command beside a run.
pub(crate) fn gapprobe(running: &Running, words: &[&str]) -> String {
    let out = Command::new(&built().command)
        .args(words)
        .current_dir(running.folder.join("out"))
        .env("TMPDIR", running.folder.join("tmp"))
        .env("GAPPROBE_TEST_ROOT", running.folder.join("tmp/root"))
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .expect("the command");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Four kernels by turns, twenty in a step, which ends with a wait: each comes every fourth launch,
/// and no launch tells where a step ends.
#[test]
fn a_step_that_is_counted_in_parts_is_not_shorter_than_its_waits() {
    let words = ["loop", "100000", "20", "100", "500"];
    let running = Victim::sim("13.0", &words).env("GAPPROBE_FLIGHT", "30").start();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let text = gapprobe(&running, &["top", "--once", "--json"]);
    let top: Value = serde_json::from_str(&text).unwrap_or_default();
    let ns = |key: &str| top["rows"][0]["counted"][key].as_u64().unwrap_or_else(|| panic!("{key}: {text}"));
    // 2.7 ms a step, a fifth of it each part
    assert!(ns("step_ns") >= ns("sync_ns") && ns("step_ns") > 400_000, "{text}");
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn top_and_metrics_show_what_a_step_waits_between_windows() {
    let mut running =
        between_windows(&["20000", "500", "s"]).limit(std::time::Duration::from_secs(120)).start();
    let pid = running.pid().to_string();
    let counted = |running: &Running| -> Value {
        let all: Value =
            serde_json::from_str(&gapprobe(running, &["top", "--once", "--json"])).unwrap_or_default();
        all["rows"][0]["counted"].clone()
    };
    assert!(
        running.wait_for(|_| { true })
            && (0..200).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                counted(&running)["between"]["syncs"].as_u64().is_some_and(|n| n > 2000)
            }),
        "{}",
        counted(&running)
    );
    let now = counted(&running);
    // a kernel of 300 us, and what issuing it and waking up take
    let ms = |key: &str| now[key].as_f64().expect("a number") / 1e6;
    assert!((0.25..2.0).contains(&ms("sync_ns")) && ms("sync_ns") < ms("step_ns"), "{now}");
    assert!(now["hung_ns"].is_null(), "{now}");
    let table = gapprobe(&running, &["top", "--once"]);
    assert!(table.contains("COUNTED") && table.contains(" in syncs"), "{table}");
    let metrics = gapprobe(&running, &["metrics", "--once"]);
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|l| l.starts_with(name) && l.contains(&pid));
        let line = line.unwrap_or_else(|| panic!("{name} in {metrics}"));
        line.rsplit(' ').next().and_then(|v| v.parse().ok()).expect("a number")
    };
    let a_step = value("gapprobe_between_sync_seconds_total") / value("gapprobe_between_steps_total");
    assert!((0.25e-3..2e-3).contains(&a_step), "{metrics}");
    assert!((0.25e-3..2e-3).contains(&value("gapprobe_counted_sync_seconds")), "{metrics}");
    assert_eq!(value("gapprobe_hung_seconds"), 0.0);
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn timed_a_counted_wait_costs_under_a_fifth_of_a_microsecond() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let run = between_windows(&["1000", "1000", "sp"]).run_alone_on_the_cores();
    let price = run.stdout.lines().find_map(|l| l.strip_prefix("price ")).expect("a price");
    let price: f64 = price.parse().expect("a number");
    // of the 2,000 batches of 100 through the slot; the first ones may still be in a window
    let counted = run.recorded().total(Total::SyncsBetween);
    assert!(counted > 50_000 && price < 200.0, "{price} ns a call, {counted} counted");
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: verdicts on other tools' traces: the input pipeline, the profiler's own cost, files
//! that are not whole.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use verdict::analysis::{Analysis, Bucket};
use verdict::Run;

fn read(path: &Path) -> (Run, Analysis) {
    let input = formats::read(path, &Default::default()).unwrap();
    let a = verdict::analyze(&input.run);
    (input.run, a)
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.json.gz"))
}

/// Traces from public repositories: never in ours; where they are absent the test says so.
fn others(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("GAPPROBE_OTHER_TRACES").unwrap_or_default());
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("not run: {} is not here (GAPPROBE_OTHER_TRACES)", path.display());
    }
    path.exists().then_some(path)
}

/// Measured when they were recorded: idle ns of the device, the cause as recorded.
#[test]
fn the_h200_traces_say_what_is_known_of_them() {
    for (name, idle, cause) in [
        ("h200_gpt", Some(98_183_979), "LAUNCH"),
        ("h200_gptsmall", None, "LAUNCH"),
        ("h200_gptsync", None, "LAUNCH"),
        ("h200_tiny", None, "LAUNCH"),
        ("h200_graphs", None, "SMALL-KERNELS"),
    ] {
        let (run, a) = read(&own(name));
        assert_eq!(a.verdict.cause, cause, "{name}: {:?}", a.verdict);
        assert!(idle.is_none_or(|ns| ns == a.devices[0].idle_ns), "{name}: {}", a.devices[0].idle_ns);
        let line = verdict::output::line::evidence(&run, &a).join("; ");
        assert!(!line.contains("cost 0"), "what recording cost is not known: {line}");
        // the graph trace was taken without operators
        assert_eq!(line.contains("under the profiler"), name != "h200_graphs", "{line}");
    }
}

/// A 12-layer GPT whose step takes 22 to 26 ms without the profiler, of which kernels take 20.2
/// (H200).
#[test]
fn without_the_profiler_the_large_gpt_is_close_to_gpu_bound() {
    let (_, a) = read(&own("h200_gpt"));
    let p = a.verdict.profiled.expect("operators are in the trace");
    assert!((22e6..30e6).contains(&p.step_ns) && p.busy > 0.70, "{p:?}");
    let (_, a) = read(&own("h200_gptsmall"));
    assert!(
        a.verdict.profiled.is_some_and(|p| p.busy < 0.3 && p.cause == "LAUNCH"),
        "{:?}",
        a.verdict.profiled
    );
}

#[test]
fn resnet50_waits_for_its_input_without_workers_and_not_with_four() {
    if let Some(path) = others("kineto_resnet50_num_workers_0.json.gz") {
        let (_, a) = read(&path);
        assert_eq!(a.verdict.cause, "INPUT", "{:?}", a.verdict);
        assert!(a.verdict.text().contains("no workers"), "{}", a.verdict.text());
        assert_eq!(a.devices[0].idle_ns, 392_919_000);
    }
    if let Some(path) = others("kineto_resnet50_num_workers_4.json.gz") {
        let (_, a) = read(&path);
        assert!(!["INPUT", "GPU-BOUND"].contains(&a.verdict.cause), "{:?}", a.verdict);
        assert_eq!(a.devices[0].idle_ns, 187_137_000);
    }
}

#[test]
fn a_cut_file_gets_no_verdict() {
    let mut text = Vec::new();
    let file = std::fs::File::open(own("h200_tiny")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut text).unwrap();
    let path = std::env::temp_dir().join(format!("gapprobe-cut-{}.json", std::process::id()));
    for percent in [50, 99] {
        std::fs::write(&path, &text[..text.len() * percent / 100]).unwrap();
        let (_, a) = read(&path);
        assert_eq!(a.verdict.why_inconclusive().as_deref(), Some("the file is truncated"), "{percent}%");
    }
    std::fs::remove_file(path).unwrap();
}

/// A loop in microseconds: fetch under `name` on thread `fetcher`, then `kernels` launches of `gpu`
/// us each.
fn training(name: &str, fetcher: u32, fetch: u64, kernels: u64, gpu: u64) -> Analysis {
    let mut out = String::from("[");
    let (mut t, mut free, mut n) = (1_000_000u64, 0, 0);
    for _ in 0..20 {
        let _ = write!(
            out,
            r#"{{"ph":"X","cat":"user_annotation","name":"{name}","pid":1,"tid":{fetcher},"ts":{t},"dur":{fetch}}},"#
        );
        t += fetch;
        for k in 0..kernels {
            n += 1;
            let start = (t + 8).max(free + 1);
            let _ = write!(
                out,
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{t},"dur":5,"args":{{"cbid":211,"correlation":{n}}}}},"#
            );
            let kernel = if k + 1 == kernels { "adam_kernel".to_owned() } else { format!("layer{k}_gemm") };
            let _ = write!(
                out,
                r#"{{"ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":7,"ts":{start},"dur":{gpu},"args":{{"device":0,"context":1,"stream":7,"correlation":{n},"grid":[264,1,1],"block":[256,1,1]}}}},"#
            );
            free = start + gpu;
            t += 10;
        }
        // the loop runs at most one step ahead
        t = t.max(free.saturating_sub(kernels * gpu));
    }
    out.pop();
    out.push(']');
    let path = std::env::temp_dir()
        .join(format!("gapprobe-input-{}-{name}-{fetch}-{gpu}-{fetcher}.json", std::process::id()));
    std::fs::write(&path, out).unwrap();
    let (_, a) = read(&path);
    std::fs::remove_file(path).unwrap();
    a
}

#[test]
fn fetching_on_the_launching_thread_is_input() {
    // 10 ms of fetching, 20 kernels of 100 us: 2 ms of work, which fetching ahead would hide the
    // rest behind
    let a = training("next_batch", 1, 10_000, 20, 100);
    assert_eq!(a.verdict.cause, "INPUT", "{:?}\n{:?}", a.verdict, a.devices[0].buckets);
    // steps begin with their first kernel: 19 of the 20 fetches lie in the 20 steps
    assert!(a.verdict.text().contains("takes 9.5 ms a step"), "{}", a.verdict.text());
    assert!(a.devices[0].buckets.share(Bucket::Input) > 0.7);
    // with the data ready a step is 20 kernels
    assert!(
        (a.verdict.promise.unwrap().ns() - 2e6).abs() < a.verdict.promise.unwrap().error_ns() + 0.3e6,
        "{:?}",
        a.verdict
    );
}

#[test]
fn hidden_fetching_is_not() {
    // 1 ms of fetching behind 6 ms of work
    let a = training("next_batch", 1, 1_000, 20, 300);
    assert_eq!(a.verdict.cause, "GPU-BOUND", "{:?}", a.verdict);
}

#[test]
fn a_pause_that_no_loader_names_or_another_threads_loader_is_the_hosts() {
    for (name, thread) in [("logging", 1), ("next_batch", 2)] {
        let a = training(name, thread, 10_000, 20, 100);
        assert_eq!(a.verdict.cause, "HOST", "{name}: {:?}", a.verdict);
    }
}

/// A trace of hand-made events, times in ns.
#[derive(Default)]
struct Hand {
    out: String,
    correlation: u64,
}

impl Hand {
    fn range(&mut self, name: &str, start: u64, end: u64) {
        self.event("user_annotation", name, 1, start, end, "");
    }

    fn call(&mut self, name: &str, start: u64, end: u64) {
        let args = format!("\"correlation\":{}", self.correlation);
        self.event("cuda_runtime", name, 1, start, end, &args);
    }

    fn kernel(&mut self, start: u64, end: u64) {
        let args =
            format!("\"device\":0,\"stream\":7,\"grid\":[264,1,1],\"correlation\":{}", self.correlation);
        self.event("kernel", "gemm_kernel", 7, start, end, &args);
    }

    fn event(&mut self, cat: &str, name: &str, tid: u32, start: u64, end: u64, args: &str) {
        let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
        let comma = if self.out.is_empty() { "[" } else { "," };
        let _ = write!(
            self.out,
            r#"{comma}{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":{tid},"ts":{},"dur":{},"args":{{{args}}}}}"#,
            us(start),
            us(end - start)
        );
    }

    fn analyze(self, name: &str) -> Analysis {
        let path = std::env::temp_dir().join(format!("gapprobe-hand-{}-{name}.json", std::process::id()));
        std::fs::write(&path, self.out + "]").unwrap();
        let (_, a) = read(&path);
        std::fs::remove_file(path).unwrap();
        a
    }
}

/// Workers deliver a batch every 19 ms, the GPU works 9 ms a step; with `sync`, the host waits for
/// the GPU before it asks for the next batch. Without the wait it would ask earlier, and the batch
/// come when it comes.
fn with_workers(sync: bool) -> Hand {
    let mut h = Hand::default();
    let (mut host, mut free) = (1_000_000_000u64, 0u64);
    let mut ready = host + 19_000_000;
    for step in 0..30u64 {
        h.range(&format!("ProfilerStep#{step}"), host, host.max(ready) + 400_000);
        let asked = host;
        host = host.max(ready) + 20_000;
        ready += 19_000_000;
        h.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", asked, host);
        for _ in 0..20 {
            h.correlation += 1;
            h.call("cudaLaunchKernel", host, host + 5_000);
            let start = (host + 8_000).max(free);
            free = start + 450_000;
            h.kernel(start, free);
            host += 15_000;
        }
        if sync {
            h.correlation += 1;
            h.call("cudaStreamSynchronize", host, free + 6_000);
            host = free + 10_000;
        }
    }
    h
}

#[test]
fn waiting_for_workers_is_input_whether_or_not_the_gpu_is_waited_for_as_well() {
    for sync in [false, true] {
        let a = with_workers(sync).analyze(if sync { "workers-sync" } else { "workers" });
        assert_eq!(a.verdict.cause, "INPUT", "sync {sync}: {:?}\n{:#?}", a.verdict, a.findings);
        assert!(a.verdict.text().contains("workers are too few"), "{}", a.verdict.text());
        let sync = a.findings.iter().find(|f| f.cause == "SYNC").map_or(0.0, |f| f.win.share());
        assert!(sync < 0.03, "without the wait the batches come no sooner: {sync}");
        assert!(a.verdict.then.is_none_or(|t| t.0 != "SYNC"), "{:?}", a.verdict.then);
    }
}

#[test]
fn kernels_that_start_before_their_launch_accuse_nobody() {
    let mut h = Hand::default();
    for n in 0..400u64 {
        h.correlation += 1;
        let host = 1_000_000_000 + n * 100_000;
        h.call("cudaLaunchKernel", host, host + 5_000);
        h.kernel(host - 40_000, host - 10_000);
    }
    let a = h.analyze("early");
    assert!(
        a.verdict
            .why_inconclusive()
            .as_deref()
            .is_some_and(|w| w.contains("start before their launch, by up to 40.0 us")),
        "{:?}",
        a.verdict
    );
}

/// Of all that were looked at, also before the steps that count: never more than all.
#[test]
fn the_share_that_starts_early_is_a_share() {
    let mut h = Hand::default();
    let mut host = 1_000_000_000;
    for step in 0..30u64 {
        let begin = host;
        for _ in 0..if step < 2 { 400 } else { 10 } {
            h.correlation += 1;
            h.call("cudaLaunchKernel", host, host + 5_000);
            h.kernel(host - 40_000, host - 10_000);
            host += 100_000;
        }
        h.range(&format!("ProfilerStep#{step}"), begin, host);
    }
    let a = h.analyze("early-share");
    let why = a.verdict.why_inconclusive().unwrap_or_default();
    let share = why.split_whitespace().find_map(|w| w.parse::<f64>().ok());
    assert!(
        why.contains("timestamps are inconsistent") && share.is_some_and(|s| s <= 100.0),
        "{:?}",
        a.verdict
    );
}

#[test]
fn steps_whose_stamps_overlap_by_a_nanosecond_are_all_steps() {
    let mut h = Hand::default();
    for step in 0..20u64 {
        let begin = 1_000_000_000 + step * 9_000_000;
        h.range(&format!("ProfilerStep#{step}"), begin, begin + 9_000_001);
        for k in 0..10 {
            h.correlation += 1;
            let host = begin + k * 880_000;
            h.call("cudaLaunchKernel", host, host + 5_000);
            h.kernel(host + 8_000, host + 800_000);
        }
    }
    let a = h.analyze("overlap");
    assert_eq!((a.steps.source, a.steps.steps.len()), (verdict::analysis::StepSource::Ranges, 20));
}

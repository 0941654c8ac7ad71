// SPDX-License-Identifier: Apache-2.0
//! The simulated driver seen from outside: victims run under a minimal CUPTI client (recorder.c),
//! and what it saw is held against the truth the driver wrote. One build of everything serves all
//! tests.

use gapprobe_sim::replay::{write, Callback, Chunk, Recording, What};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const RELEASES: [&str; 5] = ["11.8", "12.4", "12.9", "13.0", "13.5"];

fn soname(release: &str) -> String {
    match release {
        "11.8" => "libcupti.so.11.8".into(),
        _ => format!("libcupti.so.{}", &release[..2]),
    }
}

/// The built driver, and recorder.so beside it.
fn built() -> &'static Path {
    static OUT: OnceLock<PathBuf> = OnceLock::new();
    OUT.get_or_init(|| {
        // the one that the scenarios use
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("scenarios-sim");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        // The tests' own target folder: the outer cargo holds no lock on it while tests run.
        let script =
            Command::new(here.join("../../scripts/sim-build")).arg(&out).output().expect("sim-build");
        assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
        let recorder = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"];
        let new = out.join(format!("recorder.so.{}", std::process::id()));
        let gcc = Command::new("gcc")
            .args(recorder)
            .arg(&new)
            .arg(here.join("tests/recorder.c"))
            .arg("-ldl")
            .output()
            .expect("gcc");
        assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
        std::fs::rename(&new, out.join("recorder.so")).expect("a name");
        out
    })
}

/// What one run left behind.
struct Run {
    output: Output,
    /// Lines of the recorder.
    lines: Vec<String>,
    truth: Vec<Value>,
}

/// Runs a victim of `release` under the recorder, if `settings` name one.
fn run(release: &str, victim: &[&str], settings: &[(&str, &str)]) -> Run {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let out = built();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let own = |what: &str| {
        let name = format!("{what}.{}.{serial}", std::process::id());
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    };
    let (seen, truth) = (own("seen"), own("truth"));
    let mut command = Command::new(out.join(release).join(victim[0]));
    command.args(&victim[1..]).env("LD_LIBRARY_PATH", out.join(release));
    command
        .env("CUDA_INJECTION64_PATH", out.join("recorder.so"))
        .env("REC_OUT", &seen)
        .env("SIM_TRUTH", &truth);
    command.env_remove("SIM_FAULT").envs(settings.iter().copied());
    let output = command.output().expect("victim");
    let lines = std::fs::read_to_string(&seen).unwrap_or_default().lines().map(String::from).collect();
    let bytes = std::fs::read(&truth).unwrap_or_default();
    for file in [&seen, &truth] {
        let _ = std::fs::remove_file(file); // a victim that was told to write none left none
    }
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    let truth = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let truth = truth.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Run { output, lines, truth }
}

type Fields = HashMap<String, String>;

fn fields(line: &str) -> Fields {
    let pairs = line.split(' ').filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.into(), value.into())).collect()
}

fn number(fields: &Fields, key: &str) -> u64 {
    fields.get(key).and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("{key} in {fields:?}"))
}

impl Run {
    fn records(&self, kind: u32) -> Vec<Fields> {
        let head = format!("R {kind} ");
        self.lines.iter().filter(|l| l.starts_with(&head)).map(|l| fields(l)).collect()
    }

    fn callbacks(&self, id: &str) -> Vec<Fields> {
        let head = format!("C {id} ");
        self.lines.iter().filter(|l| l.starts_with(&head)).map(|l| fields(l)).collect()
    }

    fn has(&self, line: &str) -> bool {
        self.lines.iter().any(|l| l == line)
    }

    fn errors(&self) -> Vec<&String> {
        self.lines.iter().filter(|l| l.starts_with("E ")).collect()
    }

    fn ops(&self, kind: &str) -> Vec<&Value> {
        self.truth.iter().filter(|t| t["t"] == "op" && t["kind"] == kind).collect()
    }

    fn launched(&self) -> usize {
        let text = String::from_utf8_lossy(&self.output.stdout);
        let word = text.lines().find_map(|l| l.strip_prefix("launched ")).expect("launched");
        word.trim().parse().expect("a number")
    }
}

#[test]
fn records_are_the_truth_in_every_release() {
    for release in RELEASES {
        let run = run(release, &["loop", "4", "25", "15", "200", "1", "p"], &[("REC_KINDS", "10,1,38")]);
        assert!(run.errors().is_empty(), "{release}: {:?}", run.errors());
        let kernels = run.records(10);
        assert_eq!((kernels.len(), run.launched()), (100, 100), "{release}");
        let by_correlation: HashMap<u64, &&Value> = HashMap::new();
        let mut truth = by_correlation;
        let ops = run.ops("kernel");
        truth.extend(ops.iter().map(|op| (op["corr"].as_u64().unwrap_or(0), op)));
        for kernel in &kernels {
            let op = truth[&number(kernel, "corr")];
            assert_eq!(number(kernel, "start"), op["start"], "{release}: {op}");
            assert_eq!(number(kernel, "end"), op["end"]);
            assert_eq!(kernel["name"], op["name"].as_str().unwrap_or(""));
            assert_eq!((number(kernel, "grid"), number(kernel, "node")), (264, 0));
        }
        let copies = run.records(1);
        assert_eq!(copies.len(), 4);
        let shape = |c: &Fields| ["copy", "src", "dst", "bytes"].map(|key| number(c, key));
        assert!(copies.iter().all(|c| shape(c) == [1, 1, 3, 4 << 20]), "pageable host to device: {copies:?}");
        let syncs = run.records(38);
        assert_eq!(syncs.iter().filter(|s| number(s, "type") == 3).count(), 4);
        assert_eq!(syncs.iter().filter(|s| number(s, "type") == 4).count(), 1);
    }
}

#[test]
fn record_sizes_are_those_of_the_release() {
    for (release, size) in RELEASES.iter().zip([200, 208, 208, 216, 248]) {
        let run = run(release, &["loop", "2", "10", "5"], &[]);
        let sizes: Vec<_> = run.lines.iter().filter(|l| l.starts_with("S ")).collect();
        assert!(
            sizes.len() >= 18 && sizes.iter().all(|l| **l == format!("S {size}")),
            "{release}: {sizes:?}"
        );
    }
}

#[test]
fn names_and_symbol_versions_are_those_of_the_real_files() {
    let symbols = |release: &str, file: &str| {
        let path = built().join(release).join(file);
        let output = Command::new("readelf")
            .arg("-W")
            .arg("--dyn-syms")
            .arg("-d")
            .arg(path)
            .output()
            .expect("readelf");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for release in RELEASES {
        let soname = soname(release);
        let text = symbols(release, &soname);
        assert!(text.contains(&format!("Library soname: [{soname}]")), "{release}");
        assert!(text.contains(&format!("cuptiSubscribe@@{soname}")), "{release}");
        assert!(!text.contains("libcuda"), "libcupti does not need libcuda");
        let has = |name: &str| text.contains(&format!(" {name}@@"));
        assert_eq!(has("cuptiActivityEnableRuntimeApi"), !matches!(release, "11.8" | "12.4"), "{release}");
        assert_eq!(has("cuptiGetErrorMessage"), release != "11.8");
        assert_eq!(has("cuptiSubscribe_v2"), release.starts_with("13"));
        assert_eq!(has("cuptiActivityGetEnabledKinds"), release == "13.5");
    }
    assert!(symbols("13.0", "libcudart.so.13").contains(" __cudaLaunchKernel@@libcudart.so.13"));
    assert!(!symbols("12.9", "libcudart.so.12").contains("__cudaLaunchKernel"));
    assert!(symbols("13.0", "libcuda.so.1").contains("Library soname: [libcuda.so.1]"));
}

#[test]
fn a_runtime_call_and_its_driver_call_share_correlation_and_keep_their_own_data() {
    let settings = [("REC_CALLBACKS", "2.211,1.307,3.1,3.5"), ("REC_FILTER", "2.211")];
    let run = run("13.0", &["loop", "1", "20", "10"], &settings);
    assert!(run.errors().is_empty(), "{:?}", run.errors());
    assert!(run.has("C 3.5") && run.has("C 3.1") && run.has("second 39") && run.has("null-clock 1"));
    let (outer, inner) = (run.callbacks("2.211"), run.callbacks("1.307"));
    assert_eq!((outer.len(), inner.len()), (40, 40));
    for (outer, inner) in outer.chunks(2).zip(inner.chunks(2)) {
        assert_eq!([&outer[0]["site"], &outer[1]["site"]], ["0", "1"]);
        assert_eq!(outer[0]["corr"], inner[0]["corr"]);
        assert_eq!(outer[0]["shared"], outer[1]["shared"], "enter's 8 bytes reach exit");
        assert_ne!(outer[0]["shared"], inner[0]["shared"], "and are not the nested call's");
        assert_eq!((outer[1]["ret"].as_str(), outer[1]["user"].as_str()), ("0", "77"));
    }
    let (kernels, calls) = (run.records(10), run.records(5));
    assert_eq!((kernels.len(), calls.len()), (20, 20), "the filter records launches only");
    for (kernel, call) in kernels.iter().zip(&calls) {
        assert_eq!(kernel["corr"], call["corr"]);
        assert!(number(kernel, "start") > number(call, "start"));
        assert_eq!(call["tid"], call["pid"], "the launching thread is the main thread");
    }
}

#[test]
fn the_record_filter_is_missing_before_12_5() {
    assert!(run("12.4", &["loop", "1", "1", "10"], &[("REC_FILTER", "2.211")]).has("no filter"));
    assert!(!run("12.9", &["loop", "1", "1", "10"], &[("REC_FILTER", "2.211")]).has("no filter"));
}

#[test]
fn whole_kinds_record_every_call_and_external_ids() {
    let run = run("13.0", &["loop", "1", "5", "10"], &[("REC_KINDS", "10,4,5,39"), ("REC_EXTERNAL", "4711")]);
    let (runtime, driver) = (run.records(5), run.records(4));
    assert!(runtime.iter().any(|r| number(r, "cbid") == 165), "cudaDeviceSynchronize too");
    assert!(driver.iter().filter(|r| number(r, "cbid") == 307).count() == 5);
    let external = run.records(39);
    assert!(external.len() >= 5 && external.iter().all(|r| number(r, "id") == 4711));
}

#[test]
fn graph_nodes_carry_the_launch_and_their_own_ids() {
    let run = run("13.0", &["loop", "3", "40", "2", "0", "1", "g"], &[("REC_CALLBACKS", "2.311")]);
    let kernels = run.records(10);
    assert_eq!(kernels.len(), 120);
    let launches: Vec<_> = run.callbacks("2.311").iter().map(|c| c["corr"].clone()).collect();
    assert_eq!(launches.len(), 6);
    for (n, chunk) in kernels.chunks(40).enumerate() {
        assert!(chunk.iter().all(|k| k["corr"] == launches[2 * n]));
        assert!(chunk.iter().all(|k| number(k, "graph") != 0 && number(k, "node") != 0));
        let gap = number(&chunk[1], "start") - number(&chunk[0], "end");
        assert_eq!(gap, 400);
    }
    let nodes: std::collections::HashSet<_> = kernels.iter().map(|k| k["node"].clone()).collect();
    assert_eq!(nodes.len(), 40, "one id a node, the same in every launch");
}

#[test]
fn a_captured_node_is_told_in_its_launch_and_leads_to_those_that_are_played() {
    let settings = [("REC_CALLBACKS", "2.211,3.13,3.20")];
    let run = run("13.0", &["loop", "3", "40", "2", "0", "1", "g"], &settings);
    let (made, copied, records) = (run.callbacks("3.13"), run.callbacks("3.20"), run.records(10));
    assert_eq!((made.len(), copied.len(), records.len()), (80, 40, 120));
    let in_launches = run.lines.windows(3).filter(|lines| {
        lines[0].starts_with("C 2.211 site=0")
            && lines[1].starts_with("C 3.13")
            && lines[2].starts_with("C 2.211 site=1")
    });
    assert_eq!(in_launches.count(), 40);
    for (n, (node, copy)) in made.iter().zip(&copied).enumerate() {
        assert_eq!((&copy["original"], &copy["type"]), (&node["node"], &"0".to_owned()));
        assert!(records.iter().skip(n).step_by(40).all(|played| played["node"] == copy["node"]));
    }
}

#[test]
fn graph_level_gives_one_record_a_launch() {
    let run = run("13.0", &["loop", "3", "40", "2", "0", "1", "g"], &[("REC_KINDS", "10,51")]);
    assert_eq!((run.records(51).len(), run.records(10).len()), (3, 0));
}

#[test]
fn a_plain_flush_keeps_unfinished_buffers_and_a_forced_one_gives_them_up_once() {
    let queued = &["ways_out", "return", "100", "150"];
    let plain = run("13.0", queued, &[("REC_BUFFER", "65536")]);
    assert!(plain.records(10).len() < 250, "the buffer with unfinished work stays");
    assert!(plain.records(10).iter().all(|k| number(k, "end") != 0));
    let forced = run("13.0", queued, &[("REC_FLUSH", "forced")]);
    let unfinished = forced.records(10).iter().filter(|k| number(k, "end") == 0).count();
    assert_eq!(forced.records(10).len(), 250, "all of them, once");
    assert!((140..=150).contains(&unfinished), "{unfinished}");
}

#[test]
fn buffers_are_bounded_by_size_and_by_count_and_full_ones_come_back_without_a_flush() {
    let run = run("13.0", &["loop", "10", "50", "2", "20000"], &[("REC_MOST", "7"), ("REC_FLUSH", "none")]);
    let valid: Vec<u64> = run.lines.iter().filter_map(|l| l.strip_prefix("B 65536 ")?.parse().ok()).collect();
    assert!(valid.len() > 50 && valid.iter().all(|v| *v == 7 * 216), "{valid:?}");
    let small = self::run("13.0", &["loop", "2", "200", "2"], &[("REC_BUFFER", "1000")]);
    assert_eq!(small.records(10).len(), 400);
    let tiny = self::run("13.0", &["loop", "1", "5", "2"], &[("REC_BUFFER", "100")]);
    assert_eq!(tiny.records(10).len(), 0, "no record fits");
    assert_eq!(tiny.output.status.code(), Some(0));
}

#[test]
fn threads_have_buffers_of_their_own_unless_told_otherwise() {
    let victim = &["threads", "3", "4", "50"];
    let requests = |run: &Run| -> u32 {
        let line = run.lines.iter().find_map(|l| l.strip_prefix("requests ")).expect("requests");
        line.parse().expect("a number")
    };
    let own = run("13.0", victim, &[("REC_KINDS", "10")]);
    assert_eq!((own.records(10).len(), requests(&own)), (600, 12));
    let shared = run("13.0", victim, &[("REC_KINDS", "10"), ("REC_PER_THREAD", "0")]);
    assert_eq!(shared.records(10).len(), 600);
    // 600 records fill two buffers, and four threads may each find that one is needed at the same
    // moment
    assert!((2..=8).contains(&requests(&shared)), "{}", requests(&shared));
}

#[test]
fn times_follow_the_client_clock() {
    let tick = run("13.0", &["loop", "3", "20", "100"], &[("REC_CLOCK", "tick")]);
    for kernel in tick.records(10) {
        let span = number(&kernel, "end") - number(&kernel, "start");
        assert!(span.abs_diff(25_000) <= 300, "100 us are 25,000 ticks of 4 ns: {span}");
    }
    let real = run("13.0", &["loop", "3", "20", "100"], &[("REC_CLOCK", "real")]);
    let meta = &real.truth[0];
    let shift = meta["real_ns"].as_u64().unwrap_or(0) - meta["mono_ns"].as_u64().unwrap_or(0);
    let op = real.ops("kernel")[0]["start"].as_u64().unwrap_or(0);
    assert!(number(&real.records(10)[0], "start").abs_diff(op + shift) < 100_000);
}

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
fn cupti_without_a_driver_answers_15_and_does_not_crash() {
    for release in RELEASES {
        let source = built().join(format!("bare-{release}.c"));
        let body = "#include <dlfcn.h>\n#include <stdio.h>\nint main(void){void*h=dlopen(\"libcupti.so\",2);unsigned v=0;void*s;\
            int a=((int(*)(unsigned*))dlsym(h,\"cuptiGetVersion\"))(&v);\
            int b=((int(*)(void**,void*,void*))dlsym(h,\"cuptiSubscribe\"))(&s,0,0);\
            int c=((int(*)(int))dlsym(h,\"cuptiActivityFlushAll\"))(1);int d=((int(*)(void))dlsym(h,\"cuptiFinalize\"))();\
            printf(\"%d %u %d %d %d\",a,v,b,c,d);return 0;}";
        std::fs::write(&source, body).expect("write");
        let program = source.with_extension("bin");
        let gcc = Command::new("gcc").arg("-o").arg(&program).arg(&source).arg("-ldl").status().expect("gcc");
        assert!(gcc.success());
        let output =
            Command::new(program).env("LD_LIBRARY_PATH", built().join(release)).output().expect("bare");
        let version =
            [18, 22, 28, 130_001, 130_500][RELEASES.iter().position(|r| *r == release).unwrap_or(0)];
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("0 {version} 15 15 15"), "{release}");
    }
}

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
fn a_recording_is_replayed_with_times_names_and_callbacks_of_now() {
    for (release, version, size) in [("12.4", 22, 208usize), ("13.5", 130_500, 248)] {
        let mut buffer = Vec::new();
        for n in 0..3u64 {
            let mut record = vec![0u8; size];
            record[..4].copy_from_slice(&10u32.to_le_bytes());
            record[16..24].copy_from_slice(&(5_000_000 + n * 1_000).to_le_bytes());
            record[24..32].copy_from_slice(&(5_000_400 + n * 1_000).to_le_bytes());
            record[92..96].copy_from_slice(&(n as u32 + 1).to_le_bytes());
            record[104..112].copy_from_slice(&0xdead_0000u64.to_le_bytes());
            buffer.extend(record);
        }
        let call = |site| Callback { domain: 2, cbid: 131, site, correlation: 9, thread: 5 };
        let chunks = vec![
            Chunk { at: 4_999_000, what: What::Callback(call(0)) },
            Chunk { at: 4_999_500, what: What::Callback(call(1)) },
            Chunk { at: 5_900_000, what: What::Buffer(&buffer) },
            Chunk { at: 5_950_000, what: What::Name { pointer: 0xdead_0000, text: b"real_gemm" } },
        ];
        let recording = Recording {
            cupti_version: version,
            soname: soname(release),
            began: 4_000_000,
            chunks,
            cut: false,
        };
        let file = built().join(format!("raw.{release}"));
        std::fs::write(&file, write(&recording)).expect("write");
        let path = file.to_string_lossy().into_owned();
        let settings = [("SIM_REPLAY", path.as_str()), ("REC_CALLBACKS", "2.131")];
        let run = run(release, &["replay", "1"], &settings);
        assert_eq!(String::from_utf8_lossy(&run.output.stdout), "replayed 3\n", "{release}");
        let kernels = run.records(10);
        assert!(kernels.iter().all(|k| k["name"] == "real_gemm"), "{kernels:?}");
        assert_eq!(number(&kernels[2], "start") - number(&kernels[0], "start"), 2_000);
        assert_eq!(number(&kernels[0], "end") - number(&kernels[0], "start"), 400);
        let began = run.truth[0]["mono_ns"].as_u64().unwrap_or(0);
        assert!(number(&kernels[0], "start").abs_diff(began) < 2_000_000_000, "moved to now");
        let callbacks = run.callbacks("2.131");
        assert_eq!(callbacks.len(), 2);
        assert_eq!(callbacks[0]["shared"], callbacks[1]["shared"]);
    }
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
fn what_a_client_did_to_cupti_is_in_the_truth() {
    let run = run("13.0", &["loop", "1", "5", "5"], &[]);
    let names: Vec<_> =
        run.truth.iter().filter(|t| t["t"] == "cupti").map(|t| t["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names.first(), Some(&"cuptiSubscribe"));
    assert!(names.contains(&"cuptiActivityEnable") && names.contains(&"cuptiActivityFlushAll"), "{names:?}");
    assert!(!names.contains(&"cuptiFinalize"));
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

// SPDX-License-Identifier: Apache-2.0
//! The command as a user meets it: help, errors with their hints, exit codes, `recover` and `run` end to end.
//! Texts that are part of the interface lie in tests/cli/*.txt; `GAPPROBE_BLESS=1 cargo test` writes them anew.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};

const BINARY: &str = env!("CARGO_BIN_EXE_gapprobe");

/// A folder of its own for one test: TMPDIR, results, and the private folder in TMPDIR.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("gapprobe-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("out")).unwrap();
        let place = Place(path);
        fs::create_dir(place.private()).unwrap();
        fs::set_permissions(place.private(), fs::Permissions::from_mode(0o700)).unwrap();
        place
    }

    fn out(&self) -> PathBuf {
        self.0.join("out")
    }

    fn private(&self) -> PathBuf {
        self.0.join(format!("gapprobe-{}", fs::metadata("/proc/self").unwrap().uid()))
    }

    fn gapprobe(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .current_dir(self.out())
            .env("TMPDIR", &self.0)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null());
        for setting in trace::setting::SETTINGS {
            command.env_remove(setting.name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.gapprobe(args).output().unwrap()
    }

    /// Names in the results folder.
    fn results(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.out())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no exit code: {output:?}"))
}

/// Holds `text` against the file tests/cli/`name`.txt.
fn same_as_file(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli").join(format!("{name}.txt"));
    if std::env::var_os("GAPPROBE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{} differs; if that is meant: GAPPROBE_BLESS=1 cargo test", path.display());
}

/// A recording of 300 steps, each drained by a synchronize; its process has ended.
fn recording(shape: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut b = Builder::new();
    b.header.pid = i32::MAX as u32;
    b.header.uid = fs::metadata("/proc/self").unwrap().uid();
    b.header.host = "testhost".into();
    b.header.command = "python train.py".into();
    b.header.gapprobe = "0.1.0 test".into();
    b.header.start_realtime = 1_795_000_000_000_000_000;
    b.header.start_monotonic = 1_000_000_000;
    b.header.driver_version = 13_000;
    b.header.cupti_version = 130_001;
    b.device(0, "SIM", 132);
    let kernel = b.kernel("_Z4gemmPfS_S_", 256, 64);
    let mut correlation = 0;
    for step in 0..300u64 {
        let begin = 1_000_000_000 + step * 1_000_000;
        let mut mark = Event::new(Kind::Step, begin, begin + 1_000_000);
        mark.a = step as u32;
        b.on_thread(100, mark);
        for i in 0..10 {
            correlation += 1;
            let mut launch = Event::new(Kind::Call, begin + i * 10_000, begin + i * 10_000 + 4_000);
            (launch.a, launch.x, launch.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
            b.on_thread(100, launch);
            let mut op = Event::new(Kind::Kernel, begin + 10_000 + i * 60_000, begin + 70_000 + i * 60_000);
            (op.a, op.b, op.correlation) = (kernel, 1024, correlation);
            b.on_stream(0, 1, 7, op);
        }
        let mut sync = Event::new(Kind::Call, begin + 110_000, begin + 612_000);
        (sync.a, sync.x) = (pack(RUNTIME, 131), Class::Sync as u8);
        b.on_thread(100, sync);
    }
    shape(&mut b);
    b.finish()
}

#[test]
fn help_begins_with_examples_and_names_the_exit_codes() {
    let place = Place::new("help");
    for (name, args) in [
        ("help", vec!["--help"]),
        ("help-run", vec!["run", "--help"]),
        ("help-recover", vec!["recover", "--help"]),
        ("help-doctor", vec!["doctor", "--help"]),
        ("help-explain", vec!["explain", "--help"]),
        ("help-completions", vec!["completions", "--help"]),
    ] {
        let output = place.run(&args);
        assert_eq!(code(&output), 0);
        assert!(out(&output).starts_with("Examples:\n"), "{name}");
        same_as_file(name, &out(&output));
    }
}

#[test]
fn wrong_use_ends_with_2_and_says_what_is_right() {
    let place = Place::new("wrong");
    for args in
        [&["nonsense"][..], &[], &["run"], &["run", "--max-mb", "1", "--", "true"], &["completions", "tcsh"]]
    {
        assert_eq!(code(&place.run(args)), 2, "{args:?}");
    }
    let output = place.run(&["explain", "GP999"]);
    assert_eq!((code(&output), out(&output).as_str()), (2, ""));
    assert!(
        err(&output).starts_with("gapprobe: no code \"GP999\"\n\nhint: one of GP101, "),
        "{}",
        err(&output)
    );
}

#[test]
fn explain_prints_the_page_of_every_code_and_the_settings() {
    let place = Place::new("explain");
    let list = out(&place.run(&["explain"]));
    assert!(list.lines().count() >= 12, "{list}");
    for line in list.lines() {
        let mut words = line.split_whitespace();
        let (code_word, name) = (words.next().unwrap(), words.next().unwrap());
        let page = place.run(&["explain", code_word]);
        assert_eq!(code(&page), 0);
        let text = out(&page);
        assert!(text.starts_with(code_word), "{text}");
        for section in ["# What it means", "# How it is recognised", "# How sure", "# What to change"] {
            assert!(text.contains(section), "{code_word} lacks {section}");
        }
        assert_eq!(out(&place.run(&["explain", &name.to_lowercase()])), text);
    }
    let settings = out(&place.run(&["explain", "settings"]));
    for s in trace::setting::SETTINGS {
        assert_eq!(settings.contains(&format!("{} (default", s.name)), !s.internal, "{}", s.name);
    }
}

#[test]
fn the_page_of_settings_is_as_new_as_the_table() {
    let place = Place::new("settings");
    let made = out(&place.run(&["explain", "settings", "--markdown"]));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    assert!(
        fs::read_to_string(page).unwrap_or_default() == made,
        "docs/settings.md is old: scripts/settings"
    );
}

#[test]
fn completions_know_every_verb() {
    let place = Place::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let output = place.run(&["completions", shell]);
        assert_eq!(code(&output), 0);
        for verb in ["run", "recover", "doctor", "explain", "completions"] {
            assert!(out(&output).contains(verb), "{shell}: {verb}");
        }
    }
    let bash = place.0.join("completion");
    fs::write(&bash, out(&place.run(&["completions", "bash"]))).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&bash).status().unwrap().success());
}

#[test]
fn doctor_has_a_fix_for_each_problem_and_says_so_in_its_exit_code() {
    let place = Place::new("doctor");
    let output = place
        .gapprobe(&["doctor", "--json"])
        .env("CUDA_INJECTION64_PATH", "/opt/nsight/libToolsInjection64.so")
        .env("GAPPROBE_DIR", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out(&output)).unwrap();
    for row in &rows {
        assert_eq!(row["state"] == "problem", row["fix"].is_string(), "{row}");
    }
    let problem = |subject: &str, text: &str| {
        rows.iter().any(|r| {
            r["subject"] == subject && r["state"] == "problem" && r["text"].as_str().unwrap().contains(text)
        })
    };
    assert!(problem("others", "libToolsInjection64.so"), "{rows:?}");
    assert!(problem("traces", "/nonexistent"), "{rows:?}");
    let text = out(&place.run(&["doctor"]));
    for subject in ["driver", "cupti", "others", "recording", "traces", "glibc", "library"] {
        assert!(text.lines().any(|l| l.split_whitespace().nth(1) == Some(subject)), "{subject} in\n{text}");
    }
}

#[test]
fn recover_makes_trace_and_line_and_removes_the_recording() {
    let place = Place::new("recover");
    let file = place.private().join("gapprobe-testhost-1-1-1.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let line = out(&output);
    assert!(
        line.starts_with("gapprobe[GP101 ") && line.ends_with('\n') && line.lines().count() == 1,
        "{line}"
    );
    assert!(!file.exists());
    let results = place.results();
    assert_eq!(results.len(), 2, "{results:?}");
    let (trace, summary) = (&results[0], &results[1]);
    assert!(line.contains(trace), "{line}");
    assert!(
        trace.starts_with("gapprobe-testhost-2147483647-20261118-110640-") && trace.ends_with(".json.gz")
    );
    assert_eq!(summary, &trace.replace(".json.gz", ".summary.json"));
    for name in &results {
        assert_eq!(fs::metadata(place.out().join(name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let s: serde_json::Value = serde_json::from_slice(&fs::read(place.out().join(summary)).unwrap()).unwrap();
    assert_eq!(s["line"].as_str(), Some(line.trim_end()));
    assert_eq!(s["verdict"]["code"], "GP101");
    assert_eq!(s["trace"].as_str(), Some(trace.as_str()));
    assert_eq!(s["steps"]["source"], "marks");
    assert_eq!(s["steps"]["median_ns"], 1_000_000);
    assert_eq!(s["versions"]["cupti"], 130_001);
    assert_eq!(s["rank"], serde_json::Value::Null);
    let d = &s["devices"][0];
    assert_eq!(
        d["busy_ns"].as_u64().unwrap() + d["idle_ns"].as_u64().unwrap(),
        d["span_ns"].as_u64().unwrap()
    );
    let buckets: u64 = d["buckets_ns"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(Some(buckets), d["steady_wall_ns"].as_u64());
    let mut json = String::new();
    let gz = fs::File::open(place.out().join(trace)).unwrap();
    flate2::read::GzDecoder::new(gz).read_to_string(&mut json).unwrap();
    let t: serde_json::Value = serde_json::from_str(&json).unwrap();
    let kernels = t["traceEvents"].as_array().unwrap().iter().filter(|e| e["cat"] == "kernel").count();
    assert_eq!(kernels, 3000);
    assert_eq!(code(&place.run(&["recover"])), 3, "a second time there is nothing");
}

#[test]
fn recover_keeps_lists_and_chooses() {
    let place = Place::new("choose");
    let names = ["a.gpr", "b.gpr", "running.gpr", "reported.gpr"];
    for name in names {
        let bytes = recording(|b| match name {
            "running.gpr" => b.header.pid = std::process::id(),
            "reported.gpr" => b.header.state = trace::header::state::REPORTED,
            _ => b.header.command = format!("python {name}"),
        });
        fs::write(place.private().join(name), bytes).unwrap();
        std::thread::sleep(Duration::from_millis(20)); // distinct times of change
    }
    fs::write(place.private().join("junk.gpr"), "junk").unwrap();
    fs::write(place.private().join("notes.txt"), "not ours").unwrap();
    let list = out(&place.run(&["recover", "--list"]));
    let lives: Vec<(&str, bool)> =
        list.lines().map(|l| (l.split_whitespace().next().unwrap(), l.contains("a.gpr"))).collect();
    assert_eq!(lives, [("reported", false), ("running", false), ("ended", false), ("ended", true)], "{list}");
    let output = place.run(&["recover", "--keep", "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let summary: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(summary["command"], "python b.gpr", "the newest of an ended process");
    assert!(err(&output).contains("also there: ") && err(&output).contains("a.gpr"), "{}", err(&output));
    assert_eq!(fs::read_dir(place.private()).unwrap().count(), 6, "--keep");
    assert_eq!(out(&place.run(&["recover", "--all"])).lines().count(), 2);
    assert!(!place.private().join("a.gpr").exists() && place.private().join("running.gpr").exists());
}

#[test]
fn recover_of_a_living_process_only_when_told_and_never_removes() {
    let place = Place::new("living");
    let file = place.private().join("run.gpr");
    fs::write(&file, recording(|b| b.header.pid = std::process::id())).unwrap();
    let path = file.to_str().unwrap();
    let output = place.run(&["recover", path]);
    assert_eq!((code(&output), out(&output).as_str()), (6, ""));
    assert!(
        err(&output).contains(&format!("hint: what it has recorded so far: gapprobe recover --live {path}"))
    );
    assert_eq!(code(&place.run(&["recover"])), 3);
    let output = place.run(&["recover", "--live", path]);
    assert_eq!(code(&output), 0);
    assert!(!out(&output).contains("killed"), "{}", out(&output));
    assert!(file.exists());
}

#[test]
fn damaged_recordings_are_named_with_file_and_place() {
    let place = Place::new("damaged");
    let good = recording(|_| {});
    let mut version = good.clone();
    version[8] = 9;
    let mut layout = good.clone();
    layout[24] = 1;
    let mut segments = good.clone();
    for segment in segments[4096..].chunks_mut(32 * 1024) {
        segment[..4].copy_from_slice(b"JUNK");
    }
    for (name, bytes, expected) in [
        ("empty.gpr", Vec::new(), "too short for a recording (0 bytes, the header alone has 4096)"),
        ("short.gpr", good[..4095].to_vec(), "too short for a recording (4095 bytes"),
        ("text.gpr", vec![b'x'; 9000], "not a gapprobe recording (no GAPPROBE at byte 0)"),
        ("version.gpr", version, "recording version 9, this one reads 1"),
        ("layout.gpr", layout, "damaged header (segment size at byte 24)"),
        ("segments.gpr", segments, "no event can be read"),
    ] {
        let file = place.0.join(name);
        fs::write(&file, &bytes).unwrap();
        let output = place.run(&["recover", file.to_str().unwrap()]);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{name}: {}", err(&output));
        let said = err(&output);
        assert!(said.starts_with(&format!("gapprobe: {}: ", file.display())), "{said}");
        assert!(said.contains(expected) && said.contains("\nhint: "), "{said}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "left as it is");
    }
    assert!(place.results().is_empty(), "{:?}", place.results());
    let missing = place.run(&["recover", "/nonexistent.gpr"]);
    assert_eq!(code(&missing), 4);
    assert!(err(&missing).contains("/nonexistent.gpr: no such file"));
    // cut off, but most of it is there: a trace, and the damage in the summary
    let file = place.0.join("cut.gpr");
    fs::write(&file, &good[..good.len() - 20_000]).unwrap();
    let output = place.run(&["recover", "--json", file.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let summary: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(summary["reading_problems"]["cut_segments"], 1);
}

#[test]
fn strict_ends_with_5_where_nothing_can_be_said() {
    let place = Place::new("strict");
    let file = place.0.join("nothing.gpr");
    let mut b = Builder::new();
    b.header.pid = i32::MAX as u32;
    b.on_recorder(Event::clock_pair(1, 2));
    fs::write(&file, b.finish()).unwrap();
    let path = file.to_str().unwrap();
    let output = place.run(&["recover", "--keep", path]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).contains("INCONCLUSIVE"), "{}", out(&output));
    assert_eq!(code(&place.run(&["recover", "--keep", "--strict", path])), 5);
}

#[test]
fn a_directory_that_cannot_be_written_costs_the_files_not_the_line_nor_the_recording() {
    let place = Place::new("unwritable");
    let file = place.private().join("run.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let output = place.run(&["recover", "--dir", "/nonexistent"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    let said = err(&output);
    assert!(
        said.contains("gapprobe[GP101 ") && said.contains("no trace in /nonexistent: No such file"),
        "{said}"
    );
    assert!(said.contains("\nhint: ") && file.exists());
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_no_half_file() {
    let place = Place::new("limit");
    let file = place.private().join("run.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let script = format!("ulimit -f 4; exec {BINARY} recover");
    let mut command = place.gapprobe(&[]);
    let env: Vec<_> = command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
    command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.out());
    for (key, value) in env {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    let output = command.output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(err(&output).contains("no trace in .: File too large"), "{}", err(&output));
    assert!(err(&output).contains("gapprobe[GP101 ") && file.exists());
    assert!(place.results().iter().all(|n| n.ends_with(".summary.json")), "{:?}", place.results());
}

#[test]
fn a_private_folder_that_others_could_have_made_is_refused() {
    let place = Place::new("private");
    fs::write(place.private().join("run.gpr"), recording(|_| {})).unwrap();
    fs::set_permissions(place.private(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("is open to other users (mode 755)"), "{}", err(&output));
    let elsewhere = place.0.join("elsewhere");
    fs::rename(place.private(), &elsewhere).unwrap();
    symlink(&elsewhere, place.private()).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("is a symbolic link"), "{}", err(&output));
    assert!(place.results().is_empty());
}

/// A shared library that does nothing when preloaded: the C library's own mathematics.
fn harmless_library() -> String {
    let candidates =
        ["/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"];
    candidates.into_iter().find(|p| Path::new(p).exists()).expect("glibc's libm").to_owned()
}

#[test]
fn run_returns_what_the_command_returned_and_leaves_its_output_alone() {
    let place = Place::new("run");
    let library = harmless_library();
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let output = place.run(&["run", "--lib", &library, "--", "sh", "-c", script]);
        assert_eq!(code(&output), expected, "{script}");
        assert_eq!((out(&output), err(&output)), (String::new(), String::new()), "{script}");
    }
    let script =
        "echo $LD_PRELOAD $GAPPROBE_DIR $GAPPROBE_MAX_MB $GAPPROBE_PRINT; echo ${#GAPPROBE_RUN_ID} >&2; cat";
    let output = place
        .gapprobe(&[
            "run",
            "--lib",
            &library,
            "--dir",
            ".",
            "--max-mb",
            "64",
            "--all-ranks",
            "--",
            "sh",
            "-c",
            script,
        ])
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let here = place.out().canonicalize().unwrap();
    let real = Path::new(&library).canonicalize().unwrap();
    assert_eq!(out(&output), format!("{}:{library} {} 64 all\n", real.display(), here.display()));
    assert_eq!(err(&output), "16\n");
}

#[test]
fn run_hands_signals_on() {
    let place = Place::new("signals");
    let script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = place
        .gapprobe(&["run", "--lib", &harmless_library(), "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let begin = Instant::now();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("got it\n", Some(9)));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn run_reports_for_a_command_that_was_killed_and_for_no_other() {
    let place = Place::new("killed");
    let template = place.0.join("template");
    fs::write(&template, recording(|b| b.attribute("run.id", "RUNIDRUNIDRUNID!"))).unwrap();
    // somebody else's recording: not of this run
    fs::write(place.private().join("other.gpr"), recording(|b| b.attribute("run.id", "0123456789abcdef")))
        .unwrap();
    let script = format!(
        "LC_ALL=C sed \"s/RUNIDRUNIDRUNID!/$GAPPROBE_RUN_ID/\" {} > {}/own.gpr; echo data; kill -9 $$",
        template.display(),
        place.private().display(),
    );
    let output = place.run(&["run", "--lib", &harmless_library(), "--", "sh", "-c", &script]);
    assert_eq!((code(&output), out(&output).as_str()), (137, "data\n"));
    assert!(err(&output).contains("gapprobe[GP101 "), "{}", err(&output));
    assert_eq!(place.results().len(), 2);
    assert!(!place.private().join("own.gpr").exists() && place.private().join("other.gpr").exists());
}

/// A program file without a section of code: header, one program header, and a loader's name.
fn program(class: u8, loader: Option<&str>) -> Vec<u8> {
    let mut b = vec![0u8; 120];
    b[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
    (b[18], b[32], b[54], b[56], b[64]) = (62, 64, 56, 1, 1);
    if let Some(l) = loader {
        (b[64], b[72], b[96]) = (3, 120, l.len() as u8 + 1);
        b.extend_from_slice(l.as_bytes());
        b.push(0);
    }
    b
}

#[test]
fn run_refuses_in_one_line_what_it_cannot_record() {
    let place = Place::new("refuse");
    let library = harmless_library();
    let file = place.0.join("program");
    for (bytes, expected) in [
        (program(2, None), "is linked statically"),
        (program(2, Some("/lib/ld-musl-x86_64.so.1")), "uses musl"),
        (program(1, Some("/lib/ld-linux.so.2")), "is a 32-bit program"),
    ] {
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let script = place.0.join("script");
        fs::write(&script, format!("#!{}\n", file.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        for target in [&file, &script] {
            let output = place.run(&["run", "--lib", &library, "--", target.to_str().unwrap()]);
            assert_eq!(code(&output), 125, "{}", err(&output));
            assert!(err(&output).contains(expected) && err(&output).lines().count() == 1, "{}", err(&output));
        }
    }
    let changes_user = place.0.join("changes-user");
    fs::copy("/bin/true", &changes_user).unwrap();
    fs::set_permissions(&changes_user, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = place.run(&["run", "--lib", &library, "--", changes_user.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert!(
        err(&output).contains("nothing will be recorded") && err(&output).contains("\nhint: "),
        "{}",
        err(&output)
    );
    let plain = place.0.join("plain");
    fs::write(&plain, "no program").unwrap();
    assert_eq!(code(&place.run(&["run", "--lib", &library, "--", plain.to_str().unwrap()])), 126);
    assert_eq!(code(&place.run(&["run", "--lib", &library, "--", "no-such-command-here"])), 127);
    let output = place.run(&["run", "--lib", "/nonexistent/libgapprobe.so", "--", "true"]);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("\nhint: "), "{}", err(&output));
    let output = place.run(&["run", "--lib", &library, "--dir", "/nonexistent", "--", "true"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("hint: mkdir -p /nonexistent"), "{}", err(&output));
}

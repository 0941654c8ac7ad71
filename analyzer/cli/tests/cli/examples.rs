// SPDX-License-Identifier: Apache-2.0
//! The examples at the head of every help run as they stand there. Of their files, fixtures of the
//! same name are laid out first; of their programs (python, torchrun, flamegraph.pl), small ones
//! that do nothing.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rusqlite::Connection;
use serde_json::{json, Value};

use crate::beating::Beating;
use crate::check::loading;
use crate::metrics::{collector, FINE};
use crate::open::perfettos_port;
use crate::place::{code, err, harmless_library, out, recording, Place, BINARY};
use crate::training::{put, write, Shape};

/// What a user would have lying around.
fn lay_out(place: &Place) {
    let folder = place.out();
    let input = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    for name in ["trace", "fixed", "rank0", "rank1"] {
        fs::copy(input("traces/h200_graphs.json.gz"), folder.join(format!("{name}.json.gz"))).unwrap();
    }
    for name in ["before", "a"] {
        put(place, &format!("{name}.json.gz"), Shape::default());
    }
    for name in ["after", "b"] {
        put(place, &format!("{name}.json.gz"), Shape { host_percent: 50, ..Shape::default() });
    }
    write(place, "old.json.gz", &loading(10_000));
    write(place, "new.json.gz", &loading(1_000));
    let nsys = Connection::open(folder.join("nsys.sqlite")).unwrap();
    nsys.execute_batch(&fs::read_to_string(input("nsys/new.sql")).unwrap()).unwrap();
    let kernel = "INSERT INTO StringIds VALUES (1, 'gemm');
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
            demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory,
            dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId)
        VALUES (1000, 2000, 0, 1, 7, 1, 281474976710656, 1, 1, 32, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1);";
    let run = "gapprobe-vm-2342-20261122-000000-00ff.json.gz";
    fs::copy(folder.join("trace.json.gz"), folder.join(run)).unwrap();
    nsys.execute_batch(kernel).unwrap();
    for (rank, node) in [".", "node1", "node2"].into_iter().enumerate() {
        let summary = json!({
            "summary_version": verdict::output::summary::SUMMARY_VERSION, "rank": rank, "world_size": 3,
            "verdict": {"code": "GP101", "cause": "SYNC", "text": "why", "share": 0.4, "confidence": "high"},
            "steps": {"count": 100, "median_ns": 50_000_000, "p95_ns": 51_000_000},
        });
        fs::create_dir_all(folder.join(node)).unwrap();
        fs::write(folder.join(node).join("run.summary.json"), summary.to_string()).unwrap();
    }
    for made in
        ["traces", "prom", ".zfunc", ".local/share/bash-completion/completions", ".config/fish/completions"]
    {
        fs::create_dir_all(folder.join(made)).unwrap();
    }
    let bin = place.0.join("bin");
    fs::create_dir(&bin).unwrap();
    // a link to the file itself: the library lies beside the command
    if fs::hard_link(BINARY, bin.join("gapprobe")).is_err() {
        fs::copy(BINARY, bin.join("gapprobe")).unwrap();
    }
    fs::copy(harmless_library(), bin.join("libgapprobe.so")).unwrap();
    let mut programs = vec![bin.join("python"), bin.join("torchrun"), folder.join("simulate")];
    programs.push(bin.join("flamegraph.pl"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|p| p.join("jq").exists()) {
        programs.push(bin.join("jq"));
    }
    let browser = bin.join("browser");
    fs::write(&browser, BROWSER).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    for program in programs {
        fs::write(&program, "#!/bin/sh\n[ -t 0 ] || cat\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A browser, of which this alone is left: it opens the URL that it is given, or reads from stdin.
const BROWSER: &str = r#"#!/bin/bash
url=${1:-$(head -n 1)}
[ -f "$url" ] && exit
file=${url#*url=}; file=${file%%&*}; path=/${file#*9001%2F}
exec 3<>/dev/tcp/127.0.0.1/9001
printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:9001\r\nOrigin: %s\r\n\r\n' "${path//%2F//}" "${url%%/#*}" >&3
cat <&3 >/dev/null
"#;

/// What `recover` takes away.
fn lay_out_recordings(place: &Place) {
    for path in [place.out().join("run.gpr"), place.private().join("gapprobe-testhost-1-1-1.gpr")] {
        fs::write(path, recording(|_| {})).unwrap();
    }
}

/// Port of an OpenTelemetry collector.
const COLLECTOR: &str = "4318";

/// Runs one as a user would, in a shell. Its home is the folder of results.
fn shell(place: &Place, example: &str) -> Output {
    let mut path = OsString::from(place.0.join("bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut sh = Command::new("sh");
    place.surround(&mut sh);
    let mut example = example.replace("/tmp/traces", "traces");
    // who is watched is this test, and where the figures go a collector of its own
    example = example.replace("4242", &std::process::id().to_string());
    if example.contains(COLLECTOR) {
        example = example.replace(COLLECTOR, &collector(FINE).0.to_string());
    }
    if example.contains(" metrics ") && !example.contains("--once") {
        example = format!("timeout --preserve-status 3 {example}"); // it goes on until it is told to end
    }
    if example.contains("--print-url") {
        example = format!("({example}; echo $? > ended) | browser; exit $(cat ended)");
    }
    sh.args(["-ec", &example]).env("BROWSER", "browser").env("PATH", path).env("HOME", place.out());
    sh.stdin(Stdio::null()).output().unwrap()
}

/// The examples of a help, each on one line.
fn examples(help: &str) -> Vec<String> {
    let (_, rest) = help.split_once("Examples:\n").expect("a help begins with examples");
    assert!(help.starts_with("Examples:\n"), "{help}");
    let block = rest.split("\n\n").next().unwrap();
    block
        .lines()
        .map(|line| {
            let example = line.strip_prefix("  ").unwrap();
            assert!(example.starts_with("gapprobe "), "an example that wraps: {line:?}");
            example.split("   ").next().unwrap().split("  ").next().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn every_example_of_every_help_runs_as_it_stands_there() {
    let help = out(&Place::new("examples").run(&["--help"]));
    let (_, commands) = help.split_once("\nCommands:\n").unwrap();
    let verbs = commands.lines().take_while(|l| !l.is_empty()).map(|l| l.split_whitespace().next().unwrap());
    let verbs: Vec<&str> = verbs.filter(|v| *v != "help").collect();
    assert!(verbs.len() >= 18, "{verbs:?}");
    let mut ran = 0;
    for verb in [""].iter().chain(&verbs) {
        let place = Place::new(&format!("examples-{verb}"));
        let args = [*verb, "--help"];
        let all = examples(&out(&place.run(&args[usize::from(verb.is_empty())..])));
        assert!(!all.is_empty(), "{verb}");
        lay_out(&place);
        let watching =
            all.iter().any(|e| ["ps", "top", "capture", "metrics"].contains(&e.split(' ').nth(1).unwrap()));
        let _beating = watching.then(|| Beating::new(&place, |_| {}));
        let opening = all.iter().any(|e| e.starts_with("gapprobe open"));
        let _port = opening.then(perfettos_port);
        for example in &all {
            assert!(example.starts_with(&format!("gapprobe {verb}")), "{verb}: {example}");
            lay_out_recordings(&place);
            runs(&place, example);
            ran += 1;
        }
    }
    assert!(ran >= 50, "{ran}");
}

fn runs(place: &Place, example: &str) {
    let output = shell(place, example);
    let (text, said) = (out(&output), err(&output));
    let verb = example.split(' ').nth(1).unwrap();
    // without a GPU there is something to mend
    let fine = if verb == "doctor" { 0..=1 } else { 0..=0 };
    assert!(fine.contains(&code(&output)), "{example}: {}: {said}", code(&output));
    // whose recording it takes, what it wrote, that no GPU was used, and that a long table is cut
    let starts = ["gapprobe: recovering ", "gapprobe: wrote ", "gapprobe: nothing was recorded: "];
    let usual =
        |l: &str| starts.iter().any(|s| l.starts_with(s)) || l.ends_with(" rows; --limit 0 prints all");
    // (open tells what it waits for)
    assert!(verb == "open" || said.lines().all(usual), "{example}: {said}");
    let elsewhere = ["--textfile", "--listen", "--otlp"].iter().any(|option| example.contains(option))
        || verb == "open" && !example.contains("--report");
    assert_eq!(text.is_empty(), example.contains('>') || elsewhere || verb == "run", "{example}: {text}");
    if let Some((_, file)) = example.split_once('>') {
        let file = file.trim().replace('~', &place.out().display().to_string());
        assert!(fs::metadata(place.out().join(&file)).unwrap().len() > 0, "{example}: {file}");
    }
    if example.contains(" --json") && !example.contains('>') {
        // jq prints several
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        assert!(values.map(Result::unwrap).count() > 0, "{example}: {text}");
    }
}

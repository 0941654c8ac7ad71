// SPDX-License-Identifier: Apache-2.0
//! What the Python line of a call costs on the program's thread: ns a call with 20 frames above it,
//! against the same calls on a thread that Python does not know. Median of 30 pairs a process, the
//! best of three processes, since anything else that runs only adds. Target: 100 ns a call.
//!
//! `cargo bench -p gapprobe-scenarios --bench call_site`: for each CPython on PATH (`python3.8` to
//! `python3.14`, `python3`) its line; exit code 1 where one costs more than the target.

use std::path::PathBuf;
use std::process::Command;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::Victim;

const TARGET_NS: f64 = 100.0;

/// Where this python really lies (a shim would be recorded in its place), and its version.
fn python(name: &str) -> Option<(PathBuf, String)> {
    let script = "import sys; print(sys.executable); print(sys.version.split()[0])";
    let done = Command::new(name).args(["-c", script]).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(done.stdout).ok()?;
    let (path, version) = text.trim().split_once('\n')?;
    Some((path.into(), version.into()))
}

fn walk(python: &PathBuf) -> f64 {
    let library = built().victims.join("13.0/libfrom_python.so");
    let script = root().join("tests/victims/depth.py");
    let words = [script.to_str().expect("path"), library.to_str().expect("path"), "cost", "20"];
    let run = Victim::of(python, &words, "13.0").whole().env("SIM_TRUTH", "").env("SIM_LAUNCH_NS", "0").run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    // correctness first: what was measured was walked
    let recorded = run.recorded();
    let deep = |event: &trace::Event| recorded.definitions.stack(event.c).count() >= 20;
    assert!(recorded.of(trace::Kind::Call).filter(|(_, e)| deep(e)).count() > 50_000, "{}", run.stderr);
    run.stdout.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("walk NS")
}

fn main() {
    let mut worst: f64 = 0.0;
    let names = (8..=14).map(|minor| format!("python3.{minor}")).chain(["python3".into()]);
    let mut seen = Vec::new();
    for (path, version) in names.filter_map(|name| python(&name)) {
        if seen.contains(&version) {
            continue;
        }
        let best = (0..3).map(|_| walk(&path)).fold(f64::MAX, f64::min);
        println!("Python {version}: {best:.1} ns a call, 20 frames (target {TARGET_NS:.0})");
        worst = worst.max(best);
        seen.push(version);
    }
    if worst > TARGET_NS {
        std::process::exit(1);
    }
}

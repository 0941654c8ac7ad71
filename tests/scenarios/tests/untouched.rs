// SPDX-License-Identifier: Apache-2.0
//! Purpose: preloaded into a process that never touches CUDA (a shell, Python, a compiler),
//! gapprobe opens and writes no file, starts no thread, loads no CUPTI and costs less than a
//! millisecond. `cuInit` alone is no use of the device. Switched off (GAPPROBE=0, the allow and
//! deny lists), it does not touch CUPTI either.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Victim, CORES};

/// System calls of a program and its children, by name, and the files opened, as strace saw them.
struct Seen {
    calls: BTreeMap<String, usize>,
    opened: Vec<String>,
    lines: Vec<String>,
}

fn strace(victim: Victim, preload: bool) -> Seen {
    let logs = victim.folder.join("strace");
    std::fs::create_dir(&logs).expect("folder");
    let mut command = Command::new("strace");
    command.args(["-ff", "-qq", "-s", "200", "-o"]).arg(logs.join("of"));
    if preload {
        command.arg("-E").arg(format!("LD_PRELOAD={}", built().library.display()));
    }
    command.arg(victim.command.get_program()).args(victim.command.get_args());
    for (name, value) in victim.command.get_envs().filter(|(n, _)| *n != "LD_PRELOAD") {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let _ = std::fs::remove_file(built().scratch.join("empty")); // the compiler's output of the run before
    command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().expect("strace (apt install strace)").success());
    let files = std::fs::read_dir(&logs).expect("strace's logs").filter_map(Result::ok);
    let text: String = files.map(|f| std::fs::read_to_string(f.path()).expect("a log")).collect();
    let mut seen = Seen { calls: BTreeMap::new(), opened: Vec::new(), lines: Vec::new() };
    for line in text.lines() {
        let Some((name, rest)) = line.split_once('(') else { continue };
        *seen.calls.entry(name.to_owned()).or_default() += 1;
        if name.starts_with("open") && !rest.contains("ENOENT") {
            seen.opened.push(rest.split('"').nth(1).unwrap_or("").to_owned());
        }
        seen.lines.push(line.to_owned());
    }
    seen
}

/// The programs: a shell, a shell with children, Python, a compiler.
fn programs() -> Vec<(&'static str, Vec<String>)> {
    let python =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
    let source = built().scratch.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("source");
    let program = built().scratch.join("empty");
    let words = |w: &[&str]| w.iter().map(|s| (*s).to_string()).collect();
    vec![
        ("bash", words(&["/bin/bash", "-c", "true"])),
        ("bash and children", words(&["/bin/bash", "-c", "ls / | cat; (exit 0)"])),
        ("python", words(&[&python, "-c", "import json, threading"])),
        ("gcc", words(&["gcc", "-O1", "-o", &program.to_string_lossy(), &source.to_string_lossy()])),
    ]
}

#[test]
fn a_process_that_never_touches_cuda_is_not_touched() {
    let own = built().library.to_string_lossy().into_owned();
    for (name, words) in programs() {
        let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let victim = || Victim::of(&words[0], &rest, "13.0");
        let _shared = CORES.read().unwrap_or_else(|e| e.into_inner());
        let (without, with) = (strace(victim(), false), strace(victim(), true));
        let count = |seen: &Seen, call: &str| seen.calls.get(call).copied().unwrap_or(0);
        for call in
            ["clone", "clone3", "fork", "vfork", "execve", "write", "pwrite64", "socket", "unlink", "mkdir"]
        {
            assert_eq!(count(&with, call), count(&without, call), "{name}: {call}");
        }
        let created =
            |s: &Seen| s.lines.iter().filter(|l| l.contains("O_CREAT") || l.contains("O_WRONLY")).count();
        assert_eq!(created(&with), created(&without), "{name}: files opened for writing");
        assert!(
            !with.lines.iter().any(|l| l.contains("cupti") || l.contains("libcuda.")),
            "{name}: no CUDA library"
        );
        // only what the loader opens for us: this library and the ones it needs (libc's own,
        // libgcc_s)
        let mut before = without.opened.clone();
        let extra: Vec<_> = with
            .opened
            .iter()
            .filter(|f| match before.iter().position(|b| b == *f) {
                Some(at) => {
                    before.swap_remove(at);
                    false
                }
                None => true,
            })
            .filter(|f| **f != own)
            // the names of the parts of the program's own file: whether it holds code for GPUs
            // (`duty_cycle/linked_in.rs`)
            .filter(|f| **f != "/proc/self/exe")
            .filter(|f| {
                let file = f.rsplit('/').next().unwrap_or("");
                !["libgcc_s.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"].contains(&file)
                    && !f.contains("/tmp/cc") // gcc's own temporary files have random names
            })
            .collect();
        assert!(extra.is_empty(), "{name}: {extra:?}");
    }
}

#[test]
fn timed_the_constructor_takes_less_than_a_millisecond() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let time = |preload: bool| {
        let mut command = Command::new("/bin/true");
        command.env_clear();
        if preload {
            command.env("LD_PRELOAD", &built().library);
        }
        let from = Instant::now();
        assert!(command.status().expect("true").success());
        from.elapsed()
    };
    // in pairs, so that what else runs on the machine weighs on both
    let mut added: Vec<i64> =
        (0..300).map(|_| (time(true).as_nanos() as i64) - (time(false).as_nanos() as i64)).collect();
    added.sort_unstable();
    let median = added[added.len() / 2];
    println!("adds {median} ns to a process (median of {})", added.len());
    assert!(median < 1_000_000, "{median} ns");
}

#[test]
fn cuinit_alone_leaves_nothing() {
    for victim in [
        Victim::sim("13.0", &["loop", "1", "1", "1", "0", "0", "q"]),
        Victim::sim("12.4", &["loop", "1", "1", "1", "0", "0", "q"]),
    ] {
        let run = victim.run();
        assert_eq!(run.ending(), 0, "{}", run.stderr);
        assert_eq!(run.stderr, "");
        assert!(run.left_anywhere().is_empty(), "{:?}", run.left_anywhere());
        assert!(run.recordings().is_empty());
    }
    let seen = strace(Victim::sim("13.0", &["loop", "1", "1", "1", "0", "0", "q"]), true);
    let threads = seen.lines.iter().filter(|l| l.contains("CLONE_THREAD")).count();
    let without = strace(Victim::sim("13.0", &["loop", "1", "1", "1", "0", "0", "q"]), false);
    // the simulated CUPTI has a worker of its own, as the real one has
    let theirs = without.lines.iter().filter(|l| l.contains("CLONE_THREAD")).count();
    assert!(threads <= theirs + 1, "{threads} threads, {theirs} without");
}

#[test]
fn switched_off_it_does_not_touch_cupti() {
    let lists = [("GAPPROBE_DENY", "python3, loop"), ("GAPPROBE_ALLOW", "python3,torchrun")];
    let switches = ["0", "off", "False", "NO"].map(|value| ("GAPPROBE", value));
    for (name, value) in switches.into_iter().chain(lists) {
        let run = Victim::sim("13.0", &["loop", "5", "10", "10"]).env(name, value).run();
        assert_eq!((run.ending(), run.launched(), run.stderr.as_str()), (0, 50, ""), "{name}");
        assert!(run.truth().cupti.is_empty(), "{name}: {:?}", run.truth().cupti);
        assert!(run.left_anywhere().is_empty(), "{name}");
    }
    for (name, value) in [("GAPPROBE_DENY", "python3"), ("GAPPROBE_ALLOW", "python3,loop"), ("GAPPROBE", "1")]
    {
        let run = Victim::sim("13.0", &["loop", "5", "10", "10"]).env(name, value).run();
        assert_eq!(run.recorded().kernels().len(), 50, "{name}={value}");
    }
}

#[test]
fn a_child_that_never_touches_cuda_costs_its_parent_nothing() {
    let script = "for n in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done";
    let run = Victim::of("/bin/bash", &["-c", script], "13.0").run();
    assert_eq!((run.ending(), run.stderr.as_str()), (0, ""));
    assert!(run.left_anywhere().is_empty());
    assert!(run.wall < Duration::from_secs(2));
}

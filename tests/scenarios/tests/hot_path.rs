// SPDX-License-Identifier: Apache-2.0
//! Purpose: what gapprobe does on the program's threads while it records: no allocation (a thread's
//! first event included), no system call and so no lock that was waited for, no page fault, at most
//! 60 ns an event, and a tail that a saturated disk does not touch. Preloaded, and loaded by the
//! driver alone (CUDA_INJECTION64_PATH).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{cases, Run, Victim, CORES};

/// 11.8 has launches as callbacks, 13.0 as records.
const RELEASES: [&str; 2] = ["13.0", "11.8"];

fn ways(release: &str, words: &[&str]) -> [(String, Victim); 2] {
    let victim = || Victim::ours(release, words).env("SIM_TRUTH", "").env("SIM_LAUNCH_NS", "0");
    [(format!("{release} preloaded"), victim()), (format!("{release} injected"), victim().injected())]
}

/// Each way of being loaded, four times at most.
fn one_of_four_is_right(release: &str, mode: &str, is_right: impl Fn(&Run) -> bool) {
    for way in 0..2 {
        let found = (0..4).any(|_| {
            let [preloaded, injected] = ways(release, &["hot_path", mode]);
            let (label, victim) = if way == 0 { preloaded } else { injected };
            let run = if mode == "cost" { victim.run_alone_on_the_cores() } else { victim.run() };
            assert_eq!(run.ending(), 0, "{label}: {}", run.stderr);
            print!("{label}: {}", run.stdout);
            is_right(&run)
        });
        assert!(found, "{release}, {mode}, way {way}: wrong four times");
    }
}

fn number(run: &Run, before: &str) -> f64 {
    let found = run.stdout.split(before).nth(1).and_then(|rest| rest.split_whitespace().next());
    found
        .and_then(|n| n.trim_end_matches([')', ',']).parse().ok())
        .unwrap_or_else(|| panic!("{before:?} in {:?} {}", run.stdout, run.stderr))
}

#[test]
fn no_allocation_on_the_programs_threads() {
    for &release in cases(&RELEASES) {
        for (label, victim) in ways(release, &["hot_path", "allocations"]) {
            let run = victim.run();
            assert_eq!(run.ending(), 0, "{label}: {}", run.stderr);
            assert!(run.others().is_empty(), "{label}: {}", run.stderr);
            assert_eq!(number(&run, "allocations "), 0.0, "{label}: {}", run.stdout);
            let events = run.recorded().kernels().len();
            assert_eq!(events, 8 * (300 + 20 + 2000 + 8 * 20), "{label}: it was recording");
        }
    }
}

/// System calls between the marks that have a frame of ours on their stack, and how many windows
/// there were.
fn calls_of_ours(label: &str, victim: Victim) -> (Vec<String>, usize) {
    let logs = victim.folder.join("strace");
    std::fs::create_dir(&logs).expect("folder");
    // strace gives up (status 1) where a thread ends while it unwinds that thread's stack: then
    // again
    for attempt in 1.. {
        match strace(&victim, &logs) {
            Ok(()) => break,
            Err(said) if said.contains("cannot initialize libunwind") && attempt < 10 => {
                std::fs::remove_dir_all(&logs).expect("folder");
                std::fs::create_dir(&logs).expect("folder");
            }
            Err(said) => panic!("{label}: {said}"),
        }
    }
    let (mut ours, mut windows, mut stacks) = (Vec::new(), 0, 0);
    for file in std::fs::read_dir(&logs).expect("logs").filter_map(Result::ok) {
        let text = std::fs::read_to_string(file.path()).expect("a log");
        let (mut within, mut call) = (false, "");
        for line in text.lines() {
            if line.starts_with(" > ") {
                stacks += 1;
                if within && line.contains("libgapprobe.so") {
                    ours.push(format!("{call}: {}", line.trim()));
                }
                continue;
            }
            call = line;
            if line.starts_with("write(-1, \"begin\"") {
                (within, windows) = (true, windows + 1);
            } else if line.starts_with("write(-1, \"end\"") {
                within = false;
            }
        }
    }
    assert!(stacks > 100, "{label}: this strace prints no stacks (-k)");
    (ours, windows)
}

/// Runs the victim under strace, one log a thread; what was said where that failed.
fn strace(victim: &Victim, logs: &Path) -> Result<(), String> {
    let mut command = Command::new("strace");
    command.args(["-ff", "-qq", "-k", "-o"]).arg(logs.join("of"));
    for (name, value) in victim.command.get_envs() {
        match value {
            Some(value) if name == "LD_PRELOAD" || name == "CUDA_INJECTION64_PATH" => {
                command.arg("-E").arg(format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
            }
            Some(value) => {
                command.env(name, value);
            }
            None => {
                command.env_remove(name);
            }
        }
    }
    command.arg(victim.command.get_program()).args(victim.command.get_args());
    command.current_dir(victim.folder.join("out")).stdin(Stdio::null());
    let done = command.output().expect("strace (apt install strace)");
    if done.status.success() {
        return Ok(());
    }
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{}: {}{}", done.status, said(&done.stderr), said(&done.stdout)))
}

#[test]
fn no_system_call_on_the_programs_threads() {
    for &release in cases(&RELEASES) {
        // (where launches are records it is the simulated driver that calls the kernel, and strace
        // unwinds each call: fewer rounds)
        let rounds = if release == "11.8" { "3000" } else { "500" };
        for (label, victim) in ways(release, &["hot_path", "syscalls", rounds]) {
            let _shared = CORES.read().unwrap_or_else(|e| e.into_inner());
            let (ours, windows) = calls_of_ours(&label, victim);
            assert_eq!(windows, 2, "{label}: the main thread's window and a fresh thread's");
            // a lock that has to be waited for would be a futex here
            assert!(ours.is_empty(), "{label}: {ours:#?}");
        }
    }
}

#[test]
fn no_system_call_on_a_thread_that_python_called_from() {
    let library = built().victims.join("13.0/libfrom_python.so");
    let script = gapprobe_scenarios::built::root().join("tests/victims/depth.py");
    // (isolated, without site: every system call of its start is a stack that strace unwinds)
    let words =
        ["-IS", script.to_str().expect("a path"), library.to_str().expect("a path"), "syscalls", "20"];
    let (_, python) = gapprobe_scenarios::pythons::pythons(&["3.11", "3.12", "3.13", "3.10"]).swap_remove(0);
    let victim = Victim::of(python, &words, "13.0").env("SIM_TRUTH", "").env("SIM_LAUNCH_NS", "0");
    let _shared = CORES.read().unwrap_or_else(|e| e.into_inner());
    let (ours, windows) = calls_of_ours("python", victim);
    assert_eq!(windows, 1);
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn no_page_fault_on_the_programs_threads() {
    for &release in cases(&RELEASES) {
        // the simulated CUPTI's own lists grow now and then, and a machine that wants its memory
        // back takes pages that come again with a fault; one of ours would come in every window of
        // every run
        one_of_four_is_right(release, "faults", |run| {
            let ours = run.stdout.split("ours").nth(1).expect("ours").split_whitespace();
            let ours: Vec<u64> = ours.filter_map(|w| w.parse().ok()).collect();
            ours.iter().min() == Some(&0) && ours.iter().all(|n| *n < 40)
        });
    }
}

#[test]
fn timed_an_event_costs_little() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    // `cargo bench` holds the targets in ns, on a quiet machine. Here anything may run beside, and
    // the machine may be a slower one: of each side the quickest block counts, and ours is held
    // against the bare one (0.36 to 0.47 in 14 runs, on idle cores and with two more on each)
    one_of_four_is_right("13.0", "cost", |run| number(run, "least ") < 0.75 * number(run, "bare "));
}

#[test]
#[ignore = "scripts/test thorough: 45 s, alone on the cores"]
fn timed_the_tail_is_not_touched_by_a_saturated_disk() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let ballast = built().scratch.join("ballast");
    let script =
        format!("while :; do dd if=/dev/zero of={} bs=1M count=256 conv=fsync; done", ballast.display());
    let mut disk = {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        shell.spawn().expect("sh")
    };
    std::thread::sleep(Duration::from_millis(500));
    // what else runs, and the interrupts of a virtual machine, only add: one run of eight without
    // them is enough
    let (mut best, mut loops) = (f64::MAX, Vec::new());
    for _ in 0..8 {
        let run = Victim::ours("13.0", &["hot_path", "tail"]).env("SIM_TRUTH", "").run_alone_on_the_cores();
        assert_eq!(run.ending(), 0, "{}", run.stderr);
        print!("{}", run.stdout);
        let of = |who: &str| {
            let line = run.stdout.lines().find(|l| l.starts_with(who)).expect("a line");
            let p9999 = line.split("p99.99 ").nth(1).and_then(|r| r.split(' ').next()?.parse::<f64>().ok());
            p9999.expect("a number")
        };
        loops.push(of("loop "));
        best = best.min(of("ours "));
        if best < 5_000.0 {
            break;
        }
    }
    // SAFETY: the process group of the shell we started.
    unsafe { libc::kill(-(disk.id() as i32), libc::SIGKILL) };
    disk.wait().expect("wait");
    let _ = std::fs::remove_file(&ballast); // left-overs are in the target folder
    loops.sort_by(f64::total_cmp);
    let alike = loops.get(loops.len() / 2).copied().unwrap_or(0.0);
    if best >= 5_000.0 && alike >= 5_000.0 {
        println!("SKIPPED: loops as long as ours, which only read the clock, have a p99.99 of {alike} ns on this machine");
        return;
    }
    assert!(best < 5_000.0, "ours {best} ns, loops as long {alike} ns");
}

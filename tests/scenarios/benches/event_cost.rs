// SPDX-License-Identifier: Apache-2.0
//! What one recorded call costs on the program's thread above bare CUPTI: ns an event, clock reads
//! included, paired blocks in one process (`gapprobe_test_bare`), the median of 40. And the tail of
//! the callback path, with the disk idle and saturated by another process: the time that each
//! single call spends in our two callbacks, taken around them by the simulated driver, every call
//! counted, beside the same with empty callbacks, and loops as long as ours usually take that only
//! read the clock: what the machine itself takes from a program. The best of three processes counts
//! for each figure, since anything else that runs and the interrupts of a virtual machine only add;
//! all are printed. Target: 60 ns an event, p99.99 under 5 us; on a machine that lets the loops'
//! own p99.99 grow beyond half of that, no more calls over 5 us than loops, within three standard
//! deviations of a count.
//!
//! What finding the calling function adds to a call (GAPPROBE_SITES; a program of C) is measured
//! the same way. Target: 100 ns, as for the line of Python (`--bench call_site`).
//!
//! What an NVTX range costs (push and pop, by a registered name and by a text; a mark) is printed
//! beside it.
//!
//! `cargo bench -p gapprobe-scenarios`: prints the numbers; exit code 1 where an event costs more
//! than the target.

use std::process::Command;

use gapprobe_scenarios::{Run, Victim};

const TARGET_NS: f64 = 60.0;
const CALLER_TARGET_NS: f64 = 100.0;
const TAIL_TARGET_NS: f64 = 5_000.0;
const TAIL_CALLS: &str = "300000";

fn run(words: &[&str], sites: &str) -> Run {
    let victim = Victim::ours("13.0", words).whole().env("SIM_TRUTH", "").env("SIM_LAUNCH_NS", "0");
    let run = victim.env("GAPPROBE_SITES", sites).run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    // correctness first: what was measured was recorded
    let recorded = run.recorded();
    assert!(recorded.total(trace::Total::Syncs) > 50_000, "{}", run.stderr);
    let with_caller = recorded.of(trace::Kind::Call).filter(|(_, e)| e.c != 0).count();
    assert_eq!(with_caller > 50_000, sites == "1", "{with_caller} {:?}", recorded.losses());
    run
}

fn number(line: &str, after: &str) -> Option<f64> {
    line.split_whitespace().skip_while(|word| *word != after).nth(1)?.parse().ok()
}

/// The tail of calls' time in our callbacks.
struct Tail {
    /// p99.99, ns: the best of three processes.
    p9999: f64,
    /// The same of loops that do nothing.
    machine: f64,
    /// Over the target, in all three processes: ours, and the loops'.
    late: (f64, f64),
}

impl Tail {
    fn is_right(&self) -> bool {
        let (ours, loops) = self.late;
        let as_the_machine =
            self.machine > TAIL_TARGET_NS / 2.0 && ours <= loops + 3.0 * (ours + loops).sqrt();
        self.p9999 < TAIL_TARGET_NS || as_the_machine
    }
}

fn tail(title: &str) -> Tail {
    let mut all = Tail { p9999: f64::MAX, machine: f64::MAX, late: (0.0, 0.0) };
    for _ in 0..3 {
        let run = run(&["hot_path", "tail", TAIL_CALLS], "1");
        print!("{title}:\n{}", run.stdout);
        let of = |who: &str, what: &str| {
            let line = run.stdout.lines().find(|l| l.starts_with(who));
            line.and_then(|l| number(l, what)).expect("a figure")
        };
        all.p9999 = all.p9999.min(of("ours", "p99.99"));
        all.machine = all.machine.min(of("loop", "p99.99"));
        all.late = (all.late.0 + of("ours", "late"), all.late.1 + of("loop", "late"));
    }
    all
}

fn main() {
    let cost = |sites: &str| {
        let once = || {
            let run = run(&["hot_path", "cost"], sites);
            print!("GAPPROBE_SITES={sites} {}", run.stdout);
            run.stdout.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(f64::MAX)
        };
        (0..3).map(|_| once()).fold(f64::MAX, f64::min)
    };
    let (best, with_caller) = (cost("0"), cost("1"));
    let caller = with_caller - best;
    let ballast = gapprobe_scenarios::built::built().scratch.join("ballast");
    let writer =
        format!("while :; do dd if=/dev/zero of={} bs=1M count=256 conv=fsync; done", ballast.display());
    let idle = tail("disk idle");
    let mut disk = {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("sh");
        shell.args(["-c", &writer]).stderr(std::process::Stdio::null()).process_group(0);
        shell.spawn().expect("sh")
    };
    let saturated = tail("disk saturated");
    // SAFETY: the process group of the shell we started.
    unsafe { libc::kill(-(disk.id() as i32), libc::SIGKILL) };
    disk.wait().expect("wait");
    let _ = std::fs::remove_file(&ballast); // left-overs are in the target folder
    let nvtx = Victim::ours("13.0", &["nvtx_calls", "cost"]).run();
    assert_eq!(nvtx.ending(), 0, "{}", nvtx.stderr);
    let recorded = nvtx.recorded();
    assert_eq!(recorded.of(trace::Kind::Range).count(), 40 * 3 * 1000, "{:?}", recorded.losses());
    print!("nvtx ns, push and pop: {}", nvtx.stdout);
    println!("event {best:.1} ns (target {TARGET_NS:.0}), its caller {caller:.1} ns more (target {CALLER_TARGET_NS:.0})");
    for (title, t) in [("disk idle", &idle), ("disk saturated", &saturated)] {
        let (ours, loops) = t.late;
        println!(
            "{title}: p99.99 {:.0} ns (target {TAIL_TARGET_NS:.0}; loops that do nothing {:.0}), over the target {ours} calls and {loops} loops",
            t.p9999, t.machine
        );
    }
    if best > TARGET_NS || caller > CALLER_TARGET_NS || !idle.is_right() || !saturated.is_right() {
        std::process::exit(1);
    }
}

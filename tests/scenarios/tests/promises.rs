// SPDX-License-Identifier: Apache-2.0
//! Purpose: what the replay says of a fix is what the fix wins. Random programs (those of
//! `analyzer/cli/tests/replay.rs`, which plays them on a simulator of its own) are real processes
//! here, under the real library on the simulated driver: the slow form is recorded, and what is
//! said of it is held against the time that the mended form takes.
//!
//! Both forms run under gapprobe: a promise is one of recorded steps
//! (`analyzer/verdict/src/replay/mod.rs`). How long a step takes is not gapprobe's word but the
//! driver's and the program's own clock's. The simulated driver runs in real time, so a run that
//! something else of the machine disturbed is wrong now and then, and is made again; a replay that
//! is wrong is so every time.
//!
//! `GAPPROBE_SEED=7` draws other programs, `GAPPROBE_PROGRAMS=200` more of them.

#[allow(dead_code, reason = "how soon a call comes back is the real clock's here")]
#[path = "../../../analyzer/cli/tests/replay/acts.rs"]
mod acts;
#[allow(dead_code, reason = "analyzer/cli/tests/replay.rs draws other programs as well")]
#[path = "../../../analyzer/cli/tests/replay/programs.rs"]
mod programs;

use std::fmt::Write;

use acts::Act;
use gapprobe_scenarios::{Run, Victim, CORES};
use programs::{program, Fault, Program, Random};
use verdict::causes::{alloc, copy, device_wait, host, input, kind_of, launch, sync};
use verdict::gaps::HostView;
use verdict::replay::{Fix, Fixes, Prepared};

/// Steps of a program, and those until its queues are as full as they get. What happens in every
/// third step happens in a third of those that are looked at.
const STEPS: usize = 37;
const WARM: usize = 12;
/// A saving is right within this share of itself.
const OF_SAVING: f64 = 0.05;
/// What is less of the slow step proves nothing: another program is drawn.
const WORTH: f64 = 0.10;
const DRAWS: u64 = 40;
/// So often a program is run until it is right.
const ATTEMPTS: usize = 6;
/// Everything that a program does takes so many times as long as there that a step takes about
/// this, ns: what a call takes beyond what it is told to (in the simulated driver, in its
/// callbacks) is a microsecond or so, not the same in each moment of the machine, and must not be a
/// part of what is to be won.
const STEP: u64 = 12_000_000;
const SLOWER: std::ops::RangeInclusive<u64> = 1..=100;
/// What an allocation takes before that, ns (one figure a process; the programs' own vary).
const ALLOC: u64 = 150_000;
/// From a launch's return to its kernel's start at most, ns (H200: 99 % within 3 us;
/// `STARTS_WITHIN_NS` in `analyzer/verdict/src/gaps/mod.rs`). The machines of `programs.rs` have up
/// to 11 us, in which a program that only launches is idle "for no reason seen".
const STARTS_WITHIN: u64 = 3_000;

fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(usual)
}

/// What mends it, and the cause that promises it.
fn fix_of(fault: Fault) -> (Fix, &'static str) {
    match fault {
        Fault::Waits => (Fix::Sync, sync::CODE),
        Fault::Launches => (Fix::Launch, launch::CODE),
        Fault::Elsewhere => (Fix::Host, host::CODE),
        Fault::Fetching => (Fix::Input, input::CODE),
        Fault::Pageable => (Fix::Copy, copy::CODE),
        Fault::Allocations => (Fix::Alloc, alloc::CODE),
        Fault::Streams => (Fix::DeviceWait, device_wait::CODE),
    }
}

/// How many times as long everything takes.
fn slower(p: &Program) -> u64 {
    let (mut host, mut device) = (0, 0);
    for act in p.steps.iter().flatten() {
        match act {
            Act::Think(ns) | Act::Sleep(ns) | Act::Fetch(ns) => host += ns,
            Act::Free(_) | Act::Malloc(_) => host += ALLOC,
            Act::Launch { ns, .. } => device += ns,
            Act::CopyIn { bytes, .. } | Act::CopyOut { bytes, .. } => device += bytes / p.machine.pageable,
            _ => {}
        }
    }
    let step = host.max(device) / p.steps.len() as u64;
    STEP.div_ceil(step.max(1)).clamp(*SLOWER.start(), *SLOWER.end())
}

/// The list that `victims/acts.c` reads, and how many operations each step puts on the device.
fn list(p: &Program, slower: u64) -> (String, Vec<usize>) {
    let (mut text, mut ops) = (String::new(), Vec::new());
    for acts in &p.steps {
        let mut thread = 0;
        let before = text.len();
        for act in acts {
            if let Act::Thread(tid) = act {
                thread = u32::from(*tid != 100);
                writeln!(text, "h {thread}").expect("a string");
            } else {
                line(&mut text, act, slower);
            }
        }
        let issues = |l: &&str| matches!(l.as_bytes()[0], b'l' | b'i' | b'o' | b'v');
        ops.push(text[before..].lines().filter(issues).count());
        if thread != 0 {
            text.push_str("h 0\n");
        }
        text.push_str("e\n");
    }
    (text, ops)
}

/// One act. (Writing into a string does not fail.)
fn line(text: &mut String, act: &Act, slower: u64) {
    let stream = |s: &u32| u32::from(*s != 7);
    let more = |amount: &u64| amount * slower;
    let _ = match act {
        Act::Think(ns) => writeln!(text, "t {}", more(ns)),
        Act::Sleep(ns) => writeln!(text, "s {}", more(ns)),
        Act::Fetch(ns) => writeln!(text, "f {}", more(ns)),
        Act::Launch { stream: s, kernel, ns } => writeln!(text, "l {} {kernel} {}", stream(s), more(ns)),
        Act::CopyIn { stream: s, bytes, pinned } => {
            writeln!(text, "i {} {} {}", stream(s), more(bytes), u8::from(*pinned))
        }
        Act::CopyOut { bytes, pinned, aside } => {
            writeln!(text, "o {} {} {}", more(bytes), u8::from(*pinned || *aside), u8::from(*aside))
        }
        Act::Item { later, .. } => writeln!(text, "v {}", u8::from(*later)),
        Act::Sync => writeln!(text, "y"),
        Act::Free(_) => writeln!(text, "x"),
        Act::Malloc(_) => writeln!(text, "m"),
        Act::Wait { stream: s, on, late } => {
            writeln!(text, "w {} {} {}", stream(s), stream(on), u8::from(*late))
        }
        Act::Graph(nodes) => {
            let _ = writeln!(text, "g {}", nodes.len());
            nodes.iter().for_each(|n| line(text, n, slower));
            Ok(())
        }
        Act::Thread(_) => Ok(()),
    };
}

/// A run of one form.
struct Played {
    run: Run,
    /// Time of a step, ns.
    step: f64,
    /// By how much a step was longer because its host was late, ns.
    late: f64,
}

/// Runs it under gapprobe, alone on the cores, everything this many times as slow.
fn play(p: &Program, slower: u64) -> Played {
    let m = p.machine;
    let starts = STARTS_WITHIN.min(m.latency - m.launch);
    let (list, ops) = list(p, slower);
    let victim = Victim::ours("13.0", &["acts", "list", &WARM.to_string()]);
    std::fs::write(victim.folder.join("out/list"), list).expect("a list");
    let machine = [
        ("SIM_LAUNCH_NS", m.launch),
        ("SIM_LATENCY_NS", starts),
        ("SIM_GAP_NS", m.spacing),
        // the first node starts when the call has handed over the last
        ("SIM_GRAPH_LAUNCH_NS", m.graph - starts),
        ("SIM_GRAPH_NODE_NS", m.node),
        // as eager kernels: what the replay takes the nodes of a graph to be that was not recorded
        ("SIM_NODE_GAP_NS", m.spacing),
        ("SIM_PAGEABLE_MBPS", m.pageable * 1_000),
        ("SIM_PINNED_MBPS", m.pinned * 1_000),
        ("SIM_ALLOC_NS", ALLOC * slower),
        // copying real bytes would be the host's time, which on hardware it is not
        ("SIM_MOVED", 64),
    ];
    let set = |v: Victim, (name, value): (&str, u64)| v.env(name, value.to_string());
    let run = machine.into_iter().fold(victim, set).run_alone_on_the_cores();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let number = |what: &str| {
        let line = run.stdout.lines().find_map(|l| l.strip_prefix(what)).expect("a line of the victim's");
        line.trim().parse::<f64>().expect("a number")
    };
    // a step is done when its host is through and its work has ended, as in
    // `analyzer/cli/tests/replay/truth.rs`
    let truth = run.truth();
    assert_eq!(truth.ops.len(), ops.iter().sum::<usize>(), "all that the list issues");
    let mut rest = truth.ops.as_slice();
    let mut done = Vec::new();
    for (n, &own) in ops.iter().enumerate() {
        let (mine, behind) = rest.split_at(own);
        rest = behind;
        done.push(mine.iter().map(|o| o.end).fold(number(&format!("done {n} ")) as u64, u64::max));
    }
    let (from, to) = (WARM - 1, STEPS - 2);
    let step = (done[to] - done[from]) as f64 / (to - from) as f64;
    let late = (number("late ") + number("pushed ")) / (STEPS - WARM) as f64;
    Played { run, step, late }
}

/// What the replay of the recording says that mending the fault wins of a step, ns.
fn replayed(run: &Run, fault: Fault) -> f64 {
    let bytes = std::fs::read(&run.recordings()[0]).expect("a recording");
    let run = verdict::load(bytes.as_slice()).expect("a recording");
    let a = verdict::analyze(&run);
    let device = &run.devices[0];
    let span = (a.steps.steady(), a.steady);
    let prepared = Prepared::new(&run, device, &HostView::new(&run, device), &[], span);
    let play = |fixes: &[Fix]| prepared.play(Fixes::of(fixes)) as f64;
    a.steps.mean_ns * (1.0 - play(&[fix_of(fault).0]) / play(&[]))
}

/// What the summary promises of it: of the cause and its kinds together; `None`: nothing.
fn promised(run: &Run, fault: Fault) -> Option<f64> {
    let summary = run.summary().expect("a summary");
    let step = summary["steps"]["mean_ns"].as_f64().expect("steps");
    let code = fix_of(fault).1;
    let is_of = |c: &str| c == code || kind_of(c) == Some(code);
    let findings = summary["findings"].as_array().expect("findings").iter();
    let of = findings.filter(|f| f["code"].as_str().is_some_and(is_of));
    let wins: Vec<f64> = of.filter_map(|f| Some(step - f["predicted_ns"].as_f64()?)).collect();
    (!wins.is_empty()).then(|| wins.iter().sum())
}

/// One attempt: both forms, and what was said.
struct Attempt {
    slow: f64,
    saved: f64,
    replayed: f64,
    promised: Option<f64>,
    late: [f64; 2],
}

impl Attempt {
    fn of(slow: &Program, fault: Fault) -> Attempt {
        let slower = slower(slow);
        let (a, b) = (play(slow, slower), play(&slow.mended(&[fault]), slower));
        let (replayed, promised) = (replayed(&a.run, fault), promised(&a.run, fault));
        Attempt { slow: a.step, saved: a.step - b.step, replayed, promised, late: [a.late, b.late] }
    }

    fn proves_something(&self) -> bool {
        self.saved >= WORTH * self.slow
    }

    /// The replay is right, and so is the promise. What is promised of one cause among several may
    /// be less: a gap is charged to one of them, and no cause is promised more than the gaps that
    /// may be its own.
    fn is_right(&self, single: bool) -> bool {
        let off = |said: f64| (said - self.saved) / self.saved;
        let promise = self.promised.map_or(0.0, off);
        off(self.replayed).abs() <= OF_SAVING
            && promise <= OF_SAVING
            && (!single || (self.promised.is_some() && promise >= -OF_SAVING))
    }
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of_saving = |said: f64| (said - self.saved) / self.saved * 100.0;
        write!(f, "{:.3} ms a step, {:.3} saved, the replay ", self.slow / 1e6, self.saved / 1e6)?;
        write!(f, "{:+.1}% of it, ", of_saving(self.replayed))?;
        match self.promised {
            Some(said) => write!(f, "the summary {:+.1}%", of_saving(said))?,
            None => write!(f, "nothing promised")?,
        }
        write!(f, " (late by {:.3} and {:.3} ms)", self.late[0] / 1e6, self.late[1] / 1e6)
    }
}

/// Is all that is to be won promised? Of streams that wait for each other one is always busy, and
/// where the GPU is busy nothing is promised.
fn is_single(faults: &[Fault]) -> bool {
    faults.len() == 1 && faults[0] != Fault::Streams
}

/// The first program of this fault, and up to two others, from `seed` on that proves something: its
/// seed, all its faults, and what was seen, the last attempt last.
fn drawn(fault: Fault, from: u64) -> (u64, Vec<Fault>, Vec<Attempt>) {
    'draw: for seed in from..from + DRAWS {
        let mut r = Random::new(seed * 31 + fault as u64);
        let mut faults = vec![fault];
        for _ in 0..r.of(0, 2) {
            let other = Fault::ALL[r.of(0, 6) as usize];
            if !faults.contains(&other) {
                faults.push(other);
            }
        }
        // the simulated driver plays a graph's nodes in turn, whatever their streams
        if fault == Fault::Launches && faults.contains(&Fault::Streams) {
            continue;
        }
        let slow = program(&mut r, &faults, STEPS);
        let mut seen = Vec::new();
        while seen.len() < ATTEMPTS {
            let attempt = Attempt::of(&slow, fault);
            if !attempt.proves_something() {
                continue 'draw;
            }
            let right = attempt.is_right(is_single(&faults));
            seen.push(attempt);
            if right {
                break;
            }
        }
        return (seed, faults, seen);
    }
    panic!("{DRAWS} programs from seed {from} on in which nothing is to be won by mending {fault:?}");
}

#[test]
#[ignore = "scripts/test thorough: a minute, alone on the cores"]
fn timed_what_is_said_of_a_fix_is_what_it_wins() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let (seed, programs) = (from_environment("GAPPROBE_SEED", 1), from_environment("GAPPROBE_PROGRAMS", 14));
    let mut wrong = Vec::new();
    let (mut next, mut singles) = ([seed; 7], 0);
    for n in 0..programs as usize {
        let fault = Fault::ALL[n % 7];
        let (seed, faults, seen) = drawn(fault, next[n % 7]);
        next[n % 7] = seed + 1;
        let single = is_single(&faults);
        let name = format!("seed {seed}, {fault:?} of {faults:?}");
        singles += usize::from(single);
        let said: Vec<String> = seen.iter().map(Attempt::to_string).collect();
        println!("{name}: {}", said.join("; again: "));
        if !seen.last().is_some_and(|a| a.is_right(single)) {
            wrong.push(format!("{name}:\n    {}", said.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {programs}\n{}", wrong.len(), wrong.join("\n"));
    assert!(singles > 0, "programs of one fault, of which the promise itself is held: {singles}");
}

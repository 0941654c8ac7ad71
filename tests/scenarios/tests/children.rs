// SPDX-License-Identifier: Apache-2.0
//! Purpose: what child processes do is known: how much of a CPU they have, what they read, and
//! where they stand in Python, however they were started (fork, spawn, a fork server, exec), in
//! every CPython there is. A function that the child does not have is never named.

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::{Recorded, Run, Victim};
use trace::Kind;

use super::sampled::{fine, marked, pythons, victim};

/// The process id that the program printed behind this word.
fn pid(run: &Run, whose: &str) -> u32 {
    let mut words = run.stdout.split_whitespace().skip_while(|w| *w != whose);
    words.nth(1).and_then(|w| w.parse().ok()).expect("a pid")
}

/// Where the child stood at each look, as (function, line), innermost first.
fn stacks(recorded: &Recorded, pid: u32) -> Vec<Vec<(String, u32)>> {
    let text = |id: u32| recorded.definitions.string(id).unwrap_or("").to_owned();
    let all = recorded.of(Kind::ChildSample).map(|(_, e)| *e).filter(|e| e.b == pid);
    all.map(|e| recorded.definitions.stack(e.a).map(|f| (text(f.function), f.line)).collect()).collect()
}

#[test]
fn children_that_compute_and_read_are_seen() {
    let python = pythons().pop().expect("a python");
    let victim = victim(&python, "children", "2.5");
    std::fs::write(victim.folder.join("out/big"), vec![7u8; 8 << 20]).expect("file");
    let run = victim.run();
    let recorded = fine(&run, &python);
    let of = |pid: u32| {
        recorded.of(Kind::Process).map(|(_, e)| *e).filter(move |e| e.a == pid).collect::<Vec<_>>()
    };
    let (busy, reader) = (of(pid(&run, "busy")), of(pid(&run, "reader")));
    assert!(busy.len() >= 2, "{busy:?}");
    assert!(busy.iter().all(|e| e.start < e.end));
    let cpu = busy.iter().map(|e| e.b & 0xffff).max();
    // thousandths of a core, which others want, too
    assert!(cpu.is_some_and(|c| c > 50 && c <= 1100), "{busy:?}");
    // `dd` reads, a child of the child; it lives for a moment only, and its parent's own counters
    // hold what it read
    assert!(
        reader.iter().any(|e| e.c > 1000) || recorded.of(Kind::Process).any(|(_, e)| e.c > 1000),
        "{reader:?}"
    );
}

/// Stacks of `crunch`, called by `caller`, are right at every look that found one; most looks do.
#[track_caller]
fn are_of_crunch(name: &str, all: &[Vec<(String, u32)>], caller: &str, line: u32) {
    let is_right = |s: &[(String, u32)]| {
        s.first().is_some_and(|f| f.0 == "crunch" && (line - 3..=line).contains(&f.1))
            && s.get(1).is_some_and(|f| f.0 == caller)
            && s.last().is_some_and(|f| f.0 == "<module>")
    };
    let right = all.iter().filter(|s| is_right(s)).count();
    println!("{name}: {right} of {} right", all.len());
    assert!(all.len() >= 4 && right * 10 >= all.len() * 8, "{name}: {right} right: {all:?}");
}

/// Of children that were forked and run, the line they stand in is known in every CPython, that of
/// code which a child made itself, too, whatever lies at its address in this process.
#[test]
fn where_forked_children_stand_is_known_and_whose_code_it_is() {
    let (callers, around) = (["call_even", "call_odd"], ["new_code", "copies", "<module>", "made_in"]);
    for python in pythons() {
        let name = python.display().to_string();
        let run = victim(&python, "copies", "2").run();
        let recorded = fine(&run, &python);
        let of = |whose: &str| stacks(&recorded, pid(&run, whose));
        let (old, new, started) = (of("old"), of("new"), of("started"));
        are_of_crunch(&name, &old, "old_code", marked("CRUNCH"));
        let its_own = ["crunch", "old_code", "copies", "<module>"];
        assert!(old.iter().flatten().all(|f| its_own.contains(&&*f.0)), "{name}: {old:?}");
        let known = |f: &str| f.starts_with("childs_") || callers.contains(&f) || around.contains(&f);
        assert!(new.iter().flatten().all(|f| known(&f.0)), "{name}: {new:?}");
        let is_made = |s: &&Vec<(String, u32)>| s.first().is_some_and(|f| f.0.starts_with("childs_"));
        for s in new.iter().filter(is_made) {
            let number: usize = s[0].0["childs_".len()..].parse().expect("a number");
            assert_eq!(s[1].0, callers[number % 2], "{name}: not the one that was called: {s:?}");
        }
        let made = new.iter().filter(is_made).count();
        println!(
            "{name}: {made} of {} in code that the child made, {} of the started one",
            new.len(),
            started.len()
        );
        assert!(made > 0, "{name}: {new:?}");
        assert!(started.len() >= 4, "{name}: {started:?}");
        // (or in what the interpreter imports before it)
        let is_starting = |s: &[(String, u32)]| s.iter().any(|f| f.0 == "_find_and_load");
        let is_its_own = |s: &Vec<(String, u32)>| s.is_empty() || *s == [("<module>".to_owned(), 1)];
        assert!(started.iter().all(|s| is_its_own(s) || is_starting(s)), "{name}: {started:?}");
    }
}

/// Workers that multiprocessing starts anew, or has a server fork, are no copies of the program:
/// the interpreter lies elsewhere in them.
#[test]
fn where_spawned_workers_and_those_of_a_fork_server_stand_is_known() {
    let (script, folder) = (root().join("tests/scenarios/victims/workers.py"), root().join("tests/victims"));
    let text = std::fs::read_to_string(&script).expect("source");
    let line = text.lines().position(|l| l.ends_with("# CRUNCH")).expect("the mark") as u32 + 1;
    for python in pythons() {
        for method in ["spawn", "forkserver"] {
            let words = [&*script.to_string_lossy(), &*folder.to_string_lossy(), method, "2"];
            let run = Victim::of(&python, &words, "13.0").run();
            let recorded = fine(&run, &python);
            let name = format!("{} {method}", python.display());
            let one = stacks(&recorded, pid(&run, "one"));
            let all = [one, stacks(&recorded, pid(&run, "two"))].concat();
            are_of_crunch(&name, &all, "work", line);
        }
    }
}

fn odd(python: &std::path::PathBuf, mode: &str, seconds: &str) -> (Run, Recorded) {
    let (script, folder) =
        (root().join("tests/scenarios/victims/odd_children.py"), root().join("tests/victims"));
    let words = [&*script.to_string_lossy(), &*folder.to_string_lossy(), mode, seconds];
    let run = Victim::of(python, &words, "13.0").run();
    let recorded = fine(&run, python);
    (run, recorded)
}

/// Without address randomization (a debugger, `setarch -R`) the new program lies where the old one
/// lay, and from 3.12 on numbers its code objects alike: what was known of the old one is not said
/// of the new one.
#[test]
fn a_child_that_becomes_the_same_python_at_the_same_addresses_is_another_program() {
    for python in pythons().into_iter().rev().take(4) {
        let (run, recorded) = odd(&python, "becomes", "3");
        let name = python.display().to_string();
        let at = run.stdout.lines().filter_map(|l| l.strip_prefix("at "));
        let at: Vec<(&str, u64)> = at
            .filter_map(|l| l.split_once(' ').map(|(address, ns)| (address, ns.parse().expect("ns"))))
            .collect();
        let [(first, _), (second, became)] = at[..] else { panic!("{name}: {}", run.stdout) };
        if first != second {
            println!("{name}: not shown, the addresses differ");
        }
        let text = |id: u32| recorded.definitions.string(id).unwrap_or("").to_owned();
        let (mut old, mut new) = (0, 0);
        for e in recorded.of(Kind::ChildSample).map(|(_, e)| *e).filter(|e| e.b == pid(&run, "child")) {
            let function =
                recorded.definitions.stack(e.a).next().map(|f| text(f.function)).unwrap_or_default();
            match &*function {
                "crunch_1" if e.start > became => panic!("{name}: {e:?} is behind {became}"),
                "crunch_1" => old += 1,
                "crunch_2" => new += 1,
                _ => {}
            }
        }
        assert!(old >= 4 && new >= 4, "{name}: {old} of the first program, {new} of the second");
    }
}

#[test]
fn a_child_whose_main_thread_waits_for_its_other_threads_is_not_said_to_work_there() {
    let python = pythons().pop().expect("a python");
    let (run, recorded) = odd(&python, "threads", "2");
    let child = pid(&run, "child");
    let cpu = recorded.of(Kind::Process).filter(|(_, e)| e.a == child).map(|(_, e)| e.b & 0xffff).max();
    // (permille of a CPU, beside whatever else runs)
    assert!(cpu.is_some_and(|c| c > 50), "{cpu:?}: it computes");
    let worked = recorded.of(Kind::ChildSample).filter(|(_, e)| e.b == child && e.end > e.start).count();
    assert!(worked <= 1, "its main thread does not, but for the start: {worked} samples");
    let stacks = stacks(&recorded, child);
    let joins = stacks.iter().filter(|s| s.iter().any(|f| f.0.ends_with("join"))).count();
    assert_eq!(joins, 1, "what it is was told once, where it waits: {stacks:?}");
}

/// A long run with children that make functions without end (generated code) does not fill the
/// program's memory.
#[test]
fn ever_new_code_of_children_takes_bounded_memory() {
    let python = pythons().pop().expect("a python");
    let (run, _) = odd(&python, "new_code", "6");
    let grown = pid(&run, "grown"); // kB
    assert!(grown < 24 << 10, "{}", run.stdout);
}

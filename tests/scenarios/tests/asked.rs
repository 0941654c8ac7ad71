// SPDX-License-Identifier: Apache-2.0
//! Purpose: programs whose launches are asked of the driver, not bound to it (XLA's, CuPy's, those
//! of a runtime that is linked in), are recorded in windows as others are, and do what they do
//! without us; where the launches were asked for before we could see it, everything is recorded.

use std::collections::HashMap;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::pythons::pythons;
use gapprobe_scenarios::recorded::Recorded;
use gapprobe_scenarios::{cases, Run, Victim, CORES};
use trace::call::Class;
use trace::Total;

use super::windows::{fine, holds_what_it_saw};

/// Clocks differ by less, ns.
const SAME: u64 = 50_000;
const UNSEEN: &str = "launches are not seen without CUPTI";

fn linked_in(release: &str, steps: &str, how: &str) -> Victim {
    let words = ["linked_in", steps, "2", "200", how];
    Victim::ours(release, &words).env("GAPPROBE_TEST_FREE_MS", "0").env("GAPPROBE_SLOW_STEP", "0")
}

/// In windows, of which it holds every kernel; steps, which nobody marked, are counted right.
fn in_windows(run: &Run, steps: u64, label: &str) -> Recorded {
    let recorded = fine(run);
    let said = || format!("{label}: {}", run.stderr);
    assert!(recorded.total(Total::Windows) >= 3, "{} windows; {}", recorded.total(Total::Windows), said());
    assert!(!run.stderr.contains("no windows"), "{}", said());
    // a window opens inside of a call, whose begin nobody told of
    let truth = run.truth();
    let begins: HashMap<u32, u64> = truth.calls.iter().map(|c| (c.correlation, c.start)).collect();
    for (_, call) in recorded.calls(Class::Launch) {
        let begin = begins.get(&call.correlation).copied().unwrap_or(u64::MAX);
        assert!(call.start + SAME >= begin, "{call:?} began at {begin}; {}", said());
    }
    if recorded.total(Total::GraphLaunches) == 0 {
        holds_what_it_saw(run, &recorded); // (nodes of a graph share an id)
    }
    assert!(recorded.kernels().len() as u64 <= run.launched() * 4 / 5, "{}", said());
    // (the report has steps of its own where none are marked: from one wait to the next)
    let counted = recorded.total(Total::ClockSteps);
    assert!(counted.abs_diff(steps) <= steps / 100, "{counted} of {steps} steps; {}", said());
    recorded
}

#[test]
fn a_program_with_the_runtime_linked_in_is_recorded_in_windows() {
    // its own stream, cuLaunchKernelEx, graphs, all by dlsym, CUDA 11's way
    let ways = [("13.0", "-"), ("13.0", "p"), ("12.9", "x"), ("13.0", "g"), ("12.4", "d"), ("11.8", "1")];
    for &(release, how) in cases(&ways) {
        let victim = linked_in(release, "12000", how).env("GAPPROBE_WINDOW", "100/1000");
        let run = victim.env("SIM_STALE", "1").run();
        assert_eq!(run.stdout, "launched 60000\n", "{how}: {}", run.stderr);
        in_windows(&run, 12_000, how);
    }
}

#[test]
fn launches_of_two_threads_of_such_a_program_come_to_the_gate() {
    let run = linked_in("13.0", "12000", "t").env("GAPPROBE_WINDOW", "100/1000").run();
    let recorded = fine(&run);
    // (the other thread is out of step: no launch need come evenly)
    assert!(!run.stderr.contains(UNSEEN), "{}", run.stderr);
    holds_what_it_saw(&run, &recorded);
}

#[test]
fn such_a_program_is_recorded_within_the_budget_by_default() {
    let run = linked_in("13.0", "15000", "-").run();
    let recorded = fine(&run);
    holds_what_it_saw(&run, &recorded);
    assert!(recorded.total(Total::LaunchesBetween) > run.launched() / 4, "{}", run.stderr);
}

#[test]
fn what_was_asked_for_unseen_is_recorded_whole() {
    // by a way that nobody sees; and before we were there: the driver loads us in cuInit
    let ways = [linked_in("13.0", "1500", "o"), linked_in("13.0", "1500", "-").injected()];
    for victim in ways {
        // (for a minute, by what is free of cost)
        let run = victim.env("GAPPROBE_WINDOW", "20/200").env("GAPPROBE_TEST_FREE_MS", "2000").run();
        let recorded = fine(&run);
        assert_eq!(recorded.kernels().len() as u64, run.launched(), "{}", run.stderr);
        assert!(run.stderr.contains(", no recording windows"), "{}", run.stderr);
        let said = run.evidence();
        assert!(said.contains(&format!("(no windows: {UNSEEN})")), "{said}");
        assert_eq!(recorded.total(Total::Windows), 0, "{}", run.stderr);
    }
}

#[test]
fn a_program_that_trains_by_xla_is_recorded_in_windows() {
    let ways = [
        ("13.0", &["early"][..]),
        ("12.9", &["late"]),
        ("13.0", &["later"]),
        ("13.0", &["early", "profile"]),
    ];
    for &(release, words) in cases(&ways) {
        let plugin = built().victims.join(release).join("libxla_cuda_plugin_victim.so");
        let plugin = plugin.to_str().expect("a path");
        let words = [&["xla_host", plugin, "12000", "200"], words].concat();
        let victim = || {
            Victim::ours(release, &words).env("GAPPROBE_WINDOW", "100/1000").env("GAPPROBE_SLOW_STEP", "0")
        };
        let run = victim().run();
        let label = format!("{words:?}: {} {}", run.stdout, run.stderr);
        if words.contains(&"profile") {
            let profile = "xla: subscribe 0, kernels 200 of 200, others 0\n"; // as without us
            assert_eq!(run.stdout, format!("{profile}launched 60200\n"), "{label}");
            assert_eq!((run.ending(), run.others().len()), (0, 0), "{label}");
            assert!(run.recorded().total(Total::Windows) >= 2, "{label}");
        } else {
            assert_eq!(run.stdout, "launched 60000\n", "{label}");
            in_windows(&run, 12_000, &label);
        }
    }
}

/// Windows come from what they cost: 4,000 ns a recorded launch, of which 1,500 stay behind a
/// second window; five in a step of some 0.5 ms.
#[test]
#[ignore = "scripts/test thorough: 25 s, alone on the cores"]
fn timed_ranks_that_number_their_steps_differently_have_their_windows_at_the_same_times() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let plugin = built().victims.join("13.0").join("libxla_cuda_plugin_victim.so");
    let start = |rank: &'static str, ranks: &'static str, steps: &'static str, tries: &'static str| {
        let words = ["xla_host", plugin.to_str().expect("a path"), steps, "350", "early", tries];
        let settings = [
            ("SIM_CUPTI_NS", "4000"),
            ("GAPPROBE_BUDGET", "2"),
            ("GAPPROBE_TEST_FREE_MS", "0"),
            ("GAPPROBE_TEST_WINDOW_MS", "60"),
            ("GAPPROBE_SLOW_STEP", "0"),
        ];
        let victim =
            settings.iter().fold(Victim::ours("13.0", &words), |v, (name, value)| v.env(name, value));
        let victim = victim.env("RANK", rank).env("WORLD_SIZE", ranks);
        std::thread::spawn(move || victim.run_alone_on_the_cores())
    };
    let windows = |run: &Run| {
        let attributes = &run.summary().expect("a summary")["attributes"];
        attributes["windows"].as_str().unwrap_or_else(|| panic!("{attributes}: {}", run.stderr)).to_owned()
    };
    // (what the first window costs is measured: beside other work that may be anything, and then
    // there is no second one)
    let runs = || {
        [start("0", "2", "40000", "1"), start("1", "2", "40000", "703")]
            .map(|rank| rank.join().expect("a run"))
    };
    let runs = (0..3).map(|_| runs()).find(|both| both.iter().all(|r| windows(r) == "0.06 of 7.68 s"));
    let both = runs.expect("no second window in three runs");
    // between two stretches in which nothing was recorded
    let [first, second] = both.each_ref().map(|run| {
        let off = fine(run).off();
        let inside: Vec<_> = off.windows(2).map(|two| (two[0].end, two[1].start)).collect();
        assert!(!inside.is_empty(), "{}", run.stderr);
        inside
    });
    let shared: Vec<_> = first
        .iter()
        .flat_map(|a| second.iter().map(move |b| (a, b, a.1.min(b.1).saturating_sub(a.0.max(b.0)))))
        // (either may open some 30 ms late: when nobody is inside a launch is the machine's to say)
        .filter(|(.., both)| *both > 0)
        .collect();
    let most = first.len().max(second.len());
    assert!(!shared.is_empty() && shared.len() + 1 >= most, "{first:?} {second:?}");
    // a rank alone goes by its own steps
    let alone = start("0", "1", "24000", "703").join().expect("a run");
    assert!(windows(&alone) == "all" || windows(&alone).ends_with(" steps"), "{}", windows(&alone));
}

#[test]
fn a_python_program_that_launches_by_ctypes_is_recorded_in_windows() {
    let script = root().join("tests/scenarios/victims/cupy_like.py");
    let pythons = pythons(&["3.8", "3.11", "3.12", "3.13"]);
    assert!(!pythons.is_empty(), "no Python to try it with");
    for (version, python) in pythons {
        let victim = Victim::of(&python, &[script.to_str().expect("a path"), "10000"], "13.0");
        let run = victim.env("GAPPROBE_WINDOW", "100/1000").env("GAPPROBE_SLOW_STEP", "0").run();
        in_windows(&run, 10_000, version);
    }
}

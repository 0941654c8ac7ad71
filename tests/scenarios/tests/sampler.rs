// SPDX-License-Identifier: Apache-2.0
//! Purpose: the gap sampler says where the threads that call CUDA stand, in every CPython there is:
//! asleep or at work, in which line; what child processes do; what the GPU's management library
//! says. It survives threads that end, forks, code that comes and goes, and never names a function
//! that the program does not have.

use std::collections::{BTreeSet, HashMap};

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{thorough, Run};
use trace::event::{sample, Gauge};
use trace::{Event, Kind, Total};

use super::sampled::{fine, marked, pythons, samples, share, source, victim, with_a_lock, Sampled};

#[test]
fn a_thread_that_sleeps_is_found_in_its_line_and_its_system_call() {
    for python in pythons() {
        let run = victim(&python, "sleep", "1.5").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let what = || {
            let seen: BTreeSet<_> = all.iter().map(|s| (s.event.b, s.frames.clone())).collect();
            format!(
                "{}: {:?} {seen:?}",
                python.display(),
                recorded.definitions.attributes().collect::<Vec<_>>()
            )
        };
        assert!(all.len() > 40, "{} samples, {}", all.len(), what());
        assert!(all.iter().all(|s| s.tid == run.truth().pid && s.event.start <= s.event.end));
        assert!(
            all.windows(2).all(|w| w[0].event.end == w[1].event.start),
            "one stands for the time to the next"
        );
        let line = marked("SLEEP");
        let asleep = |s: &Sampled| {
            s.stands_in("wait_for_data")
                && s.frames[0].1.ends_with("sampled.py")
                && s.frames[0].2 == line
                && s.frames.last().is_some_and(|f| f.0 == "<module>")
        };
        assert!(share(&all, asleep) > 0.8, "{} {}", share(&all, asleep), what());
        let calls = [libc::SYS_clock_nanosleep, libc::SYS_select, libc::SYS_pselect6].map(|n| n as u32 + 1);
        let blocked = |s: &Sampled| asleep(s) && calls.contains(&s.event.b) && s.on_cpu() < 100;
        assert!(share(&all, blocked) > 0.75, "{} {}", share(&all, blocked), what());
        assert!(share(&all, |s| s.event.x & sample::RUNNABLE == 0) > 0.75, "{}", what());
        assert!(all.iter().all(|s| s.event.x & sample::WAITS_GIL == 0), "nobody else wants it");
        assert_eq!(recorded.total(Total::Samples), all.len() as u64);
        println!(
            "{}: {} samples, {} ns CPU each, {} moved",
            python.display(),
            all.len(),
            recorded.total(Total::SamplerCpuNs) / all.len() as u64,
            recorded.total(Total::SamplesMoved)
        );
    }
}

#[test]
fn a_thread_that_computes_is_found_on_the_cpu_in_its_function() {
    let lines = marked("CRUNCH") - 4..=marked("CRUNCH");
    for python in pythons() {
        let run = victim(&python, "compute", "1.5").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let name = python.display();
        let computing = |s: &Sampled| s.stands_in("crunch") && lines.contains(&s.frames[0].2);
        let found = share(&all, computing);
        assert!(found > 0.8, "{name}: {found}, {} moved", recorded.total(Total::SamplesMoved));
        let of_it: Vec<Sampled> = all.into_iter().filter(computing).collect();
        let time: u64 = of_it.iter().map(|s| s.event.end - s.event.start).sum();
        let mean = |f: fn(&Sampled) -> u32| {
            let sum: u64 = of_it.iter().map(|s| u64::from(f(s)) * (s.event.end - s.event.start)).sum();
            sum as f64 / time as f64 / 1000.0
        };
        let (cpu, queued) = (mean(Sampled::on_cpu), mean(Sampled::queued));
        // the truth is the program's own clock; where the machine has more to do it waits for a CPU
        // the rest of the time
        let told =
            run.stdout.lines().find_map(|l| l.strip_prefix("share ")?.parse::<f64>().ok()).expect("a share");
        assert!((cpu - told).abs() < 0.1, "{name}: {cpu} on a CPU, {told} by its own clock");
        // (waiting is known when it ends: what began in the sample before is not counted)
        assert!(
            cpu + queued > 0.6 && cpu + queued <= 1.0,
            "{name}: {cpu} on a CPU, {queued} waiting for one"
        );
        assert!(share(&of_it, |s| s.event.b == 0) > 0.9, "{name}: in no system call");
        assert!(share(&of_it, |s| s.event.x & sample::RUNNABLE != 0) > 0.9, "{name}: it could run");
        println!(
            "{name}: {:.2} of {} samples, {cpu:.2} on CPU, {queued:.2} queued, {} ns CPU each, {} moved",
            found,
            recorded.total(Total::Samples),
            recorded.total(Total::SamplerCpuNs) / recorded.total(Total::Samples),
            recorded.total(Total::SamplesMoved)
        );
    }
}

#[test]
fn who_holds_pythons_lock_and_who_waits_for_it() {
    for python in with_a_lock() {
        let run = victim(&python, "lock", "1.5").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let name = python.display();
        let known =
            recorded.definitions.attributes().any(|(k, v)| k == "sampler.python" && v.ends_with("GIL, GC"));
        assert!(known, "{name}: {:?}", recorded.definitions.attributes().collect::<Vec<_>>());
        let crunch = |s: &&Sampled| s.stands_in("crunch");
        let with = |bit| all.iter().filter(crunch).filter(|s| s.event.x & bit != 0).count();
        let (holds, waits, n) =
            (with(sample::HOLDS_GIL), with(sample::WAITS_GIL), all.iter().filter(crunch).count());
        // two threads take turns of 5 ms; on a busy machine who waits is often waiting for a CPU as
        // well
        assert!(n > 30 && holds * 5 > n && waits * 20 > n, "{name}: {holds} hold, {waits} wait of {n}");
        let run = victim(&python, "sleep", "0.8").run();
        let all = samples(&fine(&run, &python));
        let asleep = share(&all, |s| s.stands_in("wait_for_data") && s.event.x == 0);
        assert!(asleep > 0.7, "{name}: who sleeps has given it up: {asleep}");
    }
}

/// In a free-threaded build nobody holds a lock or waits for it; frames and collector are known all
/// the same.
#[test]
fn without_a_lock_nobody_holds_one() {
    for (_, python) in gapprobe_scenarios::pythons::pythons(&["3.13t"]) {
        let run = victim(&python, "lock", "1.5").run();
        let recorded = fine(&run, &python);
        let said = recorded.definitions.attributes().find(|(k, _)| *k == "sampler.python");
        assert_eq!(said, Some(("sampler.python", "3.13: frames, no GIL, GC")));
        let all = samples(&recorded);
        let computing = all.iter().filter(|s| s.stands_in("crunch")).count();
        assert!(computing > 30, "{computing} of {}", all.len());
        assert!(all.iter().all(|s| s.event.x & (sample::HOLDS_GIL | sample::WAITS_GIL) == 0));
    }
}

/// Of a stack whose inner frames come and go while it is read the outer ones are kept: the line
/// that calls them all is known nearly always, and in a sample that says so no frame further in is
/// made up.
#[test]
fn what_stands_around_quick_calls_is_known() {
    let line = marked("COLLATE");
    let mut outer = 0;
    for python in pythons() {
        let run = victim(&python, "below_a_loader", "1.5").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let name = python.display();
        let below = |s: &Sampled| {
            let at = s.frames.iter().position(|f| f.0 == "collate");
            at.is_some_and(|n| {
                (n == 0 || s.frames[n].2 == line) && s.frames.last().is_some_and(|f| f.0 == "<module>")
            })
        };
        let found = share(&all, below);
        let cut = |s: &&Sampled| s.event.x & sample::OUTER != 0;
        let kept = all.iter().filter(cut).count();
        let moved = recorded.total(Total::SamplesMoved);
        println!(
            "{name}: {found:.2} of {} samples, {kept} of the outer frames alone, {moved} moved",
            all.len()
        );
        assert!(found > 0.85, "{name}: {found}, {moved} moved");
        assert_eq!(recorded.total(Total::SamplesOuter), kept as u64, "{name}");
        outer += kept;
    }
    assert!(outer > 0 || !thorough(), "no inner frame moved while it was read: nothing was shown");
}

#[test]
fn garbage_collection_is_seen() {
    for python in pythons() {
        let run = victim(&python, "gc", "1.2").run();
        let all = samples(&fine(&run, &python));
        let collecting = share(&all, |s| s.event.x & sample::COLLECTING != 0);
        assert!(collecting > 0.4, "{}: {collecting}", python.display());
        let line = marked("COLLECT");
        let there = share(&all, |s| s.stands_in("collect") && s.frames[0].2 == line);
        assert!(there > 0.4, "{}: {there}", python.display());
    }
}

#[test]
fn a_forked_child_takes_no_samples_and_the_parent_goes_on() {
    let python = pythons().pop().expect("a python");
    let run = victim(&python, "forked", "1").run();
    let all = samples(&fine(&run, &python));
    assert_eq!(run.recordings().len(), 1, "the parent's only");
    let after = all.iter().filter(|s| s.stands_in("forked")).map(|s| s.event.end).max().expect("waiting");
    assert!(all.iter().filter(|s| s.event.start > after && s.stands_in("wait_for_data")).count() > 5);
    assert!(!all.iter().any(|s| s.frames.iter().any(|f| f.0 == "crunch")), "what the child did is not ours");
}

#[test]
fn nothing_is_sampled_where_nothing_is_wanted() {
    let python = pythons().pop().expect("a python");
    let run = victim(&python, "sleep", "0.8").env("GAPPROBE_CAPTURE", "profiler").run();
    assert_eq!(samples(&fine(&run, &python)).len(), 0);
    let run = victim(&python, "sleep", "0.8").env("GAPPROBE_SAMPLE_HZ", "0").run();
    let recorded = fine(&run, &python);
    assert_eq!((samples(&recorded).len(), recorded.total(Total::SamplerCpuNs)), (0, 0));
    let run = victim(&python, "sleep", "1.5").env("GAPPROBE_SAMPLE_HZ", "20").run();
    let n = samples(&fine(&run, &python)).len();
    assert!((5..=40).contains(&n), "{n}");
}

#[test]
fn a_program_that_takes_our_descriptors_keeps_its_own() {
    let python = pythons().pop().expect("a python");
    let run = victim(&python, "deaf", "1.5").run();
    let all = samples(&fine(&run, &python));
    assert!(run.stdout.contains("taken 0\n"), "they have no number of the program's: {}", run.stdout);
    // where it stands is known all the same
    let asleep = |s: &Sampled| s.stands_in("wait_for_data") && s.on_cpu() < 100;
    assert!(share(&all, asleep) > 0.6, "{}", share(&all, asleep));
    assert!(all.iter().all(|s| s.on_cpu() + s.queued() <= 1000));
}

/// The gauges of device 0 with their numbers, in order of time, and what the recording says of
/// NVML.
fn gauges(seconds: &str, mode: &str) -> (Vec<(Gauge, u64)>, Vec<String>, Run) {
    let python = pythons().pop().expect("a python");
    let victim = victim(&python, "sleep", seconds);
    let victim = if mode == "none" { victim } else { victim.with_nvml(mode) };
    let run = victim.env("SIM_DEVICES", "2").run();
    let recorded = fine(&run, &python);
    let value = |e: &Event| u64::from(e.b) | u64::from(e.c) << 32;
    let all = recorded.of(Kind::Gauge).filter_map(|(_, e)| Some((Gauge::from_u32(e.a)?, e.x, value(e))));
    let found = all.filter(|g| g.0 < Gauge::CpuThrottledNs).map(|(gauge, device, value)| {
        assert_eq!(device, 0);
        (gauge, value)
    });
    let found = found.collect();
    let said = recorded
        .definitions
        .attributes()
        .filter(|a| a.0.starts_with("nvml"))
        .map(|a| a.1.to_owned())
        .collect();
    let resident: Vec<u64> = recorded
        .of(Kind::Gauge)
        .filter(|(_, e)| e.a == Gauge::ResidentBytes as u32)
        .map(|(_, e)| value(e))
        .collect();
    assert!(!resident.is_empty() && resident.iter().all(|b| (5 << 20..4 << 30).contains(b)), "{resident:?}");
    assert!(recorded
        .definitions
        .attributes()
        .any(|(k, v)| k == "host.cpus" && v.parse::<u32>().is_ok_and(|n| n > 0)));
    (found, said, run)
}

#[test]
fn the_devices_own_figures_are_taken_of_the_device_that_works() {
    let (found, said, _) = gauges("3.5", "");
    assert_eq!(said, [""; 0]);
    let of = |gauge: Gauge| found.iter().filter(|g| g.0 == gauge).map(|g| g.1).collect::<Vec<_>>();
    let expected = [
        (Gauge::Utilization, 70),
        (Gauge::PowerMw, 400_000),
        (Gauge::SmClockMhz, 1500),
        (Gauge::ThrottleReasons, (1 << 40) + 4),
        (Gauge::MemoryUsed, 33 << 30),
    ];
    for (gauge, value) in expected {
        let all = of(gauge);
        assert!((2..=4).contains(&all.len()) && all.iter().all(|v| *v == value), "{gauge:?}: {all:?}");
    }
    assert_eq!((of(Gauge::SmClockMaxMhz), of(Gauge::PowerLimitMw)), (vec![1980], vec![700_000]), "once");
}

/// Of the time between two readings, which a reading has as its span.
#[test]
fn the_devices_counters_are_read_where_it_has_some_and_they_may_be() {
    let (found, said, run) = gauges("3.5", "");
    assert_eq!(said, [""; 0]);
    let of = |gauge: Gauge| found.iter().filter(|g| g.0 == gauge).map(|g| g.1).collect::<Vec<_>>();
    for (gauge, value) in [
        (Gauge::SmActive, 225),
        (Gauge::SmOccupancy, 325),
        (Gauge::TensorActive, 525),
        (Gauge::DramActive, 1025),
        (Gauge::Fp32Active, 1225),
        (Gauge::PcieReceived, 22_282_240),
    ] {
        let all = of(gauge);
        assert!((1..=3).contains(&all.len()) && all.iter().all(|v| *v == value), "{gauge:?}: {all:?}");
    }
    assert_eq!(of(Gauge::NvlinkSent), [0; 0], "NVML has no figure");
    assert_eq!(of(Gauge::Processes), [2], "of the first reading");
    let recorded = run.recorded();
    let spans: Vec<u64> = recorded
        .of(Kind::Gauge)
        .filter(|(_, e)| e.a == Gauge::TensorActive as u32)
        .map(|(_, e)| e.end - e.start)
        .collect();
    assert!(spans.iter().all(|ns| (900_000_000..3_000_000_000).contains(ns)), "{spans:?}");

    for (mode, why) in [("old", "this GPU has none (Hopper and newer do)"), ("denied", "not permitted")] {
        let (found, said, _) = gauges("2.5", mode);
        assert_eq!(said, [format!("device 0: {why}")]);
        assert!(found.iter().all(|g| g.0 < Gauge::SmActive || g.0 == Gauge::Processes), "{found:?}");
        assert!(found.iter().any(|g| g.0 == Gauge::PowerMw), "all else goes on");
    }
}

#[test]
fn a_management_library_that_is_missing_slow_or_hangs_or_has_only_slices_is_left_alone() {
    assert_eq!(gauges("1.6", "none").1, ["not to be had"]);
    assert_eq!(gauges("1.6", "mig").1, ["device 0: a slice of a GPU (MIG)"]);
    assert_eq!(gauges("1.6", "uuid").1, ["device 0: not found by UUID or PCI address"]);
    let (found, said, _) = gauges("4.5", "slow");
    assert!(said.len() == 1 && said[0].starts_with("off: a reading took 3"), "{said:?}");
    assert_eq!(found.iter().filter(|g| g.0 == Gauge::PowerMw).count(), 2, "no third");
    let (found, _, run) = gauges("3", "hang");
    assert_eq!(found, []);
    let all = samples(&run.recorded());
    let end = all.iter().map(|s| s.event.end).max().expect("samples");
    let begin = all.iter().map(|s| s.event.start).min().expect("samples");
    assert!(end - begin > 2_500_000_000, "sampling goes on");
}

/// The functions of the victim and of the modules it imports, by the interpreter itself.
const NAMES: &str = r#"
import sys, types
def names(code):
    yield getattr(code, "co_qualname", code.co_name)
    for c in code.co_consts:
        if isinstance(c, types.CodeType): yield from names(c)
import threading, time, random, subprocess, gc, os, argparse, ctypes, math, signal, functools, weakref, _weakrefset
files = [sys.argv[1], sys.argv[2] + "/train.py"] + [m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None) and m.__file__.endswith(".py")]
for f in files:
    for n in names(compile(open(f, encoding="utf-8").read(), f, "exec")): print(f.rsplit("/", 1)[-1], n)
"#;

#[test]
fn under_stress_no_function_is_named_that_the_program_does_not_have() {
    for python in pythons() {
        let folder = root().join("tests/victims");
        let script = built().scratch.join("names.py");
        std::fs::write(&script, NAMES).expect("script");
        let out = std::process::Command::new(&python)
            .arg(&script)
            .arg(source())
            .arg(&folder)
            .output()
            .expect("python");
        let known: BTreeSet<String> =
            String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
        assert!(known.len() > 500, "{}", String::from_utf8_lossy(&out.stderr));
        let run = victim(&python, "stress", "4").env("GAPPROBE_SAMPLE_HZ", "1000").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let name = python.display();
        let with = all.iter().filter(|s| !s.frames.is_empty()).count();
        assert!(all.len() > 300 && with * 3 > all.len(), "{name}: {with} of {}", all.len());
        let mut seen: HashMap<&str, u32> = HashMap::new();
        for (function, file, line) in all.iter().flat_map(|s| &s.frames) {
            *seen.entry(function).or_default() += 1;
            if file == "<made>" {
                let number = function.strip_prefix("made_").and_then(|n| n.parse::<u32>().ok());
                assert!(
                    (number.is_some() && *line <= 5) || function == "<module>",
                    "{name}: {function}:{line}"
                );
                continue;
            }
            let short = file.rsplit('/').next().unwrap_or(file);
            let is = known.contains(&format!("{short} {function}")) || file.starts_with("<frozen");
            assert!(is, "{name}: {function} {file}:{line} is none of the program's");
        }
        let mut made = 0;
        for pair in all.iter().flat_map(|s| s.frames.windows(2)) {
            if let Some(number) = pair[0].0.strip_prefix("made_").and_then(|n| n.parse::<u32>().ok()) {
                let caller = ["call_even", "call_odd"][number as usize % 2];
                assert_eq!(pair[1].0, caller, "{name}: {pair:?}: another function's name");
                made += 1;
            }
        }
        assert!(made > 10 && seen.len() > 10, "{name}: {seen:?}");
        assert!(all.iter().map(|s| s.tid).collect::<BTreeSet<_>>().len() >= 3, "{name}");
        println!(
            "{name}: {with} of {} with a stack, {} moved, {} ns each, losses {:?}",
            all.len(),
            recorded.total(Total::SamplesMoved),
            recorded.total(Total::SamplerCpuNs) / recorded.total(Total::Samples).max(1),
            recorded.losses()
        );
    }
}

#[test]
fn callers_are_those_that_called() {
    for python in pythons() {
        let run = victim(&python, "alternating", "3").env("GAPPROBE_SAMPLE_HZ", "1000").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let mut pairs = 0;
        for s in &all {
            for pair in s.frames.windows(2) {
                let (callee, caller) = (pair[0].0.as_str(), pair[1].0.as_str());
                let of = |leaf, other| callee == leaf && caller != other;
                assert!(!of("leaf_f", "call_f") && !of("leaf_g", "call_g"), "{}: {pair:?}", python.display());
                pairs += u32::from(callee.starts_with("leaf"));
            }
        }
        println!("{}: {pairs} pairs, {} moved", python.display(), recorded.total(Total::SamplesMoved));
    }
}

/// What samples say that threads used of a CPU is part of what the process used.
#[test]
fn the_cpu_time_of_the_whole_process_is_read() {
    let python = pythons().pop().expect("a python");
    let recorded = fine(&victim(&python, "compute", "3.2").run(), &python);
    let readings = recorded.of(Kind::Gauge).filter(|(_, e)| e.a == Gauge::ProcessCpuNs as u32);
    let readings: Vec<Event> = readings.map(|(_, e)| *e).collect();
    let (Some(first), Some(last)) = (readings.first(), readings.last()) else { panic!("no reading") };
    let used: u64 = readings.iter().map(|e| u64::from(e.b) | u64::from(e.c) << 32).sum();
    let inside = |e: &Event| e.start >= first.start && e.end <= last.end;
    let sampled: u64 = recorded
        .of(Kind::Sample)
        .filter(|(_, e)| inside(e))
        .map(|(_, e)| (e.end - e.start) * u64::from(e.c & 0xffff) / 1000)
        .sum();
    let span = last.end - first.start;
    assert!(sampled > span / 4, "it computes: {sampled} of {span} ns");
    assert!(used + span / 10 >= sampled && used < span * 4, "{used} ns used, {sampled} sampled, of {span}");
}

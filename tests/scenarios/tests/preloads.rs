// SPDX-License-Identifier: Apache-2.0
//! Purpose: other libraries that people preload beside ours, before and behind it in LD_PRELOAD:
//! allocators (jemalloc, tcmalloc) and a faked clock (libfaketime). The program prints and ends as
//! it does with them alone, and the recording is whole; under a faked clock our stamps are the
//! device's, not the program's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{now, skipped, Run, Victim};
use trace::Loss;

/// The library of that name, where `scripts/preload-libraries` has it.
fn library(name: &str) -> Option<&'static PathBuf> {
    static FOUND: OnceLock<(HashMap<String, PathBuf>, String)> = OnceLock::new();
    let (all, why) = FOUND.get_or_init(|| {
        let script = root().join("scripts/preload-libraries");
        let output = Command::new(script).output().expect("scripts/preload-libraries");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pairs = text.lines().filter_map(|l| l.split_once(' '));
        let all = pairs.map(|(name, path)| (name.to_owned(), PathBuf::from(path))).collect();
        (all, String::from_utf8_lossy(&output.stderr).trim().to_owned())
    });
    if !all.contains_key(name) {
        skipped(format!("beside {name}: {why}"));
    }
    all.get(name)
}

/// The program with the other library alone, then with ours behind it and before it.
fn three(other: &Path, victim: impl Fn() -> Victim) -> (Run, [(&'static str, Run); 2]) {
    let (other, ours) = (other.to_string_lossy(), built().library.to_string_lossy());
    let run = |preload: &str| victim().env("LD_PRELOAD", preload).run();
    let both = [("behind", run(&format!("{other}:{ours}"))), ("before", run(&format!("{ours} {other}")))];
    (run(&other), both)
}

/// Same words and end as without us, one line of ours, and every kernel of the truth with its true
/// times.
fn whole(alone: &Run, with: &Run, label: &str) {
    assert_eq!(alone.ending(), 0, "{label}: {}", alone.stderr);
    assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{label}: {}", with.stderr);
    assert!(with.others().is_empty() && with.lines().len() == 1, "{label}: {}", with.stderr);
    let (truth, recorded) = (with.truth(), with.recorded());
    assert_eq!(recorded.problems, Default::default(), "{label}");
    let times = |pairs: &mut dyn Iterator<Item = (u32, u64, u64)>| {
        let mut all: Vec<_> = pairs.collect();
        all.sort_unstable();
        all
    };
    let real = times(&mut truth.kernels().map(|k| (k.correlation, k.start, k.end)));
    let have = times(&mut recorded.kernels().iter().map(|(_, k)| (k.correlation, k.start, k.end)));
    assert_eq!(real.len() as u64, with.launched(), "{label}");
    assert_eq!(have.len(), real.len(), "{label}: {:?}", recorded.losses());
    assert!(have == real, "{label}: with their true times");
    let data_lost: Vec<_> = Loss::ALL
        .iter()
        .filter(|l| l.severity() == trace::loss::Severity::Data && recorded.loss(**l) > 0)
        .map(|l| (l.key(), recorded.loss(*l)))
        .collect();
    assert!(data_lost.is_empty(), "{label}: {data_lost:?}");
    let summary = with.summary().unwrap_or_else(|| panic!("{label}: a summary"));
    assert!(summary["verdict"].is_object(), "{label}: {summary}");
}

/// Threads that come and go, graphs with copies and allocations, forks: what allocators mind.
fn beside_an_allocator(name: &str) {
    let Some(other) = library(name) else { return };
    let programs: [&[&str]; 3] = [
        &["threads", "20", "4", "20", "own"],
        &["loop", "60", "50", "20", "500", "1", "gpa"],
        &["fork_after", "20", "exit"],
    ];
    for words in programs {
        let (alone, both) = three(other, || Victim::sim("13.0", words));
        for (place, with) in both {
            whole(&alone, &with, &format!("{name}, ours {place} it: {words:?}"));
        }
    }
}

#[test]
fn beside_jemalloc() {
    beside_an_allocator("jemalloc");
}

#[test]
fn beside_tcmalloc() {
    beside_an_allocator("tcmalloc");
}

/// The step's length in the summary, ms.
fn step_ms(run: &Run) -> f64 {
    let summary = run.summary().expect("a summary");
    summary["steps"]["median_ns"].as_f64().map(|ns| ns / 1e6).unwrap_or_else(|| panic!("a step: {summary}"))
}

/// A clock ten times as fast, one that stands still, one of a year ago.
#[test]
fn beside_a_faked_clock() {
    let Some(other) = library("faketime") else { return };
    for (faked, what) in
        [("+0 x10", "ten times as fast"), ("2020-01-01 00:00:00", "still"), ("-365d", "a year ago")]
    {
        let begin = now();
        let victim = || Victim::sim("13.0", &["loop", "60", "50", "20", "0", "1"]).env("FAKETIME", faked);
        let (alone, both) = three(other, victim);
        for (place, with) in both {
            let label = format!("{what}, ours {place} it");
            whole(&alone, &with, &label);
            let recorded = with.recorded();
            let header = &recorded.header;
            assert!(
                begin < header.start_monotonic && header.exit_monotonic < now(),
                "{label}: the kernel's clock"
            );
            let lasted = header.exit_monotonic - header.start_monotonic;
            assert!(lasted > 50_000_000 && lasted < 60_000_000_000, "{label}: {lasted} ns");
            let since_1970 = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
            assert!(
                since_1970.abs_diff(header.start_realtime) < 600_000_000_000,
                "{label}: the kernel's date"
            );
            // 50 kernels of 20 us and their gaps: 1 ms and more, whatever the program believes
            let step = step_ms(&with);
            assert!(step > 1.0 && step < 20.0, "{label}: {step} ms a step");
        }
    }
}

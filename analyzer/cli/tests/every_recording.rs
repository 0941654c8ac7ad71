// SPDX-License-Identifier: Apache-2.0
//! What holds for every recording and trace that the repository keeps: the buckets of each GPU are
//! all of the time that counts, to the nanosecond, and the shares that people read are 100 %.

mod kept;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

use cli::html::{figures, Subject};
use cli::overview;
use formats::Input;
use verdict::analysis::{Analysis, Bucket, DeviceAnalysis};
use verdict::Run;

type Spans = Vec<(u64, u64)>;

/// In order, none touching the next.
fn union(mut spans: Spans) -> Spans {
    spans.retain(|s| s.0 < s.1);
    spans.sort_unstable();
    let mut out: Spans = Vec::new();
    for (start, end) in spans {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// The part of two unions that is in both.
fn both(x: &Spans, y: &Spans) -> Spans {
    let (mut i, mut j, mut out) = (0, 0, Spans::new());
    while let (Some(a), Some(b)) = (x.get(i), y.get(j)) {
        out.push((a.0.max(b.0), a.1.min(b.1)));
        match a.1 < b.1 {
            true => i += 1,
            false => j += 1,
        }
    }
    union(out)
}

fn length(spans: &Spans) -> u64 {
    spans.iter().map(|s| s.1 - s.0).sum()
}

/// What counts, from the facts: the steady steps, else all between the first operation and the
/// last, less what was not observed.
fn counts(run: &Run, a: &Analysis) -> Spans {
    let steps: Spans = a.steps.steady().iter().map(|s| (s.span.start, s.span.end)).collect();
    let ops = || run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let first = ops().map(|o| o.start).min().unwrap_or(0).max(a.valid.start);
    let last = ops().map(|o| o.end).max().unwrap_or(0).min(a.valid.end);
    let all = union(if steps.is_empty() { vec![(first, last)] } else { steps });
    let blind = union(run.blind.iter().map(|b| (b.span.start, b.span.end)).collect());
    let mut seen = vec![(0, u64::MAX)];
    for (start, end) in blind {
        let (from, to) = seen.pop().expect("the rest");
        seen.extend([(from, start), (end, to)]);
    }
    both(&all, &union(seen))
}

/// Per cent in front of the last ` %` of each line of the bars (of "less than 0.5 %    0.1 %" the
/// latter).
fn bars(section: &str) -> Vec<f64> {
    let begin = section.lines().skip_while(|l| !l.starts_with("Where the time of ")).skip(1);
    let bars = begin.take_while(|l| l.starts_with("  ") && l.contains('%'));
    let per_cent = |l: &str| l.rsplit_once('%')?.0.rsplit(' ').next()?.parse().ok();
    bars.map(|l| per_cent(l).unwrap_or_else(|| panic!("{l}"))).collect()
}

fn buckets_are_the_whole(name: &str, input: &Input, a: &Analysis, d: &DeviceAnalysis, n: usize) {
    let run = &input.run;
    let name = format!("{name}, GPU {}", d.ordinal);
    let sum: u64 = Bucket::ALL.iter().map(|&b| d.buckets.get(b)).sum();
    let counts = counts(run, a);
    assert_eq!(sum, length(&counts), "{name}: the buckets against the time that counts");
    assert_eq!(sum, d.wall_ns, "{name}");
    let ops = run.devices[n].streams.iter().flat_map(|s| &s.ops).map(|o| (o.start, o.end)).collect();
    let busy = length(&both(&union(ops), &counts));
    assert_eq!((d.steady_busy_ns(), d.buckets.idle()), (busy, sum - busy), "{name}");
    // every gap is of the bucket that its slice says, the ones of no known cause too
    for bucket in Bucket::ALL.into_iter().filter(|b| b.is_gap()) {
        let of: Spans = d.slices.iter().filter(|s| s.bucket == bucket).map(|s| (s.start, s.end)).collect();
        assert_eq!(length(&both(&union(of), &counts)), d.buckets.get(bucket), "{name}: {bucket:?}");
    }
}

fn printed_shares_are_100_per_cent(name: &str, input: &Input, a: &Analysis) {
    let Some(worst) = a.worst.and_then(|w| a.devices.get(w)) else { return };
    let section = overview::buckets(a, Some(100));
    let bars = bars(&section);
    // each is rounded to a tenth; what is too short for a bar of its own stands together, less what
    // rounds to nothing
    let off = 0.05 * (bars.len() + 1) as f64;
    assert!((bars.iter().sum::<f64>() - 100.0).abs() <= off, "{name}: {bars:?}\n{section}");

    let page = figures(&Subject { name, input, analysis: a }, None);
    let key = |b: &serde_json::Value| b["key"].as_str().map(str::to_owned);
    let keys: BTreeSet<String> = page["buckets"].as_array().unwrap().iter().filter_map(key).collect();
    assert!(keys.contains(Bucket::Unexplained.key()), "{keys:?}");
    let of = &page["runs"][0]["device"]["buckets"];
    let sum = |list: &str| of[list].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("ns"), sum("tenths")), (worst.wall_ns, 1000), "{name}: the page");

    let around = verdict::output::summary::Around { line: "", trace: None, written: None };
    let object = verdict::output::summary::summary(&input.run, a, &around);
    for (d, found) in object["devices"].as_array().unwrap().iter().zip(&a.devices) {
        let buckets = d["buckets_ns"].as_object().unwrap();
        assert!(buckets.contains_key(Bucket::Unexplained.key()), "{name}: {buckets:?}");
        assert_eq!(buckets.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), found.wall_ns, "{name}");
    }
}

/// Of one file: GPUs that did something, and how many of them have time of no known cause.
fn looked_at(path: &Path) -> (u64, u64) {
    let name = path.strip_prefix(kept::repository()).unwrap().display().to_string();
    let input = formats::read(path, &Default::default()).unwrap_or_else(|e| panic!("{name}: {}", e.what));
    let a = &verdict::analyze(&input.run);
    for (n, d) in a.devices.iter().enumerate() {
        buckets_are_the_whole(&name, &input, a, d, n);
    }
    printed_shares_are_100_per_cent(&name, &input, a);
    let of = |is: fn(&DeviceAnalysis) -> bool| a.devices.iter().filter(|d| is(d)).count() as u64;
    (of(|d| d.ops > 0), of(|d| d.buckets.get(Bucket::Unexplained) > 0))
}

#[test]
fn buckets_sum_to_all_of_the_time_in_every_recording() {
    let files = kept::all();
    let repository = kept::repository();
    let (next, devices, unexplained) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(8) {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Relaxed)) {
                    let (worked, unknown) = looked_at(path);
                    devices.fetch_add(worked, Relaxed);
                    unexplained.fetch_add(unknown, Relaxed);
                }
            });
        }
    });
    let (devices, unexplained) = (devices.into_inner(), unexplained.into_inner());
    // all of them were looked at: the labelled ones that the list beside them names, and some of
    // each other kind
    let of = |folder: &str| files.iter().filter(|f| f.starts_with(repository.join(folder))).count();
    let list = std::fs::read(repository.join("tests/gpu/recordings/causes.json")).expect("the list");
    let list: serde_json::Value = serde_json::from_slice(&list).expect("JSON");
    let labelled = list["recordings"].as_object().unwrap();
    for name in labelled.keys() {
        let file = repository.join("tests/gpu/recordings").join(format!("{name}.gprec.gz"));
        assert!(Path::exists(&file) && files.contains(&file), "{name} was not looked at");
    }
    for folder in [
        "analyzer/cli/tests/recordings",
        "analyzer/cli/tests/traces",
        "analyzer/cli/tests/cli",
        "analyzer/cli/tests/tables",
    ] {
        assert!(of(folder) > 0, "nothing of {folder}");
    }
    assert!(
        !labelled.is_empty() && devices >= labelled.len() as u64,
        "{devices} GPUs in {} files",
        files.len()
    );
    assert!(unexplained > 0, "no recording has time of no known cause: it is not among what this holds");
}

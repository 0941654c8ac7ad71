// SPDX-License-Identifier: Apache-2.0
//! `diff`: pairs of runs whose truth is known; real pairs of the H200; what must never be claimed.

use std::io::Read;

use serde_json::Value;

use crate::place::{code, err, out, same_as_file, Place};
use crate::training::{examples, put, real, shell, steps_of, work, write, Shape, Work, HOST};

fn diff(place: &Place, args: &[&str]) -> (Value, String) {
    let output = place.run(&[&["diff", "--json"], args].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    let value: Value = serde_json::from_str(&out(&output)).unwrap();
    let line = value["line"].as_str().unwrap().to_owned();
    (value, line)
}

fn pair(name: &str, a: Shape, b: Shape, args: &[&str]) -> (Value, String) {
    let place = Place::new(name);
    put(&place, "a.gz", a);
    put(&place, "b.gz", b);
    diff(&place, &[args, &["a.gz", "b.gz"]].concat())
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {value:#}"))
}

#[test]
fn every_example_of_the_help_runs() {
    let place = Place::new("diff-examples");
    put(&place, "before.json.gz", Shape::default());
    put(&place, "after.json.gz", Shape { host_percent: 50, ..Shape::default() });
    let all = examples(&out(&place.run(&["diff", "--help"])), "diff");
    assert!(all.len() >= 4, "{all:?}");
    for example in all {
        let output = shell(&place, &example);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{example}");
        assert_eq!(out(&output).is_empty(), example.contains('>'), "{example}");
    }
    let json = std::fs::read(place.out().join("diff.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap()["result"], "faster");
}

#[test]
fn the_same_program_twice_is_no_difference() {
    for run in 1..6 {
        for noise in [&[][..], &["--run-noise", "1%"]] {
            let (v, line) = pair("diff-same", Shape::default(), Shape { run, ..Shape::default() }, noise);
            assert_eq!(v["result"], "no_difference", "{v:#}");
            assert!(line.contains("no difference beyond the noise") && !line.contains("faster"), "{line}");
            assert_eq!((&v["speedup"], &v["work"]["same"]), (&Value::Null, &"same".into()));
        }
    }
}

/// 20 % of what the host thinks: the step is that much longer, HOST is where, and the other way
/// round it is as much faster.
#[test]
fn a_slower_host_is_seen_with_its_size_and_place() {
    let (quick, slow) = (Shape::default(), Shape { run: 3, host_percent: 120, ..Shape::default() });
    let truth = HOST as f64 * 0.20;
    let (v, line) = pair("diff-slow", quick, slow, &[]);
    assert_eq!(v["result"], "slower", "{v:#}");
    let (found, band) = (number(&v, "/step_mean/difference_ns"), number(&v, "/step_mean/band_ns"));
    assert!((found - truth).abs() < 0.1 * truth && band < truth, "{found} ±{band}");
    assert!((number(&v, "/buckets/host/difference_ns") - truth).abs() < 0.1 * truth, "{v:#}");
    assert_eq!(v["buckets"]["compute"]["beyond_noise"], false);
    assert!(line.contains("x slower, most of it HOST (+"), "{line}");
    let (v, line) = pair("diff-quick", slow, quick, &[]);
    let speedup = number(&v, "/speedup");
    let step = number(&v, "/b/idle_share").mul_add(0.0, number(&v, "/step_mean/b_ns"));
    assert!((speedup - (step + truth) / step).abs() < 0.03, "{speedup}: {v:#}");
    assert!(line.contains("x faster"), "{line}");
}

/// 3 % more of the host's thinking is less than what runs differ by; whoever knows the machine to
/// be quiet sees it.
#[test]
fn a_small_difference_counts_where_runs_are_said_to_be_alike() {
    let (a, b) = (Shape::default(), Shape { run: 2, host_percent: 103, ..Shape::default() });
    assert_eq!(pair("diff-small", a, b, &[]).0["result"], "no_difference");
    assert_eq!(pair("diff-small", a, b, &["--run-noise", "0%"]).0["result"], "slower");
}

/// Buckets and what was not seen are all of a step.
#[test]
fn the_parts_sum_up_to_the_step() {
    let place = Place::new("diff-sum");
    for (a, b) in [("own_host_sleep", "own_host_sleep_fixed"), ("own_empty_cache", "own_empty_cache_fixed")] {
        let (v, _) = diff(&place, &[&real(a), &real(b)]);
        for side in ["a_ns", "b_ns"] {
            let parts: f64 =
                v["buckets"].as_object().unwrap().values().map(|f| f[side].as_f64().unwrap()).sum();
            let all = parts + v["not_seen"][side].as_f64().unwrap();
            assert!((all - v["step_mean"][side].as_f64().unwrap()).abs() < 1.0, "{v:#}");
        }
    }
}

#[test]
fn other_kernels_are_said_first() {
    let other = Shape { run: 1, extra_kernels: true, ..Shape::default() };
    let (v, line) = pair("diff-other", Shape::default(), other, &[]);
    assert_eq!(v["work"]["same"], "other", "{v:#}");
    let kernels = v["work"]["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    let k = &kernels[0];
    assert_eq!(
        (&k["name"], &k["change"], k["b_count"].as_f64()),
        (&"swiglu_kernel".into(), &"appeared".into(), Some(12.0))
    );
    assert!(line.starts_with("gapprobe diff: other work: "), "{line}");
    assert!(v["cautions"][0].as_str().unwrap().starts_with("other work"));
}

/// Two programs: a cause that the one has is neither still nor no longer there in the other,
/// whatever marks say of their steps. Who vouches for the work has it said.
#[test]
fn of_other_work_nothing_is_said_of_what_is_still_or_no_longer_a_cause() {
    let host = Shape { item: false, ..Shape::default() };
    let other = Shape { run: 1, extra_kernels: true, host_percent: 200, ..host };
    let becomes = |v: &Value, line: &str| {
        assert_eq!((&v["a"]["cause"], &v["b"]["cause"]), (&"HOST".into(), &"HOST".into()), "{line}");
        line.contains("still") || line.contains("bottleneck")
    };
    let (v, line) = pair("diff-two-programs", host, other, &[]);
    assert_eq!((&v["result"], &v["work"]["same"]), (&"slower".into(), &"other".into()), "{line}");
    assert!(!becomes(&v, &line), "{line}");
    let (v, line) = pair("diff-two-programs", host, other, &["--same-work"]);
    assert!(becomes(&v, &line), "{line}");
    let (v, line) = pair("diff-two-programs", host, Shape { extra_kernels: false, ..other }, &[]);
    assert!(v["work"]["same"] == "same" && becomes(&v, &line), "{line}");
    // two programs of an H200 with causes of their own
    let place = Place::new("diff-two-real-programs");
    let (v, line) = diff(&place, &[&real("own_gpt_item"), &real("own_host_sleep")]);
    assert_eq!((&v["a"]["cause"], &v["b"]["cause"]), (&"SYNC".into(), &"HOST".into()), "{line}");
    assert!(!line.contains("bottleneck") && !line.contains("now"), "{line}");
}

/// Warm-up is left out with the work it queued, though that runs in steps that count.
#[test]
fn warm_up_and_its_work_are_left_out() {
    let a = Shape { item: false, ..Shape::default() };
    let (v, line) = pair("diff-warm-up", a, Shape { run: 1, first: 40, ..a }, &[]);
    assert_eq!((&v["a"]["steps"], &v["b"]["steps"], &v["b"]["warm_up"]), (&60.into(), &59.into(), &1.into()));
    assert_eq!((&v["work"]["same"], &v["result"]), (&"same".into(), &"no_difference".into()), "{line}");
}

/// Without marks the steps are periods: with other work in them they may be anything, and nothing
/// is claimed.
#[test]
fn steps_that_were_found_are_not_compared_across_other_work() {
    let (a, b) = (
        Shape { marks: false, ..Shape::default() },
        Shape { marks: false, layers: 12, host_percent: 20, ..Shape::default() },
    );
    let (v, line) = pair("diff-units", a, b, &[]);
    assert_eq!((&v["a"]["step_source"], &v["work"]["same"]), (&"period".into(), &"other".into()));
    assert_eq!((&v["result"], &v["speedup"]), (&"other_steps".into(), &Value::Null));
    assert!(line.starts_with("gapprobe diff: no claim, other work") && !line.contains("faster"), "{line}");
    // marked, the user has said what a step is
    let marked = |s: Shape| Shape { marks: true, ..s };
    let (v, line) = pair("diff-units", marked(a), marked(b), &[]);
    assert_eq!((&v["result"], &v["work"]["same"]), (&"faster".into(), &"other".into()), "{line}");
    assert!(line.starts_with("gapprobe diff: other work"), "{line}");
}

#[test]
fn a_lossy_or_an_empty_run_claims_nothing() {
    let fast = Shape { host_percent: 50, ..Shape::default() };
    for (a, b, letter) in [
        (Shape { lost: 400, ..Shape::default() }, fast, "A"),
        (Shape::default(), Shape { lost: 400, ..fast }, "B"),
    ] {
        let (v, line) = pair("diff-lossy", a, b, &[]);
        assert_eq!((&v["result"], &v["speedup"]), (&"inconclusive".into(), &Value::Null));
        assert!(line.starts_with(&format!("gapprobe diff: no claim, {letter} is INCONCLUSIVE: ")), "{line}");
        assert!(!line.contains("faster") && !line.contains("bottleneck"), "{line}");
    }
    let place = Place::new("diff-empty");
    put(&place, "a.gz", Shape::default());
    write(&place, "empty.gz", &trace::build::Builder::new().finish());
    for pair in [["a.gz", "empty.gz"], ["empty.gz", "a.gz"], ["empty.gz", "empty.gz"]] {
        let (v, line) = diff(&place, &pair);
        assert_eq!((&v["result"], &v["work"]["same"]), (&"inconclusive".into(), &"unknown".into()), "{line}");
        assert!(line.starts_with("gapprobe diff: no claim, "), "{line}");
    }
    let output = place.run(&["diff", "a.gz", "nowhere.gz"]);
    assert_eq!((code(&output), out(&output).as_str()), (4, ""));
}

/// Four steps have no band, five have one.
#[test]
fn few_steps_have_no_band() {
    let few = |steps| Shape { steps, host_percent: 50, ..Shape::default() };
    let (v, line) = pair("diff-few", Shape::default(), few(4), &[]);
    assert_eq!((&v["result"], &v["step_mean"]["band_ns"]), (&"too_few_steps".into(), &Value::Null), "{v:#}");
    assert!(line.contains("too few steps") && !line.contains("faster") && !line.contains('±'), "{line}");
    let (v, _) = pair("diff-few", Shape::default(), few(5), &[]);
    assert_eq!(v["result"], "faster", "{v:#}");
}

/// One long pause in sixty steps is none of theirs.
#[test]
fn one_long_step_is_no_slower_program() {
    let paused = Shape { run: 4, pause: 100_000_000, ..Shape::default() };
    let (v, _) = pair("diff-pause", Shape::default(), paused, &[]);
    assert_eq!(v["result"], "no_difference", "{v:#}");
    assert!(
        ["mean", "median"].iter().all(|m| number(&v, &format!("/step_{m}/difference_ns")) < 1e5),
        "{v:#}"
    );
}

/// One run as a recording and as the trace that gapprobe makes of it: names are short there, all
/// else is as it was.
#[test]
fn a_run_in_two_formats_is_one_run() {
    let place = Place::new("diff-formats");
    for name in ["own_host_sleep", "own_compiled"] {
        let mut bytes = Vec::new();
        let packed = std::fs::read(real(name)).unwrap();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        std::fs::write(place.out().join("run.gpr"), bytes).unwrap();
        assert_eq!(code(&place.run(&["recover", "run.gpr"])), 0);
        let trace = place.results().into_iter().find(|n| n.ends_with(".json.gz")).unwrap();
        let (v, line) = diff(&place, &["--run-noise", "0%", &real(name), &trace]);
        assert_eq!((&v["work"]["same"], &v["result"]), (&"same".into(), &"no_difference".into()), "{line}");
        assert_eq!(v["work"]["kernels"], Value::Array(Vec::new()));
        std::fs::remove_file(place.out().join(trace)).unwrap();
    }
}

/// A host that runs ahead of its GPU has short marks until the end, where it waits. Its steps are
/// the GPU's: without the waits they are shorter by the gaps behind them, 4 % of the step, and not
/// by more.
#[test]
fn running_ahead_wins_the_gaps_and_no_more() {
    let waits = Shape { scale: 100_000, host_percent: 2, steps: 12, ..Shape::default() };
    let (v, line) = pair("diff-ahead", waits, Shape { item: false, ..waits }, &[]);
    let of = |key: &str| (v[key]["b_ns"].as_f64().unwrap()) / v[key]["a_ns"].as_f64().unwrap();
    assert!((0.95..0.99).contains(&of("step_mean")) && (0.95..0.99).contains(&of("step_median")), "{v:#}");
    assert!(["faster", "no_difference"].contains(&v["result"].as_str().unwrap()), "{line}");
}

/// The traces of torch.profiler with operators come from a slowed host; the recording of the same
/// program does not.
#[test]
fn a_profiler_that_slows_one_host_is_no_win() {
    let place = Place::new("diff-profiler");
    let trace = |name: &str| format!("{}/tests/traces/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let (v, line) = diff(&place, &[&trace("h200_gpt"), &real("h200_gpt")]);
    assert_eq!((&v["work"]["same"], &v["result"]), (&"same".into(), &"other_profiler".into()), "{line}");
    assert!(line.contains("no claim") && !line.contains("faster"), "{line}");
}

/// Real programs, slow form and fixed form, on an H200. Which kernels they share is known: these
/// fixes change the host.
#[test]
fn real_fixes_are_wins_and_their_reverse_is_none() {
    let place = Place::new("diff-real");
    for (name, least) in [("own_host_sleep", 2.5), ("own_empty_cache", 1.5), ("own_pageable_copies", 1.3)] {
        let (slow, fixed) = (real(name), real(&format!("{name}_fixed")));
        let (v, line) = diff(&place, &[&slow, &fixed]);
        assert_eq!((&v["result"], &v["work"]["same"]), (&"faster".into(), &"same".into()), "{name}: {line}");
        assert!(number(&v, "/speedup") > least && line.contains("now the GPU"), "{name}: {line}");
        assert_eq!(diff(&place, &[&fixed, &slow]).0["result"], "slower", "{name}");
        for same in [&slow, &fixed] {
            assert_eq!(
                diff(&place, &[same, same, "--run-noise", "0%"]).0["result"],
                "no_difference",
                "{name}"
            );
        }
    }
    // half of this run's steps take 86 ms, half 31 (its clocks): its mean says little
    let (v, line) = diff(&place, &[&real("own_gpt_item"), &real("own_gpt_item_fixed")]);
    assert_eq!(v["result"], "no_difference", "{line}");
}

#[test]
fn scaling_is_weak_where_each_gpu_does_the_same() {
    let one = Shape { world: 1, scale: 100_000, host_percent: 2, ..Shape::default() };
    let eight = Shape { world: 8, reduce: 1_000_000, run: 1, ..one };
    let (v, _) = pair("diff-scaling", one, eight, &["--scaling"]);
    let s = &v["scaling"];
    assert_eq!((&s["gpus_a"], &s["gpus_b"], &s["known_by_b"]), (&1.into(), &8.into(), &"world size".into()));
    assert_eq!((&s["weak"], &s["lost_to"]["bucket"]), (&true.into(), &"collective_only".into()), "{s:#}");
    let step = number(&v, "/step_mean/a_ns");
    let efficiency = number(&v, "/scaling/efficiency_if_weak");
    assert!((efficiency - step / (step + 1e6)).abs() < 0.02, "{efficiency}, {step}");
    assert!((number(&v, "/scaling/efficiency_if_strong") - efficiency / 8.0).abs() < 1e-9);
    let range = (number(&v, "/scaling/efficiency_low"), number(&v, "/scaling/efficiency_high"));
    assert!(range.0 < efficiency && efficiency < range.1 && range.1 - range.0 < 0.2, "{range:?}");
    // no efficiency of what cannot be compared
    let (v, _) = pair("diff-scaling", one, Shape { lost: 400, ..eight }, &["--scaling"]);
    assert_eq!((&v["result"], &v["scaling"]["efficiency_if_weak"]), (&"inconclusive".into(), &Value::Null));
    // the numbers can be told; equal ones scale nothing
    let (v, _) = pair("diff-scaling", Shape::default(), Shape::default(), &["--scaling", "--gpus", "2,4"]);
    assert_eq!(v["scaling"]["known_by_a"], "--gpus");
    let place = Place::new("diff-scaling-none");
    put(&place, "a.gz", Shape::default());
    let said = out(&place.run(&["diff", "--scaling", "a.gz", "a.gz"]));
    assert!(
        said.contains("scaling: 1 -> 1 GPUs (devices in the trace): not another number of GPUs"),
        "{said}"
    );
}

#[test]
fn reports_read_as_they_should() {
    let place = Place::new("diff-texts");
    put(&place, "before.gpr", Shape::default());
    for (name, shape) in [
        ("same", Shape { run: 1, ..Shape::default() }),
        ("slower", Shape { run: 3, host_percent: 120, ..Shape::default() }),
        ("other-work", Shape { run: 1, extra_kernels: true, ..Shape::default() }),
        ("lossy", Shape { lost: 400, ..Shape::default() }),
    ] {
        put(&place, "after.gpr", shape);
        let output = place.run(&["diff", "before.gpr", "after.gpr"]);
        assert_eq!(code(&output), 0);
        same_as_file(&format!("diff-{name}"), &out(&output));
    }
}

#[test]
fn wrong_use_ends_with_2() {
    let place = Place::new("diff-wrong");
    for args in [
        &["a"][..],
        &["a", "b", "--gpus", "1,8"],
        &["a", "b", "--scaling", "--gpus", "0,8"],
        &["a", "b", "--run-noise", "5"],
    ] {
        let output = place.run(&[&["diff"], args].concat());
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{args:?}");
    }
}

/// A summary has no steps: how much they vary is not in it, and without that no difference can be
/// told from noise.
#[test]
fn of_summaries_the_traces_beside_them_are_asked_for() {
    let place = Place::new("diff-summaries");
    std::fs::write(place.out().join("run.gpr"), crate::place::recording(|_| {})).unwrap();
    assert_eq!(code(&place.run(&["recover", "run.gpr"])), 0);
    let results = place.results();
    let [trace, summary] = results.as_slice() else { panic!("{results:?}") };
    for args in
        [&["diff", summary, summary][..], &["check", summary], &["analyze", summary], &["stats", summary]]
    {
        let output = place.run(args);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{args:?}");
        let expected = format!(
            "gapprobe: {summary}: a summary: the figures of a run, without its steps and events\n\n\
             hint: its trace lies beside it: {trace}\n"
        );
        assert_eq!(err(&output), expected, "{args:?}");
    }
    std::fs::remove_file(place.out().join(trace)).unwrap();
    let output = place.run(&["diff", summary, summary]);
    assert!(
        err(&output).contains(&format!("\n\nhint: give the trace it was written with: {trace}\n")),
        "{}",
        err(&output)
    );
}

/// A kernel that grows from nothing to most of the step is weighed by the side where it is large,
/// whichever that is.
#[test]
fn larger_grids_are_other_work_both_ways() {
    let place = Place::new("diff-grids");
    let gemm = work("gemm", 1000, 1_000_000, 10);
    write(&place, "small", &steps_of(0, true, &[gemm, work("attention", 10, 10_000, 1)]));
    write(&place, "large", &steps_of(1, true, &[gemm, work("attention", 100_000, 50_000_000, 1)]));
    for pair in [["small", "large"], ["large", "small"]] {
        let (v, line) = diff(&place, &pair);
        assert_eq!(
            (&v["work"]["same"], &v["work"]["kernels"][0]["change"]),
            (&"other".into(), &"grid".into())
        );
        assert!(line.contains("in grids of another size"), "{line}");
    }
}

/// Two layers of 48 are 4 % of the work: no noise of how steps are cut.
#[test]
fn fewer_layers_are_not_the_same_work() {
    let place = Place::new("diff-layers");
    let layers = |n| {
        let names = ["qkv_gemm", "attention", "proj_gemm", "layer_norm", "mlp_gemm"];
        names.map(|name| work(name, 1000, 50_000, n))
    };
    write(&place, "48", &steps_of(0, true, &layers(48)));
    write(&place, "46", &steps_of(1, true, &layers(46)));
    for (pair, changed) in [(["48", "46"], 5), (["46", "48"], 5), (["48", "48"], 0)] {
        let (v, _) = diff(&place, &pair);
        let same = if changed > 0 { "nearly" } else { "same" };
        assert_eq!(
            (&v["work"]["same"], v["work"]["kernels"].as_array().unwrap().len()),
            (&same.into(), changed)
        );
        let common = if changed > 0 { 46.0 / 48.0 } else { 1.0 };
        assert!((number(&v, "/work/common_share") - common).abs() < 1e-9, "{v:#}");
    }
}

/// The work of a step is that of all GPUs, not of the one whose time is compared.
#[test]
fn a_gpu_that_drops_out_is_other_work() {
    let place = Place::new("diff-drops-out");
    let first = work("gemm", 1000, 100_000, 40);
    let second = |times| Work { gpu: 1, times, ..first };
    write(&place, "two", &steps_of(0, true, &[first, second(40)]));
    write(&place, "hardly", &steps_of(1, true, &[first, second(3)]));
    write(&place, "one", &steps_of(2, true, &[first]));
    for other in ["hardly", "one"] {
        for (pair, gpus) in
            [(["two", other], "2 GPUs work in A, 1 in B"), ([other, "two"], "1 GPU works in A, 2 in B")]
        {
            let (v, line) = diff(&place, &pair);
            assert_eq!(v["work"]["same"], "other", "{line}");
            let said =
                v["cautions"].as_array().unwrap().iter().any(|c| c.as_str().unwrap().starts_with(gpus));
            assert!(said, "{v:#}");
        }
    }
    let (v, _) = diff(&place, &["two", "two"]);
    assert_eq!((&v["work"]["same"], v["cautions"].as_array().unwrap().len()), (&"same".into(), 0));
}

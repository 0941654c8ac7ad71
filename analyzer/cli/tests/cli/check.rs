// SPDX-License-Identifier: Apache-2.0
//! `check`: every condition met, failed and not to be judged; what never passes; wrong use.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::place::{code, err, out, same_as_file, Place};
use crate::training::{examples, put, real, shell, steps_of, work, write, Shape, Work, HOST};

/// Exit code, and the result of each condition in order.
fn check(place: &Place, args: &[&str]) -> (i32, Vec<(String, String)>) {
    let output = place.run(&[&["check", "--json"], args].concat());
    let v: Value = serde_json::from_str(&out(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(v["exit"].as_i64().unwrap(), i64::from(code(&output)));
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let all = v["conditions"].as_array().unwrap();
    (code(&output), all.iter().map(|c| (text(&c["condition"]), text(&c["result"]))).collect())
}

/// The same for one condition beside the verdict.
fn one(place: &Place, args: &[&str]) -> (i32, String) {
    let (code, all) = check(place, args);
    assert_eq!((all.len(), all[0].0.as_str()), (2, "verdict"), "{all:?}");
    (code, all[1].1.clone())
}

fn words(code: i32, result: &str) -> (i32, String) {
    (code, result.to_owned())
}

/// A loop that fetches for so many us a step under the name data_load, then launches 20 kernels of
/// 300 us; it runs at most a step ahead.
pub(crate) fn loading(fetch: u64) -> Vec<u8> {
    let mut text = String::from("[");
    let (mut t, mut free, mut n) = (1_000_000u64, 0, 0);
    for _ in 0..20 {
        let _ = write!(
            text,
            r#"{{"ph":"X","cat":"user_annotation","name":"data_load","pid":1,"tid":1,"ts":{t}.5,"dur":{fetch}}},"#
        );
        t += fetch;
        for k in 0..20 {
            n += 1;
            let start = (t + 8).max(free + 1);
            let kernel =
                if k == 19 { "adam_kernel".to_owned() } else { format!("layer{}_gemm", ["a", "b"][k % 2]) };
            let _ = write!(
                text,
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{t}.5,"dur":5,"args":{{"cbid":211,"correlation":{n}}}}},{{"ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":7,"ts":{start}.5,"dur":300,"args":{{"device":0,"context":1,"stream":7,"correlation":{n},"grid":[264,1,1],"block":[256,1,1]}}}},"#
            );
            free = start + 300;
            t += 10;
        }
        t = t.max(free.saturating_sub(6_000));
    }
    text.pop();
    text.push(']');
    text.into_bytes()
}

/// The old run waits 10 ms a step for its data, the new one fetches it while the GPU works.
#[test]
fn every_example_of_the_help_runs() {
    let place = Place::new("check-examples");
    write(&place, "old.json.gz", &loading(10_000));
    write(&place, "new.json.gz", &loading(1_000));
    let all = examples(&out(&place.run(&["check", "--help"])), "check");
    assert!(all.len() >= 5, "{all:?}");
    for example in all {
        let output = shell(&place, &example);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{example}: {}", out(&output));
        assert_eq!(out(&output).is_empty(), example.contains('>'), "{example}");
        // and the old run, held to the same, fails wherever there is something to fail
        let output =
            shell(&place, &example.replace("new", "older").replace("old.", "new.").replace("older.", "old."));
        let demands = ["--max-idle", "--baseline", "--forbid-cause"].iter().any(|d| example.contains(d));
        assert_eq!(code(&output), if demands { 8 } else { 0 }, "{example}: {}", out(&output));
    }
    let json = fs::read(place.out().join("check.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap()["result"], "ok");
}

#[test]
fn limits_on_the_run_itself_are_held_to_the_figure() {
    let place = Place::new("check-limits");
    put(&place, "t", Shape::default());
    // the host thinks for 4 ms of a step of 5.3 or so
    let (low, high) = (HOST as f64 / 1e6, HOST as f64 * 1.5 / 1e6);
    assert_eq!(one(&place, &["t", "--max-step-ms", &low.to_string()]), words(8, "failed"));
    assert_eq!(one(&place, &["t", "--max-step-ms", &high.to_string()]), words(0, "ok"));
    assert_eq!(one(&place, &["t", "--max-idle", "60%"]), words(8, "failed"));
    assert_eq!(one(&place, &["t", "--max-idle", "0.95"]), words(0, "ok"));
    assert_eq!(one(&place, &["t", "--forbid-cause", "host"]), words(8, "failed"));
    assert_eq!(one(&place, &["t", "--forbid-cause", "GP105"]), words(8, "failed"));
    assert_eq!(one(&place, &["t", "--forbid-cause", "INPUT"]), words(0, "ok"));
    // no step, no step time
    write(&place, "steps", &crate::training::training(Shape { steps: 2, scale: 40_000, ..Shape::default() }));
    let (code, result) = one(&place, &["steps", "--max-step-ms", "50"]);
    assert_eq!((code, result.as_str()), (5, "unjudged"));
}

#[test]
fn ranges_must_occur() {
    let place = Place::new("check-ranges");
    write(&place, "t.gz", &loading(1_000));
    assert_eq!(one(&place, &["t.gz", "--require-range", "data_load"]), words(0, "ok"));
    assert_eq!(one(&place, &["t.gz", "--require-range", "data"]), words(8, "failed"));
    let said = out(&place.run(&["check", "t.gz", "--require-range", "forward"]));
    assert!(said.contains("\"forward\" does not occur: there are data_load"), "{said}");
    assert!(out(&place.run(&["check", "t.gz", "--require-range", "data_load"])).contains("occurs 20 times, "));
    let once = br#"[{"ph":"X","cat":"user_annotation","name":"once","pid":1,"tid":1,"ts":1000001,"dur":3},"#;
    write(&place, "t.gz", &[&once[..], &loading(1_000)[1..]].concat());
    assert!(out(&place.run(&["check", "t.gz", "--require-range", "once"])).contains("occurs once, "));
    // what a lossy recording does not hold may have been
    put(&place, "lossy", Shape { lost: 1, steps: 300, ..Shape::default() });
    assert_eq!(one(&place, &["lossy", "--require-range", "forward"]), words(5, "unjudged"));
}

/// (percent that the host thinks in B, limit, expected), with runs as alike as said.
#[test]
fn a_regression_is_judged_by_where_the_limit_lies() {
    let place = Place::new("check-regression");
    put(&place, "base", Shape::default());
    // thinking is about three quarters of a step: 100 -> 120 % of it are about 15 % of the step
    for (host_percent, noise, limit, expected) in [
        (100, "1%", "3%", words(0, "ok")),
        (120, "1%", "3%", words(8, "failed")),
        (120, "1%", "30%", words(0, "ok")),
        // a limit inside the band is for no one to judge: neither way
        (100, "5%", "3%", words(5, "unjudged")),
        (120, "20%", "15%", words(5, "unjudged")),
        // wide noise, and a limit wider still
        (100, "5%", "10%", words(0, "ok")),
        // and a regression beyond all noise
        (200, "20%", "3%", words(8, "failed")),
        // much faster is no regression whatever the noise
        (50, "15%", "0%", words(0, "ok")),
    ] {
        put(&place, "new", Shape { run: 5, host_percent, ..Shape::default() });
        let args = ["new", "--baseline", "base", "--max-regression", limit, "--run-noise", noise];
        assert_eq!(one(&place, &args), expected, "{host_percent}% against {limit}, noise {noise}");
    }
}

/// The median step decides; where the mean step is on the other side of the limit, nobody does.
#[test]
fn a_mean_that_contradicts_the_median_is_said() {
    let place = Place::new("check-mean");
    put(&place, "base", Shape::default());
    put(&place, "new", Shape { run: 5, pause: 50_000_000, pauses_often: true, ..Shape::default() });
    let args = ["new", "--baseline", "base", "--max-regression", "5%", "--run-noise", "1%"];
    assert_eq!(one(&place, &args), words(5, "unjudged"));
    let said = out(&place.run(&[&["check"], &args[..]].concat()));
    assert!(said.contains("the mean step says otherwise: +"), "{said}");
    // a limit that both meet
    let args = ["new", "--baseline", "base", "--max-regression", "60%", "--run-noise", "1%"];
    assert_eq!(one(&place, &args), words(0, "ok"));
    // marks of a host that runs ahead of its GPU are short until the last; its steps take the GPU 3
    // ms as before
    let waits = Shape { scale: 100_000, host_percent: 2, steps: 12, ..Shape::default() };
    put(&place, "base", waits);
    put(&place, "new", Shape { item: false, ..waits });
    for name in ["base", "new"] {
        assert_eq!(one(&place, &[name, "--max-step-ms", "4"]), words(0, "ok"));
        assert_eq!(one(&place, &[name, "--max-step-ms", "2.5"]), words(8, "failed"));
    }
    assert_eq!(one(&place, &["new", "--baseline", "base", "--min-speedup", "1.5"]), words(8, "failed"));
}

/// Launches of 20 us and kernels of 13: host-bound as recorded; without the profiler, which takes
/// up to 1.7 times, GPU-bound.
#[test]
fn a_cause_that_may_be_the_profilers_is_not_judged() {
    let mut text = String::from("[");
    for n in 0..800u64 {
        let (t, start) = (1_000 + n * 20, 1_008 + n * 20);
        let kernel = if n % 40 == 39 { "adam_kernel" } else { ["a_gemm", "b_gemm"][n as usize % 2] };
        let _ = write!(
            text,
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{t}.1,"dur":18}},{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{t}.5,"dur":5,"args":{{"cbid":211,"correlation":{n}}}}},{{"ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":7,"ts":{start}.5,"dur":13,"args":{{"device":0,"context":1,"stream":7,"correlation":{n},"grid":[264,1,1],"block":[256,1,1]}}}},"#
        );
    }
    text.pop();
    text.push(']');
    let place = Place::new("check-profiled");
    write(&place, "t.gz", text.as_bytes());
    let said = out(&place.run(&["check", "t.gz", "--forbid-cause", "LAUNCH"]));
    assert!(
        said.contains("LAUNCH under a profiler that slows the host, perhaps GPU-BOUND without it"),
        "{said}"
    );
    assert_eq!(one(&place, &["t.gz", "--forbid-cause", "LAUNCH"]), words(5, "unjudged"));
    assert_eq!(one(&place, &["t.gz", "--forbid-cause", "GPU-BOUND"]), words(5, "unjudged"));
    assert_eq!(one(&place, &["t.gz", "--forbid-cause", "INPUT"]), words(0, "ok"));
    // a step of 40 kernels takes 0.8 ms, a third of it idle, and without the profiler perhaps the
    // 0.52 ms of its kernels
    for (limit, code, result) in [
        (["--max-idle", "40%"], 0, "ok"),
        (["--max-idle", "25%"], 5, "unjudged"),
        (["--max-step-ms", "0.9"], 0, "ok"),
        (["--max-step-ms", "0.7"], 5, "unjudged"),
        (["--max-step-ms", "0.5"], 8, "failed"),
    ] {
        assert_eq!(one(&place, &[&["t.gz"], &limit[..]].concat()), words(code, result), "{limit:?}");
    }
}

#[test]
fn a_speedup_is_judged_the_same_way() {
    let place = Place::new("check-speedup");
    put(&place, "base", Shape::default());
    put(&place, "new", Shape { run: 5, host_percent: 50, ..Shape::default() });
    // 2 ms less of 5 or so: between 1.5x and 1.8x
    for (factor, expected) in [("1.2", words(0, "ok")), ("1.25x", words(0, "ok")), ("3", words(8, "failed"))]
    {
        let args = ["new", "--baseline", "base", "--min-speedup", factor, "--run-noise", "2%"];
        assert_eq!(one(&place, &args), expected, "{factor}");
    }
    let args = ["base", "--baseline", "base", "--min-speedup", "1.01", "--run-noise", "3%"];
    assert_eq!(one(&place, &args), words(5, "unjudged"));
}

#[test]
fn what_cannot_carry_a_verdict_never_passes() {
    let place = Place::new("check-inconclusive");
    put(&place, "good", Shape::default());
    put(&place, "lossy", Shape { lost: 400, ..Shape::default() });
    put(&place, "short", Shape { steps: 1, layers: 1, ..Shape::default() });
    write(&place, "empty", &trace::build::Builder::new().finish());
    let verdict = |code, result: &str| (code, vec![("verdict".to_owned(), result.to_owned())]);
    assert_eq!(check(&place, &["good"]), verdict(0, "ok"));
    for bad in ["lossy", "short", "empty"] {
        assert_eq!(check(&place, &[bad]), verdict(5, "unjudged"), "{bad}");
        // no figure of it is believed, neither way
        for limit in [
            ["--max-idle", "100%"],
            ["--max-idle", "0%"],
            ["--max-step-ms", "1000"],
            ["--forbid-cause", "SYNC"],
        ] {
            let args = [&[bad][..], &limit].concat();
            assert_eq!(one(&place, &args), words(5, "unjudged"), "{args:?}");
        }
        let args = [bad, "--baseline", "good", "--max-regression", "50%"];
        assert_eq!(one(&place, &args), words(5, "unjudged"), "{bad}");
        let args = ["good", "--baseline", bad, "--max-regression", "50%"];
        assert_eq!(one(&place, &args), words(5, "unjudged"), "{bad} as the baseline");
    }
    // few steps have no band
    put(&place, "few", Shape { steps: 4, ..Shape::default() });
    let args = ["good", "--baseline", "few", "--max-regression", "1000%"];
    assert_eq!(one(&place, &args), words(5, "unjudged"));
    for args in [&["nowhere"][..], &["good", "--baseline", "nowhere", "--max-regression", "3%"]] {
        assert_eq!(code(&place.run(&[&["check"], args].concat())), 4, "{args:?}");
    }
}

/// Steps of other work that were found by periods are other units; a profiler on one side is
/// another clock.
#[test]
fn a_baseline_of_another_kind_is_not_compared() {
    let place = Place::new("check-units");
    put(&place, "base", Shape { marks: false, ..Shape::default() });
    put(&place, "new", Shape { marks: false, layers: 12, host_percent: 20, ..Shape::default() });
    let args = ["new", "--baseline", "base", "--max-regression", "3%"];
    assert_eq!(one(&place, &args), words(5, "unjudged"));
    // nor is another GPU's run
    put(&place, "base", Shape::default());
    put(&place, "new", Shape { gpu: "SIM A100", host_percent: 200, ..Shape::default() });
    let args = ["new", "--baseline", "base", "--max-regression", "3%"];
    assert_eq!(one(&place, &args), words(5, "unjudged"));
    let trace = format!("{}/tests/traces/h200_gpt.json.gz", env!("CARGO_MANIFEST_DIR"));
    let args = [&real("h200_gpt")[..], "--baseline", &trace, "--min-speedup", "0.5"];
    assert_eq!(one(&place, &args), words(5, "unjudged"));
}

/// A failed condition counts more than one that cannot be judged; all are printed.
#[test]
fn every_condition_has_its_line() {
    let place = Place::new("check-lines");
    put(&place, "base", Shape::default());
    put(&place, "new", Shape { run: 5, host_percent: 120, ..Shape::default() });
    let args = [
        "check",
        "new",
        "--max-idle",
        "10%",
        "--max-step-ms",
        "50",
        "--baseline",
        "base",
        "--max-regression",
        "20%",
        "--min-speedup",
        "1.1",
        "--forbid-cause",
        "INPUT,HOST",
        "--require-range",
        "data_load",
        "--run-noise",
        "10%",
    ];
    let output = place.run(&args);
    assert_eq!((code(&output), err(&output).as_str()), (8, ""));
    assert_eq!(out(&output).lines().count(), 8, "{}", out(&output));
    same_as_file("check-lines", &out(&output));
    put(&place, "lossy", Shape { lost: 400, ..Shape::default() });
    let output = place.run(&["check", "lossy", "--max-idle", "10%", "--require-range", "data_load"]);
    assert_eq!(code(&output), 5);
    same_as_file("check-lossy", &out(&output));
}

#[test]
fn real_fixes_pass_and_their_reverse_fails() {
    let place = Place::new("check-real");
    let (slow, fixed) = (real("own_host_sleep"), real("own_host_sleep_fixed"));
    assert_eq!(one(&place, &[&fixed, "--baseline", &slow, "--min-speedup", "2"]), words(0, "ok"));
    assert_eq!(one(&place, &[&slow, "--baseline", &fixed, "--max-regression", "50%"]), words(8, "failed"));
    assert_eq!(one(&place, &[&slow, "--max-idle", "50%"]), words(8, "failed"));
    assert_eq!(one(&place, &[&fixed, "--max-idle", "5%"]), words(0, "ok"));
    assert_eq!(one(&place, &[&slow, "--forbid-cause", "HOST"]), words(8, "failed"));
}

#[test]
fn nonsense_ends_with_2_and_says_what_is_allowed() {
    let place = Place::new("check-wrong");
    put(&place, "t", Shape::default());
    for (args, allowed) in [
        (&["--max-idle", "10"][..], "10% or 0.1"),
        (&["--max-idle", "ten"], "a percentage such as 10%"),
        (&["--max-idle", "101%"], "at most 100%"),
        (&["--max-idle", "nan"], "a percentage such as 10%"),
        (&["--max-step-ms", "0"], "milliseconds above 0"),
        (&["--max-idle", "-5"], "a percentage such as 10%"),
        (&["--max-idle", "-5%"], "a percentage such as 10%"),
        (&["--max-step-ms", "-5"], "milliseconds above 0"),
        (&["--baseline", "t", "--min-speedup", "fast"], "a factor above 0"),
        (&["--max-regression", "3%"], "--baseline"),
        (&["--min-speedup", "2"], "--baseline"),
        (&["--forbid-cause", "LAZINESS"], "SYNC, LAUNCH"),
        (&["--baseline", "t"], "add --max-regression"),
    ] {
        let output = place.run(&[&["check", "t"], args].concat());
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{args:?}");
        assert!(err(&output).contains(allowed), "{args:?}: {}", err(&output));
    }
    assert_eq!(code(&place.run(&["check"])), 2);
}

/// Marks say what a step is, not that it does what it did: less work is no speedup, and no proof
/// against a regression.
#[test]
fn a_gate_on_other_work_is_not_judged() {
    let place = Place::new("check-other-work");
    let gemm = work("gemm", 1000, 200_000, 45);
    let attention = work("attention", 10, 10_000, 1);
    write(&place, "base", &steps_of(0, true, &[gemm, attention]));
    write(&place, "less", &steps_of(1, true, &[Work { times: 10, ..gemm }, attention]));
    write(&place, "other", &steps_of(1, true, &[work("sgemm", 1000, 200_000, 10)]));
    write(&place, "grids", &steps_of(1, true, &[gemm, work("attention", 100_000, 9_000_000, 1)]));
    write(&place, "two", &steps_of(1, true, &[gemm, attention, Work { gpu: 1, ..gemm }]));
    for (new, base, reason) in [
        ("less", "base", "other work than the baseline's: 22% of the kernels' time is in common"),
        ("base", "less", "other work than the baseline's: 22% of"),
        ("other", "base", "other work than the baseline's: 0% of the kernels' time is in common"),
        ("grids", "base", "50% of it in grids of another size"),
        ("base", "grids", "50% of it in grids of another size"),
        ("base", "two", "other work than the baseline's"),
    ] {
        for limit in [["--max-regression", "3%"], ["--min-speedup", "2"]] {
            let args = [&[new, "--baseline", base], &limit[..]].concat();
            assert_eq!(one(&place, &args), words(5, "unjudged"), "{args:?}");
            let said = out(&place.run(&[&["check"], &args[..]].concat()));
            assert!(said.contains(reason), "{said}");
        }
    }
    // steps that were found by their launches: the reason is the grids, not what is in common
    write(&place, "base", &steps_of(0, false, &[gemm, attention]));
    write(&place, "grids", &steps_of(1, false, &[gemm, work("attention", 100_000, 9_000_000, 1)]));
    let said = out(&place.run(&["check", "base", "--baseline", "grids", "--min-speedup", "1.2"]));
    assert!(said.contains("50% of it in grids of another size") && !said.contains("only 100%"), "{said}");
    assert!(said.contains("they may be other units"), "{said}");
}

/// 46 layers where there were 48 win their 4 % by doing less: a limit within that is for no one to
/// judge.
#[test]
fn a_win_within_the_missing_work_is_not_judged() {
    let place = Place::new("check-layers");
    let layers = |n| [work("gemm", 1000, 100_000, n), work("attention", 1000, 100_000, n)];
    write(&place, "48", &steps_of(0, true, &layers(48)));
    write(&place, "46", &steps_of(1, true, &layers(46)));
    for (new, base, limit, expected) in [
        ("46", "48", ["--min-speedup", "1.02"], words(5, "unjudged")),
        ("46", "48", ["--max-regression", "3%"], words(0, "ok")),
        ("46", "48", ["--min-speedup", "1.2"], words(8, "failed")),
        // two layers more are no regression of the program
        ("48", "46", ["--max-regression", "3%"], words(5, "unjudged")),
        ("48", "48", ["--max-regression", "3%"], words(0, "ok")),
    ] {
        let args = [&[new, "--baseline", base, "--run-noise", "0.5%"], &limit[..]].concat();
        assert_eq!(one(&place, &args), expected, "{args:?}");
    }
}

/// A GPU with three long kernels a step works as much as one with many short ones.
#[test]
fn a_gpu_with_few_long_kernels_counts() {
    let place = Place::new("check-few-long");
    let many = work("many", 1000, 40_000, 200);
    write(&place, "t", &steps_of(0, true, &[many, Work { gpu: 1, ns: 1_000_000, times: 3, ..many }]));
    assert_eq!(one(&place, &["t", "--max-idle", "10%"]), words(8, "failed"));
    assert_eq!(one(&place, &["t", "--max-idle", "80%"]), words(0, "ok"));
    // 3 launches of 40 us are work in passing, and that is said
    write(&place, "t", &steps_of(0, true, &[many, Work { gpu: 1, times: 3, ..many }]));
    assert_eq!(one(&place, &["t", "--max-idle", "10%"]), words(0, "ok"));
    let said = out(&place.run(&["check", "t", "--max-idle", "10%"]));
    assert!(said.contains("not counted: GPU 1, with under a tenth of the work, idle for 9"), "{said}");
}

// SPDX-License-Identifier: Apache-2.0
//! `gapprobe summary`: the ranks of a job in one table and one line.

use std::fs;

use serde_json::{json, Value};

use crate::place::{code, err, out, Place};

/// A summary as `report` writes it, as far as this verb reads it. Of `step_ms`, `comm_ms` are
/// collectives.
fn summary(rank: u32, world: u32, step_ms: f64, comm_ms: f64, cause: &str) -> Value {
    let ns = |ms: f64| (ms * 1e6) as u64;
    json!({
        "summary_version": verdict::output::summary::SUMMARY_VERSION,
        "verdict": {"code": "GP101", "cause": cause, "text": "why", "share": 0.38, "confidence": "high"},
        "steps": {"count": 100, "median_ns": ns(step_ms), "p95_ns": ns(step_ms + 1.0)},
        "worst_device": 0,
        "devices": [{"ordinal": 0, "buckets_ns": {
            "compute": ns(20.0) * 100,
            "collective_only": ns(comm_ms) * 100,
            "host": ns(step_ms - 20.0 - comm_ms) * 100,
        }}],
        "losses": {"cupti_dropped": 2}, "reading_problems": {"bad_events": 1},
        "rank": rank, "world_size": world, "host": format!("node{}", rank / 8), "pid": 1000 + rank,
        "times": {"start_unix_ns": 1_000 + u64::from(rank)},
        "coverage": {"killed": false},
    })
}

fn write(place: &Place, name: &str, value: &Value) {
    fs::write(place.out().join(format!("{name}.summary.json")), value.to_string()).unwrap();
}

/// All steps take 50 ms, because all wait for rank 517 in their collectives: it has 40 ms of its
/// own, the others 30.
#[test]
fn the_worst_of_a_thousand_ranks_is_the_one_that_all_wait_for() {
    let place = Place::new("fleet");
    for rank in (0..1000).filter(|r| *r != 3) {
        let comm = if rank == 517 { 10.0 } else { 20.0 };
        write(
            &place,
            &format!("gapprobe-{rank}"),
            &summary(rank, 1000, 50.0, comm, if rank == 517 { "INPUT" } else { "COMM" }),
        );
    }
    let output = place.run(&["summary", "."]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let text = out(&output);
    let line = text.lines().last().unwrap();
    assert_eq!(
        line,
        "gapprobe: 999 ranks, step 50.0 ms (median; 50.0 to 50.0); slowest: rank 517 on node64: INPUT costs 38% (why), \
         40.0 ms of its own a step. All ranks: compute 40%, collective only 40%, host 20%. No summary of rank 3."
    );
    // one row a rank under the heading, the worst one marked
    assert_eq!(text.lines().count(), 1 + 999 + 1);
    let marked: Vec<&str> = text.lines().filter(|l| l.contains(" <")).collect();
    assert!(marked.len() == 1 && marked[0].trim_start().starts_with("517 "), "{marked:?}");
    let all: Value = serde_json::from_str(&out(&place.run(&["summary", "--json", "."]))).unwrap();
    assert_eq!((all["worst"]["rank"].as_u64(), all["missing_ranks"].clone()), (Some(517), json!([3])));
    let sum: f64 = all["buckets"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert_eq!(all["ranks"][0]["losses"], 3);
}

/// A slow rank is told by what it has more of than the others: COMM is what they suffer from,
/// waiting for it.
#[test]
fn a_rank_that_computes_longer_is_not_accused_of_its_collectives() {
    let place = Place::new("slow-rank");
    let ns = |ms: f64| (ms * 1e6) as u64 * 100;
    let rank = |n: u32, compute: f64, host: f64| {
        let mut one = summary(n, 4, 50.0, 0.0, "COMM");
        one["verdict"]["code"] = json!(verdict::causes::comm::CODE);
        one["devices"][0]["buckets_ns"] =
            json!({"compute": ns(compute), "host": ns(host), "collective_only": ns(50.0 - compute - host)});
        write(&place, &n.to_string(), &one);
    };
    (0..4).for_each(|n| rank(n, if n == 1 { 40.0 } else { 15.0 }, 1.0));
    let line = out(&place.run(&["summary", "--line", "."]));
    assert!(
        line.contains("slowest: rank 1 on node0: computes 40.0 ms a step, the others 15.0: they wait for it"),
        "{line}"
    );
    assert!(!line.contains("COMM"), "{line}");
    let all: Value = serde_json::from_str(&out(&place.run(&["summary", "--json", "."]))).unwrap();
    assert_eq!(all["worst"]["more"]["bucket"], "compute");
    (0..4).for_each(|n| rank(n, 15.0, if n == 2 { 20.0 } else { 1.0 }));
    let line = out(&place.run(&["summary", "--line", "."]));
    assert!(
        line.contains("rank 2 on node0: host takes 20.0 ms a step, the others' 1.0: they wait for it"),
        "{line}"
    );
}

/// Two workers deliver their batches together: every second step is short. Which kind the median is
/// of is chance; on both ranks a step takes 36 ms, of which rank 0 waits 25 for rank 1 (its own
/// time was 19 ms by its median, that of rank 1 11: rank 0 was named).
#[test]
fn steps_that_are_short_and_long_in_turn_are_told_by_their_mean() {
    let place = Place::new("in-turn");
    for (rank, median, comm) in [(0, 61.0, 25.0), (1, 11.0, 0.0)] {
        let mut one = summary(rank, 2, 36.0, comm, if rank == 1 { "INPUT" } else { "COMM" });
        one["devices"][0]["buckets_ns"]["compute"] = json!(1_100_000_000u64);
        one["devices"][0]["buckets_ns"]["host"] = json!(((25.0 - comm) * 1e8) as u64);
        one["steps"]["median_ns"] = json!(median * 1e6);
        one["steps"]["mean_ns"] = json!(36e6);
        write(&place, &rank.to_string(), &one);
    }
    let line = out(&place.run(&["summary", "--line", "."]));
    assert!(
        line.contains("slowest: rank 1 on node0: INPUT costs 38% (why), 36.0 ms of its own a step"),
        "{line}"
    );
}

#[test]
fn even_ranks_accuse_nobody_of_being_slow() {
    let place = Place::new("even");
    for rank in 0..4 {
        write(&place, &rank.to_string(), &summary(rank, 4, 50.0 + f64::from(rank) * 0.2, 10.0, "HOST"));
    }
    let line = out(&place.run(&["summary", "--line", "."]));
    assert!(line.contains("; even; most idle: rank 3"), "{line}");
    assert!(!line.contains("slowest") && !line.contains("No summary"), "{line}");
}

#[test]
fn of_two_runs_the_newer_counts_and_what_is_no_summary_is_named() {
    let place = Place::new("odd");
    write(&place, "old", &summary(0, 2, 90.0, 0.0, "HOST"));
    let mut newer = summary(0, 2, 50.0, 0.0, "HOST");
    newer["times"]["start_unix_ns"] = json!(9_999);
    write(&place, "newer", &newer);
    let mut later = summary(1, 1, 50.0, 0.0, "HOST");
    later["summary_version"] = json!(99);
    write(&place, "later", &later);
    fs::write(place.out().join("text.summary.json"), "hello").unwrap();
    let output = place.run(&["summary", "."]);
    assert_eq!(code(&output), 4, "read what could be read, and say that not all could");
    assert!(out(&output).contains("1 rank, step 50.0 ms"), "{}", out(&output));
    let said = err(&output);
    for words in ["text.summary.json: no JSON (line 1, column 1)", "summary version 99", "1 older summar"] {
        assert!(said.contains(words), "{said}");
    }
}

/// Who gives the trace is told what to do with it, who gives an empty file that it is empty.
#[test]
fn a_trace_and_an_empty_file_are_called_what_they_are() {
    let place = Place::new("no-summaries");
    fs::write(place.out().join("empty.summary.json"), "").unwrap();
    let output = place.run(&["summary", "empty.summary.json"]);
    assert_eq!(code(&output), 4);
    assert!(err(&output).contains("empty.summary.json: the file is empty"), "{}", err(&output));
    let large = [&[0x1f, 0x8b, 8, 0][..], &vec![7; 17 << 20]].concat();
    let traces: [(&str, &[u8]); 4] = [
        ("trace.json.gz", b"\x1f\x8b\x08\x00 and more"),
        ("large.json.gz", &large),
        ("run.gpr", b"GAPPROBE and more"),
        ("trace.json", b"{\"traceEvents\":[]}"),
    ];
    for (name, bytes) in traces {
        fs::write(place.out().join(name), bytes).unwrap();
        let output = place.run(&["summary", name]);
        assert_eq!(code(&output), 4);
        let said = format!("{name}: a trace or a recording, no summary (gapprobe analyze {name})");
        assert!(err(&output).contains(&said), "{}", err(&output));
    }
}

/// Ranks of two jobs say nothing together.
#[test]
fn summaries_of_several_jobs_are_asked_about() {
    let place = Place::new("jobs");
    write(&place, "a", &summary(0, 2, 50.0, 10.0, "HOST"));
    write(&place, "b", &summary(1, 2, 50.0, 10.0, "HOST"));
    let line = || out(&place.run(&["summary", "--line", "."]));
    assert!(!line().contains("World sizes"), "{}", line());
    write(&place, "c", &summary(2, 16, 50.0, 10.0, "HOST"));
    assert!(line().contains(" World sizes from 2 to 16: summaries of several jobs?"), "{}", line());
}

/// Three programs of one afternoon in one folder: no rank waits for another, and no figure of all
/// of them means anything.
#[test]
fn separate_runs_are_listed_and_not_merged() {
    type Change = fn(&mut Value, u32);
    let unnumbered: Change = |v, _| (v["rank"], v["world_size"]) = (Value::Null, Value::Null);
    let alone: Change = |v, _| (v["rank"], v["world_size"]) = (json!(0), json!(1));
    let others: Change =
        |v, n| v["command"] = json!(format!("python {}.py", ["bert", "gpt", "vit"][n as usize]));
    for (why, change) in [
        ("none has a rank", unnumbered),
        ("not all have a rank in a world of several", alone),
        ("their commands differ", others),
    ] {
        let place = Place::new("separate-runs");
        for n in 0..3 {
            // the second is slow and idles most
            let mut one = summary(n, 8, if n == 1 { 90.0 } else { 50.0 }, 10.0, "HOST");
            one["command"] = json!("python train.py");
            change(&mut one, n);
            write(&place, &n.to_string(), &one);
        }
        let output = place.run(&["summary", "."]);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        let text = out(&output);
        assert_eq!(
            text.lines().last().unwrap(),
            format!(
                "gapprobe: 3 runs, not the ranks of one job ({why}), steps from 50.0 to 90.0 ms; \
                 most idle: process 1001 on node0: HOST costs 38% (why)."
            )
        );
        // a row each, with what was run
        assert_eq!(text.lines().count(), 1 + 3 + 1, "{text}");
        assert!(text.lines().next().unwrap().trim_start().starts_with("run "), "{text}");
        let rows: Vec<&str> =
            text.lines().filter(|l| l.contains("pid 100") && l.contains("python ")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        for words in ["median", "slowest", "even", "All ranks", "No summary of"] {
            assert!(!text.contains(words), "{words}: {text}");
        }
        let all: Value = serde_json::from_str(&out(&place.run(&["summary", "--json", "."]))).unwrap();
        assert_eq!(
            (&all["one_job"], &all["steps"], &all["older_summaries"]),
            (&json!(false), &Value::Null, &json!(0))
        );
        assert_eq!((&all["buckets"], &all["missing_ranks"]), (&json!({}), &json!([])));
        assert_eq!(all["worst"]["stands_out"], false);
    }
}

/// A job stays one: launchers tell ranks their number on the command line, and a run of its own in
/// the same folder is not among them.
#[test]
fn a_job_stays_one_beside_a_separate_run() {
    let place = Place::new("job-beside");
    for rank in 0..4 {
        let mut one = summary(rank, 4, 50.0, if rank == 2 { 5.0 } else { 20.0 }, "HOST");
        one["command"] = json!(format!("python train.py --local_rank={rank}"));
        write(&place, &rank.to_string(), &one);
    }
    let before = out(&place.run(&["summary", "."]));
    assert!(
        before.contains("gapprobe: 4 ranks, step 50.0 ms") && before.contains("slowest: rank 2"),
        "{before}"
    );
    let mut alone = summary(0, 1, 500.0, 0.0, "HOST");
    (alone["rank"], alone["command"], alone["pid"]) = (Value::Null, json!("python evaluate.py"), json!(77));
    write(&place, "alone", &alone);
    let output = place.run(&["summary", "."]);
    assert_eq!(out(&output), before);
    assert_eq!(err(&output), "gapprobe: 1 separate run beside the job left out: ./alone.summary.json\n");
    let all: Value = serde_json::from_str(&out(&place.run(&["summary", "--json", "."]))).unwrap();
    assert_eq!((&all["one_job"], &all["separate_runs"][0]["pid"]), (&json!(true), &json!(77)));
}

/// A copy, or a folder given twice: one process is one rank, with a rank's number and without.
#[test]
fn a_summary_that_is_there_twice_counts_once() {
    for numbered in [true, false] {
        let place = Place::new("twice");
        let one = |n: u32| {
            let mut value = summary(n, 0, [50.0, 60.0, 70.0][n as usize], 0.0, "HOST");
            if !numbered {
                value["rank"] = Value::Null;
            }
            value
        };
        (0..3).for_each(|n| write(&place, &format!("z{n}"), &one(n)));
        ["a", "zz"].iter().for_each(|copy| write(&place, copy, &one(2)));
        let output = place.run(&["summary", "--line", "."]);
        let (line, said) = (out(&output), err(&output));
        assert_eq!(code(&output), 0);
        let expected = match numbered {
            true => "3 ranks, step 60.0 ms (median; 50.0 to 70.0)",
            false => "3 runs, not the ranks of one job (none has a rank), steps from 50.0 to 70.0 ms;",
        };
        assert!(line.contains(expected), "{line}");
        assert_eq!(said, "gapprobe: 2 copies of summaries left out\n");
        let v: Value = serde_json::from_str(&out(&place.run(&["summary", "--json", "."]))).unwrap();
        assert_eq!((&v["repeated_summaries"], &v["older_summaries"]), (&2.into(), &0.into()));
        // two processes that a container calls the same began at other times
        let mut other = one(2);
        other["times"]["start_unix_ns"] = 999_999.into();
        write(&place, "other", &other);
        let ranks = if numbered { "3 ranks" } else { "4 runs" };
        let line = out(&place.run(&["summary", "--line", "."]));
        assert!(line.contains(ranks), "{line}");
    }
}

#[test]
fn a_folder_without_summaries_says_where_they_come_from() {
    let place = Place::new("nosummary");
    let output = place.run(&["summary", "."]);
    assert_eq!((code(&output), out(&output).as_str()), (4, ""));
    assert!(
        err(&output).contains("no *.summary.json") && err(&output).contains("hint: "),
        "{}",
        err(&output)
    );
}

/// A folder of a thousand other files: a few are named, the others counted by what is wrong with
/// them; --json has all.
#[test]
fn thousands_of_files_that_are_none_are_counted_not_listed() {
    let place = Place::new("unreadable-summaries");
    write(&place, "z", &summary(0, 1, 50.0, 0.0, "HOST"));
    for n in 0..1200 {
        let text = if n % 3 == 2 { "{}" } else { &format!("{}hello", " ".repeat(n)) };
        fs::write(place.out().join(format!("a{n:05}.summary.json")), text).unwrap();
    }
    let output = place.run(&["summary", "."]);
    assert_eq!(code(&output), 4);
    let said = err(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    assert_eq!(lines[0], "gapprobe: ./a00000.summary.json: no JSON (line 1, column 1)");
    // of 800 and 400 the first five are 2 + 2 and 1
    assert_eq!(
        lines[5],
        "gapprobe: and 1,195 more: 796 no JSON, 399 no gapprobe summary; all listed with --json"
    );
    assert!(
        out(&output).contains("1 run, step 50.0 ms (median); process 1000 on node0: "),
        "{}",
        out(&output)
    );
    let listed = |args: &[&str]| -> Value {
        let output = place.run(args);
        assert_eq!(code(&output), 4);
        serde_json::from_str(&out(&output)).unwrap()
    };
    let all = listed(&["summary", "--json", "."]);
    let unreadable = all["unreadable"].as_array().unwrap();
    assert_eq!((unreadable.len(), all["ranks"].as_array().unwrap().len()), (1200, 1));
    assert_eq!(unreadable[2]["file"], "./a00002.summary.json");
    assert_eq!(unreadable[2]["why"], "no gapprobe summary (no summary_version)");
    // where nothing can be read at all, too
    fs::remove_file(place.out().join("z.summary.json")).unwrap();
    assert_eq!(listed(&["summary", "--json", "."])["unreadable"].as_array().unwrap().len(), 1200);
}

// SPDX-License-Identifier: Apache-2.0
//! Processes that run, seen from outside: `ps`, `top --once`, `capture`.

use std::fs;

use serde_json::Value;
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::header::sources::YIELDED;
use trace::{Event, Kind};

use crate::beating::{Beating, STEP};
use crate::place::{code, err, follows_schema, out, recording, Place};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn pid() -> String {
    std::process::id().to_string()
}

#[test]
fn ps_lists_those_that_run_and_nobody_is_said_to_be_there_where_nobody_is() {
    let place = Place::new("ps");
    fs::write(place.private().join("dead.gpr"), recording(|_| {})).unwrap();
    let output = place.run(&["ps"]);
    assert_eq!((code(&output), out(&output).as_str()), (9, ""));
    assert!(
        err(&output).starts_with("gapprobe: no process of yours is recorded now\n\nhint: "),
        "{}",
        err(&output)
    );
    let output = place.run(&["ps", "--json"]);
    assert_eq!(
        (code(&output), json(&out(&output))),
        (9, serde_json::json!({"ps_version": 1, "processes": []}))
    );

    let beating = Beating::new(&place, |b| b.header.losses[0] = 3);
    let output = place.run(&["ps"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let table = out(&output);
    let words: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["PID", "RANK", "SINCE", "SIZE", "LOSSES", "RECORDING", "PROGRAM"]);
    assert_eq!(words.len(), 2, "{table}");
    assert_eq!((words[1][0], words[1][1]), (pid().as_str(), "3/8"));
    assert_eq!(words[1][words[1].len() - 4..], ["3", "on", "python", "train.py"], "{table}");
    beating.switch_off();
    let said = json(&out(&place.run(&["ps", "--json"])));
    follows_schema("ps", &said);
    let all = &said["processes"];
    assert_eq!((all[0]["standing"].as_str(), all[0]["rank"].as_u64()), (Some("off"), Some(3)));
    assert_eq!(all[0]["recording"].as_str(), beating.path.to_str());
}

#[test]
fn a_process_that_called_exec_is_there_once_with_its_newest_recording() {
    let place = Place::new("ps-exec");
    let _beating = Beating::new(&place, |_| {});
    let own = spool::liveness::own();
    let before = recording(|b| {
        (b.header.pid, b.header.process_start, b.header.state) = (own.pid, own.start, 1);
        (b.header.pid_namespace, b.header.boot_id) = (own.namespace, own.boot);
        b.header.command = "sh the_shell_before".into();
    });
    fs::write(place.private().join("before.gpr"), before).unwrap();
    let table = out(&place.run(&["ps"]));
    assert!(table.contains("train.py") && !table.contains("the_shell_before"), "{table}");
}

#[test]
fn top_prints_one_table_for_scripts_whose_parts_are_all_of_the_time() {
    let place = Place::new("top");
    assert_eq!(code(&place.run(&["top", "--once"])), 9);
    let _beating = Beating::new(&place, |_| {});
    for args in [&["top", "--once", "--last", "2s"][..], &["top", "--last", "2s"]] {
        let output = place.run(args);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        let table = out(&output);
        assert!(!table.contains('\x1b') && table.lines().count() == 2, "{table}");
        let mut lines = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        let (headings, row) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(
            headings[..9],
            ["PID", "RANK", "GPU", "STEP", "ms", "P90", "ms", "STEPS", "BUSY"],
            "{table}"
        );
        assert_eq!(row[..4], [pid().as_str(), "3/8", "0", "5.00"], "{table}");
        // steps of 5 ms, 4 ms busy; 399 to 400 whole ones in two seconds
        let steps: u64 = row[5].parse().unwrap();
        assert!((398..=400).contains(&steps) && row[6] == "80", "{table}");
    }
    let said = json(&out(&place.run(&["top", "--once", "--json", "--last", "2s"])));
    follows_schema("top", &said);
    let all = &said["rows"];
    let shares = all[0]["bucket_shares"].as_object().unwrap();
    let sum: f64 = shares.values().map(|v| v.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9 && shares.len() == 12, "{all:#}");
    assert_eq!((all[0]["step_ns"].as_u64(), all[0]["job"].as_str()), (Some(STEP), Some("job-17")));
    let busy = all[0]["busy_share"].as_f64().unwrap();
    assert!((busy - 0.8).abs() < 0.001, "{busy}");
}

/// Beside its own kernel of 4 ms, of no line, each step has one of 2 ms for a line that two modules
/// share, and one of 1 ms for another line.
fn with_lines(b: &mut Builder) {
    let call = ("Module._call_impl", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", 1500);
    let forward = |line| [("Net.forward", "/job/net.py", line), call, ("main", "/job/train.py", 9)];
    let blocks = ["blocks.0.up", "blocks.1.up"].map(|path| {
        let stack = b.stack(&forward(12));
        b.in_module(stack, path, "Linear");
        stack
    });
    let update = b.stack(&[("main", "/job/\x1b[31mtrain.py", 40)]);
    b.attribute("cwd", "/job");
    let (kernel, begin) = (b.kernel("_Z4gemmPfS_S_", 256, 64), b.header.start_monotonic);
    for step in 0..4_000u32 {
        let at = begin + u64::from(step) * STEP;
        let [first, second] = blocks;
        let work = [(first, 1_200_000), (second, 800_000), (update, 1_000_000)];
        for (n, (site, ns)) in (0..).zip(work) {
            let (after, correlation) = (u64::from(n) * 1_300_000, 100_000 + step * 3 + n);
            let mut launch = Event::new(Kind::Call, at + after + 1_000, at + after + 2_000);
            (launch.a, launch.x, launch.c) = (pack(RUNTIME, 211), Class::Launch as u8, site);
            b.on_thread(101, Event { correlation, ..launch });
            let mut op = Event::new(Kind::Kernel, at + after + 10_000, at + after + 10_000 + ns);
            (op.a, op.b, op.correlation) = (kernel, 1024, correlation);
            b.on_stream(0, 1, 8, op);
        }
    }
}

#[test]
fn top_names_the_lines_that_the_gpu_works_for() {
    let place = Place::new("top-lines");
    let args = ["top", "--once", "--last", "2s"];
    let lines = [&args[..], &["--lines"]].concat();
    {
        let _beating = Beating::new(&place, with_lines);
        let output = place.run(&lines);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        let table = out(&output);
        let below: Vec<&str> = table.lines().skip(2).collect();
        let expected = [
            "     57% of its GPU time: unattributed",
            "     29% of its GPU time: net.py:12 in Net.forward (blocks.0.up and 1 other module)",
            "     14% of its GPU time: \\u{1b}[31mtrain.py:40 in main",
        ];
        assert_eq!(below, expected, "{table}");
        let narrow = out(&place.run(&[&lines[..], &["--width", "60"]].concat()));
        assert!(narrow.lines().all(|l| l.chars().count() <= 60), "{narrow}");
        assert!(narrow.contains("29% of its GPU time: net.py:12"), "{narrow}");

        let said = json(&out(&place.run(&[&lines[..], &["--json"]].concat())));
        follows_schema("top", &said);
        let of = |n: usize| &said["rows"][0]["lines"][n];
        assert_eq!(said["rows"][0]["lines"].as_array().unwrap().len(), 3);
        assert_eq!(
            (&of(0)["line"], &of(0)["module"], &of(0)["modules"]),
            (&Value::Null, &Value::Null, &0.into())
        );
        assert_eq!(
            (&of(1)["line"], &of(1)["module"]),
            (&"net.py:12 in Net.forward".into(), &"blocks.0.up".into())
        );
        let (ns, share) = (of(1)["gpu_ns"].as_u64().unwrap(), of(1)["share"].as_f64().unwrap());
        // 400 steps, less what of one is cut at either end
        assert!(
            (798_000_000..=800_000_000).contains(&ns) && (share - 2.0 / 7.0).abs() < 0.001,
            "{ns} {share}"
        );
        // who does not ask for them gets none
        let said = json(&out(&place.run(&[&args[..], &["--json"]].concat())));
        follows_schema("top", &said);
        assert!(said["rows"][0].get("lines").is_none());
        assert_eq!(out(&place.run(&args)).lines().count(), 2);
    }
    let _beating = Beating::new(&place, |_| {});
    let table = out(&place.run(&lines));
    assert_eq!(table.lines().nth(2), Some("    no lines recorded"), "{table}");
    let said = json(&out(&place.run(&[&lines[..], &["--json"]].concat())));
    follows_schema("top", &said);
    assert_eq!(said["rows"][0]["lines"], Value::Null);
}

/// What was true of the last recorded seconds may be no more: from when they are is said.
#[test]
fn figures_of_long_ago_say_so_and_recording_that_is_over_is_no_pause() {
    let place = Place::new("top-old");
    for (windows, word) in [("20 of 1000 steps", "off"), (trace::define::ENDED, "ended")] {
        let old = 720_000_000_000;
        let _off = Beating::off_for(&place, old, |b| b.attribute(trace::define::WINDOWS, windows));
        let table = out(&place.run(&["top", "--once"]));
        assert!(table.contains(&format!("  {word}, figures 12 min old  ")), "{table}");
        let said = json(&out(&place.run(&["top", "--once", "--json"])));
        follows_schema("top", &said);
        let row = &said["rows"][0];
        assert_eq!(row["standing"].as_str(), Some(word));
        assert!(
            row["age_ns"].as_u64().is_some_and(|age| (old..old + 60_000_000_000).contains(&age)),
            "{row}"
        );
        let said = json(&out(&place.run(&["ps", "--json"])));
        follows_schema("ps", &said);
        assert_eq!(said["processes"][0]["standing"].as_str(), Some(word));
    }
    let beating = Beating::new(&place, |b| b.attribute(trace::define::WINDOWS, trace::define::ENDED));
    assert!(!out(&place.run(&["top", "--once"])).contains("old"), "of now");
    beating.switch_off();
    assert!(out(&place.run(&["top", "--once"])).contains("  ended  "), "of a second ago");
}

/// As wide as is asked for, and however narrow with step, busy and verdict: those are what one
/// looks for.
#[test]
fn top_is_as_wide_as_is_asked_and_keeps_the_verdict() {
    let place = Place::new("top-width");
    let _beating =
        Beating::new(&place, |b| b.header.command = "python train_a_large_model.py --with options".into());
    let whole = out(&place.run(&["top", "--once", "--last", "2s"]));
    let verdict = |table: &str| {
        let mut lines = table.lines();
        let at = lines.next().unwrap().find("VERDICT")?;
        lines.next()?.get(at..)?.split("  ").next().map(str::to_owned)
    };
    let expected = verdict(&whole).unwrap();
    assert!(expected.ends_with('%'), "{whole}");
    for width in [60, 80, 100, 140] {
        let output = place.run(&["top", "--once", "--last", "2s", "--width", &width.to_string()]);
        let (table, said) = (out(&output), err(&output));
        assert!(table.lines().all(|l| l.chars().count() <= width), "{width}: {table}");
        assert!(table.lines().any(|l| l.chars().count() > width - 20), "{width}: {table}");
        assert_eq!(verdict(&table).as_deref(), Some(expected.as_str()), "{table}");
        for heading in ["PID", "STEP ms", "BUSY %"] {
            assert!(table.lines().next().unwrap().contains(heading), "{width}: {table}");
        }
        assert!(
            width > 100 && said.is_empty()
                || said.starts_with("gapprobe: top: ") && said.ends_with("columns; --width 0 prints all\n"),
            "{said}"
        );
    }
    let output = place.run(&["top", "--once", "--last", "2s", "--width", "0"]);
    assert!(out(&output).contains("--with options") && err(&output).is_empty(), "{}", out(&output));
}

#[test]
fn capture_cuts_out_the_next_steps_or_the_last_or_a_time() {
    let place = Place::new("capture");
    let beating = Beating::new(&place, |_| {});
    let begun = crate::beating::now();
    let output = place.run(&["capture", &pid(), "--steps", "20", "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let s = json(&out(&output));
    assert_eq!(
        (s["steps"]["count"].as_u64(), s["steps"]["median_ns"].as_u64()),
        (Some(20), Some(STEP)),
        "{s:#}"
    );
    assert_eq!(s["steps"]["unplaced"].as_u64(), Some(0), "{s:#}");
    assert!(s["coverage"].as_object().is_some_and(|c| c["killed"] == false), "{}", s["coverage"]);
    assert!(err(&output).matches("gapprobe: wrote ./gapprobe-testhost-").count() == 2, "{}", err(&output));
    assert_eq!(place.results().len(), 2);
    assert!(crate::beating::now() - begun >= 20 * STEP, "they had not happened yet");
    let trace = place.results().into_iter().find(|n| n.ends_with(".json.gz")).unwrap();
    let again = json(&out(&place.run(&["analyze", "--json", &trace])));
    let said = again["evidence"].to_string();
    assert!(said.contains("20 of ") && !said.contains("killed"), "the same when it is read again: {said}");

    let output = place.run(&["capture", beating.path.to_str().unwrap(), "--last", "--steps", "50"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains(" [GP"), "{}", out(&output));
    let output = place.run(&["capture", &pid(), "--last", "--seconds", "1", "--json"]);
    assert_eq!(json(&out(&output))["coverage"]["seen_ns"].as_u64(), Some(1_000_000_000));
    let output = place.run(&["capture", &pid(), "--seconds", "300ms", "--json"]);
    assert_eq!(json(&out(&output))["coverage"]["seen_ns"].as_u64(), Some(300_000_000), "{}", err(&output));
    // more than there is time for
    let output = place.run(&["capture", &pid(), "--steps", "1000", "--seconds", "500ms"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains(" of 1000 found in 0.5 s"), "{}", err(&output));
    assert_eq!(place.results().len(), 10);
    assert!(beating.path.exists(), "the recording is the process's own");
}

#[test]
fn capture_says_who_is_not_recorded_and_what_cannot_be() {
    let place = Place::new("capture-refuses");
    let output = place.run(&["capture", "1", "--steps", "20"]);
    assert_eq!(code(&output), 9);
    assert!(
        err(&output).contains("process 1 is not recorded\n\nhint: it runs without gapprobe"),
        "{}",
        err(&output)
    );
    let gone = place.run(&["capture", &i32::MAX.to_string()]);
    assert!(code(&gone) == 9 && err(&gone).contains("there is no such process"), "{}", err(&gone));
    let dead = place.out().join("dead.gpr");
    fs::write(&dead, recording(|_| {})).unwrap();
    let output = place.run(&["capture", dead.to_str().unwrap()]);
    assert!(code(&output) == 9 && err(&output).contains("has ended"), "{}", err(&output));
    let beating = Beating::new(&place, |_| {});
    let output = place.run(&["capture", &pid(), "-o", "nowhere"]);
    let said = "gapprobe: --dir: nowhere is not there\n\nhint: mkdir -p nowhere\n";
    assert_eq!((code(&output), err(&output).as_str()), (1, said));
    for wrong in [&["--steps", "2"][..], &["--seconds", "11m"], &["--seconds", "0"]] {
        assert_eq!(code(&place.run(&[&["capture", &pid()], wrong].concat())), 2, "{wrong:?}");
    }
    beating.switch_off();
    let output = place.run(&["capture", &pid(), "--seconds", "1"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    assert!(err(&output).contains("has recording switched off, and it does not answer"), "{}", err(&output));
}

/// Another profiler's time is neither a pause between windows nor the program's own.
#[test]
fn why_the_last_seconds_are_not_in_a_recording_is_said() {
    let place = Place::new("capture-why");
    for (sources, windows, ended, why) in [
        (YIELDED, 3, "", "another profiler has the GPU's records"),
        (0, 3, trace::define::ENDED, "recording has ended for good"),
        (0, 3, "", "between two windows"),
        (0, 0, "", "recording is switched off"),
    ] {
        let _off = Beating::off_for(&place, 5_000_000_000, |b| {
            b.header.sources |= sources;
            b.header.totals[trace::Total::Windows as usize] = windows;
            b.attribute(trace::define::WINDOWS, ended);
        });
        let output = place.run(&["capture", &pid(), "--last", "1s"]);
        let said = format!("the last 1.0 s, 1.0 s of them not recorded ({why})");
        assert!(code(&output) == 0 && err(&output).contains(&said), "{}{}", out(&output), err(&output));
    }
}

#[test]
fn nothing_is_written_into_a_recording_that_others_could_have_put_there() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("capture-open");
    let beating = Beating::new(&place, |_| {});
    beating.switch_off();
    fs::set_permissions(place.private(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.run(&["capture", beating.path.to_str().unwrap(), "--seconds", "1"]);
    assert!(code(&output) == 1 && err(&output).contains("is open to other users"), "{}", err(&output));
    // (a link in a folder of ours leads to a file that may be anybody's)
    fs::set_permissions(place.private(), fs::Permissions::from_mode(0o700)).unwrap();
    let link = place.private().join("link.gpr");
    std::os::unix::fs::symlink(&beating.path, &link).unwrap();
    let output = place.run(&["capture", link.to_str().unwrap(), "--seconds", "1"]);
    assert!(code(&output) == 1 && err(&output).contains("cannot be asked for it"), "{}", err(&output));
}

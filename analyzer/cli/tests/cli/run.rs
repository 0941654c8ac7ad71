// SPDX-License-Identifier: Apache-2.0
//! `run`: the command stays what it is.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{code, err, harmless_library, out, recording, Place};

#[test]
fn run_returns_what_the_command_returned_and_leaves_its_output_alone() {
    let place = Place::new("run");
    let library = harmless_library();
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let output = place.run(&["run", "--lib", &library, "--", "sh", "-c", script]);
        assert_eq!(code(&output), expected, "{script}");
        assert_eq!((out(&output), err(&output)), (String::new(), String::new()), "{script}");
    }
    let script =
        "echo $LD_PRELOAD $GAPPROBE_DIR $GAPPROBE_MAX_MB $GAPPROBE_PRINT; echo ${#GAPPROBE_RUN_ID} >&2; cat";
    let output = place
        .gapprobe(&[
            "run",
            "--lib",
            &library,
            "--dir",
            ".",
            "--max-mb",
            "64",
            "--all-ranks",
            "--",
            "sh",
            "-c",
            script,
        ])
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let here = place.out().canonicalize().unwrap();
    let real = Path::new(&library).canonicalize().unwrap();
    assert_eq!(out(&output), format!("{}:{library} {} 64 all\n", real.display(), here.display()));
    assert_eq!(err(&output), "16\n");
}

/// Options of gapprobe end where the command begins.
#[test]
fn what_follows_the_first_word_is_the_commands() {
    let place = Place::new("run-words");
    let library = harmless_library();
    fs::create_dir(place.out().join("x")).unwrap();
    let x = place.out().join("x").canonicalize().unwrap().display().to_string();
    let script = r#"printf '[%s]' "$GAPPROBE_DIR" "$@""#;
    for (before, after, expected) in [
        (&[][..], &["--epochs", "1"][..], "[][--epochs][1]".to_owned()),
        (&["--"], &["--epochs", "1"], "[][--epochs][1]".to_owned()),
        (&["--dir", "x"], &["--dir", "y", "-h"], format!("[{x}][--dir][y][-h]")),
        (&["--dir", "x", "--"], &["--dir", "y", "--help"], format!("[{x}][--dir][y][--help]")),
        (&["--quiet"], &["--", "--", "-V"], "[][--][--][-V]".to_owned()),
    ] {
        let args = [&["run", "--lib", &library], before, &["bash", "-c", script, "bash"], after].concat();
        let output = place.run(&args);
        assert_eq!((code(&output), out(&output)), (0, expected), "{args:?}: {}", err(&output));
    }
    let hyphen = place.0.join("-program");
    std::os::unix::fs::symlink("/bin/echo", &hyphen).unwrap();
    let run = |args: &[&str]| place.gapprobe(args).env("PATH", &place.0).output().unwrap();
    let output = run(&["run", "--lib", &library, "--", "-program", "began"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "began\n"), "{}", err(&output));
    let output = run(&["run", "--lib", &library, "-program", "began"]);
    assert_eq!((code(&output), out(&output).as_str()), (2, ""), "no option, and no command without --");
}

#[test]
fn a_library_that_the_loader_does_not_take_is_refused_before_the_command_begins() {
    let place = Place::new("no-library");
    // a program by its kind, and so no library, though it is of the right machine
    let program = env!("CARGO_BIN_EXE_gapprobe");
    let output = place.run(&["run", "--lib", program, "--", "sh", "-c", "echo began"]);
    assert_eq!((code(&output), out(&output).as_str()), (125, ""), "{}", err(&output));
    assert!(err(&output).contains("the loader does not take it"), "{}", err(&output));
}

#[test]
fn run_hands_signals_on() {
    let place = Place::new("signals");
    let script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = place
        .gapprobe(&["run", "--lib", &harmless_library(), "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let begin = Instant::now();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("got it\n", Some(9)));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn run_reports_for_a_command_that_was_killed_and_for_no_other() {
    let place = Place::new("killed");
    let template = place.0.join("template");
    fs::write(&template, recording(|b| b.attribute("run.id", "RUNIDRUNIDRUNID!"))).unwrap();
    // somebody else's recording: not of this run
    fs::write(place.private().join("other.gpr"), recording(|b| b.attribute("run.id", "0123456789abcdef")))
        .unwrap();
    let script = format!(
        "LC_ALL=C sed \"s/RUNIDRUNIDRUNID!/$GAPPROBE_RUN_ID/\" {} > {}/own.gpr; echo data; kill -9 $$",
        template.display(),
        place.private().display(),
    );
    let output = place.run(&["run", "--lib", &harmless_library(), "--", "sh", "-c", &script]);
    assert_eq!((code(&output), out(&output).as_str()), (137, "data\n"));
    assert!(err(&output).contains(" [GP101]"), "{}", err(&output));
    assert_eq!(place.results().len(), 2);
    assert!(!place.private().join("own.gpr").exists() && place.private().join("other.gpr").exists());
}

/// A process of the run said its line and could not write its trace: its verdict stays, whatever
/// can be made of its recording.
#[test]
fn run_adds_the_trace_to_a_verdict_that_was_said_only_where_the_recording_holds_as_much() {
    let spoken = |b: &mut trace::build::Builder| {
        b.header.state = trace::header::state::LINE_SAID;
        b.attribute("run.id", "RUNIDRUNIDRUNID!");
    };
    let whole = recording(spoken);
    let cut = &whole[..whole.len() - 40_000];
    let name = "gapprobe-testhost-2147483647-20261118-110640-";
    let own_summary = |events: u64, text: &str| {
        format!(
            r#"{{"line": "said", "trace": null, "verdict": {{"code": "GP101", "text": "{text}"}}, "coverage": {{"events": {events}}}}}"#
        )
    };
    let sync = "cudaStreamSynchronize drains the queue every step";
    // the recording, the summary beside it; what is said, what is there afterwards
    for (case, bytes, summary, says, stays) in [
        ("whole", whole.as_slice(), Some(own_summary(100, sync)), "gapprobe: wrote ", false),
        ("part", &whole, Some(own_summary(100, "other")), " [GP101]", false),
        ("damaged", cut, Some(own_summary(100, sync)), "", true),
        ("less", &whole, Some(own_summary(1_000_000, sync)), "", true),
        ("bare", &whole, None, "gapprobe: wrote ", false),
        ("bare-damaged", cut, None, "", true),
    ] {
        let place = Place::new(&format!("spoken-{case}"));
        let template = place.0.join("template");
        fs::write(&template, bytes).unwrap();
        let earlier = place.out().join(format!("{name}0000.summary.json"));
        if let Some(text) = &summary {
            fs::write(&earlier, text).unwrap();
        }
        let own = place.private().join("own.gpr");
        let script = format!(
            "LC_ALL=C sed \"s/RUNIDRUNIDRUNID!/$GAPPROBE_RUN_ID/\" {} > {}",
            template.display(),
            own.display()
        );
        let output = place.run(&["run", "--lib", &harmless_library(), "--", "sh", "-c", &script]);
        let said = err(&output);
        let lines = if says.is_empty() { 0 } else { 1 };
        assert!(said.contains(says) && said.lines().count() == lines, "{case}: {said}");
        assert_eq!((own.exists(), code(&output)), (stays, 0), "{case}");
        let results = place.results();
        let of = |ending: &str| results.iter().filter(|n| n.ends_with(ending)).count();
        let summaries = usize::from(!stays || summary.is_some());
        assert_eq!(
            (of(".summary.json"), of(".json.gz")),
            (summaries, usize::from(!stays)),
            "{case}: {results:?}"
        );
        assert_eq!(earlier.exists(), stays && summary.is_some(), "{case}: the new one takes its place");
    }
}

/// A library by the name of ours that leaves nothing, as ours does where CUDA is not used; in its
/// place the script leaves what ours does where it is.
#[test]
fn that_nothing_was_recorded_is_said_only_where_nothing_used_cuda() {
    const SAID: &str = "gapprobe: nothing was recorded: no process with gapprobe in it made a CUDA context \
                        (gapprobe doctor looks for what is amiss)\n";
    let place = Place::new("run-unused");
    let library = place.0.join("libgapprobe.so");
    fs::copy(harmless_library(), &library).unwrap();
    let library = library.display().to_string();
    let private = place.private().display().to_string();
    let run = |script: &str, args: &[&str], settings: &[(&str, &str)]| {
        let args = [&["run", "--lib", &library], args, &["--", "sh", "-c", script]].concat();
        let output = place.gapprobe(&args).envs(settings.iter().copied()).output().unwrap();
        (code(&output), out(&output), err(&output))
    };
    let attached = format!("rm {private}/gapprobe-run-$GAPPROBE_RUN_ID; exit 3");
    let said = |status: i32| (status, String::new(), SAID.to_owned());
    let other = place.private().join("other");
    fs::write(&other, "").unwrap();
    for there in [true, false] {
        if !there {
            fs::remove_file(&other).unwrap();
            fs::remove_dir(place.private()).unwrap();
        }
        assert_eq!(run("exit 0", &[], &[]), said(0));
        assert_eq!(run("sh -c 'exit 7'", &[], &[]), said(7));
        assert_eq!(run("kill -9 $$", &[], &[]), said(137));
        assert_eq!(place.private().exists(), there, "what was there is there, and nothing else");
        assert!(!there || fs::read_dir(place.private()).unwrap().count() == 1);
        assert_eq!(run(&attached, &[], &[]), (3, String::new(), String::new()), "a process attached");
    }
    let silent = (0, String::new(), String::new());
    assert_eq!(run("touch gapprobe-far-away.summary.json", &[], &[]), silent, "recorded on another host");
    assert_eq!(run("true", &["--quiet"], &[]), silent);
    for settings in [&[("GAPPROBE_QUIET", "1")][..], &[("GAPPROBE", "0"), ("GAPPROBE_QUIET", "1")]] {
        assert_eq!(run("true", &[], settings), silent, "{settings:?}");
    }
    let off = "gapprobe: nothing was recorded: GAPPROBE=0 switches gapprobe off\n";
    assert_eq!(run("exit 4", &[], &[("GAPPROBE", "0")]), (4, String::new(), off.to_owned()));
    // the library names it, where CUDA is used
    assert_eq!(run("true", &[], &[("GAPPROBE", "maybe")]), silent);
    // what the loader does not take was loaded into nothing
    fs::write(&library, fs::read("/bin/true").unwrap()).unwrap();
    assert!(!run("true", &[], &[]).2.contains("CUDA"));
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: `GAPPROBE_ALLOW` and `GAPPROBE_DENY` name a program as one calls it (`python3`) or as
//! its file is called (`python3.11`), and `gapprobe run` says which of them kept its command from
//! being recorded.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Run, Victim};

/// A link to the victim `loop`, as /usr/bin/python3 is one to python3.11.
fn link(name: &str) -> PathBuf {
    let folder = built().scratch.join(format!("listed-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join(name);
    let _ = std::fs::remove_file(&link); // of an earlier run
    symlink(built().sim.join("13.0/loop"), &link).expect("a link");
    link
}

fn records(run: &Run, label: &str) {
    assert_eq!((run.ending(), run.launched()), (0, 200), "{label}: {}", run.stderr);
    assert!(matches!(run.lines()[..], [line] if line.contains(" [GP")), "{label}: {}", run.stderr);
    assert!(run.summary().is_some(), "{label}: {:?}", run.left_anywhere());
}

fn stays_out(run: &Run, label: &str) {
    assert_eq!((run.ending(), run.launched(), run.stderr.as_str()), (0, 200, ""), "{label}");
    assert!(run.left_anywhere().is_empty() && run.recordings().is_empty(), "{label}");
}

#[test]
fn a_program_is_named_as_it_is_called_and_as_its_file_is() {
    let program = link("trainer");
    let called = || Victim::of(&program, &["10", "20", "20"], "13.0");
    for list in ["trainer", "loop", "python3, trainer", "loop,trainer"] {
        records(&called().env("GAPPROBE_ALLOW", list).run(), &format!("allowed: {list}"));
        stays_out(&called().env("GAPPROBE_DENY", list).run(), &format!("denied: {list}"));
    }
    for list in ["train", "trainer2", "listed", ",", "/loop"] {
        stays_out(&called().env("GAPPROBE_ALLOW", list).run(), &format!("not allowed: {list}"));
        records(&called().env("GAPPROBE_DENY", list).run(), &format!("not denied: {list}"));
    }
    let both = called().env("GAPPROBE_ALLOW", "trainer").env("GAPPROBE_DENY", "loop");
    stays_out(&both.run(), "allowed by one name, denied by the other");
}

/// `gapprobe run` of the program with one setting.
fn run(words: &[&str], setting: (&str, &str)) -> Run {
    let library = built().library.to_string_lossy().into_owned();
    let all = [&["run", "--lib", &library, "--"], words].concat();
    Victim::of(&built().command, &all, "13.0").alone().env(setting.0, setting.1).run()
}

#[test]
fn run_says_which_list_kept_its_command_out() {
    let program = link("teacher");
    let program = program.to_str().expect("text");
    let words = [program, "10", "20", "20"];
    let said = "gapprobe: nothing was recorded: ";
    for (setting, why) in [
        (("GAPPROBE_DENY", "x,teacher"), "GAPPROBE_DENY=x,teacher keeps gapprobe out of teacher (loop)"),
        (("GAPPROBE_DENY", "loop"), "GAPPROBE_DENY=loop keeps gapprobe out of teacher (loop)"),
        (
            ("GAPPROBE_ALLOW", "python3"),
            "GAPPROBE_ALLOW=python3 does not name teacher (loop), and nothing that it names made a CUDA context",
        ),
    ] {
        let run = run(&words, setting);
        assert_eq!((run.ending(), run.launched()), (0, 200), "{setting:?}: {}", run.stderr);
        assert_eq!(run.stderr.trim_end(), format!("{said}{why}"), "{setting:?}");
    }
    // the shell is kept out, and what it starts is not, or the other way round
    let script = format!("{program} 10 20 20; exit 3");
    for setting in [("GAPPROBE_ALLOW", "teacher"), ("GAPPROBE_DENY", "bash")] {
        let run = run(&["bash", "-c", &script], setting);
        assert_eq!(run.ending(), 3, "{}", run.stderr);
        assert!(matches!(run.lines()[..], [line] if line.contains(" [GP")), "{}", run.stderr);
    }
    let run = run(&["bash", "-c", &script], ("GAPPROBE_DENY", "teacher"));
    let why = "no process with gapprobe in it made a CUDA context; GAPPROBE_DENY=teacher keeps it out of what it names";
    assert_eq!((run.ending(), run.stderr.trim_end()), (3, format!("{said}{why}").as_str()));
}

// SPDX-License-Identifier: Apache-2.0
//! Purpose: what the `GAPPROBE_*` variables may hold: an empty value is no value, for all of them
//! and without a word, a path is bytes, UTF-8 or not, and which values make no sense the table says
//! (`gapprobe doctor` goes by it). (What comes of such values: `adversity`.)

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Run, Victim};
use trace::setting::{self, Rule, Setting, SETTINGS};
use trace::Kind;

const LOOP: [&str; 4] = ["loop", "10", "20", "20"];
/// A name that is no UTF-8 from any position on.
const NAME: &[u8] = b"out-\xff\xfe-\xc3";

/// The program as ever, and of gapprobe one line: the report.
fn reports(run: &Run, label: &str) {
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{label}: {}", run.stderr);
    assert!(run.others().is_empty(), "{label}: {}", run.stderr);
    assert!(
        matches!(run.lines()[..], [line] if line.contains(" [GP")),
        "{label}: one line, the report: {}",
        run.stderr
    );
    assert_eq!(run.recorded().kernels().len(), 200, "{label}");
}

fn endings(folder: &Path) -> Vec<&'static str> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let names: Vec<_> =
        entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    let of = |name: &String| match name {
        n if n.ends_with(".summary.json") => "summary",
        n if n.ends_with(".json.gz") => "trace",
        _ => "other",
    };
    let mut all: Vec<_> = names.iter().map(of).collect();
    all.sort_unstable();
    all
}

#[test]
fn an_empty_value_is_none() {
    for setting in SETTINGS {
        let run = Victim::sim("13.0", &LOOP).env(setting.name, "").run();
        reports(&run, setting.name);
        // the current directory is the run's GAPPROBE_DIR too
        assert_eq!(endings(&run.folder.join("out")), ["summary", "trace"], "{}", setting.name);
        assert!(run.left_recordings().is_empty(), "{}", setting.name);
    }
    let all = SETTINGS.iter().fold(Victim::sim("13.0", &LOOP), |v, s| v.env(s.name, ""));
    reports(&all.run(), "all of them");
}

#[test]
fn a_kind_that_is_left_out_leaves_no_records() {
    for (without, has_kernels) in [("", true), ("38", true), ("1,2, 22", true), ("10", false)] {
        let run = Victim::sim("13.0", &LOOP).env("GAPPROBE_TEST_WITHOUT", without).run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{without}: {}", run.stderr);
        assert_eq!(run.recorded().of(Kind::Kernel).next().is_some(), has_kernels, "{without}");
    }
}

#[test]
fn a_directory_whose_name_is_no_text() {
    for relative in [false, true] {
        let victim = Victim::sim("13.0", &LOOP);
        let name = OsStr::from_bytes(NAME);
        let folder = victim.folder.join("out").join(name);
        std::fs::create_dir(&folder).expect("a folder of that name");
        let setting = if relative { PathBuf::from(name) } else { folder.clone() };
        let run = victim.env("GAPPROBE_DIR", &setting).run();
        reports(&run, &format!("{setting:?}"));
        assert_eq!(endings(&folder), ["summary", "trace"], "{setting:?}");
        assert!(run.left().is_empty(), "nothing beside it: {:?}", run.left());
        assert!(run.left_recordings().is_empty());
    }
}

#[test]
fn a_directory_whose_name_is_no_text_and_that_is_not_there() {
    let victim = Victim::sim("13.0", &LOOP);
    let folder = victim.folder.join("out").join(OsStr::from_bytes(NAME));
    let run = victim.env("GAPPROBE_DIR", &folder).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{}", run.stderr);
    assert!(run.lines().len() == 1 && run.others().is_empty(), "{}", run.stderr);
    assert!(!folder.exists(), "no folder appears where the user made a mistake");
    assert_eq!(run.left_recordings().len(), 1, "the recording is kept");
}

#[test]
fn a_libcupti_whose_path_is_no_text() {
    let folder = built().scratch.join("without-cupti-in-reach");
    let hidden = folder.join(OsStr::from_bytes(NAME));
    std::fs::create_dir_all(&hidden).expect("folders");
    let sim = built().sim.join("13.0");
    for (file, to) in [("libcuda.so.1", &folder), ("libcudart.so.13", &folder), ("libcupti.so.13", &hidden)] {
        let _ = std::fs::remove_file(to.join(file)); // of an earlier run
        std::fs::hard_link(sim.join(file), to.join(file)).expect("link");
    }
    let victim = Victim::sim("13.0", &LOOP).env("LD_LIBRARY_PATH", &folder);
    reports(&victim.env("GAPPROBE_CUPTI", hidden.join("libcupti.so.13")).run(), "GAPPROBE_CUPTI");
}

#[test]
fn a_list_of_executables_may_name_one_that_is_no_text() {
    let name = [b"loop-".as_slice(), NAME].concat();
    let program = built().scratch.join(OsStr::from_bytes(&name));
    std::fs::copy(built().sim.join("13.0/loop"), &program).expect("a copy");
    let list = OsStr::from_bytes(&name);
    let victim = || Victim::of(&program, &LOOP[1..], "13.0");
    reports(&victim().env("GAPPROBE_ALLOW", list).run(), "allowed by its name");
    let run = victim().env("GAPPROBE_DENY", list).run();
    assert_eq!((run.ending(), run.stdout.as_str(), run.stderr.as_str()), (0, "launched 200\n", ""));
    assert!(run.left_anywhere().is_empty() && run.recordings().is_empty(), "denied by its name");
}

#[test]
fn the_recorder_complains_of_the_values_of_which_the_table_does() {
    let values =
        ["0", "1", "64", "65537", "banana", "all", "graph", "profiler", "20/2000", "2000/20", "1.05", "101"];
    // one run a value: all settings that may be any of numbers and words
    for value in values {
        let of_words = |s: &&Setting| s.rule != Rule::Any && s.name != setting::SWITCH && !s.internal;
        // a program that is told to be quiet says nothing of the others
        let is_quiet = |s: &&Setting| s.name == setting::QUIET && value == "1";
        let settings: Vec<&Setting> = SETTINGS.iter().filter(of_words).filter(|s| !is_quiet(s)).collect();
        let victim = settings.iter().fold(Victim::sim("13.0", &LOOP), |v, s| v.env(s.name, value));
        let run = victim.run();
        for s in settings {
            let said = format!("{}={value} is ", s.name);
            let expected = s.rule.complaint(value.as_bytes()).map(|is| format!("{said}{is}"));
            match expected {
                Some(all) => assert!(run.stderr.contains(&all), "{all}: {}", run.stderr),
                None => assert!(!run.stderr.contains(&said), "{said}: {}", run.stderr),
            }
        }
    }
}

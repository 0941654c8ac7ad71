// SPDX-License-Identifier: Apache-2.0
//! Purpose: a program that changes its current directory has its trace where it was started
//! (GAPPROBE_DIR unset or relative), and the line names it so that whoever started the program
//! finds it.

use std::path::{Path, PathBuf};

use gapprobe_scenarios::{Run, Victim};

/// Started in the run's `out`, going to `to`; `setting`: GAPPROBE_DIR.
fn goes(to: &Path, when: &[&str], setting: Option<&str>, started_in: Option<&Path>) -> Run {
    let words = [&["goes_elsewhere", to.to_str().expect("text")], when].concat();
    let mut victim = Victim::ours("13.0", &words);
    match setting {
        Some(value) => victim.command.env("GAPPROBE_DIR", value),
        None => victim.command.env_remove("GAPPROBE_DIR"),
    };
    if let Some(folder) = started_in {
        victim.command.current_dir(folder);
    }
    let run = victim.run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 100\n"), "{}", run.stderr);
    assert!(run.lines().len() == 1 && run.others().is_empty(), "{}", run.stderr);
    run
}

/// What the line says of where the trace is.
fn said(run: &Run) -> PathBuf {
    let line = run.lines()[0];
    PathBuf::from(line.rsplit_once("Trace: ").unwrap_or_else(|| panic!("no trace in: {line}")).1)
}

fn traces(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|e| e.expect("entry").path());
    paths.filter(|p| p.to_string_lossy().ends_with(".json.gz")).collect()
}

/// An empty folder that nobody else uses.
fn folder(name: &str) -> PathBuf {
    let base = &gapprobe_scenarios::built::built().scratch;
    let folder = base.join(format!("elsewhere-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.canonicalize().expect("its name")
}

#[test]
fn the_trace_is_where_the_program_was_started() {
    let to = folder("to");
    for when in ["early", "late"] {
        for setting in [None, Some("."), Some("./")] {
            let run = goes(&to, &[when], setting, None);
            let out = run.folder.join("out").canonicalize().expect("its name");
            assert_eq!(traces(&out), [said(&run)], "{when} {setting:?}: {}", run.stderr);
            assert!(traces(&to).is_empty(), "{when} {setting:?}: {:?}", traces(&to));
            assert!(run.left_recordings().is_empty(), "{when} {setting:?}");
        }
    }
}

#[test]
fn a_relative_folder_is_that_of_the_start() {
    let (to, start) = (folder("to-relative"), folder("start"));
    std::fs::create_dir(start.join("out")).expect("a folder");
    for when in ["early", "late"] {
        let run = goes(&to, &[when], Some("out"), Some(&start));
        assert_eq!(traces(&start.join("out")), [said(&run)], "{when}: {}", run.stderr);
        std::fs::remove_file(said(&run)).expect("the trace");
        let back = goes(&start, &[when], Some("out"), Some(&start));
        assert_eq!(traces(&start.join("out")), [said(&back)], "{when}, staying: {}", back.stderr);
        std::fs::remove_file(said(&back)).expect("the trace");
    }
}

#[test]
fn who_stays_or_comes_back_reads_the_name_alone() {
    let start = folder("stays");
    let run = goes(&start, &["late"], None, Some(&start));
    let name = said(&run);
    assert_eq!(name.components().count(), 1, "{}", run.stderr);
    assert_eq!(traces(&start), [start.join(name)]);
}

#[test]
fn a_folder_that_is_gone_is_said_and_the_recording_kept() {
    for when in ["early", "late"] {
        let (to, start) = (folder("to-stay"), folder("gone"));
        let run = goes(&to, &[when, "remove"], None, Some(&start));
        let line = run.lines()[0];
        assert!(line.contains(&format!("no trace in {}: ", start.display())), "{line}");
        assert!(line.contains("gapprobe recover") && run.left_recordings().len() == 1, "{line}");
        assert!(traces(&to).is_empty() && !start.exists(), "{line}");
    }
}

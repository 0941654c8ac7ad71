// SPDX-License-Identifier: Apache-2.0
//! Results that cannot be written.

use std::fs;
use std::process::{Command, Stdio};

use crate::place::{code, err, out, recording, Place, BINARY};

#[test]
fn a_directory_that_cannot_be_written_costs_the_files_not_the_line_nor_the_recording() {
    let place = Place::new("unwritable");
    let file = place.private().join("run.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let output = place.run(&["recover", "--dir", "/nonexistent"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    let said = err(&output);
    assert!(said.contains(" [GP101]") && said.contains("no trace in /nonexistent: No such file"), "{said}");
    assert!(said.contains("\nhint: ") && file.exists());
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_no_half_file() {
    let place = Place::new("limit");
    let file = place.private().join("run.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let script = format!("ulimit -f 4; exec {BINARY} recover");
    let mut command = place.gapprobe(&[]);
    let env: Vec<_> = command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
    command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.out());
    for (key, value) in env {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    let output = command.output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    let reason = format!("no trace in {}: File too large", place.out().display());
    assert!(err(&output).contains(&reason), "{}", err(&output));
    assert!(err(&output).contains(" [GP101]") && file.exists());
    assert!(place.results().iter().all(|n| n.ends_with(".summary.json")), "{:?}", place.results());
}

/// Whatever prints to a full disk says so and ends with 1; whoever reads no more is no error, and
/// nothing is said.
#[test]
fn data_that_cannot_be_printed_is_an_error_and_a_closed_pipe_is_none() {
    let place = Place::new("full");
    fs::write(place.out().join("run.gpr"), recording(|_| {})).unwrap();
    for args in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["help"],
        &["help", "run"],
        &["stats", "--help"],
        &["completions", "bash"],
        &["explain"],
        &["analyze", "run.gpr"],
        &["analyze", "--json", "run.gpr"],
        &["gaps", "run.gpr", "-f", "csv"],
        &["export", "run.gpr", "-o", "-"],
        &["export", "run.gpr", "--to", "parquet", "-o", "-"],
        &["report", "run.gpr", "-o", "-"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = place.gapprobe(args).stdout(full).output().unwrap();
        let expected = "gapprobe: cannot write to stdout: No space left on device (os error 28)\n";
        assert_eq!((code(&output), err(&output).as_str()), (1, expected), "{args:?}");
        let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let writer = reader.stdin.take().unwrap();
        reader.wait().unwrap();
        let output = place.gapprobe(args).stdout(writer).output().unwrap();
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{args:?}");
    }
    // what is said of wrong use is no data
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(code(&place.gapprobe(&["stats", "--nonsense"]).stderr(full()).output().unwrap()), 2);
}

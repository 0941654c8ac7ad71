// SPDX-License-Identifier: Apache-2.0
//! Results that cannot be written.

use std::fs;
use std::process::Command;

use crate::place::{code, err, out, recording, Place, BINARY};

#[test]
fn a_directory_that_cannot_be_written_costs_the_files_not_the_line_nor_the_recording() {
    let place = Place::new("unwritable");
    let file = place.private().join("run.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    let output = place.run(&["recover", "--dir", "/nonexistent"]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    let said = err(&output);
    assert!(
        said.contains("gapprobe[GP101 ") && said.contains("no trace in /nonexistent: No such file"),
        "{said}"
    );
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
    assert!(err(&output).contains("gapprobe[GP101 ") && file.exists());
    assert!(place.results().iter().all(|n| n.ends_with(".summary.json")), "{:?}", place.results());
}

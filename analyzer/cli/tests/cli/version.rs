// SPDX-License-Identifier: Apache-2.0
//! `gapprobe --version`: one line for people; for programs what the command was built from, and the
//! library that it would inject (tests/scenarios has a real one).

use std::fs;
use std::process::Command;

use serde_json::{json, Value};

use crate::place::{code, err, harmless_library, out, Place, BINARY};

#[test]
fn the_version_is_one_line_and_with_json_an_object() {
    let place = Place::new("version");
    // (a library may lie beside the one that cargo built)
    let command = place.out().join("gapprobe");
    fs::copy(BINARY, &command).unwrap();
    let run = |args: &[&str]| Command::new(&command).args(args).output().unwrap();
    for version in ["--version", "-V"] {
        let output = run(&[version]);
        assert_eq!((code(&output), out(&output)), (0, format!("gapprobe {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let object = || -> Value { serde_json::from_str(&out(&run(&["--version", "--json"]))).unwrap() };
    let without = object();
    assert_eq!((&without["version_version"], &without["library"]), (&json!(1), &Value::Null));
    assert_eq!(without["version"], env!("CARGO_PKG_VERSION"));
    let format = format!("{}.{}", trace::header::VERSION_MAJOR, trace::header::VERSION_MINOR);
    assert_eq!(without["recording"], format);
    // a library that says nothing of itself
    fs::copy(harmless_library(), place.out().join("libgapprobe.so")).unwrap();
    let file = place.out().canonicalize().unwrap().join("libgapprobe.so").display().to_string();
    assert_eq!(object()["library"], json!({"file": file, "version": null, "commit": null}));
    for wrong in [&["--json"][..], &["--version", "ps"]] {
        let output = run(wrong);
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{}", err(&output));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Wrong use: what is said names what was probably meant, and nothing that does not work.

use std::fs;

use crate::place::{code, err, out, recording, Place};

#[test]
fn a_word_in_the_wrong_place_is_told_where_it_belongs() {
    let place = Place::new("misuse");
    fs::write(place.out().join("a b.gpr"), recording(|_| {})).unwrap();
    fs::create_dir(place.out().join("traces")).unwrap();
    for (args, status, expected) in [
        (&["run", "--lr", "1", "python3"][..], 2, "after it: gapprobe run COMMAND --lr"),
        (&["run", "-m", "train"], 2, "after it: gapprobe run COMMAND -m"),
        (&["run", "--quiet"], 2, "not provided:\n  <CMD>..."),
        (&["run", "--"], 2, "not provided:\n  <CMD>..."),
        (&["a b.gpr"], 2, "gapprobe analyze 'a b.gpr'"),
        (&["traces"], 2, "gapprobe summary traces"),
        (&["top", "a b.gpr"], 2, "gapprobe analyze 'a b.gpr'"),
        (&["ps", "4242"], 2, "ps is of all your recorded processes"),
        (&["analyze", "--jsn", "a b.gpr"], 2, "a similar argument exists: '--json'"),
        (&["anlyze", "a b.gpr"], 2, "a similar subcommand exists: 'analyze'"),
        (&["run", "--dirs", "x", "--", "true"], 2, "a similar argument exists: '--dir'"),
        (&["report", "a b.gpr", "-o"], 2, "a value is required for '--output <PAGE>'"),
        (&["recover", "4242"], 4, "hint: of a process that runs: gapprobe capture 4242"),
        (&["capture", "4242x"], 4, "4242x: neither the number of a process nor a file"),
        (&["capture", "a b.gpr"], 9, "hint: trace and line of it: gapprobe recover 'a b.gpr'"),
    ] {
        let output = place.run(args);
        let said = err(&output);
        assert_eq!((code(&output), out(&output).as_str()), (status, ""), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

/// An option that there is not is no file's name.
#[test]
fn an_unknown_option_is_not_offered_as_a_value() {
    let place = Place::new("misuse-option");
    for args in [
        &["analyze", "--output", "x", "t.gpr"][..],
        &["stats", "-v", "t.gpr"],
        &["run", "--dirs", "x", "--", "true"],
    ] {
        let output = place.run(args);
        let said = err(&output);
        assert_eq!(code(&output), 2, "{said}");
        assert!(said.contains("unexpected argument") && !said.contains("as a value"), "{said}");
    }
}

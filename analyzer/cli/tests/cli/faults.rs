// SPDX-License-Identifier: Apache-2.0
//! The same fault ends every verb with the same exit code: the table of `gapprobe --help`, held
//! against all verbs that meet it.

use std::fs;

use crate::place::{code, err, harmless_library, out, recording, Place};

/// Verbs that are given a file to read; `FILE` stands for it.
const READERS: [&str; 15] = [
    "recover FILE",
    "recover --list FILE",
    "recover --keep --json FILE",
    "analyze FILE",
    "analyze --json FILE",
    "stats FILE",
    "gaps FILE",
    "steps FILE",
    "report FILE -o -",
    "export FILE -o -",
    "diff FILE good.gpr",
    "diff good.gpr FILE",
    "check FILE --max-idle 99%",
    "check good.gpr --baseline FILE --max-regression 3%",
    "capture FILE",
];

fn ends_with(place: &Place, verb: &str, file: &str, expected: i32) {
    let words: Vec<String> = verb.split(' ').map(|w| w.replace("FILE", file)).collect();
    let output = place.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let said = err(&output);
    assert_eq!(code(&output), expected, "{words:?}: {}{said}", out(&output));
    assert!(said.contains("\nhint: ") && said.contains(file), "{words:?}: {said}");
}

#[test]
fn a_file_that_cannot_be_read_is_4_for_every_verb() {
    let place = Place::new("faults");
    let good = recording(|_| {});
    let mut version = good.clone();
    version[8] = 9;
    let mut layout = good.clone();
    layout[24] = 1;
    let write = |name: &str, bytes: &[u8]| fs::write(place.out().join(name), bytes).unwrap();
    write("good.gpr", &good);
    write("empty.gpr", b"");
    write("text.gpr", b"hello\n");
    write("long.gpr", &[b'x'; 9000]);
    write("short.gpr", &good[..100]);
    write("version.gpr", &version);
    write("layout.gpr", &layout);
    for verb in READERS {
        for file in [
            "nowhere.gpr",
            "empty.gpr",
            "text.gpr",
            "long.gpr",
            "short.gpr",
            "version.gpr",
            "layout.gpr",
            "/dev/null",
        ] {
            ends_with(&place, verb, file, 4);
        }
    }
    for file in ["nowhere.summary.json", "empty.gpr", "text.gpr", "good.gpr", "/dev/null"] {
        ends_with(&place, "summary FILE", file, 4);
    }
    // its header can be read, which is all that is listed, and tells that its process has ended
    write("header.gpr", &good[..4096]);
    for verb in READERS.into_iter().filter(|v| !v.contains("--list") && !v.starts_with("capture")) {
        ends_with(&place, verb, "header.gpr", 4);
    }
}

#[test]
fn what_cannot_be_written_is_1_for_every_verb() {
    let place = Place::new("faults-write");
    let library = harmless_library();
    let file = place.out().join("good.gpr");
    fs::write(&file, recording(|_| {})).unwrap();
    for args in [
        &["run", "--lib", &library, "--dir", "no/where", "--", "true"][..],
        &["recover", "--keep", "--dir", "no/where", "good.gpr"],
        &["report", "good.gpr", "-o", "no/where/page.html"],
        &["export", "good.gpr", "-o", "no/where/x.csv"],
        &["metrics", "--once", "--textfile", "no/where"],
    ] {
        let output = place.run(args);
        let said = err(&output);
        assert_eq!(code(&output), 1, "{args:?}: {said}");
        assert!(said.contains("no/where") && said.contains("\nhint: "), "{args:?}: {said}");
    }
}

#[test]
fn wrong_use_is_2_for_every_verb() {
    let place = Place::new("faults-use");
    for verb in [
        "run",
        "recover",
        "analyze",
        "stats",
        "gaps",
        "steps",
        "report",
        "export",
        "summary",
        "diff",
        "check",
        "ps",
        "top",
        "capture",
        "metrics",
        "doctor",
        "explain",
        "completions",
    ] {
        let output = place.run(&[verb, "--no-such-option"]);
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{verb}: {}", err(&output));
    }
    for args in [&["explain", "GP999"][..], &["stats", "x.gpr", "-r", "none"], &["completions", "none"]] {
        assert_eq!(code(&place.run(args)), 2, "{args:?}");
    }
}

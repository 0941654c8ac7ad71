// SPDX-License-Identifier: Apache-2.0
//! `check --format`: what GitHub, GitLab, Jenkins and code scanning read. One program that waits in
//! its line of Python, held to limits that it meets, fails and cannot be judged by; what is written
//! of it lies beside this file. scripts/check-schemas holds JUnit and SARIF to their schemas.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::place::{code, err, out, same_as_file, Place};
use crate::program::Program;
use crate::training::{write, Shape};

const LINE: u32 = 17;

/// A training loop of `file` that reads its loss in line [`LINE`] of each step.
fn waiting(file: &str, lost: u64) -> Vec<u8> {
    let mut p = Program::new();
    p.b.header.losses[trace::Loss::CuptiDropped.code() as usize] = lost;
    p.site = p.b.stack(&[("train", file, LINE)]);
    for _ in 0..40 {
        p.train_step(4, 50_000);
        p.item();
        p.think(2_000_000);
    }
    p.finish()
}

/// The limits: two that it meets, two that it fails, and one that the same run as its baseline is
/// too noisy for.
const LIMITS: [&str; 14] = [
    "--max-step-ms",
    "50",
    "--max-idle",
    "10%",
    "--forbid-cause",
    "SYNC",
    "--forbid-cause",
    "INPUT",
    "--baseline",
    "t",
    "--max-regression",
    "1%",
    "--run-noise",
    "10%",
];

fn checked(place: &Place, format: &str, limits: &[&str]) -> (i32, String) {
    let output = place.run(&[&["check", "t", "--format", format], limits].concat());
    assert_eq!(err(&output), "");
    (code(&output), out(&output))
}

#[test]
fn each_format_has_the_sentence_the_place_and_every_limit() {
    let place = Place::new("check-formats");
    let file = place.out().join("train.py").display().to_string();
    write(&place, "t", &waiting(&file, 0));
    for format in ["github", "junit", "sarif", "markdown"] {
        let (code, text) = checked(&place, format, &LIMITS);
        assert_eq!(code, 8, "{format}");
        if format == "sarif" {
            let log: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                log["runs"][0]["tool"]["driver"]["rules"][0]["help"]["markdown"],
                explained(&place, "SYNC")
            );
        }
        // (the page of a cause has its own tests)
        let text: String =
            text.lines().filter(|l| !l.contains("# What it means")).map(|l| format!("{l}\n")).collect();
        same_as_file(&format!("check-{format}"), &text);
    }
    let (_, json) = checked(&place, "json", &LIMITS);
    assert_eq!(json, out(&place.run(&[&["check", "t", "--json"], &LIMITS[..]].concat())));
}

fn explained(place: &Place, code: &str) -> String {
    out(&place.run(&["explain", code]))
}

#[test]
fn the_level_says_how_it_came_out() {
    let place = Place::new("check-levels");
    write(&place, "t", &waiting("/job/train.py", 0));
    let tight = ["--baseline", "t", "--max-regression", "1%", "--run-noise", "10%"];
    for (limits, exit, kind, level) in [
        (&["--max-idle", "90%"][..], 0, "notice", "note"),
        (&["--max-idle", "10%"], 8, "error", "error"),
        (&tight, 5, "warning", "warning"),
    ] {
        let (code, command) = checked(&place, "github", limits);
        assert_eq!(code, exit, "{command}");
        assert!(
            command.starts_with(&format!("::{kind} file=/job/train.py,line={LINE},title=GP101 SYNC::GPU ")),
            "{command}"
        );
        let (_, log) = checked(&place, "sarif", limits);
        let log: Value = serde_json::from_str(&log).unwrap();
        assert_eq!(log["runs"][0]["results"][0]["level"], level);
    }
    // without a verdict nothing fails, nothing passes, and no line of the program is to blame
    write(&place, "t", &waiting("/job/train.py", 100_000));
    let (code, command) = checked(&place, "github", &["--max-idle", "90%"]);
    assert_eq!(code, 5);
    assert!(command.starts_with("::warning title=GP199 INCONCLUSIVE::no verdict: "), "{command}");
    assert!(command.contains("%0Acannot be judged max-idle: INCONCLUSIVE; "), "{command}");
    let (_, log) = checked(&place, "sarif", &[]);
    let log: Value = serde_json::from_str(&log).unwrap();
    let at = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!((&at["artifactLocation"]["uri"], &at["region"]), (&Value::from("t"), &Value::Null));
    let (_, suites) = checked(&place, "junit", &["--max-idle", "90%"]);
    assert!(suites.contains("tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"2\""), "{suites}");
}

/// GitHub shows an annotation where it finds the file in the checkout.
#[test]
fn the_file_is_named_as_the_checkout_has_it() {
    let place = Place::new("check-place");
    let here = place.out();
    let file = |place: &Place, workspace: &Path| {
        let mut check = place.gapprobe(&["check", "t", "--format", "github"]);
        let said = out(&check.env("GITHUB_WORKSPACE", workspace).output().unwrap());
        said.split_once("file=").unwrap().1.split(',').next().unwrap().to_owned()
    };
    write(&place, "t", &waiting(&here.join("src/train.py").display().to_string(), 0));
    assert_eq!(file(&place, &here), "src/train.py");
    assert_eq!(file(&place, &place.0), "out/src/train.py", "the checkout is around it");
    assert_eq!(file(&place, Path::new("")), "src/train.py", "outside of GitHub");
    // recorded where the checkout is another folder
    write(&place, "t", &waiting("/job/src/train.py", 0));
    assert_eq!(file(&place, &here), "/job/src/train.py");
    fs::create_dir(here.join("src")).unwrap();
    fs::write(here.join("src/train.py"), "").unwrap();
    assert_eq!(file(&place, &here), "src/train.py");
    // what would end the property
    write(&place, "t", &waiting(&here.join("a,b:c%.py").display().to_string(), 0));
    assert_eq!(file(&place, &here), "a%2Cb%3Ac%25.py");
}

/// A range is called what its program likes.
#[test]
fn names_break_out_of_no_format() {
    let place = Place::new("check-hostile");
    write(&place, "t", &crate::training::training(Shape::default()));
    let name = "<b>&\"]]>|\n::error::\u{1b}[31m`x`";
    let limits = ["--require-range", name];
    let (_, command) = checked(&place, "github", &limits);
    assert_eq!(command.lines().count(), 1, "{command}");
    let (_, suites) = checked(&place, "junit", &limits);
    assert!(suites.contains("&lt;b&gt;&amp;") && !suites.contains("<b>"), "{suites}");
    let (_, page) = checked(&place, "markdown", &limits);
    assert!(page.contains(r"\<b\>\&") && page.contains(r"\|"), "{page}");
    for text in [command, suites, page] {
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

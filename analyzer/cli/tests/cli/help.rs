// SPDX-License-Identifier: Apache-2.0
//! Help, wrong use, the pages of codes and settings, completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::place::{code, err, out, same_as_file, Place};

#[test]
fn help_begins_with_examples_and_names_the_exit_codes() {
    let place = Place::new("help");
    for (name, args) in [
        ("help", vec!["--help"]),
        ("help-run", vec!["run", "--help"]),
        ("help-recover", vec!["recover", "--help"]),
        ("help-stats", vec!["stats", "--help"]),
        ("help-analyze", vec!["analyze", "--help"]),
        ("help-report", vec!["report", "--help"]),
        ("help-open", vec!["open", "--help"]),
        ("help-export", vec!["export", "--help"]),
        ("help-gaps", vec!["gaps", "--help"]),
        ("help-steps", vec!["steps", "--help"]),
        ("help-summary", vec!["summary", "--help"]),
        ("help-diff", vec!["diff", "--help"]),
        ("help-check", vec!["check", "--help"]),
        ("help-ps", vec!["ps", "--help"]),
        ("help-top", vec!["top", "--help"]),
        ("help-capture", vec!["capture", "--help"]),
        ("help-metrics", vec!["metrics", "--help"]),
        ("help-doctor", vec!["doctor", "--help"]),
        ("help-explain", vec!["explain", "--help"]),
        ("help-completions", vec!["completions", "--help"]),
    ] {
        let output = place.run(&args);
        assert_eq!(code(&output), 0);
        assert!(out(&output).starts_with("Examples:\n"), "{name}");
        same_as_file(name, &out(&output));
    }
}

#[test]
fn wrong_use_ends_with_2_and_says_what_is_right() {
    let place = Place::new("wrong");
    for args in
        [&["nonsense"][..], &[], &["run"], &["run", "--max-mb", "1", "--", "true"], &["completions", "tcsh"]]
    {
        assert_eq!(code(&place.run(args)), 2, "{args:?}");
    }
    let output = place.run(&["explain", "GP999"]);
    assert_eq!((code(&output), out(&output).as_str()), (2, ""));
    assert!(
        err(&output).starts_with("gapprobe: no code \"GP999\"\n\nhint: one of GP101, "),
        "{}",
        err(&output)
    );
}

#[test]
fn explain_prints_the_page_of_every_code_and_the_settings() {
    let place = Place::new("explain");
    let list = out(&place.run(&["explain"]));
    assert!(list.lines().count() >= 12, "{list}");
    for line in list.lines() {
        let mut words = line.split_whitespace();
        let (code_word, name) = (words.next().unwrap(), words.next().unwrap());
        let page = place.run(&["explain", code_word]);
        assert_eq!(code(&page), 0);
        let text = out(&page);
        assert!(text.starts_with(code_word), "{text}");
        for section in
            ["# What it means", "# How it is recognised", "# How sure", "# Example", "# What to change"]
        {
            assert!(text.contains(section), "{code_word} lacks {section}");
        }
        assert_eq!(out(&place.run(&["explain", &name.to_lowercase()])), text);
    }
    let settings = out(&place.run(&["explain", "settings"]));
    for s in trace::setting::SETTINGS {
        assert_eq!(settings.contains(&format!("{} (default", s.name)), !s.internal, "{}", s.name);
    }
}

#[test]
fn the_pages_of_settings_and_losses_are_as_new_as_the_tables() {
    let place = Place::new("settings");
    for topic in ["settings", "losses"] {
        let made = out(&place.run(&["explain", topic, "--markdown"]));
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{topic}.md"));
        assert!(
            fs::read_to_string(page).unwrap_or_default() == made,
            "docs/{topic}.md is old: scripts/dev/settings"
        );
    }
    let losses = out(&place.run(&["explain", "losses"]));
    for loss in trace::Loss::ALL {
        assert!(losses.contains(&format!("{} (", loss.key())), "{losses}");
    }
}

#[test]
fn completions_know_every_verb() {
    let place = Place::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let output = place.run(&["completions", shell]);
        assert_eq!(code(&output), 0);
        for verb in [
            "run",
            "recover",
            "open",
            "ps",
            "top",
            "capture",
            "metrics",
            "stats",
            "doctor",
            "explain",
            "completions",
        ] {
            assert!(out(&output).contains(verb), "{shell}: {verb}");
        }
    }
    let bash = place.0.join("completion");
    fs::write(&bash, out(&place.run(&["completions", "bash"]))).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&bash).status().unwrap().success());
}

// SPDX-License-Identifier: Apache-2.0
//! Help, wrong use, the pages of codes and settings, completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

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
        ("help-man", vec!["man", "--help"]),
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
fn each_verb_has_a_manual_page() {
    let place = Place::new("man");
    let help = out(&place.run(&["--help"]));
    let verbs = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let verbs = verbs.filter_map(|l| l.split_whitespace().next()).filter(|verb| *verb != "help");
    let mut expected: Vec<_> = verbs.map(|verb| format!("gapprobe-{verb}.1")).collect();
    expected.push("gapprobe.1".to_owned());
    expected.sort();
    let folder = place.0.join("pages");
    assert_eq!(code(&place.run(&["man", "--all", &folder.to_string_lossy()])), 0);
    let mut pages: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    assert_eq!(pages, expected);
    let page = fs::read_to_string(folder.join("gapprobe-run.1")).unwrap();
    assert_eq!(out(&place.run(&["man", "run"])).trim_end(), page.trim_end());
    assert!(page.contains(".TH gapprobe-run 1") && page.contains("\\-\\-max\\-mb"), "{page}");
    assert_eq!(code(&place.run(&["man", "nonsense"])), 2);
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
    assert_eq!(out(&place.run(&["explain", "--list"])), list);
    let several = out(&place.run(&["explain", "SYNC", "gp105"]));
    let pages = ["GP101", "HOST"].map(|topic| out(&place.run(&["explain", topic])));
    assert_eq!(several, pages.join("\n"));
    assert_eq!(code(&place.run(&["explain", "SYNC", "GP999"])), 2, "a page is not half of what was asked");
    let settings = out(&place.run(&["explain", "settings"]));
    for s in trace::setting::SETTINGS {
        assert_eq!(settings.contains(&format!("{} (default", s.name)), !s.internal, "{}", s.name);
    }
}

#[test]
fn explain_is_json_where_that_is_asked_for() {
    let place = Place::new("explain-json");
    let topics = |args: &[&str]| -> Vec<Value> {
        let said: Value =
            serde_json::from_str(&out(&place.run(&[&["explain", "--json"], args].concat()))).unwrap();
        assert_eq!(said["explain_version"], 1);
        said["topics"].as_array().unwrap().clone()
    };
    let all = topics(&[]);
    assert_eq!(all, topics(&["--list"]));
    assert_eq!(all.len(), out(&place.run(&["explain"])).lines().count() + 2, "settings and losses, too");
    assert!(all.iter().all(|t| t.get("text").is_none() && t["title"].is_string()));
    let asked = topics(&["sync", "settings"]);
    assert_eq!((&asked[0]["code"], &asked[0]["name"]), (&"GP101".into(), &"SYNC".into()));
    assert_eq!(asked[0]["text"].as_str().unwrap(), out(&place.run(&["explain", "SYNC"])).trim_end());
    let example = asked[0]["example"].as_str().unwrap();
    assert!(example.starts_with("# slow: waits") && example.ends_with(".item()\n"), "{example}");
    assert_eq!((&asked[1]["code"], &asked[1]["example"]), (&Value::Null, &Value::Null));
    assert_eq!(asked[1]["text"].as_str().unwrap(), out(&place.run(&["explain", "settings"])).trim_end());
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

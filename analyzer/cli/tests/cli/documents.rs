// SPDX-License-Identifier: Apache-2.0
//! The pages of docs/ against the code, where they list what the code has: verbs, options, codes,
//! schemas. A page that names something that is not there is old.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::place::{out, Place};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Every page for users, and its text.
fn pages() -> Vec<(String, String)> {
    let root = docs().join("..");
    let of_docs = fs::read_dir(docs()).unwrap().map(|e| e.unwrap().path());
    let all = of_docs.chain(["README.md", "CHANGELOG.md"].map(|name| root.join(name)));
    let pages = all.filter(|p| p.extension().is_some_and(|e| e == "md"));
    pages
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&p).unwrap()))
        .collect()
}

fn verbs(place: &Place) -> BTreeSet<String> {
    let help = out(&place.run(&["--help"]));
    let (_, commands) = help.split_once("\nCommands:\n").unwrap();
    commands
        .lines()
        .take_while(|l| !l.is_empty())
        .map(|l| l.split_whitespace().next().unwrap().to_owned())
        .collect()
}

/// What pages write as a command: each line of a block, and each quoted word that begins with ours.
fn commands(text: &str) -> Vec<Vec<String>> {
    let quoted = text.split('`').skip(1).step_by(2).flat_map(str::lines);
    let lines = quoted.chain(text.lines()).filter_map(|l| l.trim().strip_prefix("build/").or(Some(l.trim())));
    let ours = lines.filter_map(|l| l.strip_prefix("gapprobe "));
    // (up to what follows it: a remark, another command)
    let words = |l: &str| {
        l.split(['#', '|', '>', ';']).next().unwrap_or("").split_whitespace().map(str::to_owned).collect()
    };
    ours.map(words).collect()
}

#[test]
fn verbs_and_options_that_pages_name_are_there() {
    let place = Place::new("documents");
    let verbs = verbs(&place);
    let mut named = BTreeSet::new();
    for (page, text) in pages() {
        for command in commands(&text) {
            let Some(verb) = command.first().filter(|word| verbs.contains(*word)) else { continue };
            named.insert(verb.clone());
            let help = out(&place.run(&[verb, "--help"]));
            let own = command.iter().skip(1).take_while(|word| *word != "--");
            for option in own.filter_map(|word| word.strip_prefix("--")) {
                let option = option.split(['=', ',', ':', ')', '.']).next().unwrap();
                assert!(help.contains(&format!("--{option}")), "{page}: gapprobe {verb} has no --{option}");
            }
        }
    }
    let silent = ["help", "completions", "man"];
    let unnamed: Vec<_> =
        verbs.iter().filter(|v| !named.contains(*v) && !silent.contains(&v.as_str())).collect();
    assert!(unnamed.is_empty(), "no page names {unnamed:?}");
}

#[test]
fn codes_that_pages_name_are_causes() {
    let mut named = 0;
    for (page, text) in pages() {
        for (at, _) in text.match_indices("GP") {
            let code: String = text[at..].chars().take(5).collect();
            if code.len() < 5 || !code[2..].bytes().all(|b| b.is_ascii_digit()) {
                continue;
            }
            assert!(verdict::causes::find(&code).is_some(), "{page}: {code} is no code");
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}

/// Rows of one code or of several: `| GP111 to GP113, GP116 | INPUT-MAIN, ... | kinds of INPUT |`.
#[test]
fn the_table_of_codes_has_each_with_its_name() {
    let line = fs::read_to_string(docs().join("line.md")).unwrap();
    let number = |code: &str| code.trim().trim_start_matches("GP").parse::<u32>().unwrap();
    let mut rows = BTreeSet::new();
    for row in line.lines().filter(|l| l.starts_with("| GP")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let codes = cells[1].split(", ").flat_map(|part| match part.split_once(" to ") {
            Some((first, last)) => (number(first)..=number(last)).collect(),
            None => vec![number(part)],
        });
        let codes: Vec<u32> = codes.collect();
        let names: Vec<&str> = cells[2].split(", ").collect();
        assert_eq!(codes.len(), names.len(), "{row}");
        rows.extend(codes.into_iter().map(|n| format!("GP{n}")).zip(names.into_iter().map(str::to_owned)));
    }
    let known = verdict::causes::ALL.iter().map(|c| (c.code.to_owned(), c.name.to_owned()));
    assert_eq!(rows, known.collect());
}

#[test]
fn exit_codes_that_pages_name_are_those_of_the_help() {
    let help = out(&Place::new("documents-exit").run(&["--help"]));
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let known: BTreeSet<&str> = codes.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let mut named = 0;
    for (page, text) in pages() {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        for said in ["exit code ", "ends with "] {
            for (at, _) in flat.match_indices(said) {
                let number: String =
                    flat[at + said.len()..].chars().take_while(char::is_ascii_digit).collect();
                if number.is_empty() {
                    continue;
                }
                assert!(known.contains(number.as_str()), "{page}: exit code {number}");
                named += 1;
            }
        }
    }
    assert!(named >= 2, "{named}");
}

/// The formats of `check` stand in docs/traces.md; a schema has its verb's version key.
#[test]
fn formats_and_schemas_are_those_that_there_are() {
    let place = Place::new("documents-formats");
    let traces = fs::read_to_string(docs().join("traces.md")).unwrap();
    let help = out(&place.run(&["check", "--help"]));
    let formats = help.split("[possible values: ").nth(1).unwrap().split(']').next().unwrap();
    for format in formats.split(", ").filter(|f| *f != "text") {
        assert!(traces.contains(format), "docs/traces.md: check --format {format}");
    }
    for entry in fs::read_dir(docs().join("schemas")).unwrap() {
        let path = entry.unwrap().path();
        let schema: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let keys: Vec<&str> =
            schema["required"].as_array().unwrap().iter().filter_map(|k| k.as_str()).collect();
        let name = path.file_name().unwrap().to_string_lossy().split('.').next().unwrap().to_owned();
        // (analyze has the keys of the summary, and more)
        let version = format!("{}_version", if name == "analyze" { "summary" } else { &name });
        assert!(keys.contains(&version.as_str()), "{}: {version}", path.display());
        assert_eq!(schema["additionalProperties"], false, "{}: a key that comes is a change", path.display());
    }
}

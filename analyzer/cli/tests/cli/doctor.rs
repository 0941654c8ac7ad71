// SPDX-License-Identifier: Apache-2.0
//! `doctor`: problems have fixes.

use std::fs;
use std::process::{Command, Stdio};

use crate::place::{code, out, Place};

/// What it says in JSON, a check each.
fn checks(output: &std::process::Output) -> Vec<serde_json::Value> {
    let said: serde_json::Value = serde_json::from_str(&out(output)).unwrap();
    said["checks"].as_array().unwrap().clone()
}

#[test]
fn doctor_has_a_fix_for_each_problem_and_says_so_in_its_exit_code() {
    let place = Place::new("doctor");
    let output = place
        .gapprobe(&["doctor", "--json"])
        .env("CUDA_INJECTION64_PATH", "/opt/nsight/libToolsInjection64.so")
        .env("GAPPROBE_DIR", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    let rows = checks(&output);
    for row in &rows {
        assert_eq!(row["state"] == "problem", row["fix"].is_string(), "{row}");
    }
    let problem = |subject: &str, text: &str| {
        rows.iter().any(|r| {
            r["subject"] == subject && r["state"] == "problem" && r["text"].as_str().unwrap().contains(text)
        })
    };
    assert!(problem("others", "libToolsInjection64.so"), "{rows:?}");
    assert!(problem("traces", "/nonexistent"), "{rows:?}");
    let text = out(&place.run(&["doctor"]));
    for subject in ["driver", "cupti", "others", "recording", "traces", "glibc", "library"] {
        assert!(text.lines().any(|l| l.split_whitespace().nth(1) == Some(subject)), "{subject} in\n{text}");
    }
}

/// What ncu's launcher starts has its process id, and keeps it when the launcher has ended: then it
/// is recorded.
#[test]
fn doctor_says_that_ncu_is_around_while_it_is_there() {
    let place = Place::new("doctor-ncu");
    let started = |name: &str| {
        let program = place.0.join(name);
        fs::copy("/bin/sleep", &program).unwrap();
        Command::new(program).arg("60").stdin(Stdio::null()).spawn().unwrap()
    };
    let said = |value: &str| {
        let output = place.gapprobe(&["doctor", "--json"]).env("GAPPROBE_UNDER_NCU", value).output().unwrap();
        let rows = checks(&output);
        let mut others = rows.into_iter().filter(|r| r["subject"] == "others");
        let row = others.next().expect("a finding");
        assert!(others.next().is_none() && (row["state"] == "problem") == row["fix"].is_string(), "{row}");
        (row["state"] == "problem").then(|| format!("{}; {}", row["text"], row["fix"]))
    };
    let (mut ncu, mut another) = (started("ncu"), started("nsys"));
    let told = said(&ncu.id().to_string());
    let others =
        [another.id().to_string(), "999999999".into(), "ncu".into(), String::new()].map(|v| said(&v));
    for child in [&mut ncu, &mut another] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let told = told.expect("it is there");
    assert!(told.contains("ncu holds CUPTI here") && told.contains("(unset GAPPROBE_UNDER_NCU)"), "{told}");
    assert_eq!(others, [const { None }; 4]);
    assert_eq!(said(&ncu.id().to_string()), None, "it has ended");
}

/// What the library stays off for, and nothing else.
#[test]
fn doctor_names_each_tool_whose_variable_is_set() {
    let place = Place::new("doctor-others");
    let said = |variable: &str| {
        let output = place.gapprobe(&["doctor", "--json"]).env(variable, "49152").output().unwrap();
        let rows = checks(&output);
        let row = rows.into_iter().find(|r| r["subject"] == "others").expect("a finding");
        (row["state"] == "problem").then(|| format!("{}; {}", row["text"], row["fix"]))
    };
    for (_, tool, variable) in trace::setting::PROFILERS {
        let told = said(variable).unwrap_or_else(|| panic!("nothing is said of {variable}"));
        assert!(told.contains(&format!("{variable} is set: {tool} holds ")), "{told}");
        assert!(told.contains(&format!("run outside of {tool} (unset {variable})")), "{told}");
    }
    let sanitizer = said("NV_SANITIZER_INJECTION_PORT_BASE").expect("a finding");
    assert!(sanitizer.contains("compute-sanitizer holds the driver's hooks here"), "{sanitizer}");
    assert_eq!(said("NV_SANITIZER_OTHER"), None);
}

#[test]
fn doctor_says_what_the_switch_says() {
    let place = Place::new("doctor-switch");
    let said = |value: &str| {
        let output = place.gapprobe(&["doctor", "--json"]).env("GAPPROBE", value).output().unwrap();
        let rows = checks(&output);
        let row = rows.into_iter().find(|r| r["subject"] == "switch")?;
        Some((row["state"].as_str()?.to_owned(), row["text"].as_str()?.to_owned()))
    };
    for on in ["", "1", "On", "true", "YES"] {
        assert_eq!(said(on), None, "{on:?}");
    }
    for (value, state) in [("0", "note"), ("False", "note"), ("maybe", "problem")] {
        let (found, text) = said(value).unwrap_or_else(|| panic!("{value}: nothing"));
        assert_eq!(found, state, "{text}");
        assert!(text.contains(&format!("GAPPROBE={value}")) && text.contains("not recorded"), "{text}");
    }
}

#[test]
fn doctor_names_settings_that_make_no_sense() {
    let place = Place::new("doctor-settings");
    let said = |settings: &[(&str, &str)]| -> Vec<String> {
        let mut command = place.gapprobe(&["doctor", "--json"]);
        command.envs(settings.iter().copied());
        let output = command.output().unwrap();
        let rows = checks(&output);
        let found = rows.iter().filter(|r| r["subject"] == "settings");
        let texts = found.map(|r| {
            assert_eq!((&r["state"], code(&output)), (&"problem".into(), 1));
            assert!(r["fix"].as_str().unwrap().starts_with("unset GAP"), "{r}");
            r["text"].as_str().unwrap().to_owned()
        });
        texts.collect()
    };
    assert!(said(&[]).is_empty());
    let good = [
        ("GAPPROBE_MAX_MB", "64"),
        ("GAPPROBE_WINDOW", "20/2000"),
        ("GAPPROBE_QUIET", ""),
        ("GAPPROBE_SITES", "0"),
    ];
    assert!(said(&good).is_empty(), "{:?}", said(&good));
    let bad = [
        ("GAPPROBE_MAX_MB", "abc", "is not a number from 64 to 65536: it counts as 256"),
        ("GAPPROBE_WINDOW", "20", "is not STEPS/EVERY with fewer steps recorded than there are, as 20/2000: it is as if it were not set"),
        ("GAPPROBE_PRINT", "everybody", "is neither rank0 nor all: it counts as rank0"),
    ];
    for (name, value, is) in bad {
        assert_eq!(said(&[(name, value)]), [format!("{name}={value} {is}")]);
    }
    let both = [("GAPPROBE_EXIT_MS", "soon"), ("GAPPROBE_MAXMB", "512")];
    let texts = said(&both);
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_eq!(texts[1], "GAPPROBE_MAXMB is no setting, GAPPROBE_MAX_MB is");
}

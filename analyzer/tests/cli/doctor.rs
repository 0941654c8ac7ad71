// SPDX-License-Identifier: Apache-2.0
//! `doctor`: problems have fixes.

use crate::place::{code, out, Place};

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
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out(&output)).unwrap();
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

#[test]
fn doctor_says_what_the_switch_says() {
    let place = Place::new("doctor-switch");
    let said = |value: &str| {
        let output = place.gapprobe(&["doctor", "--json"]).env("GAPPROBE", value).output().unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_str(&out(&output)).unwrap();
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
        let rows: Vec<serde_json::Value> = serde_json::from_str(&out(&output)).unwrap();
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

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

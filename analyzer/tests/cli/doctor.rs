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

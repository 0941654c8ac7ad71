// SPDX-License-Identifier: Apache-2.0
//! `report`: what a reader of the page sees and can do, by the page's own script in node
//! (`html_page.mjs`): tables, timeline, sorting, contrast. The figures themselves:
//! `html_report.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::Command;

use cli::html::{figures, Subject};
use serde_json::{json, Value};
use trace::{Event, Kind};
use verdict::analysis::Bucket;

use crate::html_report::{number, read, repository, HOSTILE};
use crate::place::{code, err, out, recording, Place};

/// Whether node is here; says so where it is not.
pub(crate) fn node_is_here() -> bool {
    let is_here = Command::new("node").arg("--version").output().is_ok_and(|o| o.status.success());
    if !is_here {
        // past the harness, which keeps what passing tests print to itself
        let _ = std::io::stdout().write_all(b"\nSKIPPED: node (18 or newer) is not here\n");
    }
    is_here
}

/// What a reader of a page sees, by the page's own script (needs node).
pub(crate) fn looked_at(place: &Place, args: &[&str]) -> Value {
    let output = place.run(&[&["report"], args, &["-o", "looked-at.html", "--force"]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    let mut node = Command::new("node");
    let node = node.arg(repository("cli/html_page.mjs")).arg(place.out().join("looked-at.html"));
    let output = node.output().expect("node");
    assert_eq!(err(&output), "");
    serde_json::from_str(&out(&output)).unwrap()
}

fn holds(list: &Value, text: &str) -> bool {
    list.as_array().unwrap().iter().any(|t| t.as_str().unwrap().contains(text))
}

#[test]
fn the_page_shows_what_the_figures_say() {
    if !node_is_here() {
        return;
    }
    let place = Place::new("report-page");
    let path = repository("traces/h200_tiny.json.gz");
    let seen = looked_at(&place, &[&path]);
    let (input, analysis) = read(&path);
    let f = figures(&Subject { name: "h200_tiny.json.gz", input: &input, analysis: &analysis }, None);
    let run = &f["runs"][0];
    for key in ["sentence", "code", "fix"] {
        assert!(holds(&seen["seen"], run["verdict"][key].as_str().unwrap()), "{key}");
    }
    for said in run["verdict"]["evidence"].as_array().unwrap() {
        assert!(holds(&seen["seen"], said.as_str().unwrap()), "{said}");
    }
    for remark in run["remarks"].as_array().unwrap() {
        assert!(holds(&seen["seen"], remark.as_str().unwrap()), "{remark}");
    }
    for bucket in f["buckets"].as_array().unwrap() {
        assert!(holds(&seen["seen"], bucket["name"].as_str().unwrap()), "{bucket}");
    }
    assert!(holds(&seen["seen"], "100.0%") && holds(&seen["foot"], "gapprobe: "));
    for row in run["device"]["kernels"]["rows"].as_array().unwrap() {
        assert!(holds(&seen["seen"], row["name"].as_str().unwrap()), "{row}");
    }
    // texts instead of pictures, and what a pointer or a key shows
    for label in [
        "Shares of the time: ",
        &format!("Timeline of step {}, ", run["device"]["timeline"]["step"]),
        "4 steps, median ",
        " gaps by length",
        "Idle time by range",
        "GPU time by what launched it",
    ] {
        assert!(holds(&seen["labels"], label), "{label}");
    }
    for tip in ["Step 1: ", "of the idle time", "of the GPU's time", "mostly GEMM", " kernels, "] {
        assert!(holds(&seen["tips"], tip), "{tip}: {}", seen["tips"]);
    }
    assert!(holds(&seen["drawn"], "stream 7: ") && holds(&seen["drawn"], "Why idle"));
}

#[test]
fn the_timeline_is_moved_by_keys_wheel_and_drag() {
    if !node_is_here() {
        return;
    }
    let place = Place::new("report-keys");
    let seen = looked_at(&place, &[&repository("recordings/own_gpt_item.gprec.gz")]);
    let axes = &seen["axes"];
    assert_ne!(axes["first"], axes["closer"]);
    assert_ne!(axes["closer"], axes["later"]);
    assert_eq!(axes["first"], axes["whole"]);
    assert_ne!(axes["whole"], axes["wheel"]);
    assert_ne!(axes["wheel"], axes["dragged"]);
    assert_ne!(axes["whole"], axes["pinched"]);
    let picks: Vec<&str> = seen["picks"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    assert_eq!(picks[0], picks[2], "there and back");
    assert_ne!(picks[0], picks[1]);
    assert!(picks[0].starts_with("stream 7: ") && picks[3].starts_with("Why idle. "), "{picks:?}");
    for pick in picks {
        assert!(pick.contains("begins at ") && pick.contains(", lasts "), "name, begin, length: {pick}");
    }
}

#[test]
fn a_click_on_a_heading_sorts_and_two_runs_are_shown_together() {
    if !node_is_here() {
        return;
    }
    let place = Place::new("report-two");
    let paths =
        ["own_gpt_item", "own_gpt_item_fixed"].map(|n| repository(&format!("recordings/{n}.gprec.gz")));
    let seen = looked_at(&place, &[&paths[0], &paths[1]]);
    for text in [
        "No difference beyond the noise: ",
        "SYNC costs ",
        "GPU-bound: ",
        "Kernels that differ most",
        "noise",
        "moved",
    ] {
        assert!(holds(&seen["seen"], text), "{text}");
    }
    // by time: as the figures have them, the other way round at the second click
    let (input, analysis) = read(&paths[1]);
    let f = figures(&Subject { name: "a", input: &input, analysis: &analysis }, None);
    let rows = f["runs"][0]["device"]["kernels"]["rows"].as_array().unwrap();
    let mut names: Vec<String> = rows
        .iter()
        .map(|r| format!("{}{}", r["name"].as_str().unwrap(), r["whole"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(names.len(), 50);
    assert_eq!(seen["order"]["Time"][0], json!(names));
    names.reverse();
    assert_eq!(seen["order"]["Time"][1], json!(names));
    let by_name = seen["order"]["Kernel"][0].as_array().unwrap();
    assert!(by_name[0].as_str().unwrap().to_lowercase() < by_name[49].as_str().unwrap().to_lowercase());
    // hostile names are the same text on the page
    let name = format!("{}.gpr", HOSTILE.replace(['/', '\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}'], ""));
    fs::write(place.out().join(&name), recording(|_| {})).unwrap();
    let seen = looked_at(&place, &[&format!("./{name}")]);
    assert!(holds(&seen["foot"], &name), "{}", seen["foot"]);
}

#[test]
fn variants_of_one_name_are_one_row() {
    let bytes = recording(|b| {
        let (one, other) = (b.kernel("same", 32, 8), b.kernel("same", 64, 16));
        assert_ne!(one, other);
        for (step, kernel) in [(10, one), (11, other), (12, one)] {
            let begin = 1_000_620_000 + step * 1_000_000;
            let mut op = Event::new(Kind::Kernel, begin, begin + 1_000);
            (op.a, op.b) = (kernel, 1);
            b.on_stream(0, 1, 7, op);
        }
    });
    let place = Place::new("report-variants");
    let file = place.out().join("a.gpr");
    fs::write(&file, bytes).unwrap();
    let (input, analysis) = read(&file.display().to_string());
    let f = figures(&Subject { name: "a", input: &input, analysis: &analysis }, None);
    let rows = f["runs"][0]["device"]["kernels"]["rows"].as_array().unwrap();
    let same: Vec<&Value> = rows.iter().filter(|r| r["name"] == "same").collect();
    assert_eq!(
        same.iter().map(|r| (number(&r["count"]), number(&r["ns"]))).collect::<Vec<_>>(),
        [(3, 3_000)]
    );
}

#[test]
fn rows_beyond_a_dozen_are_left_out_aloud() {
    if !node_is_here() {
        return;
    }
    // thirty streams of one operation each, every one longer than the run
    let bytes = recording(|b| {
        let kernel = b.kernel("forever", 1, 1);
        for stream in 20..50 {
            let mut op = Event::new(Kind::Kernel, 1_000_000_000 + u64::from(stream), 1 << 50);
            (op.a, op.b) = (kernel, 1);
            b.on_stream(0, 1, stream, op);
        }
    });
    let place = Place::new("report-rows");
    fs::write(place.out().join("a.gpr"), bytes).unwrap();
    let seen = looked_at(&place, &["a.gpr"]);
    assert!(holds(&seen["seen"], "forever"));
    assert!(holds(&seen["seen"], "19 streams with less work left out"), "{}", seen["seen"]);
}

/// Relative luminance and contrast of two colours (WCAG 2.2).
fn contrast(a: &str, b: &str) -> f64 {
    let luminance = |colour: &str| {
        let part = |i: usize| {
            let v = f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap()) / 255.0;
            if v <= 0.04045 {
                v / 12.92
            } else {
                ((v + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    };
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

#[test]
fn texts_and_colours_stand_out_in_light_and_dark() {
    assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 0.001);
    let style = fs::read_to_string(repository("../src/html/page/page.css")).unwrap();
    let themes: Vec<BTreeMap<&str, &str>> = style
        .split(":root {")
        .skip(1)
        .map(|block| block.split_once('}').unwrap().0)
        .map(|block| block.split(';').filter_map(|l| l.trim().strip_prefix("--")?.split_once(": ")).collect())
        .collect();
    assert_eq!(themes.len(), 2, "light and dark");
    let (input, analysis) = read(&repository("tables/three_steps.json"));
    let f = figures(&Subject { name: "a", input: &input, analysis: &analysis }, None);
    let classes: Vec<&str> =
        f["classes"].as_array().unwrap().iter().map(|c| c["key"].as_str().unwrap()).collect();
    for theme in themes {
        for keys in [&Bucket::ALL.map(Bucket::key)[..], &classes] {
            for key in keys {
                let fill = theme[key];
                assert!(contrast(fill, theme["on-fill"]) >= 4.5, "text on {key}");
                assert!(contrast(fill, theme["card"]) >= 3.0, "{key} on the card");
                let same = keys.iter().filter(|k| theme[*k] == fill).count();
                assert_eq!(same, 1, "{key} has a colour of its own");
            }
        }
        for text in ["text", "soft", "link", "warn", "focus"] {
            for ground in ["ground", "card", "hover"] {
                assert!(contrast(theme[text], theme[ground]) >= 4.5, "{text} on {ground}");
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Phases of a step wherever they are shown, of real traces: the object, the screen, the tables and
//! the page say the same.

use serde_json::Value;

use crate::html_page::{looked_at, node_is_here};
use crate::html_report::repository;
use crate::place::{code, err, out, Place};

const PARTS: [&str; 4] = ["dataload", "forward", "backward", "optimizer"];

fn json(place: &Place, args: &[&str]) -> Value {
    let output = place.run(args);
    assert_eq!(code(&output), 0, "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

#[test]
fn the_object_the_screen_the_tables_and_the_page_agree() {
    if !node_is_here() {
        return;
    }
    let place = Place::new("phases");
    for (path, known) in [
        (repository("traces/h200_gpt.json.gz"), 3),
        (repository("cli/h200_gil.gprec.gz"), 3),
        (repository("tables/three_steps.json"), 2),
    ] {
        let object = json(&place, &["analyze", "--json", &path]);
        let (phases, steps) = (&object["phases"], object["phases"]["steps"].as_f64().unwrap());
        let parts = phases["parts"].as_array().unwrap();
        assert_eq!(parts.len(), known, "{path}: {phases}");
        let table = &json(&place, &["steps", "--json", &path])["steps"];
        let steady = |r: &&Value| !r["flags"].as_str().unwrap_or("").contains("warm-up");
        let in_table = |kind: &str| -> f64 {
            let rows = table.as_array().unwrap().iter().filter(steady);
            rows.map(|r| r[format!("{kind}_ns")].as_f64().unwrap_or(0.0)).sum()
        };
        let of = |kind: &str| {
            parts.iter().find(|p| p["phase"] == kind).map_or(0.0, |p| p["ns_a_step"].as_f64().unwrap())
        };
        for kind in PARTS {
            assert!(
                (of(kind) * steps - in_table(kind)).abs() < 1.0,
                "{path}: {kind} {} {}",
                of(kind),
                in_table(kind)
            );
        }
        // with the rest they are the whole step
        let other = &phases["other"];
        let rest = other["busy_ns_a_step"].as_f64().unwrap() + other["idle_ns_a_step"].as_f64().unwrap();
        let whole = object["steps"]["mean_ns"].as_f64().unwrap();
        let sum = PARTS.iter().map(|k| of(k)).sum::<f64>() + rest;
        assert!((sum - whole).abs() < 1.0, "{path}: {sum} of {whole}");

        let screen = out(&place.run(&["analyze", &path]));
        let screen = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        let seen = looked_at(&place, &[&path]);
        let page = seen["seen"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect::<Vec<_>>();
        for part in parts {
            let (kind, share) = (part["phase"].as_str().unwrap(), part["share"].as_f64().unwrap() * 100.0);
            assert!(screen.contains(&format!("{kind} {share:.0}%")), "{path}: {kind} {share}\n{screen}");
            for text in [kind, part["by"].as_str().unwrap(), &format!("{share:.1}%")] {
                assert!(page.contains(&text) || share < 0.1, "{path}: {text} on the page");
            }
        }
    }
}

#[test]
fn phases_that_no_range_names_have_rows_that_say_how_they_are_known() {
    let place = Place::new("phases-rows");
    let rows = json(&place, &["stats", "-r", "phases", "-f", "json", &repository("traces/h200_gpt.json.gz")]);
    let rows = rows["phases"].as_array().unwrap().clone();
    let known = |name: &str| rows.iter().find(|r| r["phase"] == name).map(|r| r["known_by"].clone());
    assert_eq!(known("(backward)"), Some("autograd's thread".into()), "{rows:?}");
    assert_eq!(known("Optimizer.step#AdamW.step"), Some(Value::Null), "{rows:?}");
    assert!(known("(forward)").is_some() && known("(optimizer)").is_none(), "{rows:?}");
}

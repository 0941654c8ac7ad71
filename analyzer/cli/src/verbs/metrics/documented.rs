// SPDX-License-Identifier: Apache-2.0
//! Holds what is written about the metrics, and what goes by their names, against the table of
//! `model.rs`. GAPPROBE_BLESS=1 writes the table of docs/metrics.md anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::model::{Kind, FAMILIES};

const BEGIN: &str = "<!-- families: made from analyzer/cli/src/verbs/metrics/model.rs -->\n";
const END: &str = "<!-- /families -->";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn table() -> String {
    let mut table = String::from("| Prometheus | OpenTelemetry, unit | labels | |\n|---|---|---|---|\n");
    for f in FAMILIES {
        let labels: Vec<String> = f.labels().iter().map(|l| format!("`{l}`")).collect();
        let unit = if f.unit.is_empty() { String::new() } else { format!(", `{}`", f.unit) };
        let (name, labels) = (f.prometheus(), labels.join(" "));
        table += &format!("| `{name}` | `{}`{unit} | {labels} | {} |\n", f.name, f.help);
    }
    table
}

#[test]
fn the_page_has_all_metrics() {
    let path = docs().join("metrics.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (there, after) = rest.split_once(END).unwrap();
    if std::env::var_os("GAPPROBE_BLESS").is_some() {
        fs::write(&path, [before, BEGIN, &table(), END, after].concat()).unwrap();
    } else {
        assert_eq!(there, table(), "{} differs; GAPPROBE_BLESS=1 writes it anew", path.display());
    }
}

#[test]
fn the_page_the_dashboard_and_the_rules_name_metrics_that_there_are() {
    let names: BTreeSet<String> = FAMILIES
        .iter()
        .flat_map(|f| match f.kind {
            Kind::Histogram => ["", "_bucket", "_sum", "_count"].map(|end| f.prometheus() + end).to_vec(),
            _ => vec![f.prometheus()],
        })
        .collect();
    for (file, least) in [
        ("metrics.md", FAMILIES.len()),
        ("monitoring/dashboard.json", 12),
        ("monitoring/rules.yml", 5),
        ("monitoring/rules.test.yml", 5),
    ] {
        let text = fs::read_to_string(docs().join(file)).unwrap();
        let found: BTreeSet<&str> = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)))
            .filter(|word| word.starts_with("gapprobe_"))
            .collect();
        assert!(found.len() >= least, "{file}: {found:?}");
        let unknown: Vec<_> = found.iter().filter(|name| !names.contains(**name)).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}

/// What `promtool check metrics` and OpenTelemetry's rules for names ask for.
#[test]
fn names_are_lower_case_in_parts_and_have_no_unit_or_kind_in_them() {
    for f in FAMILIES {
        let parts: Vec<&str> = f.name.split(['.', '_']).collect();
        assert!(f.name.starts_with("gapprobe.") && f.name.is_ascii(), "{}", f.name);
        for word in ["total", "seconds", "bytes", "ratio", "count", "sum", "bucket", "gauge", "counter"] {
            assert!(!parts.contains(&word), "{}: {word}", f.name);
        }
        let is_namespace = |other: &str| other.starts_with(&format!("{}.", f.name));
        assert!(!FAMILIES.iter().any(|other| is_namespace(other.name)), "{} is a namespace, too", f.name);
        assert!(f.help.ends_with('.') && !f.help.contains('|'), "{}", f.help);
    }
    let once: BTreeSet<String> = FAMILIES.iter().map(|f| f.prometheus()).collect();
    assert_eq!(once.len(), FAMILIES.len());
}

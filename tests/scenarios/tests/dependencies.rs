// SPDX-License-Identifier: Apache-2.0
//! Purpose: which crate depends on which is as ARCHITECTURE.md draws it: one way, nothing else. And
//! the injected library links the verdict alone: no command line, no foreign formats inside the
//! training process. (Rooms inside the crates: `rooms.rs`.)

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use gapprobe_scenarios::built::root;
use serde_json::Value;

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_crates_depend_on_each_other_one_way() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut normal: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let own = normal.entry(package["name"].as_str().expect("a name")).or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let name = dependency["name"].as_str().unwrap_or("");
            if dependency["kind"].is_null() && names.contains(name) {
                own.insert(name);
            }
        }
    }
    let wanted: &[(&str, &[&str])] = &[
        ("gapprobe-trace", &[]),
        ("gapprobe-cupti-sys", &[]),
        ("gapprobe-spool", &["gapprobe-trace"]),
        ("gapprobe-verdict", &["gapprobe-spool", "gapprobe-trace"]),
        ("gapprobe-formats", &["gapprobe-trace", "gapprobe-verdict"]),
        ("gapprobe-cli", &["gapprobe-formats", "gapprobe-spool", "gapprobe-trace", "gapprobe-verdict"]),
        (
            "gapprobe-injector",
            &["gapprobe-cupti-sys", "gapprobe-spool", "gapprobe-trace", "gapprobe-verdict"],
        ),
    ];
    for (name, depends_on) in wanted {
        assert_eq!(normal[name], depends_on.iter().copied().collect(), "{name}");
    }
    // test crates may use anything; the simulated driver only the bindings
    assert!(normal["gapprobe-sim"].is_subset(&BTreeSet::from(["gapprobe-cupti-sys"])));
    let known: BTreeSet<&str> =
        wanted.iter().map(|(n, _)| *n).chain(["gapprobe-sim", "gapprobe-scenarios"]).collect();
    assert_eq!(names, known, "a new crate: say here whom it may depend on");
}

#[test]
fn trace_needs_nothing_and_cupti_sys_needs_only_libc() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().expect("packages") {
        let allowed: &[&str] = match package["name"].as_str() {
            Some("gapprobe-trace") => &[],
            Some("gapprobe-cupti-sys") => &["libc"],
            Some("gapprobe-injector") => &[
                "libc",
                "parking_lot",
                "once_cell",
                "ctor",
                "gimli",
                "gapprobe-trace",
                "gapprobe-cupti-sys",
                "gapprobe-spool",
                "gapprobe-verdict",
                "loom",
            ],
            _ => continue,
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let name = dependency["name"].as_str().unwrap_or("");
            assert!(!dependency["kind"].is_null() || allowed.contains(&name), "{}: {name}", package["name"]);
        }
    }
}

#[test]
fn the_injected_library_links_the_verdict_alone() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "-p", "gapprobe-injector", "-e", "normal", "--prefix", "none", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo tree");
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    assert!(tree.contains("gapprobe-verdict"), "{tree}");
    let foreign =
        ["gapprobe-formats", "gapprobe-cli", "clap", "rusqlite", "regex", "parquet", "unicode-width"];
    for foreign in foreign.into_iter().chain(["addr2line"]) {
        assert!(
            !tree.lines().any(|l| l.starts_with(foreign)),
            "{foreign} is linked into the training process:\n{tree}"
        );
    }
}

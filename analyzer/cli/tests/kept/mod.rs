// SPDX-License-Identifier: Apache-2.0
//! The recordings and traces that the repository keeps for its tests.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(unreachable_pub, missing_docs, reason = "a test module")]

use std::io::Read;
use std::path::{Path, PathBuf};

use verdict::{Analysis, Run};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A recording, by its path in the repository less `.gprec.gz`.
#[track_caller]
pub fn recording(path: &str) -> (Run, Analysis) {
    let file = repository().join(format!("{path}.gprec.gz"));
    let packed = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("gzip");
    let run = verdict::load(bytes.as_slice()).expect("a recording");
    assert_eq!(run.problems.damaged(), 0, "{path}");
    let a = verdict::analyze(&run);
    (run, a)
}

/// Small files of other makers, each for a kind that is judged wrongly or not read (`verdicts.rs`).
pub fn cases() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("analyzer/cli/tests/cases")).expect("the folder");
    let files = entries.map(|e| e.expect("an entry").path());
    let mut found: Vec<PathBuf> = files.filter(|p| p.extension().is_none_or(|e| e != "md")).collect();
    found.sort();
    found
}

/// Every recording and trace, of gapprobe and of other tools. Not those that are there to be broken
/// (`tests/fuzz`) or as [`cases`], and no other JSON.
pub fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join("analyzer/cli/tests"), repository().join("tests")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            match path.is_dir() {
                true if ["fuzz", "target", "cases"].contains(&name.as_str())
                    || path.ends_with("gpu/results") => {}
                true => folders.push(path),
                false if is_recorded(&path, &name) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn is_recorded(path: &Path, name: &str) -> bool {
    let ends = |ends: &[&str]| ends.iter().any(|e| name.ends_with(e));
    let is_trace = || std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"traceEvents\""));
    ends(&[".gprec", ".gprec.gz", ".json.gz", ".sqlite", ".nsys-rep"]) || (ends(&[".json"]) && is_trace())
}
